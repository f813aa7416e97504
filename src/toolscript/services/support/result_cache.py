"""The results of recent searches, and of running searches for all who ask the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol, TypeVar

from toolscript.domain.lru_cache import LruCache
from toolscript.domain.search import SearchReport


class Reported(Protocol):
    """A result with a report of its search."""

    @property
    def report(self) -> SearchReport: ...


Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result", bound=Reported)


class ResultCache(LruCache[Key, Result]):
    """The last results by key. A key holds the version of what was searched: results of older versions are never found
    again, and make room for newer results."""

    def __init__(self, *, size: int = 1024) -> None:
        super().__init__(size)
        self._running: dict[Key, asyncio.Future[Result | None]] = {}

    async def find_or_search(
        self, key: Key, search: Callable[[], Awaitable[Result]], can_keep: Callable[[], bool], report: SearchReport
    ) -> Result:
        """The result that is there, or a new one, whose stages are added to the report. Searches once for all who ask
        for the key at the same time, and keeps a result that had to do without nothing. Raises what `search` raises."""
        result = self.find(key)
        if result is None:
            result = await self._search_once(key, search)
            report.timings_ms.update(result.report.timings_ms)
            report.degraded += result.report.degraded
            if can_keep() and not result.report.degraded:
                self.keep(key, result)
        return result

    async def _search_once(self, key: Key, search: Callable[[], Awaitable[Result]]) -> Result:
        while (running := self._running.get(key)) is not None:
            shared = await asyncio.shield(running)
            if shared is not None:
                return shared
        running = self._running[key] = asyncio.get_running_loop().create_future()
        result = None
        try:
            result = await search()
        finally:  # without a result this search failed or was cancelled, and the next one that waits searches itself
            del self._running[key]
            running.set_result(result)
        return result
