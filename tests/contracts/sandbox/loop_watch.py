"""Measures how long an event loop cannot answer anybody, apart from what a busy machine takes from it."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from toolscript.surfaces.cli.commands.gateway import SWITCH_INTERVAL_SECONDS

PAUSE_SECONDS = 0.002
MAX_SECONDS = 0.1


class Delays:
    """How long things took: by the clock, and by the processor time of this process."""

    def __init__(self) -> None:
        self._measured = [(0.0, 0.0)]

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measures the block."""
        began, began_processor = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self._measured.append((time.perf_counter() - began, time.process_time() - began_processor))

    def check(self) -> None:
        """Fails if a gateway could not have answered `/health` in time.

        A delay counts only as far as this process has used the processor meanwhile: that is the loop itself, or a
        thread that kept Python's lock. The rest of it other processes have taken: of that only the median is asserted.
        """
        assert max(map(min, self._measured)) < MAX_SECONDS
        assert statistics.median(seconds for seconds, _ in self._measured) < MAX_SECONDS


@asynccontextmanager
async def watch_loop() -> AsyncIterator[Delays]:
    """Measures the turns of the loop that runs, until the block ends. Threads hand Python's lock over as often as in a
    gateway."""
    turns, switch_interval = Delays(), sys.getswitchinterval()

    async def take_turns() -> None:
        while True:
            with turns.measure():
                await asyncio.sleep(PAUSE_SECONDS)

    watching = asyncio.create_task(take_turns())
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    try:
        yield turns
    finally:
        sys.setswitchinterval(switch_interval)
        watching.cancel()
        await asyncio.wait([watching])
