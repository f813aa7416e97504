"""The table of readers: the module for each kind of file. Readers are imported when they are needed, since a worker
reads one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from toolscript.adapters.files.encoding import decode_text
from toolscript.adapters.files.parts import ParsedBook
from toolscript.domain.files.kinds import FileKind

# Readers that take bytes.
_BINARY_READERS: Mapping[FileKind, str] = {
    FileKind.DOCX: "office.docx:read_docx",
    FileKind.EPUB: "markup.epub:read_epub",
    FileKind.HTML: "markup.html:read_html",
    FileKind.PPTX: "office.presentation:read_presentation",
    FileKind.XLSX: "office.spreadsheet:read_spreadsheet",
    FileKind.OPENDOCUMENT: "office.opendocument:read_opendocument",
    FileKind.RTF: "office.rtf:read_rtf",
    FileKind.MAIL: "mail.messages:read_mail",
    FileKind.MAILBOX: "mail.messages:read_mailbox",
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
_PDF_READER = "pdf.pages:read_pdf"
_CODE_READER = "code.source:read_code"
# Kinds whose readers take about a second for the slowest small file.
QUICK_KINDS = frozenset({*_TEXT_READERS, FileKind.HTML})


def read_kind(kind: FileKind, data: bytes, ending: str, tesseract: str = "") -> ParsedBook:
    """Parses a file as that kind; `tesseract` is the command that reads scanned pages. Raises Invalid for one that
    cannot be read."""
    if kind is FileKind.PDF:
        return _load_reader(_PDF_READER)(data, tesseract)
    if kind in _BINARY_READERS:
        return _load_reader(_BINARY_READERS[kind])(data)
    text = decode_text(data, markup=False)
    if kind is FileKind.CODE:
        return _load_reader(_CODE_READER)(text, ending)
    return _load_reader(_TEXT_READERS[kind])(text)


def _load_reader(place: str) -> Callable[..., ParsedBook]:
    module, _, function = place.partition(":")
    imported = import_module(f"toolscript.adapters.files.{module}")
    reader: Callable[..., ParsedBook] = getattr(imported, function)
    return reader
