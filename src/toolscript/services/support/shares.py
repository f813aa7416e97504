"""Shares of what a gateway has too little of for everybody: places for requests, searches and subscriptions, and memory
for the bodies of requests. What does not fit is refused at once: waiting would only make the queue longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from toolscript.domain.access import ShareHolder
from toolscript.domain.errors import Unavailable

# Requests wait for servers behind the gateway most of the time, and take little memory meanwhile.
MAX_REQUESTS = 600
# Searches wait for the processor: 128 take about two seconds, which is as long as a client should wait for one.
MAX_SEARCHES = 128
MAX_SUBSCRIPTIONS = 256
# `/ready` and `/metrics` have places of their own, so that an overloaded gateway can be watched.
MAX_PROBES = 32
# The bodies of all requests in progress, but files that are uploaded: eight of the largest.
MAX_BODIES_BYTES = 128 * 2**20
RETRY_SECONDS = 1.0
# Where others need a key, callers without one have at most a quarter of everything together, and each an eighth of what
# is left.
ANONYMOUS_PART, ANONYMOUS_CALLER_PART = 4, 8


class Shares:
    """A number of places, and who has taken them.

    A caller may have as many as are left for the others: one alone gets half, two who take all they can a third each.
    So nobody has to be known beforehand, and however many greedy callers there are, the next one finds a place."""

    def __init__(self, what: str, total: int) -> None:
        """`what` is what the places are for, in the plural, for error messages."""
        self.what, self.total = what, total
        self._taken: Counter[ShareHolder] = Counter()
        self.taken = 0
        self._anonymous = 0

    @contextmanager
    def hold(self, holder: ShareHolder) -> Iterator[None]:
        """Takes a place for the block. Raises Unavailable with the seconds to wait."""
        self.take(holder)
        try:
            yield
        finally:
            self.give_back(holder)

    def take(self, holder: ShareHolder, count: int = 1) -> None:
        """Takes places, until they are given back. Raises Unavailable with the seconds to wait."""
        left, used = self.total - self.taken, self._taken[holder]
        if holder.is_anonymous:
            left = min(left, self.total // ANONYMOUS_PART - self._anonymous)
        if count > left:
            whose = " of callers without a key" if holder.is_anonymous else ""
            raise _refuse(f"this gateway has as many {self.what}{whose} in progress as it can take")
        if used >= (left / ANONYMOUS_CALLER_PART if holder.is_anonymous else left):
            others = "send a key, or " if holder.is_anonymous else ""
            raise _refuse(
                f"you have {used} {self.what} in progress, and the {left} that are left are for other callers: {others}"
                "wait until some have ended"
            )
        self._taken[holder] += count
        self.taken += count
        self._anonymous += count if holder.is_anonymous else 0

    def give_back(self, holder: ShareHolder, count: int = 1) -> None:
        """Gives back what was taken."""
        self._taken[holder] -= count
        self.taken -= count
        self._anonymous -= count if holder.is_anonymous else 0
        if not self._taken[holder]:
            del self._taken[holder]


def _refuse(problem: str) -> Unavailable:
    return Unavailable(
        f"{problem}. Try again in {RETRY_SECONDS:g} second", details={"retry_after_seconds": RETRY_SECONDS}
    )
