"""Parses OpenDocument: texts (ODT), spreadsheets (ODS) and presentations (ODP)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from xml.etree.ElementTree import Element  # only the type

from toolscript.adapters.files.archive import open_archive, parse_xml, read_member
from toolscript.adapters.files.office.package import read_properties
from toolscript.adapters.files.office.spreadsheet import Row, build_sheet
from toolscript.adapters.files.parts import (
    Heading,
    ParsedBook,
    Part,
    TextBlock,
    clean_prose,
    extract_title,
    make_block,
    make_table,
)
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BlockKind

_CONTENT, _META, _MANIFEST = "content.xml", "meta.xml", "META-INF/manifest.xml"
_PROTECTED = "The file is protected by a password: save a copy without one."
_SKIPPED = frozenset("tracked-changes annotation note forms sequence-decls table-of-content alphabetical-index".split())
_CODE_STYLE = re.compile(r"preformatted|source|code|listing", re.IGNORECASE)
# Empty cells and rows repeat up to the edge of a sheet; of those with text, a few repetitions are enough.
_MAX_REPEATED = 50
_MAX_DEPTH = 100


def read_opendocument(data: bytes) -> ParsedBook:
    """Parses a file with the title, author and date of its properties. Raises Invalid if it is damaged or encrypted."""
    archive = open_archive(data)
    members = set(archive.namelist())
    if _MANIFEST in members:
        manifest = parse_xml(read_member(archive, _MANIFEST), _MANIFEST)
        if next(manifest.iter("encryption-data"), None) is not None:
            raise Invalid(_PROTECTED)
    about = read_properties(archive, _META)
    root = parse_xml(read_member(archive, _CONTENT), _CONTENT)
    body = next(root.iter("body"), None)
    content = next(iter(body), None) if body is not None else None
    if content is None:
        raise Invalid("The file is damaged: it has no content.")
    if content.tag == "spreadsheet":
        parts = [part for sheet in content.iter("table") for part in _read_sheet(sheet)]
        return ParsedBook(parts, about.title, about.authors, about.date)
    walker = _OdfWalker({each.get("name", ""): each.get("parent-style-name", "") for each in root.iter("style")})
    if content.tag == "presentation":
        slides = [each for each in content if each.tag == "page"]
        parts = [part for number, slide in enumerate(slides, 1) for part in walker.read_slide(slide, number)]
        return ParsedBook(parts, about.title, about.authors, about.date)
    parts = list(_join_code_lines(walker.parts(content, 0)))
    titles = [part.text for part in parts if isinstance(part, Heading) and part.level == 0]
    if titles:
        kept = [part for part in parts if not (isinstance(part, Heading) and part.level == 0)]
        return ParsedBook(kept, titles[0], about.authors, about.date)
    return extract_title(ParsedBook(parts, about.title, about.authors, about.date))


class _OdfWalker:
    """Walks through paragraphs, lists and tables."""

    def __init__(self, styles: Mapping[str, str]) -> None:
        self._styles = styles

    def parts(self, element: Element, depth: int, lead: str = "") -> Iterator[Part]:
        if depth > _MAX_DEPTH:
            return
        for child in element:
            if child.tag == "h":
                level = child.get("outline-level", "1")
                yield Heading(clean_prose(_join_text(child)), int(level) if level.isdecimal() else 1)
            elif child.tag == "p":
                yield from self._read_paragraph(child, lead)
                lead = ""
            elif child.tag == "table":
                yield from make_table(_read_text_rows(child))
            elif child.tag == "list":
                for item in child:
                    yield from self.parts(item, depth + 1, "- ")
            elif child.tag not in _SKIPPED:
                yield from self.parts(child, depth + 1, lead)

    def read_slide(self, slide: Element, number: int) -> Iterator[Part]:
        frames = [each for each in slide if each.tag != "notes"]
        titles = [clean_prose(_join_text(each)) for each in frames if each.get("class") == "title"]
        yield Heading(next(filter(None, titles), f"Slide {number}"), 0, number)
        for frame in frames:
            if frame.get("class") != "title":
                for part in self.parts(frame, 0):
                    yield TextBlock(part.text, BlockKind.PROSE if isinstance(part, Heading) else part.kind, number)
        for notes in slide.iter("notes"):
            for block in make_block(_join_text(notes), page=number):
                yield TextBlock(f"Notes: {block.text}", page=number)

    def _read_paragraph(self, paragraph: Element, lead: str) -> list[Part]:
        name = paragraph.get("style-name", "")
        style = self._styles.get(name) or name
        text = _join_text(paragraph)
        if style == "Title":
            return [Heading(clean_prose(text), 0)] if text.strip() else []
        if _CODE_STYLE.search(style):
            return [TextBlock(text.rstrip(), BlockKind.CODE)]
        return list(make_block(lead + text)) if text.strip() else []


def _join_code_lines(parts: Iterator[Part]) -> Iterator[Part]:
    for is_code, group in groupby(parts, key=lambda part: isinstance(part, TextBlock) and part.kind is BlockKind.CODE):
        if is_code:
            yield from make_block("\n".join(line.text for line in group), BlockKind.CODE)
        else:
            yield from group


def _join_text(element: Element) -> str:
    """Returns the text of a paragraph, without the notes and comments in it. Uses a stack, since nesting is
    unbounded."""
    texts: list[str] = []
    stack: list[Element | str] = [element]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            texts.append(part)
            continue
        texts.append(_read_space(part) + (part.text or ""))
        for child in reversed(part):
            stack.append(child.tail or "")
            if child.tag not in _SKIPPED:
                stack.append(child)
    return "".join(texts).lstrip("\n")


def _read_space(element: Element) -> str:
    if element.tag == "s":
        count = element.get("c", "1")
        return " " * min(int(count) if count.isdecimal() else 1, _MAX_REPEATED)
    return {"tab": "\t", "line-break": "\n", "p": "\n"}.get(element.tag, "")


def _read_text_rows(table: Element) -> Iterator[list[str]]:
    for row in table.iter("table-row"):
        yield [_join_text(cell) for cell in row if cell.tag == "table-cell"]


def _read_sheet(sheet: Element) -> Iterator[Part]:
    return build_sheet(sheet.get("name", ""), _read_rows(sheet))


def _read_rows(sheet: Element) -> Iterator[Row]:
    number = 1
    for row in sheet.iter("table-row"):
        cells: dict[int, str] = {}
        column = 0
        for cell in row:
            repeated = _read_count(cell, "number-columns-repeated")
            if text := clean_prose(_join_text(cell)):
                cells |= dict.fromkeys(range(column, column + min(repeated, _MAX_REPEATED)), text)
            column += repeated
        repeated = _read_count(row, "number-rows-repeated")
        if cells:
            yield from ((number + each, cells) for each in range(min(repeated, _MAX_REPEATED)))
        number += repeated


def _read_count(element: Element, name: str) -> int:
    count = element.get(name, "1")
    return int(count) if count.isdecimal() and len(count) < 8 else 1  # noqa: PLR2004
