"""Hostile programs in TypeScript: nothing gets out, and each ends within its limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.sandbox.typescript_escapes import ENDLESS, FORGING, REACHING_OUT, READING_BY_TYPES
from toolscript.adapters.deno.sandbox import DenoSandbox
from toolscript.domain.programs import LimitReached, Program, ProgramOutcome, RunEnd, SandboxLimits

SECRET = "secret-5d1f0c"
LIMITS = SandboxLimits(cpu_seconds=0.5, memory_bytes=64 * 2**20, output_bytes=2**20)
MAX_OUTPUT = 2**20
MAX_CALLS = 100
WALL_SECONDS = 10.0
TIMEOUT_SECONDS = 60.0

pytestmark = pytest.mark.req("C-02")


class LimitedHost:
    """A host with the limits of a real one."""

    def __init__(self) -> None:
        self.output = ""
        self.calls = 0

    async def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise LimitReached(RunEnd.CALLS, "too many calls")
        await asyncio.sleep(0)
        return arguments["number"] * 2

    def take_output(self, text: str) -> None:
        self.output += text
        if len(self.output) > MAX_OUTPUT:
            raise LimitReached(RunEnd.OUTPUT, "too much output")


class Outside:
    """What programs try to reach."""

    def __init__(self, folder: Path, port: int) -> None:
        self.secret_file = folder / "secret.json"
        self.declarations = folder / "secret.d.ts"
        self.new_file = folder / "new"
        self.port = port
        self.connections = 0

    def name_places(self, source: str) -> str:
        """The source of a program that knows where these things are."""
        places = {"SECRET_FILE": self.secret_file, "NEW_FILE": self.new_file, "DECLARATIONS": self.declarations}
        for name, path in places.items():
            source = source.replace(name, path.as_posix())
        return source.replace("PORT", str(self.port))


@pytest.fixture
async def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Outside]:
    monkeypatch.setenv("TOOLSCRIPT_SECRET", SECRET)
    outside = Outside(tmp_path, 0)

    async def count(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outside.connections += 1
        writer.close()

    outside.secret_file.write_text(json.dumps({SECRET: 1}))
    outside.declarations.write_text(f'declare const secret: {{ "{SECRET}": 1 }};')
    async with await asyncio.start_server(count, "127.0.0.1", 0) as server:
        outside.port = server.sockets[0].getsockname()[1]
        yield outside


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[DenoSandbox]:
    opened = DenoSandbox()
    yield opened
    await opened.close()


async def run(sandbox: DenoSandbox, source: str, host: LimitedHost, seconds: float = WALL_SECONDS) -> ProgramOutcome:
    """How a program ends that gets what a service gives it: limits of the host, and of time."""
    try:
        async with asyncio.timeout(seconds):
            return await sandbox.run(Program(source), host, LIMITS)
    except TimeoutError:
        return ProgramOutcome(RunEnd.TIME, message="too much time")
    except LimitReached as error:
        return ProgramOutcome(error.end, message=error.message)


@pytest.mark.parametrize("name", REACHING_OUT)
async def test_a_program_reaches_nothing(sandbox: DenoSandbox, outside: Outside, name: str) -> None:
    host = LimitedHost()
    outcome = await run(sandbox, outside.name_places(REACHING_OUT[name]), host)
    assert outcome.value is None
    assert SECRET not in host.output + outcome.message
    assert not outside.new_file.exists()
    assert outside.connections == 0


@pytest.mark.parametrize("name", FORGING)
async def test_a_program_cannot_speak_for_its_sandbox(sandbox: DenoSandbox, name: str) -> None:
    outcome = await run(sandbox, FORGING[name], LimitedHost())
    assert outcome.value != "forged"
    source = 'return await call_host("double", { number: 21 });'
    after = await run(sandbox, source, LimitedHost(), TIMEOUT_SECONDS)
    assert after.value == 42


@pytest.mark.parametrize("name", ENDLESS)
async def test_a_program_ends_within_its_limits(sandbox: DenoSandbox, name: str) -> None:
    host = LimitedHost()
    outcome = await run(sandbox, ENDLESS[name], host)
    assert outcome.end is not RunEnd.DONE
    assert outcome.message
    assert len(host.output) <= MAX_OUTPUT + 2**17
    assert host.calls <= MAX_CALLS + 64


@pytest.mark.parametrize("name", READING_BY_TYPES)
async def test_a_check_shows_nothing_of_a_file(sandbox: DenoSandbox, outside: Outside, name: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        problems = await sandbox.check(Program(outside.name_places(READING_BY_TYPES[name])))
    assert problems or name == "an export"
    assert SECRET not in str(problems)
