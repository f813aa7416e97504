"""Parses EPUB files: the spine gives the order, the table of contents the heading levels, the files are HTML pages."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree.ElementTree import Element  # only the type
from zipfile import ZipFile

from toolscript.adapters.files.archive import open_archive, parse_xml, read_member
from toolscript.adapters.files.dates import find_date
from toolscript.adapters.files.encoding import decode_text
from toolscript.adapters.files.markup.html import read_page
from toolscript.adapters.files.parts import Heading, ParsedBook, Part, clean_prose, normalize
from toolscript.domain.errors import Invalid

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_NUMBER = re.compile(r"\A(?:(?:chapter|appendix|part)\s+)?(?:\d+(?:\.\d+)*|[A-Z](?:\.\d+)*)\.?\s+", re.IGNORECASE)
_PAGE_TYPES = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml"})


class _ContentsEntry(NamedTuple):
    """An entry of the table of contents."""

    title: str
    depth: int


@dataclass(frozen=True, slots=True)
class _Package:
    """The package file of the EPUB."""

    folder: str
    root: Element
    items: Mapping[str, Element]

    def path(self, item: Element) -> str:
        return _join_path(self.folder, item.get("href", ""))


def read_epub(data: bytes) -> ParsedBook:
    """Parses an EPUB. Raises Invalid if the archive is not one."""
    archive = open_archive(data)
    package = _read_package(archive)
    listed = (package.items.get(each.get("idref", "")) for each in package.root.iter("itemref"))
    pages = [
        item for item in listed if item is not None and item.get("media-type") in _PAGE_TYPES and not _is_nav(item)
    ]
    page_paths = list(dict.fromkeys(map(package.path, pages)))
    if not _find_encrypted(archive).isdisjoint(page_paths):
        raise Invalid("The file is copy-protected: its pages are encrypted. Use a copy without protection.")
    contents = _read_contents(archive, package)
    parts: list[Part] = []
    shift: int | None = None
    for path in page_paths:
        page = read_page(decode_text(read_member(archive, path), markup=True))
        adjusted, shift = _adjust_levels(page.parts, contents.get(path, []), shift)
        parts.extend(adjusted)
    authors = tuple(dict.fromkeys(_read_metadata(package.root, "creator")))
    date = max(map(find_date, _read_metadata(package.root, "date")), default="")
    return ParsedBook(parts, _read_metadata(package.root, "title")[0], authors, date)


def _read_package(archive: ZipFile) -> _Package:
    container = parse_xml(read_member(archive, _CONTAINER), _CONTAINER)
    path = next((each.get("full-path", "") for each in container.iter("rootfile")), "")
    if not path:
        raise Invalid("The file is not an EPUB: its container names no package.")
    root = parse_xml(read_member(archive, path), path)
    return _Package(posixpath.dirname(path), root, {each.get("id", ""): each for each in root.iter("item")})


def _find_encrypted(archive: ZipFile) -> set[str]:
    """Returns the encrypted files. Encrypted fonts are frequent and do no harm."""
    if _ENCRYPTION not in archive.namelist():
        return set()
    listed = parse_xml(read_member(archive, _ENCRYPTION), _ENCRYPTION)
    return {_join_path("", each.get("URI", "").lstrip("/")) for each in listed.iter("CipherReference")}


def _is_nav(item: Element) -> bool:
    return "nav" in item.get("properties", "").split()


def _read_metadata(root: Element, name: str) -> list[str]:
    """Returns the values of a metadata element; for a missing title, one empty string."""
    metadata = next(root.iter("metadata"), root)
    found = [clean_prose("".join(each.itertext())) for each in metadata.iter(name)]
    return [each for each in found if each] or ([""] if name == "title" else [])


def _read_contents(archive: ZipFile, package: _Package) -> dict[str, list[_ContentsEntry]]:
    """Reads the table of contents: the navigation page, or the older NCX file."""
    for item in sorted(package.items.values(), key=_is_nav, reverse=True):
        path = package.path(item)
        if _is_nav(item):
            return _collect_entries(parse_xml(read_member(archive, path), path), "li", "a", "href", path)
        if item.get("media-type") == "application/x-dtbncx+xml":
            return _collect_entries(parse_xml(read_member(archive, path), path), "navPoint", "content", "src", path)
    return {}


def _collect_entries(root: Element, item: str, link: str, target: str, path: str) -> dict[str, list[_ContentsEntry]]:
    """Returns entries by file with their depths, not counting a root entry for the book itself. Uses a stack instead of
    recursion, since nesting is unbounded."""
    entries: dict[str, list[_ContentsEntry]] = defaultdict(list)
    start = next((each for each in root.iter("nav") if "toc" in each.get("type", "")), root)
    stack: list[tuple[Element, int, str]] = [(start, -1, "")]
    while stack:
        element, depth, title = stack.pop()
        depth += element.tag == item
        if element.tag == item:
            title = clean_prose(
                "".join(next((each for each in element if each.tag == "navLabel"), Element("")).itertext())
            )
        if element.tag == link and (file := element.get(target, "").partition("#")[0]):
            label = title or clean_prose("".join(element.itertext()))
            entries[_join_path(posixpath.dirname(path), file)].append(_ContentsEntry(label, max(depth, 0)))
        stack.extend((child, depth, title) for child in reversed(element))
    depths = [entry.depth for listed in entries.values() for entry in listed]
    above = int(len(depths) > 1 and min(depths[1:]) > depths[0])
    return {
        file: [entry._replace(depth=max(entry.depth - above, 0)) for entry in listed]
        for file, listed in entries.items()
    }


def _adjust_levels(
    parts: Sequence[Part], entries: Sequence[_ContentsEntry], shift: int | None
) -> tuple[list[Part], int | None]:
    """Sets the levels of headings to their depth in the table of contents. A file without a heading gets its entry's
    title; a file without an entry continues with the last shift."""
    depths = {_remove_number(entry.title): entry.depth for entry in reversed(entries)}
    if entries and not any(isinstance(part, Heading) for part in parts):
        return [Heading(entries[0].title, entries[0].depth), *parts], shift
    adjusted: list[Part] = []
    first = True
    for part in parts:
        if not isinstance(part, Heading):
            adjusted.append(part)
            continue
        depth = entries[0].depth if entries and first else depths.get(_remove_number(part.text))
        if depth is not None or shift is None:
            shift = (depth or 0) - part.level
        adjusted.append(replace(part, level=part.level + shift))
        first = False
    return adjusted, shift


def _remove_number(title: str) -> str:
    return normalize(_NUMBER.sub("", title))


def _join_path(folder: str, href: str) -> str:
    return posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))
