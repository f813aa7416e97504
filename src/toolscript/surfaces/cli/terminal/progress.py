"""Progress bars on standard error. They disappear at the end, and are not shown without a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolscript.surfaces.cli.terminal.text import escape_markup

if TYPE_CHECKING:
    from rich.progress import Progress

MAX_NAME_CHARACTERS = 40


@contextmanager
def show_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar during the block; yields a function that takes how many are done, and how many there are."""
    with _make_progress() as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def show_bars(title: str, number: int) -> Iterator[Bars]:
    """Shows a bar for that many items, and one for the current item, during the block."""
    with _make_progress() as progress:
        yield Bars(progress, title, number)


class Bars:
    """Two bars: how many items are done, and how much of the current one."""

    def __init__(self, progress: Progress, title: str, number: int) -> None:
        self._progress = progress
        self._all = progress.add_task(title, total=number, visible=number > 1)
        self._current = progress.add_task("", visible=False)

    @contextmanager
    def show_item(self, name: str) -> Iterator[Callable[[int, int], None]]:
        """Shows an item during the block; yields a function that takes how much of it is done, and how much there
        is."""
        short = name if len(name) <= MAX_NAME_CHARACTERS else f"…{name[1 - MAX_NAME_CHARACTERS :]}"
        self._progress.remove_task(self._current)
        self._current = self._progress.add_task(escape_markup(short), total=None)
        try:
            yield lambda done, total: self._progress.update(self._current, completed=done, total=total)
        finally:
            self._progress.advance(self._all)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Hides the bars during the block, so that it can print lines."""
        self._progress.stop()
        yield
        self._progress.start()


def _make_progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
