"""Pages of HTML, and the chapters of an EPUB, which are the same.

Read event by event: a tree of elements would make nesting a way to break the reader, and scripts a part of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser

from toolscript.adapters.books_parts import (
    Draft,
    Heading,
    Part,
    names,
    page_of_its_own,
    passage,
    prose,
    table,
)
from toolscript.domain.knowledge import BlockKind

_LEVELS = {f"h{level}": level for level in range(1, 7)}
_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
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
_BLOCKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "caption",
        "center",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hr",
        "html",
        "legend",
        "li",
        "main",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "tr",
        "ul",
    ]
) | frozenset(_LEVELS)
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
_CHARSET = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9_.:-]+)""", re.IGNORECASE)
_WAYS = re.compile(
    r"\s*(?:(?:next|previous|prev|up)(?::\s.{0,300}|\s*)|\[\s*(?:<+|>+|up|top|contents|index|\?)\s*\](?:\s*\[.*\])*)\Z",
    re.IGNORECASE | re.DOTALL,
)
_SHORT = 20
_MARKS = re.compile("[\u00b6\u2693#]\\s*$")


def read_html(data: bytes) -> Draft:
    """A page, with what it says of itself."""
    return page_of_its_own(read_page(decoded(data)))


def decoded(data: bytes) -> str:
    """The text of a page, in the encoding that it names."""
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    named = _CHARSET.search(data[:4096])
    for encoding in ([named[1].decode("ascii")] if named else []) + ["utf-8"]:
        try:
            return data.decode(encoding)
        except (LookupError, ValueError):
            continue
    return data.decode("cp1252", "replace")


def read_page(text: str) -> Draft:
    """The parts of a page as they stand."""
    reader = _Page()
    reader.feed(text)
    reader.close()
    return reader.draft()


class _Page(HTMLParser):
    """Collects text until something begins or ends that is a block of its own."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[Part] = []
        self._text: list[str] = []
        self._lead = ""
        self._open: list[str] = []
        self._count: Counter[str] = Counter()
        self._dropped_at: int | None = None
        self._heading: int | None = None
        self._pre = 0
        self._in_title = False
        self._title: list[str] = []
        self._authors: list[str] = []
        self._lists: list[int | None] = []
        self._tables: list[_Table] = []
        self._page: int | None = None
        self._linked = 0
        self._has_heading = False

    def draft(self) -> Draft:
        while self._tables:
            self._end_table()
        self._flush()
        self._end_lead()
        return Draft(self._parts, prose("".join(self._title)), tuple(dict.fromkeys(self._authors)))

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self._learn(tag, said)
        if tag in _VOID:
            if tag == "br":
                self._text.append("\n")
            elif tag == "hr":
                self._flush()
            return
        self._open.append(tag)
        self._count[tag] += 1
        if self._dropped_at is not None:
            return
        if tag in _DROPPED or _is_furniture(tag, said):
            self._dropped_at = len(self._open)
            return
        if tag in _BLOCKS:
            self._flush(is_term=tag in {"dt", "dd"} and self._open[-2:-1] == ["dt"])
            self._begin(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if tag in _VOID or not self._count[tag]:
            return
        while self._open:
            closed = self._open.pop()
            self._count[closed] -= 1
            if self._dropped_at is None:
                self._end(closed)
            elif len(self._open) < self._dropped_at:
                self._dropped_at = None
            if closed == tag:
                return

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif self._dropped_at is None:
            self._text.append(data)
            self._linked += len(data.strip()) if self._count["a"] else 0

    def _learn(self, tag: str, said: Mapping[str, str]) -> None:
        """What the page says of itself: its title, its authors, where printed pages begin."""
        self._in_title = tag == "title" and self._count["svg"] == 0 and not self._title
        if self._in_title:
            return
        if tag == "meta" and said.get("name", "").lower() in {"author", "dc.creator", "citation_author"}:
            self._authors.extend(names(said.get("content", "")))
        elif "pagebreak" in said.get("epub:type", "") or said.get("role") == "doc-pagebreak":
            number = re.search(r"\d{1,6}$", said.get("title") or said.get("aria-label") or said.get("id", ""))
            self._page = int(number[0]) if number else self._page

    def _begin(self, tag: str) -> None:
        if tag in _LEVELS:
            self._heading = _LEVELS[tag]
        elif tag == "pre":
            self._pre += 1
        elif tag in {"ul", "ol"}:
            self._lists.append(0 if tag == "ol" else None)
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

    def _end(self, tag: str) -> None:
        if tag not in _BLOCKS:
            return
        self._flush(is_term=tag == "dt")
        if tag == "pre":
            self._pre = max(0, self._pre - 1)
        elif tag in {"ul", "ol"} and self._lists:
            self._lists.pop()
        elif tag == "table" and self._tables:
            self._end_table()

    def _bullet(self) -> str:
        count = self._lists[-1] if self._lists else None
        if count is None:
            return "- "
        self._lists[-1] = count + 1
        return f"{count + 1}. "

    def _flush(self, *, is_term: bool = False) -> None:
        """Ends the block that was being collected. A term waits for what is said of it."""
        text, self._text = "".join(self._text), []
        level, self._heading = self._heading, None
        linked, self._linked = self._linked, 0
        if not text.strip() or (level is None and self._leads_away(text, linked)):
            return
        if level is not None and text.strip().lower().strip(":") in _ADMONITIONS:
            self._end_lead()
            self._lead = f"{prose(text).strip(':')}: "
        elif level is not None:
            self._end_lead()
            self._has_heading = True
            self._parts.append(Heading(prose(_MARKS.sub("", text)), level, self._page))
        elif self._pre:
            self._end_lead()
            self._parts.extend(passage(text, BlockKind.CODE, self._page))
        elif is_term:
            term = prose(text)
            waiting = self._lead.removesuffix(": ")
            self._lead = f"{waiting}, {term}: " if self._lead.endswith(": ") else f"{self._lead}{term}: "
        else:
            self._parts.extend(passage(self._lead + text, page=self._page))
            self._lead = ""

    def _leads_away(self, text: str, linked: int) -> bool:
        """Whether a block only links to other pages: an entry of a menu or a table of contents, or the way around."""
        if _WAYS.match(text) and (linked or len(text) < _SHORT):
            return True
        only = linked * 1.1 >= len("".join(text.split()))
        return only and (self._lead.strip("-.0123456789 ") == "" != self._lead or not self._has_heading)

    def _end_lead(self) -> None:
        """A term or a bullet that nothing followed stands alone."""
        lead, self._lead = self._lead.removesuffix(": "), ""
        if lead.strip("-.0123456789 "):
            self._parts.extend(passage(lead, page=self._page))

    def _end_table(self) -> None:
        self._flush()
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
    if said.get("role") == "navigation" or "hidden" in said:
        return True
    classes = said.get("class", "").lower().split()
    return tag != "body" and not _FURNITURE.isdisjoint(classes)
