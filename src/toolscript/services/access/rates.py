"""How often somebody may ask: a bucket of requests for each, that fills again evenly.

Of whoever is limited one number is kept: the moment at which the bucket is full again. Every request moves it by an
even share of the minute, and none is let in that would move it further than a minute away. A request that is refused
costs one look at that number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import islice

from toolscript.domain.errors import RateLimited

MINUTE = 60.0
MOST_BUCKETS = 100_000
# Far more than the error of adding up floats, far less than anybody can measure.
_BLUR_SECONDS = 1e-6
_FORGOTTEN_AT_A_TIME = 2


class Buckets:
    """A bucket for each of many, by name."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_again: dict[str, float] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._full_again)

    def take(self, name: str, per_minute: int) -> float:
        """Takes one request out of the bucket of that name: 0. Takes none where none is left: the seconds until there
        is one."""
        now = self._clock()
        self._forget(now)
        full_again = max(self._full_again.get(name, now), now) + MINUTE / per_minute
        wait = full_again - now - MINUTE
        if wait > _BLUR_SECONDS:
            return math.ceil(wait * 1000) / 1000
        self._full_again.pop(name, None)
        self._full_again[name] = full_again
        return 0.0

    def _forget(self, now: float) -> None:
        """Drops those who have not asked for the longest time: a full bucket says as much as none. Two at a time, so
        that no request pays for all the others."""
        for name in list(islice(self._full_again, _FORGOTTEN_AT_A_TIME)):
            if self._full_again[name] <= now or len(self._full_again) >= MOST_BUCKETS:
                del self._full_again[name]


class Rates:
    """The same limit for every client."""

    def __init__(self, limit_per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        """A limit of 0 is none."""
        self._limit = limit_per_minute
        self._buckets = Buckets(clock)

    def admit(self, client: str) -> None:
        """Counts one request of the client. Raises RateLimited, saying how long to wait."""
        wait = self._buckets.take(client, self._limit) if self._limit else 0.0
        if wait:
            raise RateLimited(
                f"each client may ask {self._limit} times a minute: try again in {wait:g} seconds",
                details={"retry_after_seconds": wait, "requests_per_minute": self._limit},
            )
