"""Decides on the calls that reach a server: limits per key, caller, server and tool, and a pause for servers that keep
failing.

Rates are counted in buckets that gateways on one PostgreSQL share; concurrent calls and failures, by each process.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from toolscript.domain.access import NO_LIMIT, CallLimit
from toolscript.domain.catalog import Item
from toolscript.domain.errors import LoginRequired, RateLimited, TimedOut, Unavailable, UpstreamFailed
from toolscript.domain.profiles import Profile
from toolscript.domain.requests import current_request
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.ports.access import RateBuckets

DEFAULT_FAILURES = 5
DEFAULT_PAUSE_SECONDS = 30.0
# A caller may choose a short timeout: only calls that got at least this part of the default one count as failures.
PATIENT_SHARE = 0.5
BUSY_SECONDS = 1.0

Clock = Callable[[], float]


class CircuitBreaker:
    """Refuses calls to a server after so many failures in a row. After a pause one call is tried: if it succeeds, calls
    are admitted again, otherwise there is another pause. Answers of the server are successes, errors too."""

    def __init__(self, server: str, failures: int, pause_seconds: float, clock: Clock) -> None:
        self._server = server
        self._max_failures, self._pause_seconds = failures, pause_seconds
        self._clock = clock
        self._failures = 0
        self._reason = ""
        self._failed_at = -math.inf
        self._has_trial = False

    @property
    def pause_left(self) -> float | None:
        """The seconds until a call is tried; None while calls are admitted."""
        if not self._max_failures or self._failures < self._max_failures:
            return None
        return max(0.0, self._failed_at + self._pause_seconds - self._clock())

    @contextmanager
    def watch(self, patient_seconds: float) -> Iterator[None]:
        """Admits a call and notes how it ends. Raises Unavailable during a pause."""
        began, is_trial = self._clock(), self._admit()
        try:
            yield
        except (Unavailable, UpstreamFailed) as error:
            is_lost = isinstance(error, Unavailable) or isinstance(error.__cause__, Unavailable)
            if is_lost and not isinstance(error, LoginRequired):
                self._fail(began, error.message)
            elif not is_lost:
                self._failures = 0
            raise
        except (TimedOut, TimeoutError, asyncio.CancelledError):
            if self._clock() - began >= patient_seconds:
                self._fail(began, f"no answer within {self._clock() - began:.0f} s")
            raise
        else:
            self._failures = 0
        finally:
            self._has_trial = self._has_trial and not is_trial

    def _admit(self) -> bool:
        """Whether the call is the one that is tried. Raises Unavailable."""
        left = self.pause_left
        if left is None:
            return False
        if left > 0 or self._has_trial:
            when = f"in {math.ceil(left)} seconds" if left > 0 else "by a call that is running: wait for it"
            raise Unavailable(
                f"calls to the server {self._server} are paused after {self._failures} failures in a row "
                f"({self._reason}): it is tried again {when}",
                details={"server": self._server, "retry_after_seconds": round(left, 1)},
            )
        self._has_trial = True
        return True

    def _fail(self, began: float, reason: str) -> None:
        """Counts a failure; calls that ran at the same time fail together and count once."""
        if began >= self._failed_at:
            self._failures += 1
            self._failed_at = self._clock()
            self._reason = reason


class CallAdmission:
    """Admits calls to servers."""

    def __init__(
        self,
        buckets: RateBuckets | None = None,
        *,
        find_profile: Callable[[str], Profile | None] = lambda _: None,
        failures: int = DEFAULT_FAILURES,
        pause_seconds: float = DEFAULT_PAUSE_SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        """Without `buckets` rates are not limited; with 0 `failures` no server is ever paused."""
        self._buckets = buckets
        self._find_profile = find_profile
        self._failures, self._pause_seconds = failures, pause_seconds
        self._clock = clock
        self._running: Counter[str] = Counter()
        self._breakers: dict[str, CircuitBreaker] = {}

    def find_pause(self, server: str) -> float | None:
        """The seconds until calls to a paused server are tried; None if it is not paused."""
        breaker = self._breakers.get(server)
        return breaker.pause_left if breaker else None

    def forget(self, server: str) -> None:
        """Forgets the failures of a server after a change of its configuration."""
        self._breakers.pop(server, None)

    @asynccontextmanager
    async def admit(self, item: Item, spec: ServerSpec, default_seconds: float) -> AsyncIterator[None]:
        """Admits a call for the block. Raises RateLimited with the seconds to wait, or Unavailable.

        A workflow counts as a program does: not at a time, because the calls inside need that. Its server is in this
        process and cannot be lost: what takes too long there is one caller's program."""
        if spec.transport is Transport.INTERNAL:
            await self.count_run()
            yield
            return
        if spec.name not in self._breakers:
            self._breakers[spec.name] = CircuitBreaker(spec.name, self._failures, self._pause_seconds, self._clock)
        limits = [
            *self._list_caller_limits(),
            (f"calls to the server {spec.name}", f"server {spec.name}", spec.limit),
            (f"calls of {item.id}", f"tool {item.id}", spec.find_tool_limit(item.name)),
        ]
        limits = [bucket for bucket in limits if bucket[2] != NO_LIMIT]
        for what, name, limit in limits:
            if limit.concurrent is not None and self._running[name] >= limit.concurrent:
                raise RateLimited(
                    f"{what} are limited to {limit.concurrent} at a time, and so many are running: try again when one "
                    "has ended",
                    details={"retry_after_seconds": BUSY_SECONDS, "concurrent_calls": limit.concurrent},
                )
        with self._breakers[spec.name].watch(default_seconds * PATIENT_SHARE):
            names = [name for _, name, limit in limits if limit.concurrent is not None]
            self._running.update(names)
            try:
                for what, name, limit in limits:
                    await self._take(what, name, limit)
                yield
            finally:
                self._running.subtract(names)
                self._running += Counter()  # drops names without running calls

    async def count_run(self) -> None:
        """Counts a program as one call of its caller a minute. Not at a time, because its calls need that. Raises
        RateLimited with the seconds to wait."""
        for what, name, limit in self._list_caller_limits():
            await self._take(what, name, limit)

    def _list_caller_limits(self) -> list[tuple[str, str, CallLimit]]:
        """How many calls the key of the request allows, and its profile each of its callers."""
        request = current_request()
        caller, profile = request.caller, self._find_profile(request.profile) if request.profile else None
        return [
            (f"calls with the key {caller}", f"key {caller}", request.limit),
            (f"calls of {caller}", f"caller {caller}", profile.limit if profile else NO_LIMIT),
        ]

    async def _take(self, what: str, name: str, limit: CallLimit) -> None:
        if limit.per_minute is None or self._buckets is None:
            return
        wait = await self._buckets.take(f"calls {name}", limit.per_minute)
        if wait:
            raise RateLimited(
                f"{what} are limited to {limit.per_minute} a minute: try again in {wait:g} seconds",
                details={"retry_after_seconds": wait, "calls_per_minute": limit.per_minute},
            )
