"""Parses HTML pages and the chapters of EPUB files, event by event: a tree of elements would let deep nesting exhaust
the stack."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser

from toolscript.adapters.files.encoding import decode_text
from toolscript.adapters.files.markup.html_authors import PageAuthors
from toolscript.adapters.files.markup.html_elements import BLOCKS, LEVELS, VOID, OpenElements
from toolscript.adapters.files.parts import (
    Heading,
    ParsedBook,
    Part,
    TextBlock,
    clean_prose,
    make_block,
    make_table,
    place_under_title,
)
from toolscript.adapters.files.titles import clean_title
from toolscript.domain.knowledge import BlockKind

_DROPPED_TAGS = frozenset(
    (
        "script style template noscript nav iframe object svg canvas audio video button select textarea head footer"
    ).split()
)
# Classes that manual generators give to navigation and to the anchors beside headings.
_FURNITURE_CLASSES = frozenset(
    (
        "breadcrumb breadcrumbs contents direntry docnav footer header-panel headerlink linenos lineno nav navbar "
        "navfooter navheader navigation related shortcontents sphinxsidebar sphinxsidebarwrapper toc toctree-wrapper "
        "element-shortcontents element-contents"
    ).split()
)
_ADMONITIONS = frozenset("note tip warning caution important hint danger attention".split())
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_NAVIGATION_TEXT = re.compile(
    r"\s*(?:(?:next|previous|prev|up)(?::\s.{0,300}|\s*)|\[\s*(?:<+|>+|up|top|contents|index|\?)\s*\](?:\s*\[.*\])*)\Z",
    re.IGNORECASE | re.DOTALL,
)
_EXTERNAL_URL = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_HEADING_TAG = re.compile(r"<h[1-6]\b", re.IGNORECASE)
_MAX_NAVIGATION_LENGTH = 20
_HEADING_ANCHOR = re.compile("[\u00b6\u2693#]\\s*$")


def read_html(data: bytes) -> ParsedBook:
    """Parses a page with its title and authors."""
    return place_under_title(read_page(decode_text(data, markup=True)))


def read_page(text: str) -> ParsedBook:
    """Parses a page without deciding on its title."""
    reader = _PageParser(has_headings=bool(_HEADING_TAG.search(text)))
    reader.feed(text)
    reader.close()
    return reader.finish()


@dataclass(slots=True)
class _ListState:
    """An open list: the number of its last item (None: not numbered), and whether a text with a colon precedes."""

    count: int | None
    is_introduced: bool


class _PageParser(HTMLParser):
    """Collects text until a block element begins or ends."""

    def __init__(self, *, has_headings: bool) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[Part] = []
        self._text: list[str] = []
        self._lead = ""
        self._open = OpenElements()
        self._dropped_at: int | None = None
        self._heading: int | None = None
        self._pre = 0
        self._in_title = False
        self._title: list[str] = []
        self._authors = PageAuthors()
        self._lists: list[_ListState] = []
        self._tables: list[_TableBuilder] = []
        self._page: int | None = None
        self._in_link = False
        self._linked = 0
        self._targets: list[str] = []
        self._before_headings = has_headings

    def finish(self) -> ParsedBook:
        self._close_until(0)
        self._flush()
        self._end_lead()
        title = clean_title("".join(self._title))
        return ParsedBook(self._parts, title, self._authors.found, self._authors.date)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self._close_until(self._open.count_left_open(tag))
        self._read_metadata(tag, attributes)
        if tag in VOID:
            if tag == "br":
                self._text.append("\n")
            elif tag == "hr":
                self._flush()
            return
        self._open.begin(tag)
        dropped = self._dropped_at is not None
        is_author = (not dropped or self._authors.is_inside_author) and self._authors.begin(
            tag, attributes, len(self._open)
        )
        if dropped:
            return
        if tag in _DROPPED_TAGS or _is_furniture(tag, attributes) or (is_author and tag in BLOCKS):
            self._dropped_at = len(self._open)
        elif tag in BLOCKS:
            self._flush()
            self._begin_block(tag)
        elif tag == "a" and "href" in attributes:
            self._in_link = True
            self._targets.append(attributes["href"])

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._open.place(tag) >= 0:
            self._close_until(self._open.place(tag))

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
            return
        if self._open.innermost == "head" and data.strip():
            self._close_until(self._open.place("head"))
        self._authors.add_text(data)
        if self._dropped_at is None:
            self._text.append(data)
            self._linked += len(data.strip()) if self._in_link else 0

    def _read_metadata(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Reads the title, the authors, and where printed pages begin."""
        self._in_title = tag == "title" and self._open.place("svg") < 0 and not self._title
        if tag == "meta":
            self._authors.read_meta(attributes)
        elif "pagebreak" in attributes.get("epub:type", "") or attributes.get("role") == "doc-pagebreak":
            label = attributes.get("title") or attributes.get("aria-label") or attributes.get("id", "")
            number = re.search(r"\d{1,6}$", label)
            self._page = int(number[0]) if number else self._page

    def _begin_block(self, tag: str) -> None:
        if tag in LEVELS:
            self._heading = LEVELS[tag]
        elif tag == "pre":
            self._pre += 1
        elif tag in {"ul", "ol"}:
            self._lists.append(_ListState(0 if tag == "ol" else None, self._is_introduced()))
        elif tag == "li":
            self._end_lead()
            self._lead = self._bullet()
        elif tag == "table":
            self._end_lead()
            self._tables.append(_TableBuilder(self._parts))
        elif tag == "tr" and self._tables:
            self._tables[-1].begin_row()
        elif tag in {"td", "th"} and self._tables:
            self._end_lead()
            self._parts = self._tables[-1].begin_cell()

    def _close_until(self, left: int) -> None:
        """Closes the innermost elements until `left` are open."""
        while len(self._open) > left:
            tag = self._open.end()
            self._authors.end(len(self._open))
            if self._dropped_at is None:
                self._end_element(tag)
            elif len(self._open) < self._dropped_at:
                self._dropped_at = None

    def _end_element(self, tag: str) -> None:
        if tag == "a":
            self._in_link = False
        if tag not in BLOCKS:
            return
        self._flush(is_term=tag == "dt")
        if tag == "pre":
            self._pre -= 1
        elif tag in {"ul", "ol"}:
            self._lists.pop()
        elif tag == "li":
            self._end_lead()
        elif tag == "table":
            self._end_lead()
            ended = self._tables.pop()
            self._parts = ended.outer_parts
            self._parts.extend(ended.parts(self._page))

    def _is_introduced(self) -> bool:
        last = self._parts[-1] if self._parts else None
        nested = bool(self._lists) and self._lists[-1].is_introduced
        return nested or (isinstance(last, TextBlock) and last.text.endswith(":"))

    def _bullet(self) -> str:
        innermost = self._lists[-1] if self._lists else None
        if innermost is None or innermost.count is None:
            return "- "
        innermost.count += 1
        return f"{innermost.count}. "

    def _flush(self, *, is_term: bool = False) -> None:
        """Ends the current block. A term (`dt`) waits for its definition."""
        text, self._text = "".join(self._text), []
        level, self._heading = self._heading, None
        is_navigation = level is None and self._is_navigation(text)
        self._in_link, self._linked, self._targets = False, 0, []
        if not text.strip() or is_navigation:
            return
        if level is not None and text.strip().lower().strip(":") in _ADMONITIONS:
            self._end_lead()
            self._lead = f"{clean_prose(text).strip(':')}: "
        elif level is not None:
            self._end_lead()
            self._before_headings = False
            self._parts.append(Heading(clean_prose(_HEADING_ANCHOR.sub("", text)), level, self._page))
        elif self._pre:
            self._end_lead()
            self._parts.extend(make_block(text, BlockKind.CODE, self._page))
        elif is_term:
            term = clean_prose(text)
            waiting = self._lead.removesuffix(": ")
            self._lead = f"{waiting}, {term}: " if self._lead.endswith(": ") else f"{self._lead}{term}: "
        else:
            self._authors.count_text(len(text))
            self._parts.extend(make_block(self._lead + text, page=self._page))
            self._lead = ""

    def _is_navigation(self, text: str) -> bool:
        """Whether a block is navigation within the book: previous/next links, links above the first heading, entries of
        a table of contents. A list of external links, or one that the text introduces, is content."""
        if _NAVIGATION_TEXT.match(text) and (self._linked or len(text) < _MAX_NAVIGATION_LENGTH):
            return True
        if self._linked * 1.1 < len("".join(text.split())):
            return False
        is_item = self._lead.strip("-.0123456789 ") == "" != self._lead
        return self._before_headings or (is_item and all(map(self._is_same_book, self._targets)))

    def _is_same_book(self, target: str) -> bool:
        """Whether a link in a list leads to another place of the same book."""
        if target.startswith("#"):
            return True
        return not _EXTERNAL_URL.match(target) and not (self._lists and self._lists[-1].is_introduced)

    def _end_lead(self) -> None:
        """Emits a term or bullet that no text followed."""
        lead, self._lead = self._lead.removesuffix(": "), ""
        if lead.strip("-.0123456789 "):
            self._parts.extend(make_block(lead, page=self._page))


class _TableBuilder:
    """Collects the cells of a table until it is known whether it holds data or only lays out the page."""

    def __init__(self, outer_parts: list[Part]) -> None:
        self.outer_parts = outer_parts
        self._rows: list[list[list[Part]]] = []

    def begin_row(self) -> None:
        self._rows.append([])

    def begin_cell(self) -> list[Part]:
        if not self._rows:
            self.begin_row()
        self._rows[-1].append([])
        return self._rows[-1][-1]

    def parts(self, page: int | None) -> list[Part]:
        cells = [cell for row in self._rows for cell in row]
        is_data = sum(sum(bool(cell) for cell in row) > 1 for row in self._rows) > 1
        if not is_data or any(isinstance(part, Heading) for cell in cells for part in cell):
            return [part for cell in cells for part in cell]
        flat = [[" ".join(part.text for part in cell) for cell in row] for row in self._rows]
        return list[Part](make_table(flat, page))


def _is_furniture(tag: str, attributes: Mapping[str, str]) -> bool:
    if (
        attributes.get("role") == "navigation"
        or "hidden" in attributes
        or _HIDDEN_STYLE.search(attributes.get("style", ""))
    ):
        return True
    classes = attributes.get("class", "").lower().split()
    return tag != "body" and not _FURNITURE_CLASSES.isdisjoint(classes)
