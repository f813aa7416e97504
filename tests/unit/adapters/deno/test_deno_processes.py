"""Deno's processes: which modules they refuse, and when they end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import psutil
import pytest

from tests.fixtures.limits import set_limits
from toolscript.adapters.deno.process import FOLDER, find_deno
from toolscript.adapters.deno.sandbox import DenoSandbox
from toolscript.domain.errors import Unavailable
from toolscript.domain.programs import Program, SandboxLimits

pytestmark = pytest.mark.slow

pytest.importorskip("deno", reason="Deno has no wheel for this platform")

LIMITS = SandboxLimits(cpu_seconds=60.0, memory_bytes=64 * 2**20, output_bytes=2**20)
TIMEOUT_SECONDS = 60.0

ENDLESS_TYPES = (
    "type Grow<N, A extends unknown[]> = A['length'] extends 24 ? N\n"
    "  : Grow<[N, 0], [...A, 0]> | Grow<[N, 1], [...A, 0]>;\n"
    "const value: Grow<0, []> = 5;"
)

# Checks a program, runs one that is busy, and tells when it runs.
GATEWAY = """
import asyncio
from toolscript.adapters.deno.sandbox import DenoSandbox
from toolscript.domain.programs import Program, SandboxLimits

class Host:
    def begin(self):
        pass

    def count_call(self):
        pass

    async def call(self, function, arguments):
        print("running", flush=True)

    def take_output(self, text):
        pass

async def main():
    sandbox = DenoSandbox()
    await sandbox.check(Program("return 1;"), 60.0)
    await sandbox.run(Program("await call_host('x', {}); while (true) {}"), Host(), SandboxLimits(600.0, 2**26, 2**20))

asyncio.run(main())
"""


class WatchingHost:
    """Answers with the processes that there are now and were not there before."""

    def __init__(self) -> None:
        self._before = {child.pid for child in psutil.Process().children()}

    def begin(self) -> None:
        pass

    def count_call(self) -> None:
        return None

    async def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
        return [child.pid for child in psutil.Process().children() if child.pid not in self._before]

    def take_output(self, text: str) -> None:
        return None


@pytest.mark.req("C-02")
def test_every_module_of_node_is_refused() -> None:
    script = "console.log(JSON.stringify((await import('node:module')).builtinModules))"
    printed = subprocess.run(
        [find_deno(), "eval", script], capture_output=True, check=True, env=os.environ | {"DENO_DIR": "/dev/null/none"}
    ).stdout
    names = {f"node:{name.removeprefix('node:')}" for name in json.loads(printed)}
    refused = json.loads((FOLDER / "imports.json").read_text())["imports"]
    assert names <= set(refused)
    assert set(refused.values()) == {None}


@pytest.mark.req("C-02")
def test_no_process_is_left_when_the_gateway_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", GATEWAY], stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout
        assert gateway.stdout.readline() == "running\n"
        left = psutil.Process(gateway.pid).children(recursive=True)
        gateway.kill()
    assert len(left) >= 2
    _, alive = psutil.wait_procs(left, timeout=TIMEOUT_SECONDS)
    assert alive == []


async def test_the_next_program_gets_the_process_that_was_started_for_it() -> None:
    sandbox, host = DenoSandbox(spare_processes=1), WatchingHost()
    source = "return await call_host('look', {});"
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            first, second, third = [(await sandbox.run(Program(source), host, LIMITS)).value for _ in range(3)]
        assert len({*first, *second, *third}) == 3
    finally:
        await sandbox.close()


async def test_halves_of_characters_are_replaced() -> None:
    sandbox = DenoSandbox()
    try:
        outcome = await sandbox.run(Program('return ["\\ud83d", "\\ud83d\\ude00"];'), WatchingHost(), LIMITS)
        assert outcome.value == ["?", "😀"]
    finally:
        await sandbox.close()


@pytest.mark.extended
@pytest.mark.req("C-02")
async def test_types_that_take_too_long_stop_no_other_check() -> None:
    sandbox = DenoSandbox()
    try:
        await sandbox.check(Program("return 1;"), TIMEOUT_SECONDS)
        busy = asyncio.create_task(sandbox.check(Program(ENDLESS_TYPES), TIMEOUT_SECONDS))
        await asyncio.sleep(0)  # it is the first
        waiting = asyncio.create_task(sandbox.check(Program("const n: number = 'x';"), TIMEOUT_SECONDS))
        done, _ = await asyncio.wait([busy], timeout=0.3)
        assert not done
        busy.cancel()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert len(await waiting) == 1
            assert await sandbox.check(Program("return 2;"), TIMEOUT_SECONDS) == []
        assert busy.cancelled()
    finally:
        await sandbox.close()


@pytest.mark.extended
@pytest.mark.req("C-02")
async def test_a_check_has_its_time_from_its_turn_on() -> None:
    sandbox = DenoSandbox()
    try:
        await sandbox.check(Program("return 1;"), TIMEOUT_SECONDS)
        busy = asyncio.create_task(sandbox.check(Program(ENDLESS_TYPES), 0.3))
        await asyncio.sleep(0)  # it is the first
        waiting = asyncio.create_task(sandbox.check(Program("const n: number = 'x';"), TIMEOUT_SECONDS))
        with pytest.raises(TimeoutError):
            await busy
        assert not waiting.done()
        assert len(await waiting) == 1
    finally:
        await sandbox.close()


async def test_a_check_that_waits_too_long_for_its_turn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, type_check_turn=0.0)
    sandbox = DenoSandbox()
    try:
        first = asyncio.create_task(sandbox.check(Program("return 1;"), TIMEOUT_SECONDS))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="too many programs are being checked"):
            await sandbox.check(Program("return 1;"), TIMEOUT_SECONDS)
        assert await first == []
    finally:
        await sandbox.close()
