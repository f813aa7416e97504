"""Parses AsciiDoc: titles, paragraphs, lists, tables and delimited blocks, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from toolscript.adapters.files.dates import find_date
from toolscript.adapters.files.parts import (
    Heading,
    ParsedBook,
    Part,
    clean_prose,
    extract_title,
    make_block,
    make_table,
    split_authors,
)
from toolscript.domain.knowledge import BlockKind

_TITLE = re.compile(r"(={1,6}|#{1,6})\s+(\S.*)")
_FENCE = re.compile(r"(-{4,}|\.{4,}|={4,}|\*{4,}|_{4,}|/{4,}|\+{4,}|--|```.*)\Z")
_TABLE_FENCE = re.compile(r"[|,:!]={3,}\Z")
_CODE_FENCES = "-.+`"
_ATTRIBUTE = re.compile(r":!?([\w-]+)!?:(?:\s+(.*))?\Z")
_ATTRIBUTE_LIST = re.compile(r"\[[^\]]*\]\Z")
_BLOCK_TITLE = re.compile(r"\.([^\s.].*)")
_SKIPPED = re.compile(
    r"//(?!/)|(?:include|image|video|audio|toc|ifdef|ifndef|endif|ifeval)::|<<<\Z|'''\Z|\[\[[^\]]*\]\]\Z"
)
_ITEM = re.compile(r"\s*(\*{1,5}|-|\.{1,5}|\d{1,3}\.|<\d{1,2}>)\s+(\S.*)")
_TERM = re.compile(r"(\S.{0,200}?)(?:::|;;)(?:\s+(.*))?\Z")
_AUTHOR = re.compile(r"[^\W\d_][^<>@]{1,200}(?:<[^<>]{1,200}>)?(?:;.{1,400})?\Z")
_REVISION = re.compile(r"v?[\d.]+\s*,\s*(.+)|(\d{4}-\d\d-\d\d.*)")
_LINK = re.compile(r"(?:link:|xref:|mailto:|(?=https?://))([^\s\[\]]{1,500})\[([^\]]{0,500})\]")
_REFERENCE = re.compile(r"<<[^,<>]{1,200}(?:,\s*([^<>]{1,200}))?>>")
_ANCHOR = re.compile(r"\[\[[^\]]{1,200}\]\]|\[#[^\]]{1,200}\]|\(\(\(?[^()]{1,200}\)\)\)?|footnote:[^\[\s]{0,50}\[")
_QUOTED = re.compile(r"(?<![\w*_`+#])([*_`+#]{1,2})(?=\S)([^\n]{1,300}?)(?<=\S)\1(?![\w*_`+#])")
_CELL = re.compile(r"(?:\A|(?<=\s))(?:\d+(?:\.\d+)?[*+])?[<^>.]*[adehlmsv]?\|")


def read_asciidoc(text: str) -> ParsedBook:
    """Parses a text with the title, authors and date of its header."""
    reader = _AsciidocReader([line.rstrip() for line in re.split(r"\r\n|\r|\n", text.lstrip("\ufeff"))])
    authors, date = reader.read_header()
    parts = list(reader.parts())
    authors = reader.attributes.get("author", "") or authors
    date = reader.attributes.get("revdate", "") or date
    return extract_title(ParsedBook(parts, reader.title, split_authors(authors), find_date(date)))


@dataclass(slots=True)
class _AsciidocReader:
    lines: Sequence[str]
    place: int = 0
    title: str = ""
    attributes: dict[str, str] = field(default_factory=dict)

    def read_header(self) -> tuple[str, str]:
        """Reads the title and the lines below it; returns the authors and the date that they name."""
        while self.place < len(self.lines) and not self.lines[self.place].startswith("= "):
            line = self.lines[self.place]
            if line and not _ATTRIBUTE.match(line) and not line.startswith("//"):
                self.place = 0
                return "", ""
            self.place += 1
        if self.place == len(self.lines):
            self.place = 0
            return "", ""
        self.title = _plain(self.lines[self.place][2:])
        self.place += 1
        authors = date = ""
        while self.place < len(self.lines) and (line := self.lines[self.place]):
            if found := _ATTRIBUTE.match(line):
                self.attributes[found[1]] = found[2] or ""
            elif revision := _REVISION.match(line):
                date = revision[1] or revision[2]
            elif not authors and _AUTHOR.match(line):
                authors = re.sub(r"\s*<[^<>]*>", "", line)
            self.place += 1
        return authors, date

    def parts(self) -> Iterator[Part]:
        paragraph: list[str] = []
        while self.place < len(self.lines):
            line = self.lines[self.place]
            self.place += 1
            ends, found = self._read_line(line)
            if ends:
                yield from _flush(paragraph)
                paragraph = []
                yield from found
            elif line.strip() == "+":
                paragraph.append("")
            elif item := _ITEM.match(line):
                yield from _flush(paragraph)
                mark = item[1]
                paragraph = [(f"{mark} " if mark[0].isdigit() else "- ") + item[2]]
            elif not paragraph and (term := _TERM.match(line)):
                paragraph = [f"{term[1]}: {term[2] or ''}"]
            elif paragraph or not line.startswith(" "):
                paragraph.append(line)
            else:
                taken = [line]
                while self.place < len(self.lines) and self.lines[self.place].strip():
                    taken.append(self.lines[self.place])
                    self.place += 1
                yield from make_block("\n".join(taken), BlockKind.CODE)
        yield from _flush(paragraph)

    def _read_line(self, line: str) -> tuple[bool, list[Part]]:
        """Returns whether a line ends the paragraph before it, and the parts that begin there."""
        if not line.strip() or _SKIPPED.match(line) or _ATTRIBUTE_LIST.match(line):
            return True, []
        if found := _ATTRIBUTE.match(line):
            self.attributes[found[1]] = found[2] or ""
            return True, []
        if found := _TITLE.match(line):
            return True, [Heading(_plain(found[2]), len(found[1]))]
        if _TABLE_FENCE.match(line):
            return True, list(make_table(_read_rows(self._take_until(line))))
        if _FENCE.match(line):
            return True, self._read_fence(line)
        if found := _BLOCK_TITLE.match(line):
            return True, list(make_block(_plain(found[1])))
        return False, []

    def _read_fence(self, fence: str) -> list[Part]:
        if fence[0] == "/":
            self._take_until(fence)
            return []
        if fence == "--" or fence[0] not in _CODE_FENCES:
            return []  # the content of an example, quotation or sidebar is read like the rest
        return list(make_block("\n".join(self._take_until("```" if fence[0] == "`" else fence)), BlockKind.CODE))

    def _take_until(self, fence: str) -> list[str]:
        start = self.place
        while self.place < len(self.lines) and self.lines[self.place] != fence:
            self.place += 1
        self.place += 1
        return list(self.lines[start : self.place - 1])


def _flush(lines: Sequence[str]) -> list[Part]:
    return list(make_block(_plain("\n".join(lines))))


def _plain(text: str) -> str:
    """Returns a text without inline markup."""
    text = _REFERENCE.sub(lambda found: found[1] or "", _LINK.sub(lambda found: found[2] or found[1], text))
    return clean_prose(_QUOTED.sub(r"\2", _ANCHOR.sub("", text)).removesuffix(" +"))


def _read_rows(lines: Sequence[str]) -> list[list[str]]:
    """Reads the rows of a table: a line of several cells is a row; else cells fill rows as wide as the first group."""
    groups: list[list[str]] = [[]]
    several = False
    for line in lines:
        if not line.strip():
            groups.append([])
        elif _CELL.match(line):
            cells = [_plain(each) for each in _CELL.split(line)[1:]]
            several = several or len(cells) > 1
            groups = [*groups, cells, []] if len(cells) > 1 else [*groups[:-1], [*groups[-1], *cells]]
        elif groups[-1]:
            groups[-1][-1] += f" {_plain(line)}"
    return [group for group in groups if group]
