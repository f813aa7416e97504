"""Progress on standard error: bars that disappear at the end or, without a terminal, a line from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from toolscript.surfaces.cli.terminal.text import escape_markup

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# How often a line is printed where there is no terminal.
LINE_SECONDS = 10.0
MAX_NAME_CHARACTERS = 40


@contextmanager
def show_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar during the block; yields a function that takes how many are done, and how many there are."""
    with _make_progress() as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def show_job() -> Iterator[JobProgress]:
    """Shows how far an ingest job is during the block: bars in a terminal, elsewhere a line from time to time."""
    with _make_progress() as progress:
        yield JobProgress(progress)


class JobProgress:
    """A bar for all files of a job with rate and remaining time, and one for each file that is being worked on."""

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._clock = clock
        self._started = self._last_line = clock()
        self._total = progress.add_task("Files", total=None, visible=False)
        self._files: dict[int, TaskID] = {}

    def __call__(self, job: Mapping[str, Any], running: Sequence[Mapping[str, Any]]) -> None:
        """Shows a job and those of its files that are being worked on."""
        files = job["files"]
        done = files["total"] - files.get("waiting", 0) - files.get("running", 0)
        seconds = self._clock() - self._started
        detail = describe_rate(done, files["total"], seconds, job["bytes_done"], job["bytes"])
        self._progress.update(
            self._total, completed=done, total=files["total"], visible=True, description=f"Files, {detail}"
        )
        for number in self._files.keys() - {file["number"] for file in running}:
            self._progress.remove_task(self._files.pop(number))
        for file in running:
            if file["number"] not in self._files:
                self._files[file["number"]] = self._progress.add_task(escape_markup(_shorten(file["name"])), total=None)
            self._progress.update(
                self._files[file["number"]], completed=file["steps_done"], total=file["steps"] or None
            )
        if self._progress.disable and self._clock() - self._last_line >= LINE_SECONDS:
            self._last_line = self._clock()
            click.echo(f"{done} of {files['total']} files, {detail}", err=True)


def describe_rate(done: int, total: int, seconds: float, bytes_done: int, bytes_total: int) -> str:
    """How fast it goes, and how long it will take.

    >>> describe_rate(120, 500, 60.0, 25, 100)
    '2.0 a second, about 3 min left'
    >>> describe_rate(0, 500, 1.0, 0, 100)
    'starting'
    """
    if not done or seconds <= 0:
        return "starting"
    share = bytes_done / bytes_total if bytes_done else done / total
    left = seconds * (1 - share) / share
    return f"{done / seconds:.1f} a second, about {_format_seconds(left)} left"


def _format_seconds(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"  # noqa: PLR2004


def _shorten(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARACTERS else f"…{name[1 - MAX_NAME_CHARACTERS :]}"


def _make_progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
