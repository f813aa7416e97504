"""Samples, rows and tables: the form in which every benchmark reports."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")
Operation = Callable[[T], Awaitable[object]]

# The two sides take turns in blocks: one by one, idle threads of one side would still spin while the other runs.
BLOCK = 20
COLUMNS = ("What", "Size", "p50", "p95", "Per second", "Reference", "Its p50", "Time ÷ reference")


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds per operation. `rate` is set where operations ran concurrently: then the wall clock gives the rate."""

    seconds: Sequence[float]
    rate: float | None = None

    @property
    def p50(self) -> float:
        return float(np.percentile(self.seconds, 50))

    @property
    def p95(self) -> float:
        return float(np.percentile(self.seconds, 95))

    @property
    def per_second(self) -> float:
        return self.rate or 1 / self.p50


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement and its reference."""

    what: str
    size: str
    ours: Sample
    reference: str
    beside: Sample

    def cells(self) -> tuple[str, ...]:
        return (
            self.what,
            self.size,
            format_duration(self.ours.p50),
            format_duration(self.ours.p95),
            format_number(self.ours.per_second),
            self.reference,
            format_duration(self.beside.p50),
            format_number(self.beside.per_second / self.ours.per_second),
        )


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page: title, rows of text, and a note for the reader."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        lines = [f"**{self.title}**", "", *([self.note, ""] if self.note else [])]
        lines += [_line(self.columns), _line(["---"] * len(self.columns)), *map(_line, self.rows)]
        return "\n".join(lines)


def compare_table(title: str, rows: Sequence[Row], note: str = "") -> Table:
    """Builds a table of timings, each beside its reference."""
    return Table(title, COLUMNS, [row.cells() for row in rows], note)


async def side_by_side(inputs: Sequence[T], ours: Operation[T], reference: Operation[T]) -> tuple[Sample, Sample]:
    """Times both on the same inputs, taking turns, so that a slow moment of the machine meets both."""
    mine: list[float] = []
    theirs: list[float] = []
    for start in range(0, len(inputs), BLOCK):
        block = inputs[start : start + BLOCK]
        mine += [await measure_seconds(ours, each) for each in block]
        theirs += [await measure_seconds(reference, each) for each in block]
    return Sample(mine), Sample(theirs)


async def measure_seconds(operation: Operation[T], given: T) -> float:
    """The seconds that one operation takes."""
    started = time.perf_counter()
    await operation(given)
    return time.perf_counter() - started


def format_duration(value: float) -> str:
    """Seconds in a readable unit."""
    if value < 1e-3:
        return f"{format_number(value * 1e6)} µs"
    if value < 1:
        return f"{format_number(value * 1e3)} ms"
    return f"{format_number(value)} s"


def format_number(value: float) -> str:
    """A number with three digits: measurements are noisy."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
