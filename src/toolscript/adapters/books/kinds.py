"""Chooses the parser of a file: by its first bytes, then by its ending."""

from __future__ import annotations

from toolscript.adapters.books.archive import open_archive
from toolscript.adapters.books.parts import NO_TEXT, ParsedBook
from toolscript.domain.errors import Invalid

HTML = frozenset({".html", ".htm", ".xhtml"})
MARKDOWN = frozenset({".md", ".markdown"})
_SNIFFED_BYTES = 1024
_OLE_SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# A file with a larger share of control bytes is binary.
_MAX_CONTROL_SHARE = 0.02
_CONTROLS = bytes(each for each in range(32) if each not in b"\t\n\v\f\r\b\x1b")


def is_binary(data: bytes) -> bool:
    """Whether a file begins like a PDF, an archive or an old Office file."""
    return b"%PDF-" in data[:_SNIFFED_BYTES] or data.startswith((b"PK\x03\x04", b"PK\x05\x06", _OLE_SIGNATURE))


def parse_file(data: bytes, ending: str) -> ParsedBook:
    """Parses a file. Raises Invalid for one that cannot be read."""
    if not data.strip(b"\0 \t\r\n\f\v"):
        raise Invalid("The file is empty." if not data else NO_TEXT)
    if b"%PDF-" in data[:_SNIFFED_BYTES]:
        from toolscript.adapters.books.pdf import read_pdf

        return read_pdf(data)
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _read_archive(data)
    if data.startswith(_OLE_SIGNATURE):
        raise Invalid("The file is password-protected or an old Office format: save it as DOCX without a password.")
    if ending in {".pdf", ".docx", ".epub"}:
        raise Invalid(f"The file is not a valid {ending[1:].upper()} file.")
    return _read_text(data, ending)


def _read_archive(data: bytes) -> ParsedBook:
    members = set(open_archive(data).namelist())
    if "META-INF/container.xml" in members:
        from toolscript.adapters.books.epub import read_epub

        return read_epub(data)
    if "word/document.xml" in members:
        from toolscript.adapters.books.docx import read_docx

        return read_docx(data)
    raise Invalid("The file is an archive, but neither an EPUB nor a DOCX: unpack it first.")


def _read_text(data: bytes, ending: str) -> ParsedBook:
    from toolscript.adapters.books.encoding import decode_text
    from toolscript.adapters.books.html import read_html
    from toolscript.adapters.books.markdown import read_markdown
    from toolscript.adapters.books.text import read_text

    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not wide and len(data.translate(None, _CONTROLS)) < len(data) * (1 - _MAX_CONTROL_SHARE):
        raise Invalid("The file is binary, not text.")
    if ending in HTML or data[:_SNIFFED_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(
        (b"<!doctype html", b"<html")
    ):
        return read_html(data)
    text = decode_text(data, markup=False)
    return read_markdown(text) if ending in MARKDOWN else read_text(text, restructured=ending == ".rst")
