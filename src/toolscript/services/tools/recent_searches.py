"""The last searches of each caller, in memory and for minutes: a call of one of the hits makes the search a success."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from toolscript.domain.access import Caller
from toolscript.domain.lru_cache import LruCache

# An agent reads the results, describes a tool and calls it; after that long it is about something else.
SECONDS = 300.0
# Together some megabytes, if every query is as long as it may be.
MAX_CALLERS = 256
MAX_SEARCHES = 16


class _RecentSearch(NamedTuple):
    at: float
    query: str
    hits: frozenset[str]


class RecentSearches:
    """Remembers the newest searches of the newest callers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._callers: LruCache[Caller, deque[_RecentSearch]] = LruCache(MAX_CALLERS)

    def add(self, caller: Caller, query: str, hits: Iterable[str]) -> None:
        searches = self._callers.find(caller) or deque(maxlen=MAX_SEARCHES)
        searches.append(_RecentSearch(self._clock(), query, frozenset(hits)))
        self._callers.keep(caller, searches)

    def find(self, caller: Caller, item_id: str) -> str | None:
        """The query of the caller's newest search that found the item, if it was within minutes."""
        since = self._clock() - SECONDS
        searches = reversed(self._callers.find(caller) or ())
        return next((search.query for search in searches if search.at >= since and item_id in search.hits), None)
