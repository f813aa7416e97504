"""A server that is a child process, spoken to over its pipes.

The SDK's own transport tells neither the exit code nor what the server last said on standard error, and leaves a
server's own children alive when the server ends politely. Both are what people ask about: docs/decisions/0008.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from toolscript.domain.errors import Unavailable
from toolscript.domain.servers import ServerSpec

Inbox = MemoryObjectReceiveStream[SessionMessage | Exception]
Outbox = MemoryObjectSendStream[SessionMessage]

GRACE_SECONDS = 1.0
LONGEST_MESSAGE = 64 * 2**20
_CHUNK = 2**18
_LAST_WORDS = 8192
_EITHER_END = 200
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})')
_METHOD = re.compile(rb'"method"\s*:')

log = logging.getLogger(__name__)


class Child:
    """A server's process: what became of it, and how it is ended."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._said = b""

    @property
    def fate(self) -> str:
        """What happened to the process, in words, with the last that it said on standard error."""
        code = self._process.returncode
        if code is None:
            ended = "it closed its standard output"
        elif code < 0:
            ended = f"it was ended by {signal.Signals(-code).name}"
        else:
            ended = f"it exited with code {code}"
        said = [line.strip() for line in self._said.decode("utf-8", "replace").splitlines() if line.strip()]
        return f"{ended}: {said[-1][:300]}" if said else ended

    async def listen_to_errors(self) -> None:
        """Keeps the last of standard error until it ends; a pipe nobody reads would stop the server."""
        while self._process.stderr and (chunk := await self._process.stderr.read(_CHUNK)):
            self._said = (self._said + chunk)[-_LAST_WORDS:]

    async def settle(self) -> None:
        """Waits a moment for the exit code of a process that has closed its pipes."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), GRACE_SECONDS)

    async def stop(self) -> None:
        """Ends the process and whatever it started: politely, then not."""
        try:
            await self._ask_to_end()
        finally:  # also when this is cancelled: no shield keeps a task from that
            _tell(self._process.pid, signal.SIGKILL)
        await self.settle()

    async def _ask_to_end(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        await self.settle()
        if _tell(self._process.pid, signal.SIGTERM):
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    while _tell(self._process.pid, 0):  # noqa: ASYNC110  (no event tells of a grandchild's end)
                        await asyncio.sleep(0.01)


def _tell(group: int, told: int) -> bool:
    """Signals a process and all that it started; False when nobody of them is left."""
    try:
        os.killpg(group, told)
    except (ProcessLookupError, PermissionError):  # macOS forbids what Linux finds gone: a process not yet collected
        return False
    return True


@asynccontextmanager
async def stdio_transport(spec: ServerSpec) -> AsyncIterator[tuple[Inbox, Outbox, Child]]:
    """Starts the server and hands out its message streams. In the end nothing of it is left running.

    Raises Unavailable when it cannot be started.
    """
    process = await _start(spec)
    child = Child(process)
    deliver, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbox, collect = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(child.listen_to_errors)
        tasks.start_soon(_read, process, deliver, spec.name)
        tasks.start_soon(_write, process, collect)
        try:
            yield inbox, outbox, child
        finally:
            with anyio.CancelScope(shield=True):
                await child.stop()
            for stream in (inbox, outbox):
                stream.close()
            tasks.cancel_scope.cancel()


async def _start(spec: ServerSpec) -> Process:
    """Starts the process in a group of its own, with the few variables that every program needs and its own."""
    environment = {**get_default_environment(), **spec.env}
    command = shutil.which(spec.command, path=environment.get("PATH"))
    if command is None:
        raise Unavailable(f"the command {spec.command!r} is not there: install it, or give its whole path")
    if spec.cwd and not await asyncio.to_thread(Path(spec.cwd).is_dir):
        raise Unavailable(f"its working folder {spec.cwd!r} is not there")
    try:
        return await asyncio.create_subprocess_exec(
            command,
            *spec.args,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment,
            cwd=spec.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise Unavailable(f"the command {spec.command!r} cannot be run: {error}") from error


async def _read(process: Process, deliver: MemoryObjectSendStream[SessionMessage | Exception], server: str) -> None:
    async with deliver:
        with suppress(anyio.BrokenResourceError, ConnectionError):
            async for line in _lines(process.stdout):
                if not line.strip():
                    continue
                try:
                    message = message_in(line)
                except ValueError:  # a print left in the server: its other messages are still good
                    log.debug("not_a_message", extra={"server": server})
                    continue
                await deliver.send(SessionMessage(message))


def message_in(line: bytes) -> JSONRPCMessage:
    """The message in a line. An answer is taken as it is: it may be long, and is looked at leniently later.

    Whoever waits for an answer that nobody can read is told so, where the line says whose it is. Raises ValueError.
    """
    try:
        told = json.loads(line.decode("utf-8", "replace"), parse_constant=lambda _: None)
        match told:
            case {"id": int() | str() as number, "result": dict() as result} if "method" not in told:
                return JSONRPCResponse.model_construct(jsonrpc="2.0", id=number, result=result)
            case _:
                return jsonrpc_message_adapter.validate_python(told, by_name=False)
    except (ValueError, RecursionError) as error:
        asked = _ID.search(line[:_EITHER_END]) or _ID.search(line[-_EITHER_END:])
        if asked is None or _METHOD.search(line[:_EITHER_END]):
            raise ValueError("no message") from error
        unreadable = ErrorData(code=INTERNAL_ERROR, message="it sent an answer that cannot be read")
        return JSONRPCError(jsonrpc="2.0", id=int(asked[1]), error=unreadable)


async def _write(process: Process, collect: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with collect:
        with suppress(ConnectionError):
            async for sent in collect:
                if process.stdin is None or process.stdin.is_closing():
                    return
                line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(line.encode() + b"\n")
                await process.stdin.drain()


async def _lines(stream: asyncio.StreamReader | None) -> AsyncIterator[bytes]:
    parts: list[bytes] = []
    held = 0
    while stream and (chunk := await stream.read(_CHUNK)):
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*parts, line])
            parts, held = [], 0
        parts.append(rest)
        held += len(rest)
        if held > LONGEST_MESSAGE:
            raise Unavailable(f"it sent a message of more than {LONGEST_MESSAGE // 2**20} MiB")
    yield b"".join(parts)
