"""Rate limits as token buckets that refill evenly.

Each bucket is one number: the time at which it is full again. A request moves it by its share of a minute, and is
refused when the result would be more than a minute away.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import islice

from toolscript.domain.errors import RateLimited
from toolscript.ports.access import RateBuckets

MINUTE = 60.0
MAX_BUCKETS = 100_000
# Much more than the rounding error of floats, much less than a client can measure.
_TOLERANCE_SECONDS = 1e-6
_CLEANUP_BATCH = 2


class Buckets:
    """The token buckets of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_again: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_again)

    async def take(self, name: str, per_minute: int) -> float:
        now = self._clock()
        self._drop_old(now)
        full_again = max(self._full_again.get(name, now), now) + MINUTE / per_minute
        wait = full_again - now - MINUTE
        if wait > _TOLERANCE_SECONDS:
            return math.ceil(wait * 1000) / 1000
        self._full_again.pop(name, None)
        self._full_again[name] = full_again
        return 0.0

    def _drop_old(self, now: float) -> None:
        """Drops full buckets (a full bucket means the same as none), and the least recently used when there are too
        many. Two at a time, so that no request takes long."""
        for name in list(islice(self._full_again, _CLEANUP_BATCH)):
            if self._full_again[name] <= now or len(self._full_again) >= MAX_BUCKETS:
                del self._full_again[name]


class Rates:
    """The same limit for every client."""

    def __init__(self, limit_per_minute: int, buckets: RateBuckets | None = None) -> None:
        """A limit of 0 means no limit. Without `buckets`, this process counts alone."""
        self._limit = limit_per_minute
        self._buckets = Buckets() if buckets is None else buckets

    async def admit(self, client: str) -> None:
        """Counts one request of the client. Raises RateLimited with the seconds to wait."""
        wait = await self._buckets.take(f"client {client}", self._limit) if self._limit else 0.0
        if wait:
            raise RateLimited(
                f"each client may send {self._limit} requests a minute: try again in {wait:g} seconds",
                details={"retry_after_seconds": wait, "requests_per_minute": self._limit},
            )
