"""Pages of HTML, and the chapters of an EPUB, which are the same.

Read event by event: a tree of elements would make nesting a way to break the reader, and scripts a part of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser

from toolscript.adapters.books.encoding import decoded
from toolscript.adapters.books.html_authors import PageAuthors
from toolscript.adapters.books.html_open import BLOCKS, LEVELS, VOID, OpenElements
from toolscript.adapters.books.parts import (
    Draft,
    Heading,
    Part,
    Passage,
    page_of_its_own,
    passage,
    prose,
    table,
)
from toolscript.domain.knowledge import BlockKind

_DROPPED = frozenset(
    [
        "script",
        "style",
        "template",
        "noscript",
        "nav",
        "iframe",
        "object",
        "svg",
        "canvas",
        "audio",
        "video",
        "button",
        "select",
        "textarea",
        "head",
        "footer",
    ]
)
# What the makers of manuals put around the text: ways to other pages, and the marks beside headings.
_FURNITURE = frozenset(
    [
        "breadcrumb",
        "breadcrumbs",
        "contents",
        "direntry",
        "docnav",
        "footer",
        "header-panel",
        "headerlink",
        "linenos",
        "lineno",
        "nav",
        "navbar",
        "navfooter",
        "navheader",
        "navigation",
        "related",
        "shortcontents",
        "sphinxsidebar",
        "sphinxsidebarwrapper",
        "toc",
        "toctree-wrapper",
        "element-shortcontents",
        "element-contents",
    ]
)
_ADMONITIONS = frozenset(["note", "tip", "warning", "caution", "important", "hint", "danger", "attention"])
_UNSEEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_WAYS = re.compile(
    r"\s*(?:(?:next|previous|prev|up)(?::\s.{0,300}|\s*)|\[\s*(?:<+|>+|up|top|contents|index|\?)\s*\](?:\s*\[.*\])*)\Z",
    re.IGNORECASE | re.DOTALL,
)
_ELSEWHERE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_HEADING = re.compile(r"<h[1-6]\b", re.IGNORECASE)
_SHORT = 20
_MARKS = re.compile("[\u00b6\u2693#]\\s*$")


def read_html(data: bytes) -> Draft:
    """A page, with what it says of itself."""
    return page_of_its_own(read_page(decoded(data, markup=True)))


def read_page(text: str) -> Draft:
    """The parts of a page as they stand."""
    reader = _Page(has_headings=bool(_HEADING.search(text)))
    reader.feed(text)
    reader.close()
    return reader.draft()


@dataclass(slots=True)
class _List:
    """A list: how many items of it were numbered, and whether the text before it says what it lists."""

    count: int | None
    introduced: bool


class _Page(HTMLParser):
    """Collects text until something begins or ends that is a block of its own."""

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
        self._lists: list[_List] = []
        self._tables: list[_Table] = []
        self._page: int | None = None
        self._in_link = False
        self._linked = 0
        self._targets: list[str] = []
        self._before_headings = has_headings

    def draft(self) -> Draft:
        self._close(0)
        self._flush()
        self._end_lead()
        return Draft(self._parts, prose("".join(self._title)), self._authors.found)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self._close(self._open.left_by(tag))
        self._learn(tag, said)
        if tag in VOID:
            if tag == "br":
                self._text.append("\n")
            elif tag == "hr":
                self._flush()
            return
        self._open.begin(tag)
        dropped = self._dropped_at is not None
        is_author = (not dropped or self._authors.is_near) and self._authors.begin(tag, said, len(self._open))
        if dropped:
            return
        if tag in _DROPPED or _is_furniture(tag, said) or (is_author and tag in BLOCKS):
            self._dropped_at = len(self._open)
        elif tag in BLOCKS:
            self._flush()
            self._begin(tag)
        elif tag == "a" and "href" in said:
            self._in_link = True
            self._targets.append(said["href"])

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._open.place(tag) >= 0:
            self._close(self._open.place(tag))

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
            return
        if self._open.innermost == "head" and data.strip():
            self._close(self._open.place("head"))
        self._authors.say(data)
        if self._dropped_at is None:
            self._text.append(data)
            self._linked += len(data.strip()) if self._in_link else 0

    def _learn(self, tag: str, said: Mapping[str, str]) -> None:
        """What the page says of itself: its title, its authors, where printed pages begin."""
        self._in_title = tag == "title" and self._open.place("svg") < 0 and not self._title
        if tag == "meta":
            self._authors.learn(said)
        elif "pagebreak" in said.get("epub:type", "") or said.get("role") == "doc-pagebreak":
            number = re.search(r"\d{1,6}$", said.get("title") or said.get("aria-label") or said.get("id", ""))
            self._page = int(number[0]) if number else self._page

    def _begin(self, tag: str) -> None:
        if tag in LEVELS:
            self._heading = LEVELS[tag]
        elif tag == "pre":
            self._pre += 1
        elif tag in {"ul", "ol"}:
            self._lists.append(_List(0 if tag == "ol" else None, self._is_introduced()))
        elif tag == "li":
            self._end_lead()
            self._lead = self._bullet()
        elif tag == "table":
            self._end_lead()
            self._tables.append(_Table(self._parts))
        elif tag == "tr" and self._tables:
            self._tables[-1].begin_row()
        elif tag in {"td", "th"} and self._tables:
            self._end_lead()
            self._parts = self._tables[-1].begin_cell()

    def _close(self, left: int) -> None:
        """Ends the innermost elements until so many are left."""
        while len(self._open) > left:
            tag = self._open.end()
            self._authors.end(len(self._open))
            if self._dropped_at is None:
                self._end(tag)
            elif len(self._open) < self._dropped_at:
                self._dropped_at = None

    def _end(self, tag: str) -> None:
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
            self._end_table()

    def _is_introduced(self) -> bool:
        last = self._parts[-1] if self._parts else None
        nested = bool(self._lists) and self._lists[-1].introduced
        return nested or (isinstance(last, Passage) and last.text.endswith(":"))

    def _bullet(self) -> str:
        innermost = self._lists[-1] if self._lists else None
        if innermost is None or innermost.count is None:
            return "- "
        innermost.count += 1
        return f"{innermost.count}. "

    def _flush(self, *, is_term: bool = False) -> None:
        """Ends the block that was being collected, and a link in it. A term waits for what is said of it."""
        text, self._text = "".join(self._text), []
        level, self._heading = self._heading, None
        leads_away = level is None and self._leads_away(text)
        self._in_link, self._linked, self._targets = False, 0, []
        if not text.strip() or leads_away:
            return
        if level is not None and text.strip().lower().strip(":") in _ADMONITIONS:
            self._end_lead()
            self._lead = f"{prose(text).strip(':')}: "
        elif level is not None:
            self._end_lead()
            self._before_headings = False
            self._parts.append(Heading(prose(_MARKS.sub("", text)), level, self._page))
        elif self._pre:
            self._end_lead()
            self._parts.extend(passage(text, BlockKind.CODE, self._page))
        elif is_term:
            term = prose(text)
            waiting = self._lead.removesuffix(": ")
            self._lead = f"{waiting}, {term}: " if self._lead.endswith(": ") else f"{self._lead}{term}: "
        else:
            self._authors.read(len(text))
            self._parts.extend(passage(self._lead + text, page=self._page))
            self._lead = ""

    def _leads_away(self, text: str) -> bool:
        """Whether a block only leads around in the book: the way to the next page, what stands above the first heading,
        an entry of a table of contents. A list of links to elsewhere, or one that the text announces, is text."""
        if _WAYS.match(text) and (self._linked or len(text) < _SHORT):
            return True
        if self._linked * 1.1 < len("".join(text.split())):
            return False
        is_item = self._lead.strip("-.0123456789 ") == "" != self._lead
        return self._before_headings or (is_item and all(map(self._is_near, self._targets)))

    def _is_near(self, target: str) -> bool:
        """Whether a link of a list leads to another place of the same book."""
        if target.startswith("#"):
            return True
        return not _ELSEWHERE.match(target) and not (self._lists and self._lists[-1].introduced)

    def _end_lead(self) -> None:
        """A term or a bullet that nothing followed stands alone."""
        lead, self._lead = self._lead.removesuffix(": "), ""
        if lead.strip("-.0123456789 "):
            self._parts.extend(passage(lead, page=self._page))

    def _end_table(self) -> None:
        self._end_lead()
        ended = self._tables.pop()
        self._parts = ended.around
        self._parts.extend(ended.parts(self._page))


class _Table:
    """The cells of a table, each a list of parts, until it is known whether it is a table or only a way to lay out."""

    def __init__(self, around: list[Part]) -> None:
        self.around = around
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
        real = sum(sum(bool(cell) for cell in row) > 1 for row in self._rows) > 1
        if not real or any(isinstance(part, Heading) for cell in cells for part in cell):
            return [part for cell in cells for part in cell]
        flat = [[" ".join(part.text for part in cell) for cell in row] for row in self._rows]
        return list[Part](table(flat, page))


def _is_furniture(tag: str, said: Mapping[str, str]) -> bool:
    if said.get("role") == "navigation" or "hidden" in said or _UNSEEN.search(said.get("style", "")):
        return True
    classes = said.get("class", "").lower().split()
    return tag != "body" and not _FURNITURE.isdisjoint(classes)
