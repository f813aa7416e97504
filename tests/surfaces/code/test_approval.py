"""Tools that need a person's approval, in programs: the person is asked while the program waits, or the program ends
and its call waits for a decision."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.fixtures.coroutines import put_clock_forward, think_for
from tests.servers import make_scripted_server
from toolscript.app.app import App, open_app
from toolscript.domain.access import PendingState
from toolscript.domain.programs import DEFAULT_LIMITS, RunEnd, RunReport
from toolscript.domain.servers import Ask, CallRelay
from toolscript.services.code.host import RunCaller
from toolscript.services.code.run import RunRequest
from toolscript.settings import load_settings
from toolscript.surfaces.callers import OWNER

pytestmark = pytest.mark.req("C-01", "G-08")

PROGRAM = 'said = await tools.box.echo({"text": "approved"})\nsaid["text"]'


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("approval")
    settings = load_settings(
        variables={}, data_dir=folder, search_model="hashed-64", index="memory:", code="python", approval="writes"
    )
    async with open_app(settings) as opened:
        await opened.servers.gateway.apply([make_scripted_server("box", tools=["echo"])])
        await opened.servers.gateway.settle(60.0)
        yield opened


async def run(app: App, ask: Ask | None) -> RunReport:
    relay = CallRelay(user="", capabilities={"elicitation": {}}, ask=ask)
    return await app.code.run_code.run(RunRequest(PROGRAM), RunCaller(OWNER, relay, may_search=True))


async def test_a_program_waits_for_the_answer_of_a_person(app: App) -> None:
    questions = []

    async def ask(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        questions.append((method, params["message"]))
        return {"action": "accept", "content": {"allow": True}}

    report = await run(app, ask)
    assert report.outcome.value == "approved"
    ((method, message),) = questions
    assert method == "elicitation/create"
    assert "box__echo" in message


async def test_what_a_person_declines_is_an_error_in_the_program(app: App) -> None:
    async def ask(_: str, __: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"action": "decline"}

    report = await run(app, ask)
    assert (report.outcome.end, report.outcome.line) == (RunEnd.FAILED, 1)
    assert "APPROVAL_DECLINED: box__echo was not called" in report.outcome.message


async def test_a_caller_that_cannot_answer_meanwhile_learns_why_and_repeats_the_program_after_an_approval(
    app: App,
) -> None:
    report = await run(app, None)
    assert "APPROVAL_REQUIRED: box__echo needs a person's approval" in report.outcome.message
    assert [call.outcome for call in report.calls] == ["APPROVAL_REQUIRED"]
    (waiting,) = await app.tools.approvals.pending.list_waiting()
    assert f"toolscript approvals approve {waiting.id}" in report.outcome.message
    await app.tools.approvals.pending.decide(waiting.id, PendingState.APPROVED, decider=None)
    assert (await run(app, None)).outcome.value == "approved"
    assert "APPROVAL_REQUIRED" in (await run(app, None)).outcome.message


async def test_the_time_of_a_person_does_not_count(app: App) -> None:
    ask = think_for(200.0, {"action": "accept", "content": {"allow": True}})
    assert (await run(app, ask)).outcome.value == "approved"


async def test_the_time_of_several_questions_at_once_does_not_count_twice(app: App) -> None:
    allowed, both_wait = {"action": "accept", "content": {"allow": True}}, asyncio.Event()
    think, questions = think_for(200.0, allowed), 0

    async def ask(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal questions
        questions += 1
        if questions == 2:
            both_wait.set()
        await both_wait.wait()
        return await think(method, params)

    limits, done = replace(DEFAULT_LIMITS, seconds=60.0), 0

    async def note_progress(_: float, __: float | None = None, message: str | None = None) -> None:
        """Lets all the time of the program pass after both calls."""
        nonlocal done
        done += message == "box__echo: done"
        if done == 2:
            put_clock_forward(limits.seconds)

    program = """
import asyncio
await asyncio.gather(*[tools.box.echo({"text": each}) for each in ["a", "b"]])
await asyncio.sleep(3600)
"""
    relay = CallRelay(user="", capabilities={"elicitation": {}}, ask=ask, on_progress=note_progress)
    request = RunRequest(program, limits=limits)
    began = time.monotonic()
    report = await app.code.run_code.run(request, RunCaller(OWNER, relay, may_search=True))
    assert (report.outcome.end, [call.outcome for call in report.calls]) == (RunEnd.TIME, ["ok", "ok"]), report
    assert time.monotonic() - began < 60.0
