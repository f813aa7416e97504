"""The measure of the escape suites: it fails for a loop that is blocked, and not for a machine that is busy."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.contracts.sandbox.loop_watch import MAX_SECONDS, PAUSE_SECONDS, watch_loop

pytestmark = pytest.mark.extended


async def test_a_loop_that_computes_too_long_is_found() -> None:
    async with watch_loop() as turns:
        await asyncio.sleep(PAUSE_SECONDS)
        end = time.process_time() + 1.5 * MAX_SECONDS
        while time.process_time() < end:
            pass
    with pytest.raises(AssertionError):
        turns.check()


async def test_a_thread_that_keeps_the_lock_of_python_too_long_is_found() -> None:
    began = time.process_time()
    sum(range(10**6))
    numbers = range(int(10**6 * 3 * MAX_SECONDS / (time.process_time() - began)))
    async with watch_loop() as turns:
        await asyncio.sleep(PAUSE_SECONDS)
        await asyncio.to_thread(sum, numbers)
    with pytest.raises(AssertionError):
        turns.check()


async def test_time_that_others_have_taken_is_not_a_fault() -> None:
    async with watch_loop() as turns:
        for _ in range(20):
            await asyncio.sleep(PAUSE_SECONDS)
        time.sleep(2 * MAX_SECONDS)  # noqa: ASYNC251  (as a process that gets no processor)
        for _ in range(20):
            await asyncio.sleep(PAUSE_SECONDS)
    turns.check()
