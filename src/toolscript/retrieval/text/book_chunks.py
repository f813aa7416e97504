"""Cuts a book into pieces that fit a model's window: between sections, else paragraphs, else sentences. Code and tables
stay whole where they fit, and are cut between lines where they do not.

A piece belongs to one section, so that it can be cited. The pieces of a section have about equal size, and a piece of
prose begins with the last sentences of the piece before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby

from toolscript.domain.knowledge import Block, BlockKind, Position
from toolscript.retrieval.text.chunking import PARAGRAPH, SENTENCE, WORD, Measure, stretches

# Increase it when books are cut differently, so that the next ingest cuts them again.
RECIPE = 3
# Limits the characters of a piece: a model may see a line of a thousand letters as one token.
CHARACTERS_PER_TOKEN = 12
# A sentence of up to a third of a piece is kept whole, and a table header of up to a quarter is repeated.
SENTENCE_SHARE, HEADER_SHARE = 3, 4
# Bounds of a piece's size, relative to equal sizes, within which it ends at the best place.
MIN_SHARE, MAX_SHARE = 0.7, 1.2

_RULE = frozenset("|-:+= \t\r\n")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a book, and its position."""

    text: str
    position: Position


@dataclass(frozen=True, slots=True)
class _Unit:
    """A part that is never cut: a sentence, a line or row, a block of code. `joint` precedes it inside a piece, and
    `header` at the beginning of a piece, for table rows."""

    text: str
    weight: int
    ending: int
    block: Block
    joint: str = ""
    joint_weight: int = 0
    header: str = ""
    header_weight: int = 0

    @property
    def is_prose(self) -> bool:
        return self.block.kind is BlockKind.PROSE


def cut(blocks: Sequence[Block], *, size: int, overlap: int, measure: Measure) -> list[Piece]:
    """The pieces of a book, in order: together all of it, each at most `size` by the measure, each beginning with at
    most `overlap` (less than half of `size`) of the one before. Takes linear time."""

    def limit_size(text: str) -> int:
        return max(measure(text), -(-len(text) // CHARACTERS_PER_TOKEN))

    written = [block for block in blocks if block.text.strip()]
    pieces: list[Piece] = []
    for _, blocks_of_section in groupby(written, key=lambda block: (block.position.chapter, block.position.section)):
        section = list(blocks_of_section)
        whole = _strip_lines("\n\n".join(block.text for block in section))
        if limit_size(whole) <= size:
            pieces.append(Piece(whole, section[0].position))
        else:
            pieces += _pieces(list(_units(section, size, limit_size)), size, overlap, limit_size)
    return pieces


def _units(blocks: Sequence[Block], size: int, measure: Measure) -> Iterator[_Unit]:
    """The units of a section."""
    between = measure("\n\n")
    for number, block in enumerate(blocks):
        following = blocks[number + 1] if number + 1 < len(blocks) else None
        is_prose = block.kind is BlockKind.PROSE
        leads_over = is_prose and following is not None and following.kind is not BlockKind.PROSE
        ending = SENTENCE if leads_over else PARAGRAPH
        units = list((_units_of_prose if is_prose else _units_of_lines)(block, size, measure))
        units[-1] = replace(units[-1], ending=ending)
        yield replace(units[0], joint="\n\n", joint_weight=between)
        yield from units[1:]


def _units_of_prose(block: Block, size: int, measure: Measure) -> Iterator[_Unit]:
    for stretch in stretches(block.text, max(size // SENTENCE_SHARE, 1), measure):
        yield _Unit(block.text[stretch.start : stretch.end], stretch.weight, stretch.ending, block)


def _units_of_lines(block: Block, size: int, measure: Measure) -> Iterator[_Unit]:
    weight = measure(block.text)
    if weight <= size:
        yield _Unit(block.text, weight, PARAGRAPH, block)
        return
    lines = _lines(block.text)
    header = _header(lines) if block.kind is BlockKind.TABLE else ""
    header_weight = measure(header) if header else 0
    if header_weight > size // HEADER_SHARE:
        header, header_weight = "", 0
    repeated_after = len(header)
    place = 0
    for line in lines:
        ending = PARAGRAPH if line.endswith(("\n\n", "\n\r\n")) else SENTENCE
        above = (header, header_weight) if place >= repeated_after else ("", 0)
        row = _Unit(line, measure(line), ending, block, "", 0, *above)
        if row.weight <= size - header_weight:
            yield row
        else:
            yield from _words_of(row, size - header_weight, measure)
        place += len(line)


def _words_of(line: _Unit, size: int, measure: Measure) -> Iterator[_Unit]:
    """Splits a line that is too long between words."""
    for stretch in stretches(line.text, max(size // SENTENCE_SHARE, 1), measure):
        ending = line.ending if stretch.end == len(line.text) else min(stretch.ending, WORD)
        yield replace(line, text=line.text[stretch.start : stretch.end], weight=stretch.weight, ending=ending)


def _lines(text: str) -> list[str]:
    """The lines, each with its line break and the empty lines after it."""
    lines: list[list[str]] = []
    for line in text.splitlines(keepends=True):
        if lines and not line.strip():
            lines[-1].append(line.lstrip(" \t"))
        else:
            lines.append([line])
    return ["".join(parts) for parts in lines]


def _header(rows: Sequence[str]) -> str:
    """The first row of a table, with the rule below it, if any."""
    ruled = len(rows) > 1 and not _RULE.issuperset(rows[0]) and _RULE.issuperset(rows[1])
    return "".join(rows[: 2 if ruled else 1])


def _pieces(units: Sequence[_Unit], size: int, overlap: int, measure: Measure) -> Iterator[Piece]:
    """Groups units into pieces. Units together may measure more than their sum: then a piece ends earlier."""
    sums = list(accumulate((unit.joint_weight + unit.weight for unit in units), initial=0))
    first = fresh = 0
    while fresh < len(units):
        end = _end(units, sums, first, fresh, size, overlap if units[fresh].is_prose else 0)
        text = _join(units[first:end])
        while measure(text) > size and (end > fresh + 1 or first < fresh):
            first, end = (fresh, end) if first < fresh else (first, end - 1)
            text = _join(units[first:end])
        yield Piece(text, units[fresh].block.position)
        first, fresh = _start(units, sums, first, end, size, overlap), end


def _weight(units: Sequence[_Unit], sums: Sequence[int], first: int, end: int) -> int:
    return sums[end] - sums[first] - units[first].joint_weight + units[first].header_weight


def _end(units: Sequence[_Unit], sums: Sequence[int], first: int, fresh: int, size: int, overlap: int) -> int:
    """The end of the piece that begins at `first`: the best place that makes the pieces about equal; else as many units
    as fit."""
    rest = _weight(units, sums, first, len(units))
    if rest <= size:
        return len(units)
    number = math.ceil((rest - overlap) / (size - overlap))
    even = (rest + (number - 1) * overlap) / number
    end, best, best_rank = fresh + 1, None, (0, 0.0)
    for place in range(fresh + 1, len(units)):
        weight = _weight(units, sums, first, place)
        if weight > size:
            break
        end = place
        rank = (units[place - 1].ending, -abs(weight - even))
        if MIN_SHARE * even <= weight <= MAX_SHARE * even and (best is None or rank >= best_rank):
            best, best_rank = place, rank
    return best or end


def _start(units: Sequence[_Unit], sums: Sequence[int], first: int, end: int, size: int, overlap: int) -> int:
    """The start of the piece after `end`: some sentences earlier in prose."""
    if end == len(units) or not units[end].is_prose:
        return end
    start = end
    while (
        start > first + 1
        and units[start - 1].is_prose
        and _weight(units, sums, start - 1, end) <= overlap
        and _weight(units, sums, start - 1, end + 1) <= size
    ):
        start -= 1
    return start


def _join(units: Sequence[_Unit]) -> str:
    parts = [units[0].header, units[0].text]
    for unit in units[1:]:
        parts += (unit.joint, unit.text)
    return _strip_lines("".join(parts))


def _strip_lines(text: str) -> str:
    """The text without empty lines around it. The first line stays indented, as code needs it."""
    return text.lstrip("\r\n").rstrip()
