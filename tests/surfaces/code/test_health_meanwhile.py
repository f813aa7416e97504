"""A gateway answers quickly while hostile programs run in it."""

from __future__ import annotations

import asyncio
import statistics
import time

import pytest

from tests.contracts.sandbox.python_escapes import ENDLESS
from tests.surfaces.code.conftest import CodeClient

pytestmark = pytest.mark.req("C-02", "X-06")

LIMITS = {"seconds": 5, "cpu_seconds": 1, "calls": 50}
NAMES = [
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


async def test_health_answers_while_hostile_programs_run(client: CodeClient) -> None:
    await client.run("1")
    # Types are not what is tested here: eval hides them from the check.
    programs = [ENDLESS[name].replace("call_host(", 'eval("call_host")(') for name in NAMES]
    running = asyncio.gather(*[client.run(program, limits=LIMITS) for program in programs])
    times = []
    while not running.done():
        began = time.perf_counter()
        assert (await client.http.get("/health")).status_code == 200
        times.append(time.perf_counter() - began)
        await asyncio.sleep(0.005)
    ends = dict(zip(NAMES, [answer["end"] for answer in await running], strict=True))
    assert "done" not in ends.values(), ends
    assert statistics.median(times) < 0.1
