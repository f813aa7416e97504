"""Serves the pipes of `toolscript mcp` (see `toolscript.pipe`): MCP's stdio framing on a socket that only the owner of
the data folder can open."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from mcp_types import CallToolRequestParams

from toolscript.app.app import App
from toolscript.domain.access import Principal
from toolscript.domain.errors import Invalid, ToolscriptError, Unavailable
from toolscript.domain.requests import current_request, set_request
from toolscript.pipe.carrier import MAX_LINE_BYTES
from toolscript.pipe.place import fits_socket
from toolscript.services.tools.native_changes import ChangeFilter, ChangeStream
from toolscript.surfaces.mcp.early_answers import EarlyAnswerFiles
from toolscript.surfaces.mcp.native import AnswerRequest, answer_request
from toolscript.surfaces.mcp.relay import AnswerCall, Context, build_relay
from toolscript.surfaces.mcp.server import answer_call, serve_lines
from toolscript.surfaces.mcp.subscriptions import OpenStream

GREETING_SECONDS = 10.0
BACKLOG = 128

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hello:
    """What a pipe says of itself."""

    profile: str
    tenant: str
    config: str | None
    """The configuration file that its user has named."""
    digest: str
    """Of its settings: its early answers are kept under this name."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What answers the messages of one pipe."""

    answer: AnswerCall
    answer_native: AnswerRequest
    open_stream: OpenStream


Accept = Callable[[Hello], Awaitable[Answers]]
"""Raises a ToolscriptError for a pipe that cannot be served."""


def build_accept(wait_for_app: Callable[[], Awaitable[App]], data: Path, config: str | None) -> Accept:
    """Answers pipes with the application, for their tenants and profiles: their users own the data folder. `config` is
    the configuration file of the application, if its user has named one."""
    own_config = os.path.normpath(config or "")

    async def answer_native(method: str, params: dict[str, Any], _: object) -> dict[str, Any]:
        return await answer_request(await wait_for_app(), method, params)

    @asynccontextmanager
    async def open_stream(wanted: ChangeFilter) -> AsyncIterator[ChangeStream]:
        async with (await wait_for_app()).tools.native_changes.open(wanted) as stream:
            yield stream

    async def accept(hello: Hello) -> Answers:
        if hello.config and hello.config != own_config:
            raise Unavailable(
                f"the gateway on {data} reads {config or 'the default files'}, not {hello.config}: stop it with "
                "`toolscript gateway stop`, or choose another folder with --data-dir"
            )
        (await wait_for_app()).access.profiles.require(hello.profile)

        async def identify() -> Principal:
            return Principal(hello.tenant)

        async def answer(params: CallToolRequestParams, context: Context) -> Mapping[str, Any]:
            return await answer_call(await wait_for_app(), params, identify, relay=build_relay(context))

        return Answers(answer, answer_native, open_stream)

    return accept


class PipeServer:
    """Listens from `open` to `close`. The lock of the data folder must be held: a socket that is
    there is left from a process that has ended."""

    def __init__(self, path: Path, data: Path, accept: Accept, state_secret: str | None) -> None:
        self._path = path
        self._accept = accept
        self._state_secret = state_secret
        self._files = EarlyAnswerFiles(data, state_secret)
        self._opening: asyncio.Task[asyncio.Server] | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._is_ending = False

    @property
    def is_used(self) -> bool:
        """Whether some pipe is connected."""
        return bool(self._serving)

    async def open(self) -> None:
        """Begins to listen; does nothing when it does already. Raises Unavailable."""
        if self._opening:
            return
        listening = socket.socket(socket.AF_UNIX)
        try:
            self._remove()
            path = self._path if fits_socket(str(self._path)) else Path(mkdtemp(prefix="toolscript-"), "socket")
            listening.bind(str(path))
            path.chmod(0o600)
            if path != self._path:
                self._path.symlink_to(path)
            starting = asyncio.start_unix_server(self._begin, sock=listening, limit=MAX_LINE_BYTES + 1, backlog=BACKLOG)
            self._opening = asyncio.create_task(starting)
            await asyncio.shield(self._opening)
        except OSError as error:
            listening.close()
            raise Unavailable(f"cannot listen for `toolscript mcp` on {self._path}: {error.strerror}") from error

    def refuse_new(self) -> None:
        """Takes no more pipes, because the gateway is about to end: they look for the next one. A pipe that came while
        it ended would get errors for its requests."""
        self._is_ending = True
        if self._opening:
            with suppress(OSError):
                self._remove()

    async def close(self) -> None:
        """Ends all connections. Must come before the application ends: pipes then look for the next gateway."""
        if self._opening:
            self._remove()
            (await self._opening).close()
        await self._files.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _remove(self) -> None:
        """Removes the socket, also what a link leads to. Raises OSError."""
        if self._path.is_symlink():
            path = self._path.readlink()
            if path.is_socket():
                path.unlink()
                path.parent.rmdir()
        self._path.unlink(missing_ok=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_ending:
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve_pipe(reader, writer)
        except Exception as error:  # noqa: BLE001  (one pipe must not end the others)
            log.info("pipe_lost", extra={"reason": f"{type(error).__name__}: {error}"})
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve_pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                hello = _read_hello(await reader.readline())
                set_request(replace(current_request(), profile=hello.profile, tenant=hello.tenant))
                answers = await self._accept(hello)
        except ToolscriptError as error:
            writer.write(json.dumps({"refused": error.message}).encode() + b"\n")
            await writer.drain()
            return
        writer.write(b'{"ready":true}\n')
        parts = answers.answer, answers.answer_native, answers.open_stream
        self._files.keep(hello.digest, hello.profile, *parts)
        await serve_lines(*parts, self._state_secret, _read_lines(reader), writer)


async def _read_lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    while line := await reader.readline():
        yield line.decode(errors="replace")


def _read_hello(line: bytes) -> Hello:
    try:
        fields: Any = json.loads(line)
        return Hello(fields["profile"], fields["tenant"], fields["config"], fields["digest"])
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid("this pipe belongs to another version of Toolscript: restart the client") from error
