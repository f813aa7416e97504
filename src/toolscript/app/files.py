"""Readers of files, for commands that read files without opening the data folder."""

from __future__ import annotations

from toolscript.adapters.books.reader import FileBooks
from toolscript.ports.files import BookReader

# The slowest Markdown known (brackets that close nothing) takes 10 s at this size, and time grows with its square.
MAX_IN_PROCESS_BYTES = 100_000


def open_document_reader() -> BookReader:
    """Reads files for `toolscript ingest`. Small text files are read in this process: a folder of notes has thousands,
    and a process for each takes 0.2 s."""
    return FileBooks(max_in_process_bytes=MAX_IN_PROCESS_BYTES)
