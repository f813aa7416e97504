"""Processes of our own that are killed leave nothing behind in the event loop."""

from __future__ import annotations

import asyncio
import gc
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from toolscript.adapters.mcp.stdio import stdio_transport
from toolscript.adapters.workers.process import stop_process
from toolscript.domain.servers import ServerSpec, Transport

pytestmark = pytest.mark.slow

MORE_THAN_A_PIPE_HOLDS = "x" * 2**20


def collect_problems() -> Callable[[], list[dict[str, Any]]]:
    """Returns what the exception handler of the event loop was told so far."""
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))

    def read() -> list[dict[str, Any]]:
        gc.collect()  # asyncio tells of errors that nobody has asked for when their future is dropped
        return problems

    return read


async def test_input_that_a_killed_process_has_not_read_is_dropped_silently() -> None:
    read_problems = collect_problems()
    process = await asyncio.create_subprocess_exec("sleep", "60", stdin=PIPE, stdout=PIPE)
    assert process.stdin
    process.stdin.write(MORE_THAN_A_PIPE_HOLDS.encode())
    await stop_process(process)
    assert process.returncode == -9
    del process
    assert read_problems() == []


@pytest.mark.req("G-02", "G-05")
async def test_a_message_that_a_killed_server_has_not_read_is_dropped_silently() -> None:
    read_problems = collect_problems()
    spec = ServerSpec("silent", Transport.STDIO, command="sleep", args=("60",))
    message = JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={"text": MORE_THAN_A_PIPE_HOLDS})
    async with stdio_transport(spec, 2**20, lambda _: None) as (_, outbox, process):
        await outbox.send(SessionMessage(message))
    del process
    assert read_problems() == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no statuses that can be taken away")
async def test_no_status_is_lost_when_a_process_ends_while_it_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    async def stop_at_its_end(pause: float) -> int | None:
        process = await asyncio.create_subprocess_exec("sleep", "0.02", stdin=PIPE, stdout=PIPE)
        await asyncio.sleep(pause)
        await stop_process(process)
        return process.returncode

    ends = await asyncio.gather(*[stop_at_its_end(0.015 + number / 4000) for number in range(60)])
    assert {0, -9} >= set(ends)
    assert "child process" not in caplog.text
