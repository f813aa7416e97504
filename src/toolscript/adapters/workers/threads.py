"""Threads for the blocking calls to one store or index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from toolscript.adapters.storage.outages import Outage, OutageWatch
from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits

T = TypeVar("T")


class WorkerThreads:
    """Runs functions in a fixed number of threads. Each function limits its own time."""

    def __init__(self, part: str, count: int) -> None:
        """`part` is "store" or "index", for messages and names of threads."""
        self._part = part
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=part)
        self._outages = OutageWatch(part)
        self._is_closed = False

    async def run(self, work: Callable[[], T]) -> T:
        """The function's result. Raises what it raises, and Unavailable when no thread was free in time: then the
        function does not run."""
        if self._is_closed:
            raise Unavailable(f"the {self._part} is closed", details={"adapter": self._part})
        with self._outages.watch():
            job = self._threads.submit(work)
            seconds = current_limits().free_thread
            timer = asyncio.get_running_loop().call_later(seconds, job.cancel)  # no effect once it has begun
            try:
                return await asyncio.wrap_future(job)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task and task.cancelling():
                    raise
                raise Outage(f"the {self._part} was busy for {seconds:g} seconds") from None
            finally:
                timer.cancel()

    def run_and_wait(self, work: Callable[[], T]) -> T:
        """The function's result, for a thread that waits. Raises what it raises."""
        return self._threads.submit(work).result()

    def close(self) -> None:
        """Waits for the running functions."""
        self._is_closed = True
        self._threads.shutdown()
