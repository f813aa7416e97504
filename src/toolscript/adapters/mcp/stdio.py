"""Runs a server as a child process and talks to it over its pipes.

The SDK's own transport reports neither the exit code nor the last line of standard error, and leaves a server's own
children running: docs/decisions/0008.
"""

from __future__ import annotations

import asyncio
import logging
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from toolscript.adapters.mcp.launch import Launch, build_launch
from toolscript.adapters.mcp.messages import SEARCHED_BYTES, read_message
from toolscript.adapters.mcp.process_tree import open_tree
from toolscript.adapters.workers.process import close_stdin, describe_exit
from toolscript.domain.errors import Unavailable
from toolscript.domain.servers import ServerSpec
from toolscript.ports.servers import OnLog

Inbox = MemoryObjectReceiveStream[SessionMessage | Exception]
Outbox = MemoryObjectSendStream[SessionMessage]

GRACE_SECONDS = 1.0
CLEANUP_SECONDS = 5.0
_CHUNK_BYTES = 2**18
_STDERR_TAIL_BYTES = 8192
# Of a longer line of standard error, the beginning is kept; of many lines that come at once, the last ones.
MIN_LINE_BYTES = 4096
_LOG_LINES_AT_ONCE = 200
_SHOWN_CHARACTERS = 300
_NODE_VERSION = re.compile(r"Node\.js v[0-9][0-9.]*")
_ERROR = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)\b.*:")
_NPM_TRAILER = re.compile(r"npm (?:error|ERR!) A complete log of this run")
_NPM_ERROR = re.compile(r"npm (?:error|ERR!) (?!code |errno |syscall |path |A complete log)")
_COLOURS = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")

log = logging.getLogger(__name__)


class ServerProcess:
    """A server's process: its exit reason, and how it is stopped."""

    def __init__(self, process: Process, launch: Launch) -> None:
        self._process = process
        self._tree = open_tree(process.pid, is_supervised=launch.is_supervised)
        self._cleanup = launch.cleanup
        self._stderr_tail = b""
        self._is_stopping = False
        self.stray_line = b""
        """The first line of its standard output that is not a message."""
        self.is_disconnected = False
        """Whether a pipe ended before the process was stopped."""

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Where the server reads."""
        assert self._process.stdin  # noqa: S101  (started with pipes)
        return self._process.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Where the server writes."""
        assert self._process.stdout  # noqa: S101
        return self._process.stdout

    def describe_exit(self, redact: Callable[[str], str]) -> str:
        """Describes how the process ended, with the decisive line of its standard error, redacted before it is cut."""
        code = self._process.returncode
        reason = "it closed its standard output" if code is None else describe_exit(code)
        line = find_decisive_line(self._stderr_tail.decode("utf-8", "replace"))
        return f"{reason}: {redact(line)[:_SHOWN_CHARACTERS]}" if line else reason

    def describe_silence(self, redact: Callable[[str], str]) -> str:
        """What is known about a process that has not answered in time; empty if nothing is."""
        if self.stray_line:
            line = redact(self.stray_line.decode("utf-8", "replace").strip())[:_SHOWN_CHARACTERS]
            return f"it writes lines to its standard output that are not messages of MCP: {line}"
        line = find_decisive_line(self._stderr_tail.decode("utf-8", "replace"))
        return f"the last line of its log: {redact(line)[:_SHOWN_CHARACTERS]}" if line else ""

    async def collect_stderr(self, on_log: OnLog, line_bytes: int) -> None:
        """Reads standard error to its end, passes its lines on, up to so many bytes of each, and keeps the tail: an
        unread pipe would block the server."""
        begun = b""
        while self._process.stderr and (chunk := await self._process.stderr.read(_CHUNK_BYTES)):
            self._stderr_tail = (self._stderr_tail + chunk)[-_STDERR_TAIL_BYTES:]
            *lines, begun = (begun + chunk).split(b"\n")
            begun = begun[:line_bytes]
            pass_on(lines, on_log, line_bytes)
        pass_on([begun], on_log, line_bytes)

    def note_disconnect(self) -> None:
        """Notes that a pipe has ended. Must be called before waiting requests learn of it."""
        self.is_disconnected = self.is_disconnected or not self._is_stopping

    async def wait_for_exit(self) -> None:
        """Waits up to the grace period for the exit code."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._process.wait()

    async def stop(self) -> None:
        """Stops the process and its children: SIGTERM, then SIGKILL."""
        self._is_stopping = True
        try:
            await self._terminate()
        finally:  # also when cancelled: a shield does not prevent that
            self._tree.kill()
            await self.wait_for_exit()
            await close_stdin(self._process)
            await self._clean_up()

    async def _clean_up(self) -> None:
        """Ends a container, which is no child of the process that started it."""
        if self._cleanup:
            with suppress(OSError):  # also TimeoutError
                async with asyncio.timeout(CLEANUP_SECONDS):
                    process = await asyncio.create_subprocess_exec(
                        *self._cleanup, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
                    )
                    await process.wait()

    async def _terminate(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        await self.wait_for_exit()
        self._tree.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while self._tree.is_running():  # noqa: ASYNC110  (no event signals the end of a grandchild)
                    await asyncio.sleep(0.01)


def pass_on(lines: Sequence[bytes], on_log: OnLog, line_bytes: int) -> None:
    """Passes lines of a log on, as a terminal without colours would show them: the last lines, each up to
    `line_bytes`."""
    for line in lines[-_LOG_LINES_AT_ONCE:]:
        shown = _COLOURS.sub(b"", line[:line_bytes]).strip(b"\r").rpartition(b"\r")[2]
        if text := shown.decode("utf-8", "replace").rstrip():
            on_log(text)


def find_decisive_line(text: str) -> str:
    """The line of a log that says most about its end. It is the last line, except where Node and npm write more below
    their error.

    >>> find_decisive_line("Error: no such file\\n    at open (a.js:3)\\n\\nNode.js v16.20.2\\n")
    'Error: no such file (Node.js v16.20.2)'
    >>> find_decisive_line("npm error code E404\\nnpm error 404 Not Found\\nnpm error A complete log of this run\\n")
    'npm error 404 Not Found'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if node := _NODE_VERSION.fullmatch(last):
        error = next((line for line in reversed(lines) if _ERROR.match(line)), "")
        return f"{error} ({node[0]})" if error else last
    if _NPM_TRAILER.match(last):
        return next((line for line in lines if _NPM_ERROR.match(line)), last)
    return last


@asynccontextmanager
async def stdio_transport(
    spec: ServerSpec, max_bytes: int, on_log: OnLog, line_bytes: int = MIN_LINE_BYTES, data: Path | None = None
) -> AsyncIterator[tuple[Inbox, Outbox, ServerProcess]]:
    """Starts the server and yields its message streams; stops it and its children at the end. A message of more than
    `max_bytes` becomes an error for its request. `on_log` gets the lines of its standard error, up to
    `line_bytes` of each. The homes of sandboxes are in the folder `data`.

    Raises Unavailable when it cannot be started.
    """
    launch = await asyncio.to_thread(build_launch, spec, data)
    server_process = ServerProcess(await _start(spec, launch), launch)
    deliver, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbox, collect = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server_process.collect_stderr, on_log, line_bytes)
        tasks.start_soon(_receive, server_process, deliver, spec.name, max_bytes)
        tasks.start_soon(_send, server_process, collect)
        try:
            yield inbox, outbox, server_process
        finally:
            with anyio.CancelScope(shield=True):
                await server_process.stop()
            for stream in (inbox, outbox):
                stream.close()
            tasks.cancel_scope.cancel()


async def _start(spec: ServerSpec, launch: Launch) -> Process:
    """Starts the process in its own group."""
    try:
        return await asyncio.create_subprocess_exec(
            *launch.words,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=launch.environment,
            cwd=launch.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise Unavailable(f"cannot run {spec.command}: {error}") from error


async def _receive(
    server_process: ServerProcess,
    deliver: MemoryObjectSendStream[SessionMessage | Exception],
    server: str,
    max_bytes: int,
) -> None:
    async with deliver:
        with suppress(anyio.BrokenResourceError, ConnectionError):
            async for line in _read_lines(server_process.stdout, max_bytes):
                if not line.strip():
                    continue
                try:
                    message = await read_message(line, max_bytes)
                except ValueError:  # probably a print statement in the server
                    server_process.stray_line = server_process.stray_line or line[:MIN_LINE_BYTES]
                    log.debug("not_a_message", extra={"server": server})
                    continue
                await deliver.send(SessionMessage(message))
        server_process.note_disconnect()


async def _send(server_process: ServerProcess, collect: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with collect:
        try:
            async for sent in collect:
                line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                server_process.stdin.write(line.encode() + b"\n")
                await server_process.stdin.drain()
        except (ConnectionError, RuntimeError):  # uvloop raises RuntimeError when the pipe is closed already
            server_process.note_disconnect()


async def _read_lines(stream: asyncio.StreamReader, max_bytes: int) -> AsyncIterator[bytes]:
    """The lines of a stream. Of a line of more than `max_bytes`, little more than so many bytes and its end are
    kept."""
    line = _Line(max_bytes)
    while chunk := await stream.read(_CHUNK_BYTES):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line.append(end)
            yield line.join_parts()
            line = _Line(max_bytes)
        line.append(rest)
    yield line.join_parts()


class _Line:
    """A line that arrives in parts."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._end = b""

    def append(self, part: bytes) -> None:
        if self._size <= self._max_bytes:
            self._parts.append(part)
            self._size += len(part)
        else:
            self._end = (self._end + part)[-SEARCHED_BYTES:]

    def join_parts(self) -> bytes:
        return b"".join([*self._parts, self._end] if self._end else self._parts)
