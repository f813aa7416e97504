"""Measures how long an event loop cannot answer anybody, apart from what a busy machine takes from it."""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.fixtures.examples import is_thorough
from toolscript.surfaces.cli.commands.gateway import GC_THRESHOLDS, SWITCH_INTERVAL_SECONDS

SCHEDULER_STATISTICS = Path("/proc/thread-self/schedstat")
PAUSE_SECONDS = 0.002
# In `make test` twenty times what it promises, for slow machines and coverage: what holds a loop up does so longer.
MAX_SECONDS = 0.1 if is_thorough() and sys.gettrace() is None else 2.0


class Delays:
    """How long things took: without the time in which this thread waited for a processor, and the processor time of
    this process."""

    def __init__(self) -> None:
        self._measured = [(0.0, 0.0)]

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measures the block."""
        began, began_processor = _read_clock(), time.process_time()
        try:
            yield
        finally:
            self._measured.append((_read_clock() - began, time.process_time() - began_processor))

    def check(self) -> None:
        """Fails if a gateway could not have answered `/health` in time.

        A delay counts only as far as this process has used the processor meanwhile: that is the loop itself, or a
        thread that kept Python's lock. The rest of it other processes have taken: of that only the median is asserted.
        """
        assert max(map(min, self._measured)) < MAX_SECONDS
        assert statistics.median(seconds for seconds, _ in self._measured) < MAX_SECONDS


def _read_clock() -> float:
    """Seconds that this thread ran or slept; where the system does not tell, with those that it waited to run."""
    try:
        waited = int(SCHEDULER_STATISTICS.read_text().split()[1]) / 1e9
    except OSError:
        waited = 0.0
    return time.perf_counter() - waited


@asynccontextmanager
async def watch_loop() -> AsyncIterator[Delays]:
    """Measures the turns of the loop that runs, until the block ends. Garbage is collected, and threads hand Python's
    lock over, as in a gateway: not among what all earlier tests have left."""
    turns, switch_interval, thresholds = Delays(), sys.getswitchinterval(), gc.get_threshold()

    async def take_turns() -> None:
        while True:
            with turns.measure():
                await asyncio.sleep(PAUSE_SECONDS)

    watching = asyncio.create_task(take_turns())
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    gc.collect()
    gc.freeze()
    await asyncio.sleep(0)  # the first turn begins before the block
    try:
        yield turns
    finally:
        sys.setswitchinterval(switch_interval)
        gc.set_threshold(*thresholds)
        watching.cancel()
        await asyncio.wait([watching])
