"""Tables without borders, as wide as the terminal; in a file or pipe, as wide as needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from toolscript.surfaces.cli.terminal.text import escape_markup, printable

if TYPE_CHECKING:
    from rich.console import Console

FILE_WIDTH = 200
GAP = 2
# Optional columns are left out before a column is shortened below this width.
MIN_WIDTH = 12


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Prints rows, with the first column in colour and the columns in `right` right-aligned. The texts may contain
    markup or control characters: they are escaped."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(
            name,
            justify="right" if name in right else "left",
            style=None if number else "cyan",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(escape_markup, row))
    open_console().print(table)


def print_lines(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    shortened: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> None:
    """The same, each row on one line. In a narrow terminal the columns in `shortened` are cut off and those in
    `optional` left out; the others stay complete."""
    from rich.cells import cell_len
    from rich.table import Table

    texts = [list(map(printable, row)) for row in rows]
    needed = {name: max(map(cell_len, column)) for name, *column in zip(columns, columns, *texts, strict=True)}
    if _has_width():
        widths = _fit_widths(needed, shortened, optional, open_console().width)
    else:
        widths = {name: min(need, FILE_WIDTH) if name in shortened else need for name, need in needed.items()}
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, width in widths.items():
        style = "cyan" if name == columns[0] else None
        table.add_column(name, justify="right" if name in right else "left", style=style, width=width, no_wrap=True)
    for row in texts:
        table.add_row(*(escape_markup(text) for name, text in zip(columns, row, strict=True) if name in widths))
    open_console(_sum_widths(widths)).print(table)


def _fit_widths(
    needed: Mapping[str, int], shortened: Sequence[str], optional: Sequence[str], available: int
) -> dict[str, int]:
    """The widths of the columns that are shown."""
    widths = dict(needed)
    minimum = {name: min(needed[name], MIN_WIDTH) for name in shortened}
    for name in optional:
        if _sum_widths(widths | minimum) > available:
            del widths[name]
    left = available - _sum_widths(widths) + sum(needed[name] for name in shortened)
    for others, name in reversed(list(enumerate(sorted(shortened, key=needed.__getitem__, reverse=True), start=1))):
        widths[name] = max(minimum[name], min(needed[name], left // others))
        left -= widths[name]
    return widths


def _sum_widths(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _has_width() -> bool:
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def open_console(width: int | None = None) -> Console:
    """Standard output. In a file or a pipe, lines are not wrapped."""
    from rich.console import Console

    return Console(highlight=False, width=width or (None if _has_width() else FILE_WIDTH))
