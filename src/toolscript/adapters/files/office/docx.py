"""Parses Word files: headings by style, tables in place, code by the name of its style or its typeface."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from zipfile import ZipFile

from toolscript.adapters.files.archive import open_archive, refuse_entities
from toolscript.adapters.files.office.package import read_properties
from toolscript.adapters.files.parts import (
    Heading,
    ParsedBook,
    Part,
    TextBlock,
    clean_prose,
    extract_title,
    make_block,
    make_table,
    split_authors,
)
from toolscript.adapters.files.titles import clean_authors, clean_title
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BlockKind

try:
    from docx import Document
    from docx.document import Document as WordDocument
    from docx.opc.exceptions import PackageNotFoundError
    from docx.table import Table
    from docx.text.paragraph import Paragraph
except ImportError as missing:
    raise Invalid("Reading DOCX needs an extra: pip install 'toolscript[books]'.") from missing

_HEADING_STYLE = re.compile(r"heading (\d)", re.IGNORECASE)
_CODE_STYLE = re.compile(r"code|source|preformatted|verbatim|macro text|listing", re.IGNORECASE)
_MONOSPACE = re.compile(r"mono|courier|consolas|menlo|fixed|typewriter", re.IGNORECASE)
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def read_docx(data: bytes) -> ParsedBook:
    """Parses a document, with the title and author of its properties. Raises Invalid if it is not a Word file."""
    archive = open_archive(data)
    if "word/document.xml" not in archive.namelist():
        raise Invalid("The file is not a Word document: word/document.xml is missing.")
    refuse_entities(archive)
    try:
        document = Document(io.BytesIO(data))
        title, author = _read_properties(document, archive)
        parts = list(_join_code_lines(_DocxWalker().parts(document.iter_inner_content())))
    except (PackageNotFoundError, KeyError, ValueError, SyntaxError, AttributeError) as error:
        raise Invalid("The file is damaged: it cannot be read as a Word document.") from error
    styled_title = next((part.text for part in parts if _is_title(part)), "")
    authors = clean_authors(split_authors(author))
    date = read_properties(archive).date
    if styled_title:
        return ParsedBook([part for part in parts if not _is_title(part)], styled_title, authors, date)
    return extract_title(ParsedBook(parts, clean_title(title), authors, date))


def _read_properties(document: WordDocument, archive: ZipFile) -> tuple[str, str]:
    """Returns title and author. Checked in the archive first: the library invents properties that are missing."""
    if "docProps/core.xml" not in archive.namelist():
        return "", ""
    properties = document.core_properties
    return properties.title or "", properties.author or ""


def _is_title(part: Part) -> bool:
    return isinstance(part, Heading) and part.level == 0


class _DocxWalker:
    """Walks through a document and counts the page breaks that Word recorded."""

    def __init__(self) -> None:
        self._page = 1
        self._styles: dict[str | None, str] = {}

    def parts(self, content: Iterator[Paragraph | Table]) -> Iterator[Part]:
        parts = [part for each in content for part in self._part(each)]
        has_pages = self._page > 1
        return iter(parts) if has_pages else (replace(part, page=None) for part in parts)

    def _part(self, content: Paragraph | Table) -> list[Part]:
        if isinstance(content, Table):
            rows = [[cell.text for cell in row.cells] for row in content.rows]
            page, self._page = self._page, self._page + _count_page_breaks(content)
            return list[Part](make_table(rows, page))
        mark = content._p.find(f"{_W}pPr/{_W}pStyle")
        key = mark.get(f"{_W}val") if mark is not None else None
        if key not in self._styles:
            self._styles[key] = (content.style.name if content.style else "") or ""
        style = self._styles[key]
        breaks = _count_page_breaks(content)
        first = breaks and not _has_text_before_break(content)
        page = self._page + (1 if first else 0)
        self._page += breaks
        text = content.text
        if not text.strip():
            return [TextBlock("", BlockKind.CODE, page)] if _CODE_STYLE.search(style) else []
        level = _HEADING_STYLE.match(style)
        if level or style == "Title":
            return [Heading(clean_prose(text), int(level[1]) if level else 0, page)]
        if _CODE_STYLE.search(style) or _is_monospace(content):
            return [TextBlock(text.rstrip(), BlockKind.CODE, page)]
        numbered = style.startswith("List") or content._p.find(f"{_W}pPr/{_W}numPr") is not None
        return list[Part](make_block(("- " if numbered else "") + text, page=page))


def _join_code_lines(parts: Iterator[Part]) -> Iterator[Part]:
    """Joins adjacent lines of code into one block."""
    for is_code, group in groupby(parts, key=lambda part: isinstance(part, TextBlock) and part.kind is BlockKind.CODE):
        if is_code:
            lines = list(group)
            yield from make_block("\n".join(line.text for line in lines), BlockKind.CODE, lines[0].page)
        else:
            yield from group


def _count_page_breaks(content: Paragraph | Table) -> int:
    return len(content._element.findall(f".//{_W}lastRenderedPageBreak"))


def _has_text_before_break(paragraph: Paragraph) -> bool:
    for element in paragraph._p.iter(f"{_W}t", f"{_W}lastRenderedPageBreak"):
        if element.tag == f"{_W}lastRenderedPageBreak":
            return False
        if (element.text or "").strip():
            return True
    return False


def _is_monospace(paragraph: Paragraph) -> bool:
    runs = [run for run in paragraph.runs if run.text.strip()]
    return bool(runs) and all(_MONOSPACE.search(run.font.name or "") for run in runs)
