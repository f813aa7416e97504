"""Parses source code into parts: a chapter for each top-level definition, a section for each one inside. Without
tree-sitter, or for other languages, definitions are recognised by the words at the beginning of a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from toolscript.adapters.files.parts import Heading, ParsedBook, Part, TextBlock, clean_verbatim
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BlockKind

if TYPE_CHECKING:
    from toolscript.adapters.files.code.syntax import CodeDefinition

# A shorter definition stays whole: its methods are not sections of their own.
_WHOLE_CHARACTERS = 900
# Blocks are about as long as a chunk, so that the line of a chunk without a definition is near that of its text.
_MAX_BLOCK_CHARACTERS = 700
_MAX_AVERAGE_LINE = 1_000
_MIN_MINIFIED = 10_000
_CLOSING = ")]}"
_TOP_LEVEL = re.compile(
    r"(?:(?:export|default|public|private|protected|internal|static|abstract|final|sealed|async|pub(?:\(\w+\))?|open|"
    r"data|inline|local|override|partial|unsafe|virtual)\s+)*"
    r"(?:def|class|function|func|fun|fn|sub|interface|struct|enum|trait|module|defmodule|object|protocol|type|record|"
    r"namespace|package|impl|create\s+(?:or\s+replace\s+)?(?:table|view|function|procedure))\s+([\w.:]+)",
    re.IGNORECASE,
)


def read_code(text: str, ending: str) -> ParsedBook:
    """Parses source code. Raises Invalid for minified code."""
    lines = [line.expandtabs(4) for line in text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    if len(text) > _MIN_MINIFIED and len(text) > _MAX_AVERAGE_LINE * len(lines):
        raise Invalid("The file is minified or generated code: ingest its source instead.")
    return ParsedBook(list(_SourceFile(lines, _find_definitions(lines, ending)).parts()))


def _find_definitions(lines: Sequence[str], ending: str) -> Sequence[CodeDefinition]:
    try:
        from toolscript.adapters.files.code.syntax import GRAMMARS, find_definitions

        if ending in GRAMMARS:
            return find_definitions("\n".join(lines), ending)
    except ImportError:
        pass
    return []


@dataclass(frozen=True, slots=True)
class _Region:
    """Some lines, and what they define: its path, the line of its name from 1, and the depth of what is right inside.
    Lines that belong to no definition have neither."""

    first: int
    end: int
    path: str = ""
    line: int | None = None
    depth: int = 0


@dataclass
class _SourceFile:
    """The lines of a file, and where its definitions are."""

    lines: Sequence[str]
    definitions: Sequence[CodeDefinition]

    def parts(self) -> Iterator[Part]:
        if self.definitions:
            yield from self._build_region(_Region(0, len(self.lines)), 0)
        else:
            yield from self._guess_parts()

    @cached_property
    def _sizes(self) -> list[int]:
        """The number of characters before each line."""
        sizes = [0]
        for line in self.lines:
            sizes.append(sizes[-1] + len(line) + 1)
        return sizes

    def _build_region(self, region: _Region, number: int) -> Iterator[Part]:
        """Builds the parts of a region: the definitions right inside it, from that number on, and what is between."""
        place = region.first
        while number < len(self.definitions) and self.definitions[number].first < region.end:
            found = self.definitions[number]
            number += 1
            if found.depth != region.depth or found.first < place or found.first == found.last:
                continue  # a definition of one line stays with its neighbours
            yield from self._build_rest(region, place, found.first)
            place = min(found.last + 1, region.end)
            inner = _Region(found.first, place, found.path, found.line + 1, found.depth + 1)
            if self._sizes[place] - self._sizes[found.first] > _WHOLE_CHARACTERS:
                yield from self._build_region(inner, number)
            else:
                yield from self._build_rest(inner, found.first, place)
        yield from self._build_rest(region, place, region.end)

    def _build_rest(self, region: _Region, first: int, end: int) -> Iterator[Part]:
        """Builds the parts of lines that belong to what a region defines."""
        if any(any(map(str.isalnum, line)) for line in self.lines[first:end]):
            yield Heading(region.path, max(region.depth - 1, 0))
            yield from self._build_blocks(first, end, region.line)

    def _guess_parts(self) -> Iterator[Part]:
        """Builds parts by lines at the margin that define something."""
        starts = [
            (number, found[1])
            for number, line in enumerate(self.lines)
            if (found := _TOP_LEVEL.match(line)) and not line.rstrip().endswith(";")
        ]
        yield from self._build_blocks(0, starts[0][0] if starts else len(self.lines))
        for (start, name), (following, _) in pairwise([*starts, (len(self.lines), "")]):
            end = self._guess_end(start, following)
            yield Heading(name.strip(":.").replace("::", "."), 0)
            yield from self._build_blocks(start, end, start + 1)
            yield from self._build_rest(_Region(end, following), end, following)

    def _guess_end(self, start: int, following: int) -> int:
        """Returns where a definition ends: below its indented lines, at the first line at the margin after a blank one,
        unless brackets are open."""
        has_body, open_brackets = False, 0
        for number in range(start, following):
            line = self.lines[number]
            is_at_margin = bool(line.strip()) and not line[0].isspace() and line[0] not in _CLOSING
            if is_at_margin and has_body and open_brackets <= 0 and not self.lines[number - 1].strip():
                return number
            has_body = has_body or line[:1].isspace()
            open_brackets += sum(line.count(sign) for sign in "([{") - sum(line.count(sign) for sign in _CLOSING)
        return following

    def _build_blocks(self, first: int, end: int, line: int | None = None) -> Iterator[TextBlock]:
        """Cuts lines into blocks: at blank lines, nearest to the margin where there are several, else anywhere. The
        line of a block is the line of its definition, or the block's own line outside of definitions."""
        start = first
        while start < end:
            if not self.lines[start].strip():
                start += 1
                continue
            cut = self._find_cut(start, end)
            yield TextBlock(clean_verbatim("\n".join(self.lines[start:cut])), BlockKind.CODE, line=line or start + 1)
            start = cut

    def _find_cut(self, start: int, end: int) -> int:
        limit = start + 1
        while limit < end and self._sizes[limit + 1] - self._sizes[start] <= _MAX_BLOCK_CHARACTERS:
            limit += 1
        if limit == end:
            return end
        half = self._sizes[start] + _MAX_BLOCK_CHARACTERS // 2
        places = [each for each in range(start + 1, limit + 1) if self._sizes[each] >= half]
        return min(places, key=self._rate_cut, default=limit)

    def _rate_cut(self, number: int) -> tuple[bool, int, int]:
        """Rates the place above a line, best first: below a blank line, near the margin, far down."""
        line = self.lines[number]
        return bool(self.lines[number - 1].strip()), len(line) - len(line.lstrip()), -number
