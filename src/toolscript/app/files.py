"""Readers of files, for commands that read files without opening the data folder."""

from __future__ import annotations

from toolscript.adapters.files.reader import FileBooks, describe_readers
from toolscript.ports.files import BookReader

__all__ = ["describe_readers", "open_document_reader"]

# The slowest texts known (brackets that close nothing) take about a second at this size; see `is_quick` in
# adapters/files/worker.py.
MAX_IN_PROCESS_BYTES = 32_000


def open_document_reader() -> BookReader:
    """Reads files for `toolscript ingest`. Small text files are read in this process: a folder of notes has thousands,
    and a worker process for each takes 0.2 s."""
    return FileBooks(max_in_process_bytes=MAX_IN_PROCESS_BYTES)
