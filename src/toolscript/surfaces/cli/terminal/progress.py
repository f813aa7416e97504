"""How far a long command is: bars on standard error that are gone when it is done, and nothing where nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from toolscript.surfaces.cli.terminal.text import marked

if TYPE_CHECKING:
    from rich.progress import Progress

LONGEST_NAME = 40


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with that name for as long as the block lasts; call what is yielded with how many are done, and of how
    many."""
    with _progress() as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


@contextmanager
def bars(what: str, count: int) -> Iterator[Bars]:
    """A bar for all that there is to do, and one for what is being done, for as long as the block lasts."""
    with _progress() as shown:
        yield Bars(shown, what, count)


class Bars:
    """Two bars: how many of all are done, and how far the one is that is being done."""

    def __init__(self, shown: Progress, what: str, count: int) -> None:
        self._shown = shown
        self._all = shown.add_task(what, total=count, visible=count > 1)
        self._one = shown.add_task("", visible=False)

    def begin(self, name: str) -> None:
        """What is being done from now on."""
        short = name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"
        self._shown.remove_task(self._one)
        self._one = self._shown.add_task(marked(short), total=None)

    def update(self, done: int, total: int) -> None:
        """How far it is."""
        self._shown.update(self._one, completed=done, total=total)

    def end(self) -> None:
        """It is done, or cannot be."""
        self._shown.advance(self._all)

    def say(self, line: str, *, err: bool = False) -> None:
        """Prints a line, with the bars out of its way."""
        self._shown.stop()
        click.echo(line, err=err)
        self._shown.start()


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
