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
    CODE = "source code"
    PDF = "PDF"
    DOCX = "DOCX"
    EPUB = "EPUB"
    PPTX = "PPTX"
    XLSX = "XLSX"
    OPENDOCUMENT = "OpenDocument"
    RTF = "RTF"
    MAIL = "e-mail"
    MAILBOX = "mailbox"


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
    FileKind.CODE: (
        ".py .pyi .pyw .js .mjs .cjs .jsx .ts .mts .cts .tsx .go .rs .java .c .h .cc .cpp .cxx .hh .hpp .hxx .sh .bash "
        ".sql .zsh .fish .ps1 .bat .rb .php .cs .fs .vb .kt .kts .scala .groovy .gradle .swift .m .mm .dart .lua .pl "
        ".pm .r .jl .hs .ml .mli .ex .exs .erl .clj .lisp .el .scm .zig .nim .d .f90 .f95 .pas .adb .ads .asm .s "
        ".proto .graphql .tf .cmake .mk .dockerfile .css .scss .less .vue .svelte .xml .xsd .xsl .yaml .yml .toml "
        ".ini .cfg .conf .properties"
    ),
    FileKind.PDF: ".pdf",
    FileKind.DOCX: ".docx",
    FileKind.EPUB: ".epub",
    FileKind.PPTX: ".pptx .pptm .ppsx",
    FileKind.XLSX: ".xlsx .xlsm",
    FileKind.OPENDOCUMENT: ".odt .ods .odp",
    FileKind.RTF: ".rtf",
    FileKind.MAIL: ".eml",
    FileKind.MAILBOX: ".mbox .mbx",
}
KINDS_BY_ENDING: Mapping[str, FileKind] = {
    ending: kind for kind, endings in _ENDINGS.items() for ending in endings.split()
}
# File name suffixes of everything that can be read.
FILE_ENDINGS = tuple(KINDS_BY_ENDING)


# Files that are known by their whole name, and the ending that they would have.
_NAMES = {
    **dict.fromkeys("readme license licence copying copyright changelog changes news authors install".split(), ".txt"),
    "dockerfile": ".dockerfile",
    "makefile": ".mk",
}


def find_ending(path: PurePath) -> str | None:
    """Returns the ending that decides how a file is read, one of FILE_ENDINGS: its own, or the ending for a known name
    without an ending (README, Makefile). None for a name that says nothing of a kind that can be read."""
    ending = path.suffix.lower() or _NAMES.get(path.name.lower(), "")
    return ending if ending in KINDS_BY_ENDING else None


def find_kind(path: PurePath) -> FileKind | None:
    """Returns the kind of a file by its name; None if `find_ending` does."""
    ending = find_ending(path)
    return KINDS_BY_ENDING[ending] if ending else None
