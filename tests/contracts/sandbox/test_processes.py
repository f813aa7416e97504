"""The contract of sandboxes: none leaves a process behind. No other sandbox may run beside those of these tests."""

from __future__ import annotations

import asyncio
import os

import psutil

from tests.contracts.sandbox.contract_host import SANDBOXES, TIMEOUT_SECONDS, run
from toolscript.domain.programs import Program


def list_children() -> set[int]:
    return {child.pid for child in psutil.Process(os.getpid()).children(recursive=True)}


async def test_a_sandbox_that_is_prepared_works_and_ends(kind: str) -> None:
    before, (open_sandbox, programs) = list_children(), SANDBOXES[kind]
    sandbox = open_sandbox()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await asyncio.gather(sandbox.prepare(), sandbox.prepare())
        assert list_children() > before
        assert await sandbox.check(Program(programs.loop), TIMEOUT_SECONDS) == []
    assert (await run(sandbox, programs.double)).value == 42
    await sandbox.close()
    assert list_children() <= before


async def test_preparing_can_be_cancelled(kind: str) -> None:
    before, (open_sandbox, programs) = list_children(), SANDBOXES[kind]
    sandbox = open_sandbox()
    preparing = asyncio.create_task(sandbox.prepare())
    await asyncio.sleep(0)
    preparing.cancel()
    await asyncio.wait([preparing])
    assert (await run(sandbox, programs.double)).value == 42
    await sandbox.close()
    assert list_children() <= before


async def test_closing_ends_all_processes(kind: str) -> None:
    before, (open_sandbox, programs) = list_children(), SANDBOXES[kind]
    sandbox = open_sandbox()
    await run(sandbox, programs.double)
    await sandbox.close()
    assert list_children() <= before
