"""A host with limits, and things outside of a sandbox that hostile programs try to reach."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolscript.domain.programs import LimitReached, Program, ProgramOutcome, RunEnd, SandboxLimits
from toolscript.ports.sandboxes import Sandbox

SECRET = "secret-5d1f0c"
LIMITS = SandboxLimits(cpu_seconds=0.5, memory_bytes=64 * 2**20, output_bytes=2**20)
MAX_OUTPUT = 2**20
MAX_CALLS = 100
WALL_SECONDS = 10.0
TIMEOUT_SECONDS = 60.0


class LimitedHost:
    """A host with the limits of a real one."""

    def __init__(self) -> None:
        self.output = ""
        self.calls = 0

    def begin(self) -> None:
        pass

    def count_call(self) -> None:
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise LimitReached(RunEnd.CALLS, "too many calls")

    async def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
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


@asynccontextmanager
async def open_outside(folder: Path) -> AsyncIterator[Outside]:
    """Files in a folder, and a server that counts connections."""
    outside = Outside(folder, 0)

    async def count(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outside.connections += 1
        writer.close()

    outside.secret_file.write_text(json.dumps({SECRET: 1}))
    outside.declarations.write_text(f'declare const secret: {{ "{SECRET}": 1 }};')
    async with await asyncio.start_server(count, "127.0.0.1", 0) as server:
        outside.port = server.sockets[0].getsockname()[1]
        yield outside


async def run(sandbox: Sandbox, source: str, host: LimitedHost, seconds: float = WALL_SECONDS) -> ProgramOutcome:
    """How a program ends that gets what a service gives it: limits of the host, and of time."""
    try:
        async with asyncio.timeout(seconds):
            return await sandbox.run(Program(source), host, LIMITS)
    except TimeoutError:
        return ProgramOutcome(RunEnd.TIME, message="too much time")
    except LimitReached as error:
        return ProgramOutcome(error.end, message=error.message)
