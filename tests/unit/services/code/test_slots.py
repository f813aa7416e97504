"""How many programs run at a time, in all and of one caller."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from toolscript.domain.access import Caller
from toolscript.domain.errors import RateLimited, Unavailable
from toolscript.domain.servers import CallRelay
from toolscript.services.code.host import RunCaller
from toolscript.services.code.slots import (
    MAX_NESTED_RUNS,
    MAX_NESTED_RUNS_OF_CALLER,
    MAX_RUNS,
    MAX_RUNS_OF_OWNER,
    MAX_RUNS_OF_USER,
    RunSlots,
)
from toolscript.surfaces.callers import OWNER

pytestmark = pytest.mark.req("C-02")

OWNED = RunCaller(OWNER, CallRelay(user=""), may_search=True)


def make_user(name: str) -> RunCaller:
    return RunCaller(Caller(name), CallRelay(user=name), may_search=True)


async def test_the_programs_of_one_user_leave_slots_to_others() -> None:
    slots, one, other = RunSlots(wait_seconds=0.01), make_user("one"), make_user("other")
    async with AsyncExitStack() as running:
        for _ in range(MAX_RUNS_OF_USER):
            await hold(running, slots, one)
        with pytest.raises(RateLimited, match=r"^3 of your programs are running, .*: try again when one has ended"):
            await hold(running, slots, one)
        await hold(running, slots, other)
    async with slots.take(one):
        pass


async def test_the_owner_leaves_slots_to_others() -> None:
    slots = RunSlots(wait_seconds=0.01)
    async with AsyncExitStack() as running:
        for _ in range(MAX_RUNS_OF_OWNER):
            await hold(running, slots, OWNED)
        with pytest.raises(RateLimited, match=r"^6 of your programs"):
            await hold(running, slots, OWNED)
        await hold(running, slots, make_user("other"))


async def test_all_callers_share_the_slots() -> None:
    slots = RunSlots(wait_seconds=0.01)
    async with AsyncExitStack() as running:
        for number in range(MAX_RUNS):
            await hold(running, slots, make_user(f"user {number}"))
        with pytest.raises(Unavailable, match=r"^8 programs are running here"):
            await hold(running, slots, make_user("late"))


async def test_a_program_waits_for_one_that_ends() -> None:
    slots, one = RunSlots(), make_user("one")
    async with AsyncExitStack() as running:
        for _ in range(MAX_RUNS_OF_USER):
            await hold(running, slots, one)
        waiting = asyncio.create_task(hold(running, slots, one))
        await asyncio.sleep(0)
        assert not waiting.done()
        await running.aclose()
        await waiting
        await running.aclose()


async def test_what_a_program_calls_needs_no_slot_of_its_callers() -> None:
    slots, one = RunSlots(wait_seconds=0.01), make_user("one")
    inside, leave = asyncio.Barrier(MAX_RUNS_OF_USER), asyncio.Event()
    nested = asyncio.Semaphore(0)

    async def run() -> None:
        async with slots.take(one):
            await inside.wait()
            async with slots.take(one, 1), slots.take(one, 2):
                nested.release()
                await leave.wait()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(MAX_RUNS_OF_USER):
            tasks.create_task(run())
        for _ in range(MAX_NESTED_RUNS_OF_CALLER):
            await nested.acquire()
        leave.set()  # the third waits for one of the others, however long that takes


async def test_nested_programs_of_all_callers_are_bounded() -> None:
    slots, leave, nested = RunSlots(wait_seconds=0.01), asyncio.Event(), asyncio.Semaphore(0)

    async def run(number: int) -> None:
        async with slots.take(make_user(f"user {number}"), 1):
            nested.release()
            await leave.wait()

    async with asyncio.TaskGroup() as tasks:
        for number in range(MAX_NESTED_RUNS):
            tasks.create_task(run(number))
            await nested.acquire()
        with pytest.raises(Unavailable, match=r"^4 workflows that programs call are running here"):
            await run(MAX_NESTED_RUNS)
        leave.set()


async def hold(running: AsyncExitStack, slots: RunSlots, caller: RunCaller) -> None:
    """Runs a program until the stack is closed."""
    await running.enter_async_context(slots.take(caller))
