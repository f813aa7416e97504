"""The table of readers: which module reads which kind. Readers are imported when they are needed, since a worker reads
one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from toolscript.adapters.files.encoding import decode_text
from toolscript.adapters.files.parts import ParsedBook
from toolscript.domain.file_kinds import FileKind

# Readers that take bytes.
_BINARY_READERS: Mapping[FileKind, str] = {
    FileKind.PDF: "pdf.pages:read_pdf",
    FileKind.DOCX: "office.docx:read_docx",
    FileKind.EPUB: "markup.epub:read_epub",
    FileKind.HTML: "markup.html:read_html",
}
# Readers that take text.
_TEXT_READERS: Mapping[FileKind, str] = {
    FileKind.MARKDOWN: "markup.markdown:read_markdown",
    FileKind.TEXT: "markup.text:read_text",
    FileKind.RESTRUCTURED: "markup.restructured:read_restructured",
    FileKind.ASCIIDOC: "markup.asciidoc:read_asciidoc",
    FileKind.NOTEBOOK: "markup.notebook:read_notebook",
    FileKind.TABLE: "records.table:read_table",
    FileKind.RECORDS: "records.json:read_records",
    FileKind.LOG: "records.log:read_log",
}
# Kinds whose readers take about a second for the slowest small file.
QUICK_KINDS = frozenset({*_TEXT_READERS, FileKind.HTML})


def read_kind(kind: FileKind, data: bytes) -> ParsedBook:
    """Parses a file as that kind. Raises Invalid for one that cannot be read."""
    if kind in _BINARY_READERS:
        return _load_reader(_BINARY_READERS[kind])(data)
    return _load_reader(_TEXT_READERS[kind])(decode_text(data, markup=False))


def _load_reader(place: str) -> Callable[[bytes | str], ParsedBook]:
    module, _, function = place.partition(":")
    imported = import_module(f"toolscript.adapters.files.{module}")
    reader: Callable[[bytes | str], ParsedBook] = getattr(imported, function)
    return reader
