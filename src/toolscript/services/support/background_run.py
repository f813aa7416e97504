"""Work that runs in the background whenever it is requested."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

log = logging.getLogger(__name__)


class BackgroundRun:
    """Runs work one run at a time, and at most every `interval` seconds. A request during a run leads to another run; a
    run that fails is logged, and the next request leads to the next one."""

    def __init__(self, work: Callable[[], Awaitable[object]], *, name: str, interval: float) -> None:
        self._work = work
        self._name = name
        self._interval = interval
        self._task: asyncio.Task[None] | None = None
        self._is_requested = False
        self._next_run_at = 0.0

    def start_soon(self) -> None:
        """Requests a run."""
        self._is_requested = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=self._name)

    async def close(self) -> None:
        """Ends the run."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        now = asyncio.get_running_loop().time
        try:
            while self._is_requested:
                await asyncio.sleep(self._next_run_at - now())
                self._is_requested, self._next_run_at = False, now() + self._interval
                await self._work()
        except Exception:
            log.exception("background_run_failed", extra={"run": self._name})
