"""Joins the searches that a page makes while somebody types, so that the audit has one event for a request instead of
one for each letter.

A search is only left out where another one whose request begins with the same words is kept: nobody can hide what was
searched for by saying that it was typed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

# Longer than people rest between two letters; the last search of a series is in the audit so much later.
QUIET_SECONDS = 2.0
# A series that goes on is in the audit after so long: nobody can keep one from being written by feeding it.
MAX_SERIES_SECONDS = 10.0
# Callers who type at the same time; of more, the series of the first one ends early.
MAX_SERIES = 1000

Event = Mapping[str, Any]


class TypedSearches:
    """Keeps the longest search of each caller's series until the series ends, then passes it on."""

    def __init__(
        self,
        record: Callable[[Event], None],
        *,
        quiet_seconds: float = QUIET_SECONDS,
        max_seconds: float = MAX_SERIES_SECONDS,
    ) -> None:
        self._record = record
        self._quiet_seconds = quiet_seconds
        self._max_seconds = max_seconds
        self._waiting: dict[tuple[Any, ...], tuple[Event, float, asyncio.TimerHandle]] = {}

    def add(self, event: Event) -> None:
        """Adds a search to the series of its caller. Raises RuntimeError outside of an event loop."""
        loop = asyncio.get_running_loop()
        key = tuple(event.get(name) for name in ("type", "caller", "surface", "profile"))
        ends_at = loop.time() + self._max_seconds
        if key in self._waiting:
            before, end = self._waiting[key][:2]
            joined = _choose(before, event)
            if joined is None or end <= loop.time():
                self._end(key)
            else:
                self._take(key)
                event, ends_at = joined, end
        while len(self._waiting) >= MAX_SERIES:
            self._end(next(iter(self._waiting)))
        timer = loop.call_at(min(loop.time() + self._quiet_seconds, ends_at), self._end, key)
        self._waiting[key] = event, ends_at, timer

    def flush(self) -> None:
        """Ends all series."""
        for key in list(self._waiting):
            self._end(key)

    def _take(self, key: tuple[Any, ...]) -> Event:
        event, _, timer = self._waiting.pop(key)
        timer.cancel()
        return event

    def _end(self, key: tuple[Any, ...]) -> None:
        self._record(self._take(key))


def _choose(before: Event, after: Event) -> Event | None:
    """The search that stands for both; None if each has to be kept: they do not begin alike, or the longer one failed
    and the other did not."""
    if after["query"].startswith(before["query"]):
        kept, dropped = after, before
    elif before["query"].startswith(after["query"]):
        kept, dropped = before, after
    else:
        return None
    return None if kept.get("error") and not dropped.get("error") else kept
