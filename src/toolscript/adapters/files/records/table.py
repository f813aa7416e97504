"""Parses CSV and TSV. Rows stay whole, and every block begins with the names of the columns."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from toolscript.adapters.files.parts import ParsedBook, TextBlock, clean_prose, format_row
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BlockKind

# Of two that fit, the earlier: a comma may be part of a number.
_DELIMITERS = "\t;|,"
_SAMPLED_CHARACTERS = 64_000
_SAMPLED_ROWS = 50
# Blocks are about as long as a chunk, so that the line of a chunk is near that of its rows.
MAX_BLOCK_CHARACTERS = 1_500
_MAX_CELL_CHARACTERS = 10**7
_NUMBER = re.compile(r"[-+]?[\d.,\s]*\d[\d.,\s]*%?\Z|\d{4}-\d\d-\d\d")


def read_table(text: str) -> ParsedBook:
    """Parses a table. Raises Invalid for one that is cut off within quotes."""
    csv.field_size_limit(_MAX_CELL_CHARACTERS)
    reader = csv.reader(io.StringIO(text.lstrip("\ufeff"), newline=""), delimiter=_find_delimiter(text))
    rows: list[tuple[int, list[str]]] = []
    begin = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((begin, row))
            begin = reader.line_num + 1
    except csv.Error as error:
        raise Invalid(f"The file is not a valid table: {error} (line {reader.line_num}).") from error
    return ParsedBook(list(build_table(rows)))


def build_table(rows: Sequence[tuple[int, Sequence[str]]]) -> Iterator[TextBlock]:
    """Groups numbered rows into blocks that each begin with the names of the columns: the first row, or numbers if it
    has no names. Lone cells above are captions."""
    captions = _count_captions(rows)
    for number, row in rows[:captions]:
        yield TextBlock(clean_prose(" ".join(row)), line=number)
    rows = rows[captions:]
    first = rows[0][1] if rows else []
    if rows[1:] and _is_header(first):
        names, rows = format_row(first), rows[1:]
    else:
        names = format_row(f"column {number}" for number in range(1, len(first) + 1))
    lines: list[str] = []
    start = size = 0
    for number, row in rows:
        line = format_row(row).rstrip()
        if lines and size + len(line) > MAX_BLOCK_CHARACTERS:
            yield TextBlock("\n".join([names, *lines]), BlockKind.TABLE, line=start)
            lines, size = [], 0
        if not lines:
            start = number
        lines.append(line)
        size += len(line)
    if lines:
        yield TextBlock("\n".join([names, *lines]), BlockKind.TABLE, line=start)


def _count_captions(rows: Sequence[tuple[int, Sequence[str]]]) -> int:
    """Returns how many rows at the beginning have one cell, in a table that has more, or that is nothing else."""
    widths = [sum(bool(cell.strip()) for cell in row) for _, row in rows[:_SAMPLED_ROWS]]
    if len(rows) > 1 and max(widths) == 1:
        return 0
    return next((number for number, width in enumerate(widths) if width > 1), len(widths))


def _find_delimiter(text: str) -> str:
    """Returns the sign that divides most rows into the same number of cells."""
    sample = text[:_SAMPLED_CHARACTERS]

    def rate(delimiter: str) -> tuple[int, int]:
        counts: Counter[int] = Counter()
        try:
            reader = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
            for row in islice(reader, _SAMPLED_ROWS):
                counts[len(row)] += len(row) > 1
        except csv.Error:
            return 0, 0
        width, rows = max(counts.items(), key=lambda each: each[1], default=(0, 0))
        return rows, width

    return max(_DELIMITERS, key=rate)


def _is_header(row: Sequence[str]) -> bool:
    """Whether a first row names the columns: different words, none of them a number."""
    names = [cell.strip() for cell in row if cell.strip()]
    return len(set(names)) == len(names) and not any(_NUMBER.match(name) for name in names)
