"""Tables without borders, as wide as the terminal; in a file or pipe, as wide as needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from toolscript.surfaces.cli.terminal.text import escape_markup, printable

if TYPE_CHECKING:
    from rich.console import Console

# For each column, the key of its value in a record, or a function that makes the value of a record.
Columns = Mapping[str, str | Callable[[Any], Any]]

FILE_WIDTH = 200
GAP = 2
# Optional columns are left out before a column is shortened below this width.
MIN_WIDTH = 12


def print_table(
    columns: Columns,
    records: Sequence[Any],
    empty: str = "",
    *,
    shortened: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> None:
    """Prints a row for each record, or `empty` when there is none. The first column is in colour, numbers are
    right-aligned. Strings may contain markup or control characters: they are escaped.

    With columns in `shortened`, each row takes one line. In a narrow terminal these columns are cut off, and the
    columns in `optional` left out; the others stay complete.
    """
    from rich.table import Table
    from rich.text import Text

    if not records:
        click.echo(empty)
        return
    rows = [{name: _get_value(each, source) for name, source in columns.items()} for each in records]
    widths = _choose_widths(rows, shortened, optional) if shortened else {}
    shown = list(widths or columns)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in shown:
        width = widths.get(name)
        table.add_column(
            name,
            justify="right" if isinstance(rows[0][name], int | float) else "left",
            style=None if table.columns else "cyan",
            width=width,
            no_wrap=width is not None,
            overflow="fold" if width is None else "ellipsis",
        )
    for row in rows:
        values = [row[name] for name in shown]
        table.add_row(*(each if isinstance(each, Text) else escape_markup(format_value(each)) for each in values))
    open_console(_sum_widths(widths) if widths else None).print(table)


def format_value(value: Any) -> str:
    """The text of a table cell."""
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def _get_value(record: Any, source: str | Callable[[Any], Any]) -> Any:
    return record[source] if isinstance(source, str) else source(record)


def _choose_widths(
    rows: Sequence[Mapping[str, Any]], shortened: Sequence[str], optional: Sequence[str]
) -> dict[str, int]:
    from rich.cells import cell_len

    texts = {name: [name, *(printable(format_value(row[name])) for row in rows)] for name in rows[0]}
    needed = {name: max(map(cell_len, column)) for name, column in texts.items()}
    if _has_width():
        return _fit_widths(needed, shortened, optional, open_console().width)
    return {name: min(need, FILE_WIDTH) if name in shortened else need for name, need in needed.items()}


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


def open_console(width: int | None = None, *, soft_wrap: bool = False) -> Console:
    """Standard output. In a file or a pipe, lines are not wrapped. Raises BrokenPipeError when the pipe is closed."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=soft_wrap, width=width or (None if _has_width() else FILE_WIDTH))
    console.on_broken_pipe = _raise_again  # type: ignore[method-assign]  # rich's own ends the process with 1
    return console


def _raise_again() -> None:
    raise  # noqa: PLE0704, it is called where the error is handled
