"""Tables as every command prints them: no lines around them, and as wide as the place they go to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from toolscript.surfaces.cli.terminal.text import marked, printable

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_OF_A_FILE = 200
GAP = 2
# A column that is cut off has so much at least, before others are left out for it.
SHORTEST = 12


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Prints rows of plain texts, the first column in colour, the columns named in `right` aligned so. The texts may be
    strangers'."""
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
        table.add_row(*map(marked, row))
    console().print(table)


def print_lines(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    short: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """The same, each row on one line. Where there is no room, the columns in `short` are cut off, and those in `spare`
    left out; the others are whole."""
    from rich.cells import cell_len
    from rich.table import Table

    texts = [list(map(printable, row)) for row in rows]
    needed = {name: max(map(cell_len, column)) for name, *column in zip(columns, columns, *texts, strict=True)}
    if _is_to_fit():
        widths = _fitted(needed, short, spare, console().width)
    else:
        widths = {name: min(need, WIDTH_OF_A_FILE) if name in short else need for name, need in needed.items()}
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, width in widths.items():
        style = "cyan" if name == columns[0] else None
        table.add_column(name, justify="right" if name in right else "left", style=style, width=width, no_wrap=True)
    for row in texts:
        table.add_row(*(marked(text) for name, text in zip(columns, row, strict=True) if name in widths))
    console(_room(widths)).print(table)


def _fitted(needed: Mapping[str, int], short: Sequence[str], spare: Sequence[str], room: int) -> dict[str, int]:
    """How wide each column is that is shown."""
    widths = dict(needed)
    least = {name: min(needed[name], SHORTEST) for name in short}
    for name in spare:
        if _room(widths | least) > room:
            del widths[name]
    left = room - _room(widths) + sum(needed[name] for name in short)
    for others, name in reversed(list(enumerate(sorted(short, key=needed.__getitem__, reverse=True), start=1))):
        widths[name] = max(least[name], min(needed[name], left // others))
        left -= widths[name]
    return widths


def _room(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _is_to_fit() -> bool:
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def console(width: int | None = None) -> Console:
    """Standard output. A file or a pipe has no width to fit: a line stays a line."""
    from rich.console import Console

    return Console(highlight=False, width=width or (None if _is_to_fit() else WIDTH_OF_A_FILE))
