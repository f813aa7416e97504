"""Waiting within a limit is awaiting, and nothing else, but for the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from toolscript.services.support.deadlines import within

A_MOMENT, LONG = 0.02, 60.0


async def answering(*steps: Awaitable[Any]) -> str:
    for step in steps:
        await step
    return "answer"


async def test_what_is_known_is_told_without_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_timer(_: float) -> None:
        raise AssertionError("a timer was set")

    monkeypatch.setattr(asyncio, "timeout", no_timer)
    assert await within(LONG, answering()) == "answer"
    with pytest.raises(AssertionError, match="a timer was set"):
        await within(LONG, answering(asyncio.sleep(0)))


async def test_what_takes_several_steps_is_waited_for() -> None:
    soon = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(A_MOMENT, soon.set_result, None)
    assert await within(LONG, answering(asyncio.sleep(0), soon, asyncio.sleep(0))) == "answer"


async def test_what_takes_too_long_is_ended_and_may_clean_up() -> None:
    done: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("cleaned up")

    with pytest.raises(TimeoutError):
        await within(A_MOMENT, stubborn())
    assert done == ["cleaned up"]


async def test_what_answers_when_it_is_told_to_stop_is_heard() -> None:
    async def late() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "never"

    assert await within(A_MOMENT, late()) == "late"


async def test_whoever_stops_waiting_ends_the_work() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(within(LONG, work()))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()


@pytest.mark.parametrize("steps", [0, 2])
async def test_a_failure_is_told_as_it_is(steps: int) -> None:
    async def failing() -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await within(LONG, failing())
