"""Hostile programs in Python: nothing gets out, each ends within its limits, and the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.sandbox.limited_host import (
    LIMITS,
    MAX_CALLS,
    MAX_OUTPUT,
    SECRET,
    TIMEOUT_SECONDS,
    WALL_SECONDS,
    LimitedHost,
    Outside,
    run,
)
from tests.contracts.sandbox.loop_watch import watch_loop
from tests.contracts.sandbox.python_escapes import ENDLESS, REACHING_OUT
from toolscript.adapters.monty.sandbox import MontySandbox
from toolscript.domain.programs import MAX_PROGRAM_PROBLEMS, Program, RunEnd

pytestmark = pytest.mark.req("C-02")

WORKS = 'await call_host("double", {"number": 21})'


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


@pytest.mark.extended
@pytest.mark.parametrize("name", ENDLESS)
async def test_a_program_ends_within_its_limits_and_stalls_nobody(sandbox: MontySandbox, name: str) -> None:
    host, seconds = LimitedHost(), 2.0 if name.startswith("sleep") else WALL_SECONDS
    async with watch_loop() as watch:
        outcome = await run(sandbox, ENDLESS[name], host, seconds)
    watch.check()
    assert outcome.end is not RunEnd.DONE
    assert outcome.message
    assert len(outcome.message) < 10_000
    assert len(host.output) <= MAX_OUTPUT + 2**17
    assert host.calls <= MAX_CALLS + 64
    assert (await run(sandbox, WORKS, LimitedHost(), TIMEOUT_SECONDS)).value == 42


@pytest.mark.parametrize("name", [name for name in ENDLESS if name.startswith(("nested", "a null"))])
async def test_a_check_ends_whatever_it_gets(sandbox: MontySandbox, name: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await sandbox.check(Program(ENDLESS[name]), TIMEOUT_SECONDS)
    assert (await run(sandbox, WORKS, LimitedHost(), TIMEOUT_SECONDS)).value == 42


@pytest.mark.extended
async def test_a_check_has_the_time_that_it_is_given(sandbox: MontySandbox) -> None:
    async with watch_loop() as turns:
        problems = await sandbox.check(Program("a1b\n" * 20_000), TIMEOUT_SECONDS)
    assert [problem.line for problem in problems] == list(range(1, MAX_PROGRAM_PROBLEMS + 1))
    turns.check()


@pytest.mark.extended
async def test_one_operation_that_takes_too_long_is_a_matter_of_processor_time(sandbox: MontySandbox) -> None:
    assert (await run(sandbox, ENDLESS["a slow power"], LimitedHost(), TIMEOUT_SECONDS)).end is RunEnd.CPU


async def test_calls_that_share_a_value_cannot_take_more_memory_than_the_program(sandbox: MontySandbox) -> None:
    sizes, host = [0], LimitedHost()

    async def hold(function: str, arguments: Mapping[str, Any]) -> Any:
        sizes.append(sizes[-1] + len(arguments["text"]))
        await asyncio.sleep(0.5)
        return None

    host.call = hold  # type: ignore[method-assign]
    source = """
import asyncio
text = "x" * 1_000_000
async def send():
    try:
        await call_host("keep", {"text": text})
    except RuntimeError as error:
        return str(error)
[each for each in await asyncio.gather(*[send() for _ in range(90)]) if each][-1]
"""
    limits = replace(LIMITS, memory_bytes=10 * 2**20, cpu_seconds=20.0)
    outcome = await sandbox.run(Program(source), host, limits)
    assert "VALIDATION_ERROR: the arguments of the calls that are running have more than" in outcome.value, outcome
    assert sizes[-1] < 80 * 10**6
