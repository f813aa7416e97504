"""A cache with a maximum size, which drops the least recently used value first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """Values by key. Both `find` and `keep` use a value. Counts how often `find` had a value and how often not."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self.hits = self.misses = 0

    def find(self, key: Key) -> Value | None:
        """The value, if it is still there."""
        if key not in self._values:
            self.misses += 1
            return None
        self.hits += 1
        self._values.move_to_end(key)
        return self._values[key]

    def keep(self, key: Key, value: Value) -> None:
        """Adds or replaces a value."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)
