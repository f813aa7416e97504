"""Programs that call workflows: what is inside uses what is left of the limits of the run that calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fixtures.examples import choose
from tests.surfaces.code.conftest import CodeClient, open_workflows
from toolscript.domain.access import CallLimit, Scope

pytest.importorskip("deno", reason="Deno has no wheel for this platform")
pytestmark = pytest.mark.req("C-03")

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ECHO = """
for i in range(params["n"]):
    try:
        await tools.box.echo({"text": "x"})
    except RuntimeError:
        pass
"""
CALL_NEXT = """
for i in range(params["n"]):
    try:
        await tools.workflows.NEXT({"n": params["n"]})
    except RuntimeError:
        pass
"""
BURN = """
total = 0
for i in range(10 ** 9):
    total += i
"""


def build_workflow(source: str, language: str = "python") -> dict[str, Any]:
    return {"description": "Repeats itself.", "language": language, "source": source, "parameters": NUMBER}


@pytest.fixture(scope="module")
async def client(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CodeClient]:
    """A gateway for all tests that create no key. It has three workflows, each of which calls the next one in a loop,
    whatever happens; those of tests have names of their own."""
    async with open_workflows(tmp_path_factory.mktemp("workflows"), "python,typescript") as opened:
        await opened.save("third", build_workflow(ECHO))
        await opened.save("second", build_workflow(CALL_NEXT.replace("NEXT", "third")))
        await opened.save("first", build_workflow(CALL_NEXT.replace("NEXT", "second")))
        yield opened


async def count_calls(client: CodeClient) -> int:
    """The calls that have reached the server so far, with this one."""
    counted = (await client.call_over_http("box__seen", {})).json()
    return int(counted["tools/call"])


@pytest.mark.extended
@pytest.mark.parametrize("limit", choose([1, 7, 30], 1, 7))
async def test_workflows_three_deep_make_no_more_calls_than_the_run_may(client: CodeClient, limit: int) -> None:
    before = await count_calls(client)
    answer = await client.run('await tools.workflows.first({"n": 9})', limits={"calls": limit})
    message = f"the program and the workflows that it calls made more than {limit} calls"
    assert (answer["end"], message in answer["message"]) == ("failed", True), answer
    made = await count_calls(client) - before - 1
    assert made <= limit - 3 if limit > 3 else made == 0


async def test_a_workflow_that_is_called_has_the_default_limits_for_all_inside(client: CodeClient) -> None:
    before = await count_calls(client)
    response = await client.call_over_http("workflows__first", {"n": 20})
    assert response.status_code >= 400
    assert "made more than 100 calls" in response.json()["error"]["message"]
    assert await count_calls(client) - before - 1 <= 100


async def test_workflows_inside_can_make_as_many_calls_as_the_run_may(client: CodeClient) -> None:
    answer = await client.run('await tools.workflows.third({"n": 101})', limits={"calls": 102})  # by default 100
    assert answer["end"] == "done", answer


@pytest.mark.parametrize("language", choose(["python", "typescript"], "python"))
async def test_the_processor_time_of_workflows_inside_is_that_of_the_run(client: CodeClient, language: str) -> None:
    loop = BURN if language == "python" else "let total = 0; while (true) total += 1;"
    await client.save(f"burn_in_{language}", build_workflow(loop, language))
    code = f"""
errors = []
for i in range(3):
    try:
        await tools.workflows.burn_in_{language}({{"n": 1}})
    except RuntimeError as error:
        errors.append(str(error))
return errors
"""
    answer = await client.run(code, limits={"cpu_seconds": 0.4})
    assert answer["end"] == "done", answer
    assert "ran longer than it may" in answer["value"][0]
    assert "have used its 0.4 seconds of processor time" in answer["value"][-1]


async def test_workflows_that_their_host_ends_have_used_processor_time(client: CodeClient) -> None:
    busy = "total = 0\nfor i in range(500_000):\n    total += i\nprint('x' * 2_000_000)"
    await client.save("busy", build_workflow(busy))
    code = """
error = ""
for i in range(100):
    try:
        await tools.workflows.busy({"n": 1})
    except RuntimeError as raised:
        error = str(raised)[:1000]
        if "processor time" in error:
            break
return error
"""
    answer = await client.run(code, limits={"cpu_seconds": 0.4})
    assert answer["end"] == "done", answer
    assert "have used its 0.4 seconds of processor time" in answer["value"]


@pytest.mark.extended
@pytest.mark.parametrize("language", choose(["python", "typescript"], "python"))
async def test_many_workflows_inside_of_workflows_at_a_time_do_not_wait_for_each_other(
    client: CodeClient, language: str
) -> None:
    nested = {
        "python": "import asyncio\nawait asyncio.gather(*[tools.workflows.third({'n': 1}) for i in range(5)])",
        "typescript": "await Promise.all(Array.from({length: 5}, () => tools.workflows.third({n: 1})));",
    }
    await client.save(f"many_in_{language}", build_workflow(nested[language], language))
    call = f"tools.workflows.many_in_{language}({{'n': 1}})"
    code = f"import asyncio\nawait asyncio.gather(*[{call} for i in range(9)])\nreturn 'all'"
    answer = await client.run(code, limits={"calls": 1000, "seconds": 60})
    assert answer["end"] == "done", answer


async def test_a_key_that_may_make_one_call_at_a_time_can_call_a_workflow(workflow_client: CodeClient) -> None:
    await workflow_client.save(
        "once", build_workflow('for i in range(params["n"]):\n    await tools.box.echo({"text": "x"})')
    )
    limit = CallLimit(per_minute=7, concurrent=1)
    _, secret = await workflow_client.app.access.keys.create("ci", [Scope.CALL], limit=limit)
    headers = {"Authorization": f"Bearer {secret}"}

    async def call(n: int) -> int:
        response = await workflow_client.http.post("/tools/workflows__once", json={"n": n}, headers=headers)
        return response.status_code

    assert [await call(n) for n in (0, 0, 3, 0)] == [200] * 4
    assert await call(0) == 429
