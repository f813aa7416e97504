"""Progress on standard error: bars that disappear at the end or, without a terminal, a line from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from toolscript.surfaces.cli.terminal.text import escape_markup, format_count, format_size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# How often a line is printed where there is no terminal.
LINE_SECONDS = 10.0
# Before, a rate would be chance.
MIN_RATE_SECONDS = 2.0
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
        self._last_line = clock()
        self._start: JobStart | None = None
        self._total = progress.add_task("Files", total=None, visible=False)
        self._files: dict[int, TaskID] = {}

    def __call__(self, job: Mapping[str, Any], running: Sequence[Mapping[str, Any]]) -> None:
        """Shows a job and its files in progress."""
        files = job["files"]
        done = files["total"] - files.get("waiting", 0) - files.get("running", 0)
        bytes_done = job["bytes_done"] + sum(map(_estimate_bytes_done, running))
        self._start = self._start or JobStart(self._clock(), done, bytes_done)
        left = files["total"] - done, job["bytes"] - bytes_done
        detail = self._start.describe_rest(self._clock(), done, bytes_done, *left)
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
            click.echo(f"{done} of {format_count(files['total'], 'file')}, {detail}", err=True)


@dataclass(frozen=True, slots=True)
class JobStart:
    """How far a job was when it was first seen: files that have not changed are done at once, and are no rate."""

    time: float
    done: int
    bytes_done: float

    def describe_rest(self, now: float, done: int, bytes_done: float, files_left: int, bytes_left: float) -> str:
        """How many files a minute, how many are left, and how long they will take, by their sizes.

        >>> start = JobStart(0.0, 100, 5e6)
        >>> start.describe_rest(60.0, 124, 6e6, 161, 3e6)
        '24 a minute, 161 left (3.0 MB), about 3 min'
        >>> start.describe_rest(1.0, 100, 5e6, 185, 4e6)
        '185 left (4.0 MB)'
        """
        seconds, size = now - self.time, bytes_done - self.bytes_done
        rest = f"{files_left} left ({format_size(round(bytes_left))})"
        if seconds < MIN_RATE_SECONDS or size <= 0:
            return rest
        rate = (done - self.done) * 60 / seconds
        return f"{rate:.0f} a minute, {rest}, about {_format_seconds(seconds * bytes_left / size)}"


def _estimate_bytes_done(file: Mapping[str, Any]) -> float:
    """How much of a file that is being worked on is done."""
    return float(file["bytes"] * file["steps_done"] / file["steps"]) if file["steps"] else 0.0


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
