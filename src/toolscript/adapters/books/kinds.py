"""Which reader a file gets: by what it begins with, because names lie, and by its ending, where that says nothing."""

from __future__ import annotations

from toolscript.adapters.books.archive import open_archive
from toolscript.adapters.books.parts import NO_TEXT, Draft
from toolscript.domain.errors import Invalid

HTML = frozenset({".html", ".htm", ".xhtml"})
MARKDOWN = frozenset({".md", ".markdown"})
_HEAD = 1024
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# More of them than that in a text, and it is not text.
_MOST_CONTROLS = 0.02
_CONTROLS = bytes(each for each in range(32) if each not in b"\t\n\v\f\r\b\x1b")


def read_draft(data: bytes, ending: str) -> Draft:
    """What a file holds. Raises Invalid for one that is not what can be read."""
    if not data.strip(b"\0 \t\r\n\f\v"):
        raise Invalid("The file is empty." if not data else NO_TEXT)
    if b"%PDF-" in data[:_HEAD]:
        from toolscript.adapters.books.pdf import read_pdf

        return read_pdf(data)
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _read_archive(data)
    if data.startswith(_OLD_OFFICE):
        raise Invalid("The file is a protected or an old Office file: save it as DOCX without a password.")
    if ending in {".pdf", ".docx", ".epub"}:
        raise Invalid(f"The file is not what its name says: it does not begin as {ending[1:].upper()} does.")
    return _read_text(data, ending)


def _read_archive(data: bytes) -> Draft:
    members = set(open_archive(data).namelist())
    if "META-INF/container.xml" in members:
        from toolscript.adapters.books.epub import read_epub

        return read_epub(data)
    if "word/document.xml" in members:
        from toolscript.adapters.books.docx import read_docx

        return read_docx(data)
    raise Invalid("The file is an archive, and neither an EPUB nor a DOCX: unpack it and read the files in it.")


def _read_text(data: bytes, ending: str) -> Draft:
    from toolscript.adapters.books.encoding import decoded
    from toolscript.adapters.books.html import read_html
    from toolscript.adapters.books.markdown import read_markdown
    from toolscript.adapters.books.text import read_text

    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not wide and len(data.translate(None, _CONTROLS)) < len(data) * (1 - _MOST_CONTROLS):
        raise Invalid("The file is not text, whatever its name says: it is full of bytes that no text has.")
    if ending in HTML or data[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith((b"<!doctype html", b"<html")):
        return read_html(data)
    text = decoded(data, markup=False)
    return read_markdown(text) if ending in MARKDOWN else read_text(text, restructured=ending == ".rst")
