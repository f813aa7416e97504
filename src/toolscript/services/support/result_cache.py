"""The results of recent searches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
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
        self.use = CacheUse()

    def find(self, key: Key) -> Result | None:
        """The result, if it is still there."""
        if key not in self._results:
            self.use.misses += 1
            return None
        self.use.hits += 1
        self._results.move_to_end(key)
        return self._results[key]

    def keep(self, key: Key, result: Result) -> None:
        """Adds a result; the one that was not needed for longest makes room for it."""
        self._results[key] = result
        self._results.move_to_end(key)
        if len(self._results) > self._size:
            self._results.popitem(last=False)
