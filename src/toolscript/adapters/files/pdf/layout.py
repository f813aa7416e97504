"""The lines of a page and their layout: columns are put into reading order, and rows of tables recognised."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median

# Words further apart than this many times the size of the type are in different cells or columns.
MIN_GAP = 1.2
_MIN_COLUMN_LINES = 5
# Cells of tables are shorter than lines of prose, and fill less of their column.
_MIN_COLUMN_CHARACTERS = 18
_MIN_FILL = 0.65
_MIN_SWITCHES = 4
_MARKER = re.compile(
    r"(?:[\u2022\u25aa\u25cf\u25e6\u2023\u2043\u2013\u2014\u00b7*-]|[\[(]?\w{1,4}[.):\]]|[\d.]{1,6})\Z"
)


@dataclass(frozen=True, slots=True)
class PdfCell:
    """A part of a line with a wide gap beside it."""

    text: str
    left: float
    right: float


@dataclass(frozen=True, slots=True)
class PdfLine:
    """A line with its position and type. `end` is the baseline of its last character: the rest of a broken word is
    reported on the same line. `cells` are its parts if it has wide gaps."""

    text: str
    page: int
    left: float
    right: float
    bottom: float
    end: float
    size: float
    is_monospace: bool
    cells: tuple[PdfCell, ...] = ()

    @property
    def is_upright(self) -> bool:
        """Whether the line is written from left to right, not along the margin."""
        return abs(self.end - self.bottom) <= self.size or abs(self.right - self.left) >= 2 * self.size

    @property
    def is_row(self) -> bool:
        """Whether the line may be a row of a table: several cells, unless the first is the mark of a list item."""
        return len(self.cells) > 1 and not (len(self.cells) == 2 and _MARKER.match(self.cells[0].text))  # noqa: PLR2004


def order_lines(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """Returns the lines of a page in reading order: lines across two columns are divided, and the left column comes
    first."""
    if not any(line.cells for line in lines) and _count_switches(lines) < _MIN_SWITCHES:
        return list(lines)
    segments = [segment for line in lines for segment in _split_cells(line)]
    gutter = _find_gutter(segments)
    if gutter is None:
        return list(lines)
    ordered: list[PdfLine] = []
    columns: tuple[list[PdfLine], list[PdfLine]] = ([], [])
    for line in sorted(lines, key=lambda line: -line.bottom):
        if line.left < gutter < line.right and not line.cells:
            ordered += [*columns[0], *columns[1], line]
            columns = ([], [])
            continue
        for segment in _divide(line, gutter):
            columns[segment.left >= gutter].append(segment)
    return [*ordered, *columns[0], *columns[1]]


def is_same_table(row: PdfLine, other: PdfLine) -> bool:
    """Whether two rows belong together: half of the places between their cells are the same."""
    near = row.size / 2
    matches = sum(
        any(abs(start - each) < near for each in (cell.left for cell in other.cells[1:]))
        or any(abs(end - each) < near for each in (cell.right for cell in other.cells[:-1]))
        for end, start in ((one.right, two.left) for one, two in pairwise(row.cells))
    )
    return 2 * matches >= len(row.cells) - 1


def format_rows(lines: Sequence[PdfLine]) -> list[list[str]]:
    """Returns the rows of a table. A line without cells continues the cell above it."""
    rows: list[list[str]] = []
    starts: list[float] = []
    for line in lines:
        if line.is_row or not rows:
            rows.append([cell.text for cell in line.cells] or [line.text])
            starts = [cell.left for cell in line.cells] or [line.left]
            continue
        for cell in line.cells or (PdfCell(line.text, line.left, line.right),):
            nearest = min(range(len(starts)), key=lambda number: abs(starts[number] - cell.left))
            rows[-1][nearest] += f" {cell.text}"
    return rows


def continues_row(row: PdfLine, line: PdfLine) -> bool:
    """Whether a line goes on below a later cell of a row, as long texts in tables do."""
    return line.page == row.page and any(abs(line.left - cell.left) < row.size for cell in row.cells[1:])


def _split_cells(line: PdfLine) -> list[PdfLine]:
    cells = line.cells or (PdfCell(line.text, line.left, line.right),)
    return [replace(line, text=each.text, left=each.left, right=each.right, cells=()) for each in cells]


def _divide(line: PdfLine, gutter: float) -> list[PdfLine]:
    """Returns the parts of a line on both sides of the gutter, each with its own cells."""
    if not line.cells:
        return [line]
    sides = ([each for each in line.cells if each.left < gutter], [each for each in line.cells if each.left >= gutter])
    return [
        replace(
            line,
            text=" ".join(each.text for each in cells),
            left=cells[0].left,
            right=cells[-1].right,
            cells=tuple(cells) if len(cells) > 1 else (),
        )
        for cells in sides
        if cells
    ]


def _count_switches(lines: Sequence[PdfLine]) -> int:
    """Returns how often the next line begins to the right of the one before."""
    return sum(two.left > one.right for one, two in pairwise(lines))


def _find_gutter(segments: Sequence[PdfLine]) -> float | None:
    """Returns where the right column begins; None if the page is not written across two columns of prose."""
    left, right = min(each.left for each in segments), max(each.right for each in segments)
    begins = Counter(
        round(each.left) for each in segments if left + (right - left) * 0.3 < each.left < left + (right - left) * 0.7
    )
    if not begins or _count_switches(segments) < _MIN_SWITCHES:
        return None
    begin, count = begins.most_common(1)[0]
    gutter = begin - 1.0
    first = [each for each in segments if each.right <= gutter]
    second = [each for each in segments if each.left >= gutter]
    if min(len(first), count) < _MIN_COLUMN_LINES or min(len(first), len(second)) * 2 < max(len(first), len(second)):
        return None
    is_prose = all(
        fmean(len(each.text) for each in side) >= _MIN_COLUMN_CHARACTERS and _measure_fill(side) >= _MIN_FILL
        for side in (first, second)
    )
    crossing = len(segments) - len(first) - len(second)
    return gutter if is_prose and crossing < len(first) else None


def _measure_fill(side: Sequence[PdfLine]) -> float:
    """Returns the median width of the lines as a share of the column's width."""
    left, right = min(each.left for each in side), max(each.right for each in side)
    return median(each.right - left for each in side) / max(right - left, 1.0)
