"""Tables as every command prints them: no lines around them, and as wide as the place they go to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from toolscript.surfaces.cli.terminal import marked

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_OF_A_FILE = 200


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = (), whole: Sequence[str] = ()
) -> None:
    """Prints rows of plain texts, the first column in colour, the columns named in `right` aligned so, those in `whole`
    never folded. The texts may be strangers'."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(
            name,
            justify="right" if name in right else "left",
            style=None if number else "cyan",
            overflow="fold",
            no_wrap=name in whole,
        )
    for row in rows:
        table.add_row(*map(marked, row))
    console().print(table)


def console() -> Console:
    """Standard output. A file or a pipe has no width to fit: a line stays a line."""
    from rich.console import Console

    fits = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if fits else WIDTH_OF_A_FILE)
