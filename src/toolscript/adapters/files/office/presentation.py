"""Parses presentations (PPTX): a slide is a chapter and a page, with its tables and the speaker's notes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element  # only the type
from zipfile import ZipFile

from toolscript.adapters.files.archive import open_archive, parse_xml, read_member
from toolscript.adapters.files.office.package import read_properties, read_relations
from toolscript.adapters.files.parts import Heading, ParsedBook, Part, TextBlock, clean_prose, make_block, make_table
from toolscript.adapters.files.titles import clean_title

_PRESENTATION = "ppt/presentation.xml"
_TITLES = frozenset({"title", "ctrTitle"})
# Placeholders that repeat on every slide.
_FURNITURE = frozenset({"dt", "ftr", "hdr", "sldNum", "sldImg"})
_NUMBER = re.compile(r"\d+")


def read_presentation(data: bytes) -> ParsedBook:
    """Parses a presentation with the title and author of its properties. Raises Invalid if it is damaged."""
    archive = open_archive(data)
    about = read_properties(archive)
    parts: list[Part] = []
    for number, path in enumerate(_list_slides(archive), 1):
        parts += _read_slide(archive, path, number)
    first = next((part.text for part in parts if isinstance(part, Heading)), "")
    return ParsedBook(parts, about.title or clean_title(first), about.authors, about.date)


def _list_slides(archive: ZipFile) -> list[str]:
    """Returns the paths of the slides in order."""
    relations = read_relations(archive, _PRESENTATION)
    root = parse_xml(read_member(archive, _PRESENTATION), _PRESENTATION)
    listed = [relations[key].path for each in root.iter("sldId") if (key := each.get("id", "")) in relations]
    others = [each.path for each in relations.values() if each.kind == "slide"]
    return listed if len(listed) == len(others) else sorted(others, key=_find_number)


def _find_number(path: str) -> int:
    found = _NUMBER.search(path.rpartition("/")[2])
    return int(found[0]) if found else 0


def _read_slide(archive: ZipFile, path: str, number: int) -> Iterator[Part]:
    shapes = list(_read_shapes(parse_xml(read_member(archive, path), path), number))
    title = next((text for kind, blocks in shapes if kind in _TITLES for text in [_join(blocks)] if text), "")
    yield Heading(title or f"Slide {number}", 0, number)
    for kind, blocks in shapes:
        if kind not in _TITLES and kind not in _FURNITURE:
            yield from blocks
    for relation in read_relations(archive, path).values():
        if relation.kind == "notesSlide":
            notes = _read_shapes(parse_xml(read_member(archive, relation.path), relation.path), number)
            text = " ".join(_join(blocks) for kind, blocks in notes if kind == "body")
            if text:
                yield TextBlock(f"Notes: {text}", page=number)


def _read_shapes(root: Element, page: int) -> Iterator[tuple[str, list[TextBlock]]]:
    """Returns the shapes of a slide: the kind of placeholder that each is, and its text or table."""
    for shape in root.iter():
        if shape.tag == "sp":
            mark = next(shape.iter("ph"), None)
            kind = mark.get("type", "obj") if mark is not None else ""
            yield kind, [block for text in shape.iter("txBody") for block in _read_paragraphs(text, page)]
        elif shape.tag == "tbl":
            rows = ([_join_runs(cell) for cell in row.iter("tc")] for row in shape.iter("tr"))
            yield "", make_table(rows, page)


def _read_paragraphs(body: Element, page: int) -> Iterator[TextBlock]:
    for paragraph in body.iter("p"):
        yield from make_block(_join_runs(paragraph), page=page)


def _join_runs(element: Element) -> str:
    texts: list[str] = []
    for each in element.iter():
        if each.tag == "t":
            texts.append(each.text or "")
        elif each.tag in {"br", "tab", "p"}:
            texts.append(" ")
    return "".join(texts)


def _join(blocks: list[TextBlock]) -> str:
    return clean_prose(" ".join(block.text for block in blocks))
