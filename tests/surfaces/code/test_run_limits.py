"""Programs count as calls of their caller, and nobody's programs keep out those of others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.fixtures.limits import set_limits
from tests.fixtures.serving import serve
from tests.servers import make_scripted_server
from tests.surfaces.code.conftest import TIMEOUT_SECONDS, CodeClient
from toolscript.app.app import open_app
from toolscript.app.code import read_max_limits
from toolscript.domain.access import Caller, CallLimit, Scope
from toolscript.domain.errors import Invalid
from toolscript.domain.programs import MAX_LIMITS, WORKFLOW_SERVER, Language, RunReport, Workflow
from toolscript.domain.servers import CallRelay, CallResult
from toolscript.services.code.host import RunCaller
from toolscript.services.code.run import RunRequest
from toolscript.services.code.slots import MAX_RUNS, MAX_RUNS_OF_USER, RunSlots
from toolscript.settings import load_settings
from toolscript.surfaces.callers import OWNER

pytestmark = pytest.mark.req("C-02", "G-19")

SLOW = 'await tools.box.slow({"seconds": 600})'


@pytest.fixture(scope="module")
async def client(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CodeClient]:
    """A client with a key without limits: tests create others, each with a name of its own."""
    folder = tmp_path_factory.mktemp("run_limits")
    settings = load_settings(
        variables={}, data_dir=folder, search_model="hashed-64", index="memory:", port=0, code="python"
    )
    async with open_app(settings, serving=True) as app:
        await app.servers.gateway.apply([make_scripted_server("box", tools=["echo", "slow", "seen"]), WORKFLOW_SERVER])
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        _, secret = await app.access.keys.create("unlimited", [*Scope], tenant="acme")
        headers = {"X-API-Key": secret}
        async with (
            serve(app) as url,
            httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS) as http,
        ):
            yield CodeClient(http, app)


async def make_key(client: CodeClient, name: str, limit: CallLimit | None = None) -> dict[str, str]:
    """The headers of a new key."""
    _, secret = await client.app.access.keys.create(name, [Scope.SEARCH, Scope.CALL], limit=limit or CallLimit())
    return {"X-API-Key": secret}


async def test_programs_of_one_key_do_not_keep_out_those_of_others(
    client: CodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.app.code.run_code, "_slots", RunSlots(wait_seconds=0.05))
    greedy, other = await make_key(client, "greedy"), await make_key(client, "other")
    async with AsyncExitStack() as running:
        before = await count_calls(client)
        for _ in range(MAX_RUNS_OF_USER):
            task = asyncio.create_task(client.run(SLOW, greedy))
            running.callback(task.cancel)
        await wait_for_calls(client, before + MAX_RUNS_OF_USER)
        refused = await client.http.post("/api/v1/run", json={"code": "1"}, headers=greedy)
        assert refused.status_code == 429
        assert refused.headers["Retry-After"] == "1"
        assert refused.json()["error"]["message"].startswith("3 of your programs are running, as many as you may run")
        assert (await client.run("1", other))["value"] == 1


async def test_a_gateway_that_stops_says_so_to_who_waits_for_a_program(
    client: CodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, shutdown_requests=0.1)
    async with httpx.AsyncClient(headers=client.http.headers, timeout=TIMEOUT_SECONDS) as http:
        async with serve(client.app) as url:
            before = await count_calls(client)
            answering = asyncio.create_task(http.post(f"{url}/api/v1/run", json={"code": SLOW}))
            await wait_for_calls(client, before + 1)
        response = await answering
    assert response.status_code == 503
    assert response.json()["error"]["message"].startswith("the gateway is stopping")
    assert response.headers["X-Request-ID"]


async def test_a_program_is_one_call_and_its_calls_are_one_each(client: CodeClient) -> None:
    headers = await make_key(client, "three", CallLimit(per_minute=3))
    answer = await client.run('await tools.box.echo({"text": "a"})\nawait tools.box.echo({"text": "b"})', headers)
    assert answer["end"] == "done", answer
    error = (await client.run("1", headers))["error"]
    assert error["code"] == "RATE_LIMITED"
    assert error["message"].startswith("calls with the key three are limited to 3 a minute: try again in ")


async def test_a_key_with_one_call_at_a_time_runs_programs(client: CodeClient) -> None:
    headers = await make_key(client, "single", CallLimit(concurrent=1))
    assert (await client.run('said = await tools.box.echo({"text": "a"})\nsaid["text"]', headers))["value"] == "a"


async def test_a_workflow_is_not_counted_twice(client: CodeClient) -> None:
    await save_workflow(client)
    headers = await make_key(client, "two", CallLimit(per_minute=2))
    for _ in range(2):
        assert (await client.http.post("/tools/workflows__number", json={}, headers=headers)).status_code == 200
    assert (await client.http.post("/tools/workflows__number", json={}, headers=headers)).status_code == 429


async def test_as_many_programs_as_can_run_each_call_a_workflow(
    client: CodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await save_workflow(client)
    # There are fewer slots for workflows than programs here: a stall must not end the wait for one.
    monkeypatch.setattr(client.app.code.run_code, "_slots", RunSlots(wait_seconds=TIMEOUT_SECONDS))
    call, all_run = client.app.tools.call.call, asyncio.Barrier(MAX_RUNS)

    async def call_together(*given: Any, **options: Any) -> CallResult:
        await all_run.wait()
        return await call(*given, **options)

    monkeypatch.setattr(client.app.tools.call, "call", call_together)

    async def run(number: int) -> RunReport:
        caller = RunCaller(Caller(f"user {number}"), CallRelay(user=f"user {number}"), may_search=True)
        return await client.app.code.run_code.run(RunRequest("await tools.workflows.number({})"), caller)

    async with asyncio.timeout(TIMEOUT_SECONDS):
        reports = await asyncio.gather(*map(run, range(MAX_RUNS)))
    assert [report.outcome.value for report in reports] == [{"result": 1}] * MAX_RUNS, reports


async def test_an_operator_lowers_the_maxima(client: CodeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = read_max_limits(load_settings(variables={}, code_limits="calls=2, seconds=30"))
    assert lowered == replace(MAX_LIMITS, calls=2, seconds=30.0)
    monkeypatch.setattr(client.app.code, "max_limits", lowered)
    monkeypatch.setattr(client.app.code.run_code, "_max_limits", lowered)
    answer = await client.run('for _ in range(3): await tools.box.echo({"text": "a"})')
    assert answer["message"].startswith("the program made more than 2 calls")
    refusal = "limits.calls: must be a whole number above 0, at most 2"
    assert (await client.run("1", limits={"calls": 3}))["error"]["message"] == refusal
    assert await client.call("run_code", code="1", limits={"calls": 3}) == ([refusal], True)
    assert (await client.run("1", limits={"calls": 1}))["value"] == 1


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("calls", "expected NAME=NUMBER"),
        ("calls=many", "expected NAME=NUMBER"),
        ("speed=1", "limits.speed: unknown limit"),
        ("seconds=900", "limits.seconds: must be a number above 0, at most 600"),
    ],
)
def test_wrong_maxima_are_refused(given: str, reason: str) -> None:
    with pytest.raises(Invalid, match=rf"^invalid value TOOLSCRIPT_CODE_LIMITS={given}: {reason}"):
        read_max_limits(load_settings(variables={}, code_limits=given))


async def save_workflow(client: CodeClient) -> None:
    workflow = Workflow("number", "Returns the number one.", Language.PYTHON, "return 1")
    await client.app.code.workflows.save(workflow, RunCaller(OWNER, CallRelay(user=""), may_search=True))


async def wait_for_calls(client: CodeClient, count: int) -> None:
    """Waits until so many calls have reached the server, without those of this function."""
    polls = 1
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await count_calls(client) < count + polls:
            polls += 1


async def count_calls(client: CodeClient) -> int:
    """The calls that have reached the server so far, with this one."""
    seen = (await client.app.tools.call.call("box__seen", {})).structured
    return int(seen["tools/call"]) if seen else 0
