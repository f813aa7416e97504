"""The kinds of files that can be read, and how they are recognised by name. What a file contains may differ: the reader
looks at that too."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePath


class FileKind(StrEnum):
    """What a file is read as."""

    MARKDOWN = "Markdown"
    HTML = "HTML"
    TEXT = "plain text"
    RESTRUCTURED = "reStructuredText"
    ASCIIDOC = "AsciiDoc"
    NOTEBOOK = "Jupyter notebook"
    TABLE = "table"
    RECORDS = "JSON"
    LOG = "log"
    PDF = "PDF"
    DOCX = "DOCX"
    EPUB = "EPUB"


_ENDINGS: Mapping[FileKind, str] = {
    FileKind.MARKDOWN: ".md .markdown",
    FileKind.HTML: ".html .htm .xhtml",
    FileKind.TEXT: ".txt .text",
    FileKind.RESTRUCTURED: ".rst",
    FileKind.ASCIIDOC: ".adoc .asciidoc",
    FileKind.NOTEBOOK: ".ipynb",
    FileKind.TABLE: ".csv .tsv",
    FileKind.RECORDS: ".jsonl .ndjson .json",
    FileKind.LOG: ".log",
    FileKind.PDF: ".pdf",
    FileKind.DOCX: ".docx",
    FileKind.EPUB: ".epub",
}
KINDS_BY_ENDING: Mapping[str, FileKind] = {
    ending: kind for kind, endings in _ENDINGS.items() for ending in endings.split()
}
# File name suffixes of everything that can be read.
FILE_ENDINGS = tuple(KINDS_BY_ENDING)


def find_kind(path: PurePath) -> FileKind | None:
    """Returns the kind of a file by its name; None for a name that says nothing of a kind that can be read."""
    return KINDS_BY_ENDING.get(path.suffix.lower())
