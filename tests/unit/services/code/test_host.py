"""The host of a run: the time of people who are asked does not count, however many questions are open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.programs import DEFAULT_LIMITS, Language, Program, ProgramOutcome, RunEnd
from toolscript.domain.servers import CallRelay, CallResult
from toolscript.services.code.host import HostServices, RunCaller, RunHost
from toolscript.services.code.run import START_SECONDS, run_within_limits
from toolscript.surfaces.callers import OWNER

pytestmark = pytest.mark.req("C-01", "G-08")

SECONDS = 100.0
MAX_STALL_SECONDS = 30.0


class People:
    """Answer a question when their event is set. Time passes as they are told."""

    def __init__(self) -> None:
        self.questions: asyncio.Queue[asyncio.Event] = asyncio.Queue()
        self.passed = 0.0
        self._loop = asyncio.get_running_loop()
        time = self._loop.time
        self._loop.time = lambda: time() + self.passed  # type: ignore[method-assign]

    async def ask(self, _: str, __: Mapping[str, Any]) -> Mapping[str, Any]:
        answered = asyncio.Event()
        self.questions.put_nowait(answered)
        await answered.wait()
        return {"action": "accept"}


async def call_and_ask(_: str, __: object, *, relay: CallRelay) -> CallResult:
    """A tool that asks its caller."""
    assert relay.ask
    return CallResult({"structuredContent": await relay.ask("elicitation/create", {})})


def make_host(people: People) -> RunHost:
    tools, feedback = SimpleNamespace(call=call_and_ask), SimpleNamespace(note_call=lambda *_: None)
    unused: Any = None
    services = HostServices(tools, feedback=feedback, search=unused, toolsets=unused, sessions=unused, threshold=0.0)  # type: ignore[arg-type]
    caller = RunCaller(OWNER, CallRelay(user="", capabilities={}, ask=people.ask), may_search=True)
    return RunHost(services, caller, Language.PYTHON, DEFAULT_LIMITS, session=None)


async def test_the_time_of_two_questions_at_once_does_not_count() -> None:
    people = People()
    host, deadline = make_host(people), Deadline(SECONDS)
    host.deadline = deadline
    async with deadline.timeout():
        people.passed += 30.0
        calls = [asyncio.create_task(host.call("call_tool", {"tool_id": "box__ask"})) for _ in range(2)]
        first, second = await people.questions.get(), await people.questions.get()
        people.passed += current_limits().answer - 60.0
        first.set()
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        people.passed += 80.0
        assert deadline.seconds_left > 0.0
        second.set()
        assert await asyncio.gather(*calls) == [{"action": "accept"}] * 2
        # A stall counts, and nothing else.
        assert SECONDS - 30.0 - MAX_STALL_SECONDS < deadline.seconds_left <= SECONDS - 30.0


async def test_a_question_after_another_finds_the_time_that_is_left() -> None:
    people = People()
    host, deadline = make_host(people), Deadline(SECONDS)
    host.deadline = deadline
    async with deadline.timeout():
        for _ in range(2):
            people.passed += 20.0
            call = asyncio.create_task(host.call("call_tool", {"tool_id": "box__ask"}))
            answered = await people.questions.get()
            people.passed += 500.0
            answered.set()
            await call
        assert SECONDS - 40.0 - MAX_STALL_SECONDS < deadline.seconds_left <= SECONDS - 40.0


class SlowSandbox:
    """A sandbox whose process needs some seconds, and its program others."""

    def __init__(self, people: People, start: float, program: float) -> None:
        self._people = people
        self._start, self._program = start, program

    async def run(self, _: Program, host: RunHost, __: object) -> ProgramOutcome:
        await self._pass(self._start)
        host.begin()
        await self._pass(self._program)
        return ProgramOutcome(RunEnd.DONE, 1)

    async def _pass(self, seconds: float) -> None:
        self._people.passed += seconds
        await asyncio.sleep(0.01)  # the loop looks at its clock, and at the timeouts that are over


@pytest.mark.parametrize(("late", "end"), [(-10.0, RunEnd.DONE), (10.0, RunEnd.TIME)])
async def test_the_time_of_a_program_begins_when_its_process_is_ready(late: float, end: RunEnd) -> None:
    people = People()
    sandbox: Any = SlowSandbox(people, START_SECONDS - 10.0, DEFAULT_LIMITS.seconds + late)
    outcome = await run_within_limits(sandbox, Program("1"), make_host(people), DEFAULT_LIMITS)
    assert outcome.end is end


async def test_a_process_that_does_not_get_ready_is_not_the_fault_of_the_program() -> None:
    people = People()
    sandbox: Any = SlowSandbox(people, START_SECONDS + 1.0, 0.0)
    with pytest.raises(Unavailable, match="did not start within 30 s"):
        await run_within_limits(sandbox, Program("1"), make_host(people), DEFAULT_LIMITS)
