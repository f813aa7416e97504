"""EPUB: the spine says the order, the table of contents how deep each file stands, the files are pages of HTML."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote
from xml.etree.ElementTree import Element  # only the type
from zipfile import ZipFile

from toolscript.adapters.books.archive import open_archive, read_member, xml_tree
from toolscript.adapters.books.encoding import decoded
from toolscript.adapters.books.html import read_page
from toolscript.adapters.books.parts import Draft, Heading, Part, bare, prose
from toolscript.domain.errors import Invalid

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_NUMBER = re.compile(r"\A(?:(?:chapter|appendix|part)\s+)?(?:\d+(?:\.\d+)*|[A-Z](?:\.\d+)*)\.?\s+", re.IGNORECASE)
_PAGES = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml"})


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where a file stands in the table of contents."""

    title: str
    depth: int


@dataclass(frozen=True, slots=True)
class _Package:
    """What the package file lists."""

    folder: str
    root: Element
    items: Mapping[str, Element]

    def path(self, item: Element) -> str:
        return _joined(self.folder, item.get("href", ""))


def read_epub(data: bytes) -> Draft:
    """The book. Raises Invalid for an archive that is none."""
    archive = open_archive(data)
    package = _package(archive)
    spine = _spine(package)
    if not _encrypted(archive).isdisjoint(spine):
        raise Invalid("The file is protected against copying: its pages are encrypted. Take a copy without protection.")
    contents = _contents(archive, package)
    parts: list[Part] = []
    shift: int | None = None
    for path in spine:
        draft = read_page(decoded(read_member(archive, path), markup=True))
        placed, shift = _placed(draft.parts, contents.get(path, []), shift)
        parts.extend(placed)
    return Draft(parts, _said(package.root, "title")[0], tuple(dict.fromkeys(_said(package.root, "creator"))))


def _package(archive: ZipFile) -> _Package:
    container = xml_tree(read_member(archive, _CONTAINER), _CONTAINER)
    path = next((each.get("full-path", "") for each in container.iter("rootfile")), "")
    if not path:
        raise Invalid("The file is not an EPUB: its container names no package.")
    root = xml_tree(read_member(archive, path), path)
    return _Package(posixpath.dirname(path), root, {each.get("id", ""): each for each in root.iter("item")})


def _spine(package: _Package) -> list[str]:
    """The pages in reading order, each once, without the page that only is the table of contents."""
    listed = (package.items.get(each.get("idref", "")) for each in package.root.iter("itemref"))
    pages = [item for item in listed if item is not None and item.get("media-type") in _PAGES and not _is_nav(item)]
    return list(dict.fromkeys(map(package.path, pages)))


def _encrypted(archive: ZipFile) -> set[str]:
    """The files that only whoever has a key can read. Fonts often are among them, and do not matter."""
    if _ENCRYPTION not in archive.namelist():
        return set()
    listed = xml_tree(read_member(archive, _ENCRYPTION), _ENCRYPTION)
    return {_joined("", each.get("URI", "").lstrip("/")) for each in listed.iter("CipherReference")}


def _is_nav(item: Element) -> bool:
    return "nav" in item.get("properties", "").split()


def _said(root: Element, name: str) -> list[str]:
    """What the metadata say; at least one, if empty, for the title."""
    metadata = next(root.iter("metadata"), root)
    found = [prose("".join(each.itertext())) for each in metadata.iter(name)]
    return [each for each in found if each] or ([""] if name == "title" else [])


def _contents(archive: ZipFile, package: _Package) -> dict[str, list[_Entry]]:
    """The entries of each file in the navigation page, or in the older NCX."""
    for item in package.items.values():
        path = package.path(item)
        if _is_nav(item):
            return _entries(xml_tree(read_member(archive, path), path), "li", "a", "href", path)
    for item in package.items.values():
        path = package.path(item)
        if item.get("media-type") == "application/x-dtbncx+xml":
            return _entries(xml_tree(read_member(archive, path), path), "navPoint", "content", "src", path)
    return {}


def _entries(root: Element, item: str, link: str, target: str, path: str) -> dict[str, list[_Entry]]:
    """Entries by file, each with its depth, which does not count a book's own entry above all others. Walked with a
    list of its own, since nesting has no bound."""
    entries: dict[str, list[_Entry]] = defaultdict(list)
    start = next((each for each in root.iter("nav") if "toc" in each.get("type", "")), root)
    waiting: list[tuple[Element, int, str]] = [(start, -1, "")]
    while waiting:
        element, depth, title = waiting.pop()
        depth += element.tag == item
        if element.tag == item:
            title = prose("".join(next((each for each in element if each.tag == "navLabel"), Element("")).itertext()))
        if element.tag == link and (file := element.get(target, "").partition("#")[0]):
            said = title or prose("".join(element.itertext()))
            entries[_joined(posixpath.dirname(path), file)].append(_Entry(said, max(depth, 0)))
        waiting.extend((child, depth, title) for child in reversed(element))
    depths = [entry.depth for listed in entries.values() for entry in listed]
    above = int(len(depths) > 1 and min(depths[1:]) > depths[0])
    return {
        file: [_Entry(entry.title, max(entry.depth - above, 0)) for entry in listed] for file, listed in entries.items()
    }


def _placed(parts: Sequence[Part], entries: Sequence[_Entry], shift: int | None) -> tuple[list[Part], int | None]:
    """The parts of a file with their headings as deep as the table of contents has them: those that are in it, and
    those below them. A file without a heading gets the one it has there; one that is not there goes on as the last."""
    depths = {_unnumbered(entry.title): entry.depth for entry in reversed(entries)}
    if entries and not any(isinstance(part, Heading) for part in parts):
        return [Heading(entries[0].title, entries[0].depth), *parts], shift
    placed: list[Part] = []
    first = True
    for part in parts:
        if not isinstance(part, Heading):
            placed.append(part)
            continue
        depth = entries[0].depth if entries and first else depths.get(_unnumbered(part.text))
        if depth is not None or shift is None:
            shift = (depth or 0) - part.level
        placed.append(replace(part, level=part.level + shift))
        first = False
    return placed, shift


def _unnumbered(title: str) -> str:
    return bare(_NUMBER.sub("", title))


def _joined(folder: str, href: str) -> str:
    return posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))
