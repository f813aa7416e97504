"""One deadline for all of a search's reads, and the error that names the part that missed it."""

from __future__ import annotations

import asyncio

import pytest

from tests.fixtures.coroutines import put_clock_forward
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import InvalidArguments, NotFound, TimedOut, Unavailable, UpstreamFailed
from toolscript.domain.search import SearchPart

A_MOMENT, LONG = 0.02, 60.0


async def test_work_in_time_gives_its_result() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "answer"

    assert await Deadline(LONG).call(SearchPart.INDEX, work()) == "answer"


async def test_work_that_misses_the_deadline_is_cancelled_and_may_clean_up() -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("cleaned up")

    with pytest.raises(Unavailable, match=r"tools .* because of the index: no answer within 0.02 seconds") as raised:
        await Deadline(A_MOMENT, "tools").call(SearchPart.INDEX, work())
    assert raised.value.details == {"adapter": "index"}
    assert done == ["cleaned up"]


async def test_a_caller_that_is_cancelled_cancels_the_work() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(Deadline(LONG).call(SearchPart.STORE, work()))
    await started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()


@pytest.mark.parametrize("error", [Unavailable, UpstreamFailed, TimedOut, NotFound, OSError])
async def test_a_part_that_fails_is_named(error: type[Exception]) -> None:
    async def work() -> None:
        raise error("broken")

    with pytest.raises(Unavailable, match="documents cannot be searched right now, because of the store") as raised:
        await Deadline(LONG).call(SearchPart.STORE, work())
    assert raised.value.details == {"adapter": "store"}


async def test_an_error_about_the_request_is_raised_unchanged() -> None:
    async def work() -> None:
        raise InvalidArguments("no such field")

    with pytest.raises(InvalidArguments, match="no such field"):
        await Deadline(LONG).call(SearchPart.INDEX, work())


async def test_a_deadline_can_be_restarted_with_other_seconds() -> None:
    deadline = Deadline(0)
    states = [deadline.is_over]
    deadline.restart(LONG)
    states.append(deadline.is_over)
    deadline.restart()
    assert [*states, deadline.is_over] == [True, False, False]


async def test_time_in_pauses_does_not_count_also_where_they_overlap() -> None:
    put_clock_forward(0.0)
    deadline = Deadline(LONG)
    async with deadline.timeout() as timeout:
        first, second = deadline.pause(LONG), deadline.pause(LONG)
        for pause in (first, second):
            pause.__enter__()
            put_clock_forward(1.5 * LONG)
        first.__exit__(None, None, None)
        assert not deadline.is_over
        second.__exit__(None, None, None)
        assert 0.0 < deadline.seconds_left <= LONG
        assert timeout.when() == pytest.approx(asyncio.get_running_loop().time() + deadline.seconds_left, abs=LONG / 2)
