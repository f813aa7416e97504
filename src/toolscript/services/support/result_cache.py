"""The results of recent searches, and of running searches for all who ask the same."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from toolscript.domain.search import CacheUse

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class ResultCache(Generic[Key, Result]):
    """The last results by key. A key holds the version of what was searched: results of older versions are never found
    again, and make room for newer results."""

    def __init__(self, *, size: int = 1024) -> None:
        self._size = size
        self._results: OrderedDict[Key, Result] = OrderedDict()
        self._running: dict[Key, asyncio.Future[Result | None]] = {}
        self.use = CacheUse()

    def find(self, key: Key) -> Result | None:
        """The result, if it is still there."""
        if key not in self._results:
            self.use.misses += 1
            return None
        self.use.hits += 1
        self._results.move_to_end(key)
        return self._results[key]

    async def search_once(
        self, key: Key, search: Callable[[], Awaitable[Result]], is_complete: Callable[[Result], bool]
    ) -> Result:
        """Searches once for all who ask for the key at the same time, and keeps a complete result. Raises what `search`
        raises."""
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
        if is_complete(result):
            self.keep(key, result)
        return result

    def keep(self, key: Key, result: Result) -> None:
        """Adds a result; the one that was not needed for longest makes room for it."""
        self._results[key] = result
        self._results.move_to_end(key)
        if len(self._results) > self._size:
            self._results.popitem(last=False)
