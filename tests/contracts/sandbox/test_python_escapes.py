"""Hostile programs in Python: nothing gets out, each ends within its limits, and the event loop goes on."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contracts.sandbox.limited_host import (
    MAX_CALLS,
    MAX_OUTPUT,
    SECRET,
    TIMEOUT_SECONDS,
    WALL_SECONDS,
    LimitedHost,
    Outside,
    open_outside,
    run,
)
from tests.contracts.sandbox.python_escapes import ENDLESS, REACHING_OUT
from toolscript.adapters.monty.sandbox import MontySandbox
from toolscript.domain.programs import Program, RunEnd

pytestmark = pytest.mark.req("C-02")

WORKS = 'await call_host("double", {"number": 21})'


@pytest.fixture
async def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Outside]:
    monkeypatch.setenv("TOOLSCRIPT_SECRET", SECRET)
    async with open_outside(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[MontySandbox]:
    opened = MontySandbox()
    yield opened
    await opened.close()


@pytest.mark.parametrize("name", REACHING_OUT)
async def test_a_program_reaches_nothing(sandbox: MontySandbox, outside: Outside, name: str) -> None:
    host = LimitedHost()
    outcome = await run(sandbox, outside.name_places(REACHING_OUT[name]), host)
    assert outcome.value is None
    assert SECRET not in host.output + outcome.message
    assert outside.secret_file.exists()
    assert not outside.new_file.exists()
    assert outside.connections == 0


@pytest.mark.parametrize("name", ENDLESS)
async def test_a_program_ends_within_its_limits_and_stalls_nobody(sandbox: MontySandbox, name: str) -> None:
    host, stalls = LimitedHost(), [0.0]
    seconds = 2.0 if name.startswith("sleep") else WALL_SECONDS
    running = asyncio.create_task(run(sandbox, ENDLESS[name], host, seconds))
    while not running.done():
        began = time.perf_counter()
        await asyncio.sleep(0.002)
        stalls.append(time.perf_counter() - began)
    outcome = await running
    assert outcome.end is not RunEnd.DONE
    assert outcome.message
    assert len(outcome.message) < 10_000
    assert len(host.output) <= MAX_OUTPUT + 2**17
    assert host.calls <= MAX_CALLS + 64
    assert statistics.median(stalls) < 0.1, "the loop of a gateway answers /health meanwhile"
    assert (await run(sandbox, WORKS, LimitedHost(), TIMEOUT_SECONDS)).value == 42


@pytest.mark.parametrize("name", [name for name in ENDLESS if name.startswith(("nested", "a null"))])
async def test_a_check_ends_whatever_it_gets(sandbox: MontySandbox, name: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await sandbox.check(Program(ENDLESS[name]))
    assert (await run(sandbox, WORKS, LimitedHost(), TIMEOUT_SECONDS)).value == 42
