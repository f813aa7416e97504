"""The contract of sandboxes: what every language promises about programs, their host and their limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.sandbox.contract_host import LIMITS, SANDBOXES, TIMEOUT_SECONDS, Host, run
from tests.contracts.sandbox.contract_programs import ContractPrograms
from tests.contracts.sandbox.loop_watch import watch_loop
from toolscript.domain.programs import LimitReached, Program, RunEnd
from toolscript.ports.sandboxes import Sandbox


@pytest.fixture(scope="module")
async def sandbox(kind: str) -> AsyncIterator[Sandbox]:
    """One for all tests: no program may disturb the next, and the first check takes 1.5 s."""
    opened = SANDBOXES[kind][0]()
    yield opened
    await opened.close()


@pytest.fixture
async def new_sandbox(kind: str) -> AsyncIterator[Sandbox]:
    """Has no process yet: its first program waits for one."""
    opened = SANDBOXES[kind][0]()
    yield opened
    await opened.close()


@pytest.fixture
def programs(kind: str) -> ContractPrograms:
    return SANDBOXES[kind][1]


@pytest.mark.req("C-01")
async def test_a_program_returns_a_json_value(sandbox: Sandbox, programs: ContractPrograms) -> None:
    outcome = await run(sandbox, programs.return_record)
    assert (outcome.end, outcome.message) == (RunEnd.DONE, "")
    assert outcome.value == {"sum": 3, "names": ["a", "b"], "none": None}


async def test_a_program_may_return_nothing(sandbox: Sandbox, programs: ContractPrograms) -> None:
    outcome = await run(sandbox, programs.return_nothing)
    assert (outcome.end, outcome.value) == (RunEnd.DONE, None)


async def test_the_host_gets_what_a_program_prints(sandbox: Sandbox, programs: ContractPrograms) -> None:
    host = Host()
    outcome = await run(sandbox, programs.print_lines, host)
    assert host.has_begun
    assert (outcome.value, host.output) == (1, "first\nsecond\n")


@pytest.mark.req("C-01")
async def test_a_program_calls_its_host(sandbox: Sandbox, programs: ContractPrograms) -> None:
    assert (await run(sandbox, programs.double)).value == 42


@pytest.mark.req("C-01")
async def test_calls_that_start_together_run_together(sandbox: Sandbox, programs: ContractPrograms) -> None:
    assert (await run(sandbox, programs.meet_ten)).value == 10


async def test_an_error_of_the_host_can_be_caught(sandbox: Sandbox, programs: ContractPrograms) -> None:
    outcome = await run(sandbox, programs.catch_failure)
    assert outcome.end is RunEnd.DONE
    assert "NOT_FOUND: no such tool: 'x'" in outcome.value


async def test_an_error_of_the_host_that_nobody_catches_ends_the_run(
    sandbox: Sandbox, programs: ContractPrograms
) -> None:
    outcome = await run(sandbox, programs.fail_uncaught)
    assert (outcome.end, outcome.line) == (RunEnd.FAILED, 2)
    assert "NOT_FOUND: no such tool: 'x'" in outcome.message


async def test_a_failure_names_the_line(sandbox: Sandbox, programs: ContractPrograms) -> None:
    outcome = await run(sandbox, programs.raise_in_line_3)
    assert (outcome.end, outcome.line) == (RunEnd.FAILED, 3)
    assert "broken" in outcome.message


@pytest.mark.parametrize(("start", "end"), [("\ufeff", "\n"), ("", "\r\n")], ids=["byte order mark", "two characters"])
async def test_lines_are_counted_however_they_end(
    sandbox: Sandbox, programs: ContractPrograms, start: str, end: str
) -> None:
    outcome = await run(sandbox, start + programs.raise_in_line_2.replace("\n", end))
    assert (outcome.end, outcome.line) == (RunEnd.FAILED, 2)


@pytest.mark.req("C-02")
async def test_a_host_ends_a_run_that_would_go_on(sandbox: Sandbox, programs: ContractPrograms) -> None:
    with pytest.raises(LimitReached, match="one call too many"):
        await run(sandbox, programs.swallow_and_wait)
    assert (await run(sandbox, programs.double)).value == 42


@pytest.mark.req("C-02")
async def test_cancelling_ends_a_run_and_its_calls(sandbox: Sandbox, programs: ContractPrograms) -> None:
    host = Host()
    task = asyncio.create_task(run(sandbox, programs.wait, host))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await host.is_waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert host.is_cancelled


@pytest.mark.req("C-02")
async def test_cancelling_ends_a_busy_program(sandbox: Sandbox, programs: ContractPrograms) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await sandbox.run(Program(programs.loop), Host(), LIMITS)
    assert (await run(sandbox, programs.double)).value == 42


@pytest.mark.req("C-02")
async def test_processor_time_is_limited(sandbox: Sandbox, programs: ContractPrograms) -> None:
    outcome = await run(sandbox, programs.loop, limits=replace(LIMITS, cpu_seconds=0.5))
    assert outcome.end is RunEnd.CPU
    assert outcome.cpu_seconds >= 0.4


@pytest.mark.req("C-02")
async def test_processor_time_is_reported_without_the_time_that_the_program_waits(
    new_sandbox: Sandbox, programs: ContractPrograms
) -> None:
    class SlowHost(Host):
        async def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
            await asyncio.sleep(0.5)
            return await super().call(function, arguments)

    began = time.perf_counter()
    outcome = await run(new_sandbox, programs.double, SlowHost())
    assert outcome.value == 42
    assert 0 < outcome.cpu_seconds < time.perf_counter() - began - 0.4


@pytest.mark.req("C-02")
async def test_a_sleep_takes_no_processor_time(new_sandbox: Sandbox, programs: ContractPrograms) -> None:
    began = time.perf_counter()
    outcome = await run(new_sandbox, programs.sleep)
    assert outcome.end is RunEnd.DONE
    assert 0 < outcome.cpu_seconds < time.perf_counter() - began - 0.4


@pytest.mark.extended
@pytest.mark.req("C-02")
@pytest.mark.parametrize("kind", ["monty"], indirect=True)
async def test_a_sleep_takes_the_time_that_it_is_given(sandbox: Sandbox) -> None:
    """Monty by itself ends it after ten seconds."""
    began = time.perf_counter()
    outcome = await run(sandbox, "import asyncio\nawait asyncio.sleep(10.5)")
    assert outcome.end is RunEnd.DONE
    assert time.perf_counter() - began >= 10.5


@pytest.mark.req("C-02")
async def test_a_program_that_fails_has_used_processor_time(sandbox: Sandbox, programs: ContractPrograms) -> None:
    outcome = await run(sandbox, programs.raise_in_line_3)
    assert outcome.end is RunEnd.FAILED
    assert outcome.cpu_seconds > 0


@pytest.mark.req("C-02")
async def test_memory_is_limited(sandbox: Sandbox, programs: ContractPrograms) -> None:
    assert (await run(sandbox, programs.fill_memory)).end is RunEnd.MEMORY
    assert (await run(sandbox, programs.double)).value == 42


@pytest.mark.req("C-02")
@pytest.mark.parametrize("name", ["return_much", "return_shared"])
async def test_the_size_of_a_value_is_limited(sandbox: Sandbox, programs: ContractPrograms, name: str) -> None:
    outcome = await run(sandbox, getattr(programs, name))
    assert outcome.end in {RunEnd.OUTPUT, RunEnd.MEMORY}
    assert outcome.value is None


@pytest.mark.req("C-02")
async def test_a_host_ends_a_flood_of_output(sandbox: Sandbox, programs: ContractPrograms) -> None:
    host = Host(max_output=100_000)
    with pytest.raises(LimitReached, match="printed more"):
        await run(sandbox, programs.print_forever, host)
    assert len(host.output) < 2**20


@pytest.mark.req("C-02")
async def test_a_run_leaves_nothing_to_the_next(sandbox: Sandbox, programs: ContractPrograms) -> None:
    assert (await run(sandbox, programs.set_global)).value == 1
    assert (await run(sandbox, programs.read_global)).end is RunEnd.FAILED


async def test_bindings_and_inputs_are_there(sandbox: Sandbox, programs: ContractPrograms) -> None:
    program = Program(programs.bound, programs.bindings, programs.types, {"suffix": "!"})
    assert await sandbox.check(program, TIMEOUT_SECONDS) == []
    outcome = await sandbox.run(program, Host(), LIMITS)
    assert outcome.value == "hello you!"


@pytest.mark.req("C-02")
@pytest.mark.parametrize("name", ["wrong_type", "wrong_syntax"])
async def test_a_check_names_the_line_of_a_problem(sandbox: Sandbox, programs: ContractPrograms, name: str) -> None:
    problems = await sandbox.check(Program(getattr(programs, name), programs.bindings, programs.types), TIMEOUT_SECONDS)
    assert problems
    assert {problem.line for problem in problems} == {2}


@pytest.mark.req("C-02")
async def test_a_check_runs_nothing(sandbox: Sandbox, programs: ContractPrograms) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await sandbox.check(Program(programs.loop), TIMEOUT_SECONDS) == []


async def test_programs_run_side_by_side(sandbox: Sandbox, programs: ContractPrograms) -> None:
    outcomes = await asyncio.gather(*[run(sandbox, programs.double) for _ in range(20)])
    assert {outcome.value for outcome in outcomes} == {42}


@pytest.mark.req("C-02")
async def test_a_call_that_is_refused_for_its_arguments_counts(sandbox: Sandbox, programs: ContractPrograms) -> None:
    host = Host()
    outcome = await run(sandbox, programs.refuse_arguments, host)
    assert "VALIDATION_ERROR: the arguments" in outcome.value
    assert host.calls == 2


async def test_a_fault_of_the_host_is_not_blamed_on_the_program(sandbox: Sandbox, programs: ContractPrograms) -> None:
    with pytest.raises(ValueError, match="a fault of the host"):
        await run(sandbox, programs.break_host)


@pytest.mark.req("C-02")
async def test_large_values_cross_both_ways_and_stall_nobody(sandbox: Sandbox, programs: ContractPrograms) -> None:
    assert (await run(sandbox, programs.double)).value == 42
    mark = [f'{n} "\\\n\u2028😀' for n in range(50_000)]
    async with watch_loop() as turns, asyncio.timeout(TIMEOUT_SECONDS):
        outcome = await sandbox.run(Program(programs.echo_many, inputs={"mark": mark}), Host(), LIMITS)
    assert outcome.value == [{"number": n, "text": f"{mark[n % 10]}ü"} for n in range(20_000)], outcome.message
    turns.check()
