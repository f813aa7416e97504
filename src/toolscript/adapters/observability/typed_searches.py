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
# Callers who type at the same time; of more, the series of the first one ends early.
MAX_SERIES = 1000

Event = Mapping[str, Any]


class TypedSearches:
    """Keeps the longest search of each caller's series until the series ends, then passes it on."""

    def __init__(self, record: Callable[[Event], None], *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._record = record
        self._quiet_seconds = quiet_seconds
        self._waiting: dict[tuple[Any, ...], tuple[Event, asyncio.TimerHandle]] = {}

    def add(self, event: Event) -> None:
        """Adds a search to the series of its caller. Raises RuntimeError outside of an event loop."""
        key = tuple(event.get(name) for name in ("type", "caller", "surface", "profile"))
        before = self._waiting.get(key)
        if before is not None:
            if event["query"].startswith(before[0]["query"]):
                self._take(key)
            elif before[0]["query"].startswith(event["query"]):
                event = self._take(key)
            else:
                self._end(key)
        while len(self._waiting) >= MAX_SERIES:
            self._end(next(iter(self._waiting)))
        timer = asyncio.get_running_loop().call_later(self._quiet_seconds, self._end, key)
        self._waiting[key] = event, timer

    def flush(self) -> None:
        """Ends all series."""
        for key in list(self._waiting):
            self._end(key)

    def _take(self, key: tuple[Any, ...]) -> Event:
        event, timer = self._waiting.pop(key)
        timer.cancel()
        return event

    def _end(self, key: tuple[Any, ...]) -> None:
        self._record(self._take(key))
