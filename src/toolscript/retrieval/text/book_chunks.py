"""Cuts a book into pieces that fit a model's window, where a reader would: between sections, else paragraphs, else
sentences. Code and tables stay whole where they fit, and are cut between lines where they do not.

A piece is of one section, however short that is: whoever cites it must not send a reader to another. Within a section
the pieces are of about equal size, and prose begins with the last words of the piece before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby

from toolscript.domain.knowledge import Block, BlockKind, Position
from toolscript.retrieval.text.chunking import PARAGRAPH, SENTENCE, WORD, Measure, stretches

# Raised when books are cut differently, so that the next ingest cuts them anew.
RECIPE = 2
# A model may see one token in a line of a thousand letters; a reader sees a thousand letters.
CHARACTERS_PER_TOKEN = 12
# Parts of a piece: the longest sentence that is kept whole, and the longest table header that is repeated.
SENTENCE_SHARE, HEADER_SHARE = 3, 4
# How far from even a piece may be in order to end well.
MIN_PIECE_CHARACTERS, MAX_PIECE_CHARACTERS = 0.7, 1.2

_RULE = frozenset("|-:+= \t\r\n")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a book, and where it stands."""

    text: str
    position: Position


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is never cut: a sentence, a line or row, a block of code. `joint` comes before it, unless it is the first of
    a piece; then `header` does, which a row needs to be understood."""

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
    most `overlap` of the one before, which is less than half of `size`. The time it takes grows with the book's length
    and no faster."""

    def limit_size(text: str) -> int:
        return max(measure(text), -(-len(text) // CHARACTERS_PER_TOKEN))

    written = [block for block in blocks if block.text.strip()]
    found: list[Piece] = []
    for _, section in groupby(written, key=lambda block: (block.position.chapter, block.position.section)):
        found += _pieces(list(_units(list(section), size, limit_size)), size, overlap, limit_size)
    return found


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
    for found in stretches(block.text, max(size // SENTENCE_SHARE, 1), measure):
        yield _Unit(block.text[found.start : found.end], found.weight, found.ending, block)


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
    """A line that alone is too long, some words at a time."""
    for found in stretches(line.text, max(size // SENTENCE_SHARE, 1), measure):
        ending = line.ending if found.end == len(line.text) else min(found.ending, WORD)
        yield replace(line, text=line.text[found.start : found.end], weight=found.weight, ending=ending)


def _lines(text: str) -> list[str]:
    """Lines, each with its end and the empty ones behind it."""
    lines: list[list[str]] = []
    for line in text.splitlines(keepends=True):
        if lines and not line.strip():
            lines[-1].append(line.lstrip(" \t"))
        else:
            lines.append([line])
    return ["".join(parts) for parts in lines]


def _header(rows: Sequence[str]) -> str:
    """The first row of a table, with the rule below it if there is one."""
    ruled = len(rows) > 1 and not _RULE.issuperset(rows[0]) and _RULE.issuperset(rows[1])
    return "".join(rows[: 2 if ruled else 1])


def _pieces(units: Sequence[_Unit], size: int, overlap: int, measure: Measure) -> Iterator[Piece]:
    """The pieces of a group of units. What they measure together may be more than the sum: then one ends earlier."""
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
    """One past the last unit of the piece that begins there: where it ends best, of those places that make the pieces
    about equal; else as many as fit."""
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
        if MIN_PIECE_CHARACTERS * even <= weight <= MAX_PIECE_CHARACTERS * even and (best is None or rank >= best_rank):
            best, best_rank = place, rank
    return best or end


def _start(units: Sequence[_Unit], sums: Sequence[int], first: int, end: int, size: int, overlap: int) -> int:
    """Where the piece after the one up to `end` begins: some sentences before it, if all of it is prose."""
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
    return "".join(parts).lstrip("\r\n").rstrip()
