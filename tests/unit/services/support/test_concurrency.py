"""Concurrent work ends together and leaves no task running."""

from __future__ import annotations

import asyncio

import pytest

from toolscript.services.support.concurrency import run_all


async def test_a_failure_cancels_the_other_work_and_is_raised_without_a_leftover_cancellation() -> None:
    cancelled = asyncio.Event()

    async def fail() -> None:
        raise ValueError("out of ink")

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(ValueError, match="out of ink"):
        await run_all([wait(), fail()])
    assert cancelled.is_set()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_all_work_is_done_when_nothing_fails() -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        await asyncio.sleep(0)
        done.append(number)

    await run_all(work(number) for number in range(5))
    assert sorted(done) == list(range(5))
