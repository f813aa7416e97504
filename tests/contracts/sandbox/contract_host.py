"""The host of the contract's programs, and the sandboxes that run them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tests.contracts.sandbox.contract_programs import ContractPrograms
from tests.contracts.sandbox.python_programs import PYTHON_PROGRAMS
from tests.contracts.sandbox.typescript_programs import TYPESCRIPT_PROGRAMS
from toolscript.adapters.deno.sandbox import DenoSandbox
from toolscript.adapters.monty.sandbox import MontySandbox
from toolscript.domain.errors import NotFound
from toolscript.domain.programs import LimitReached, Program, RunEnd, SandboxLimits
from toolscript.ports.sandboxes import Sandbox

LIMITS = SandboxLimits(cpu_seconds=20.0, memory_bytes=64 * 2**20, output_bytes=2**20)
TIMEOUT_SECONDS = 60.0

SANDBOXES: Mapping[str, tuple[Callable[[], Sandbox], ContractPrograms]] = {
    "monty": (MontySandbox, PYTHON_PROGRAMS),
    "deno": (DenoSandbox, TYPESCRIPT_PROGRAMS),
}


class Host:
    """Answers the programs of the contract."""

    def __init__(self, max_output: int = 2**20) -> None:
        self.output = ""
        self.has_begun = False
        self.calls = 0
        self.is_cancelled = False
        self.is_waiting = asyncio.Event()
        self._max_output = max_output
        self._met = 0
        self._all_met = asyncio.Event()

    def begin(self) -> None:
        assert not self.has_begun
        self.has_begun = True

    def count_call(self) -> None:
        assert self.has_begun
        self.calls += 1

    async def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
        match function:
            case "double":
                return arguments["number"] * 2
            case "echo":
                return arguments["value"]
            case "fail":
                raise NotFound("no such tool: 'x'")
            case "break":
                raise ValueError("a fault of the host")
            case "stop":
                raise LimitReached(RunEnd.CALLS, "one call too many")
            case "meet":
                self._met += 1
                if self._met == arguments["of"]:
                    self._all_met.set()
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await self._all_met.wait()
                return self._met
            case _:
                self.is_waiting.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.is_cancelled = True

    def take_output(self, text: str) -> None:
        self.output += text
        if len(self.output) > self._max_output:
            raise LimitReached(RunEnd.OUTPUT, "the program printed more than it may")


async def run(sandbox: Sandbox, source: str, host: Host | None = None, limits: SandboxLimits = LIMITS) -> Any:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await sandbox.run(Program(source), host or Host(), limits)
