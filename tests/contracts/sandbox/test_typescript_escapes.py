"""Hostile programs in TypeScript: nothing gets out, each ends within its limits, and the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.contracts.sandbox.limited_host import (
    MAX_CALLS,
    MAX_OUTPUT,
    SECRET,
    TIMEOUT_SECONDS,
    LimitedHost,
    Outside,
    run,
)
from tests.contracts.sandbox.loop_watch import watch_loop
from tests.contracts.sandbox.typescript_escapes import ENDLESS, FORGING, REACHING_OUT, READING_BY_TYPES
from tests.fixtures.examples import choose
from toolscript.adapters.deno.sandbox import DenoSandbox
from toolscript.domain.programs import Program, RunEnd

pytest.importorskip("deno", reason="Deno has no wheel for this platform")
pytestmark = pytest.mark.req("C-02")

# Some wait for an answer that they have spoilt themselves.
FORGING_SECONDS = 3.0


# One or two for each permission that is withheld and each name that is taken away; the others reach for the same.
REPRESENTATIVES = (
    "read a file",
    "read a file by node",
    "import a file",
    "import a file statically",
    "import by eval",
    "require",
    "built-in modules of process",
    "write a file",
    "write to the local storage",
    "connect",
    "fetch",
    "open a web socket",
    "import from the network",
    "import from npm",
    "read the environment",
    "read the environment by node",
    "run a command",
    "load a library",
    "kill the gateway",
    "ask for permission",
    "reach operations of Deno",
    "start a worker",
    "a context of node",
    "share memory",
    "a function of another constructor",
    "the constructor of the host's function",
    "machine code that imports",
    "list the global objects",
)


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[DenoSandbox]:
    opened = DenoSandbox()
    yield opened
    await opened.close()


@pytest.mark.parametrize("name", choose(REACHING_OUT, *REPRESENTATIVES))
async def test_a_program_reaches_nothing(sandbox: DenoSandbox, outside: Outside, name: str) -> None:
    host = LimitedHost()
    outcome = await run(sandbox, outside.name_places(REACHING_OUT[name]), host)
    assert outcome.value is None
    assert SECRET not in host.output + outcome.message
    assert not outside.new_file.exists()
    assert outside.connections == 0


@pytest.mark.extended
@pytest.mark.parametrize("name", FORGING)
async def test_a_program_cannot_speak_for_its_sandbox(sandbox: DenoSandbox, name: str) -> None:
    outcome = await run(sandbox, FORGING[name], LimitedHost(), FORGING_SECONDS)
    assert outcome.value != "forged"
    source = 'return await call_host("double", { number: 21 });'
    after = await run(sandbox, source, LimitedHost(), TIMEOUT_SECONDS)
    assert after.value == 42


@pytest.mark.extended
@pytest.mark.parametrize("name", ENDLESS)
async def test_a_program_ends_within_its_limits_and_stalls_nobody(sandbox: DenoSandbox, name: str) -> None:
    host = LimitedHost()
    async with watch_loop() as watch:
        outcome = await run(sandbox, ENDLESS[name], host)
    watch.check()
    assert outcome.end is not RunEnd.DONE
    assert outcome.message
    assert len(host.output) <= MAX_OUTPUT + 2**17
    assert host.calls <= MAX_CALLS + 64


@pytest.mark.parametrize("name", READING_BY_TYPES)
async def test_a_check_shows_nothing_of_a_file(sandbox: DenoSandbox, outside: Outside, name: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        problems = await sandbox.check(Program(outside.name_places(READING_BY_TYPES[name])), TIMEOUT_SECONDS)
    assert problems or name == "an export"
    assert SECRET not in str(problems)
