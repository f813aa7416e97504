"""A gateway answers quickly while hostile programs run in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from tests.contracts.sandbox import python_escapes, typescript_escapes
from tests.contracts.sandbox.loop_watch import Delays, watch_loop
from tests.surfaces.code.conftest import TIMEOUT_SECONDS, CodeClient
from toolscript.adapters.sandbox.bounded_json import MAX_PARTS
from toolscript.services.code.slots import RunSlots

pytestmark = pytest.mark.req("C-02", "X-06")

LIMITS = {"seconds": 5, "cpu_seconds": 1, "calls": 50}
PYTHON = [
    "loop that catches everything",
    "loop over names that do not exist",
    "grow a dictionary",
    "print empty lines",
    "return much",
    "return shared lists",
    "call with shared lists",
    "a large number as text",
    "nested brackets",
]
TYPESCRIPT = [
    "a loop",
    "microtasks",
    "memory of objects",
    "memory of buffers",
    "memory of calls",
    "empty output",
    "output of one line",
    "a large value",
    "a value of shared lists",
    "a large argument",
]

# Of all values that are not refused these take longest.
KEEP_AND_READ = f"""
await save_result('lists', Array.from({{length: {MAX_PARTS - 2}}}, () => []));
await load_result('lists');
"""


async def run_while_asking(client: CodeClient, programs: Iterable[str], **body: Any) -> list[str]:
    """How programs end that run together, while `/health` is asked."""
    answers = Delays()
    async with watch_loop() as turns:
        running = asyncio.gather(*[client.run(each, **body) for each in programs])
        while not running.done():
            with answers.measure():
                assert (await client.http.get("/health")).status_code == 200
            await asyncio.sleep(0.005)
    answers.check()
    turns.check()
    return [answer["end"] for answer in await running]


@pytest.mark.extended
async def test_health_answers_while_hostile_programs_in_python_run(
    client: CodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not all of them run at a time: a stall must not end the wait for a slot.
    monkeypatch.setattr(client.app.code.run_code, "_slots", RunSlots(wait_seconds=TIMEOUT_SECONDS))
    await client.run("1")
    # Types are not what is tested here: eval hides them from the check.
    programs = [python_escapes.ENDLESS[name].replace("call_host(", 'eval("call_host")(') for name in PYTHON]
    ends = await run_while_asking(client, programs, language="python", limits=LIMITS)
    assert "done" not in ends, dict(zip(PYTHON, ends, strict=True))


@pytest.mark.extended
async def test_health_answers_while_hostile_programs_in_typescript_run(
    typescript: CodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typescript.app.code.run_code, "_slots", RunSlots(wait_seconds=TIMEOUT_SECONDS))
    await typescript.run("return 1;", language="typescript")
    programs = [typescript_escapes.ENDLESS[name].replace("call_host(", "eval('call_host')(") for name in TYPESCRIPT]
    ends = await run_while_asking(typescript, programs, language="typescript", limits=LIMITS)
    assert not {"done", "rejected"} & set(ends), dict(zip(TYPESCRIPT, ends, strict=True))


@pytest.mark.extended
async def test_health_answers_while_a_large_result_is_kept_and_read(typescript: CodeClient) -> None:
    limits = {"seconds": 60, "cpu_seconds": 20, "memory_mb": 256, "output_bytes": 10_000_000}
    body: dict[str, Any] = {"language": "typescript", "session": "large", "limits": limits}
    assert (await typescript.run("return 1;", **body))["end"] == "done"
    assert await run_while_asking(typescript, [KEEP_AND_READ], **body) == ["done"]
