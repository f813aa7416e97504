"""How many programs run at a time: in all, and of one caller, so that nobody's programs keep out other callers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from toolscript.domain.access import Caller
from toolscript.domain.errors import RateLimited, ToolscriptError, Unavailable
from toolscript.services.code.host import RunCaller

MAX_RUNS = 8
MAX_RUNS_OF_USER = 3
# Who has no name of its own is the owner, with all its agents.
MAX_RUNS_OF_OWNER = 6
# A program that calls a workflow waits for it. Each level has slots of its own, so that no program waits for one that
# waits for it.
MAX_NESTED_RUNS = 4
MAX_NESTED_RUNS_OF_CALLER = 2
WAIT_SECONDS = 10.0
RETRY_SECONDS = 1.0


class RunSlots:
    """Lets programs run, each in a slot; others wait for one."""

    def __init__(self, wait_seconds: float = WAIT_SECONDS) -> None:
        self._wait_seconds = wait_seconds
        self._all = defaultdict(lambda: asyncio.Semaphore(MAX_NESTED_RUNS), {0: asyncio.Semaphore(MAX_RUNS)})
        # Those of callers without programs are dropped.
        self._by_caller: WeakValueDictionary[tuple[Caller, int], asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, caller: RunCaller, level: int = 0) -> AsyncIterator[None]:
        """Holds a slot for the block. `level` is the number of programs that wait for this one.

        Raises RateLimited when the caller's own programs take too long to end, and Unavailable when the programs of all
        callers do.
        """
        seconds = self._wait_seconds
        count = MAX_NESTED_RUNS_OF_CALLER if level else MAX_RUNS_OF_USER if caller.relay.user else MAX_RUNS_OF_OWNER
        semaphore = self._by_caller.setdefault((caller.caller, level), asyncio.Semaphore(count))
        # How long a nested program waits for others of its caller is limited by the one that waits for it.
        waits_for_caller = _hold(semaphore, None if level else seconds, _build_caller_error(count))
        async with waits_for_caller, _hold(self._all[level], seconds, _build_busy_error(level)):
            yield


@asynccontextmanager
async def _hold(slots: asyncio.Semaphore, seconds: float | None, error: ToolscriptError) -> AsyncIterator[None]:
    """Raises the error when no slot gets free within these seconds."""
    try:
        async with asyncio.timeout(seconds):
            await slots.acquire()
    except TimeoutError:
        raise error from None
    try:
        yield
    finally:
        slots.release()


def _build_caller_error(count: int) -> RateLimited:
    return RateLimited(
        f"{count} of your programs are running, as many as you may run at a time: try again when one has ended, or "
        "make one program of them",
        details={"retry_after_seconds": RETRY_SECONDS, "concurrent_runs": count},
    )


def _build_busy_error(level: int) -> Unavailable:
    count, what = (MAX_NESTED_RUNS, "workflows that programs call") if level else (MAX_RUNS, "programs")
    return Unavailable(
        f"{count} {what} are running here, as many as can run at a time: try again when one has ended",
        details={"retry_after_seconds": RETRY_SECONDS},
    )
