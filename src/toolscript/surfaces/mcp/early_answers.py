"""Keeps the first answers for the next pipes of `toolscript mcp`, before a gateway serves them."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY, JSONRPCResponse
from mcp_types import jsonrpc_message_adapter as messages
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from toolscript.configuration.data_files import replace_file
from toolscript.domain.errors import Unavailable
from toolscript.domain.requests import current_request, set_request
from toolscript.pipe.conversation import LISTS
from toolscript.pipe.early_answers import FOLDER, describe_answers
from toolscript.services.tools.native_changes import ChangeFilter, ChangeStream
from toolscript.surfaces.callers import STILL_STARTING
from toolscript.surfaces.mcp.native import AnswerRequest
from toolscript.surfaces.mcp.relay import AnswerCall
from toolscript.surfaces.mcp.server import build_server
from toolscript.surfaces.mcp.subscriptions import LIST_NOTIFICATIONS, ConnectionChanges, OpenStream
from toolscript.surfaces.mcp.tool_list import list_own_tools

VERSIONS = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
# Of folders with answers, one for each set of settings.
MAX_FOLDERS = 20
RETRY_SECONDS = 5.0
CLIENT = {"name": "toolscript", "version": "1"}
EVERY_LIST = ChangeFilter(prompts=True, resources=True, tools=True)

log = logging.getLogger(__name__)


class EarlyAnswerFiles:
    """Writes the files, and writes them again when a list changes."""

    def __init__(self, data: Path, state_secret: str | None) -> None:
        self._folder = data / FOLDER
        self._state_secret = state_secret
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def keep(self, digest: str, profile: str, answer: AnswerCall, native: AnswerRequest, stream: OpenStream) -> None:
        """Keeps the answers for pipes with that digest of their settings, in the background, until closed."""
        if digest not in self._tasks:
            server = _build_connection_server(answer, native, stream, self._state_secret)
            self._tasks[digest] = asyncio.create_task(self._keep(digest, profile, server, stream))

    async def close(self) -> None:
        """Writes nothing any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _keep(self, digest: str, profile: str, server: Server[Any], open_stream: OpenStream) -> None:
        set_request(replace(current_request(), profile=profile))
        while True:
            try:
                async with open_stream(EVERY_LIST) as stream:
                    await self._write(digest, server)
                    async for _ in stream:
                        await self._write(digest, server)
            except Exception as error:  # noqa: BLE001  (agents must be served whatever is wrong with the files)
                log.info("early_answers_not_written", extra={"reason": f"{type(error).__name__}: {error}"})
            await asyncio.sleep(RETRY_SECONDS)

    async def _write(self, digest: str, server: Server[Any]) -> None:
        answers = await asyncio.gather(*(collect_answers(server, version) for version in VERSIONS))
        collected = dict(zip(VERSIONS, answers, strict=True))
        await asyncio.to_thread(_write_files, self._folder, digest, collected)


async def collect_answers(server: Server[Any], version: str) -> dict[str, dict[str, Any]]:
    """The results that a pipe may give early in a version of the protocol, by method."""
    is_modern = version in MODERN_PROTOCOL_VERSIONS
    if is_modern:
        meta = {PROTOCOL_VERSION_META_KEY: version, CLIENT_INFO_META_KEY: CLIENT, CLIENT_CAPABILITIES_META_KEY: {}}
        given: dict[str, Any] = {method: {"_meta": meta} for method in ("server/discover", *LISTS)}
    else:
        about = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
        given = {"initialize": about, **{method: {} for method in LISTS}}
    results: dict[str, dict[str, Any]] = {}
    requests, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](len(given))
    outbox, responses = anyio.create_memory_object_stream[SessionMessage](len(given))
    async with anyio.create_task_group() as tasks, requests, responses:
        tasks.start_soon(server.run, inbox, outbox, server.create_initialization_options(LIST_NOTIFICATIONS))
        for method, params in given.items():
            message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            await requests.send(SessionMessage(messages.validate_python(message)))
        for _ in given:  # in any order: lists may wait for servers
            response = (await responses.receive()).message
            if isinstance(response, JSONRPCResponse):
                # A gateway that starts cannot know how long the lists stay as they are.
                stale = {"ttlMs": 0} if response.id in LISTS and "ttlMs" in response.result else {}
                results[str(response.id)] = {**response.result, **stale}
        tasks.cancel_scope.cancel()
    return {method: results[method] for method in given if method in results}


async def collect_default_answers(version: str) -> dict[str, dict[str, Any]]:
    """The results for the first start ever: our own tools, without searches in what is still empty."""

    async def answer_list(method: str, _: object, __: object) -> dict[str, Any]:
        return {"tools": list_own_tools(())} if method == "tools/list" else {LISTS[method][0]: []}

    async def refuse(*_: object) -> Mapping[str, Any]:
        raise Unavailable(STILL_STARTING)

    @asynccontextmanager
    async def open_stream(wanted: ChangeFilter) -> AsyncIterator[ChangeStream]:
        yield ChangeStream(wanted)

    return await collect_answers(_build_connection_server(refuse, answer_list, open_stream), version)


def _build_connection_server(
    answer: AnswerCall, native: AnswerRequest, stream: OpenStream, state_secret: str | None = None
) -> Server[Any]:
    """A server with all that one of a connection has, so that it names the same capabilities."""
    server = build_server(answer, native, stream, state_secret)
    ConnectionChanges(server, stream)
    return server


def format_answers(answers: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The content of a file, as `toolscript.pipe.early_answers` reads it."""
    lines = (f"{method}\t{json.dumps(answer, separators=(',', ':'))}\n" for method, answer in answers.items())
    body = "".join(lines).encode()
    return json.dumps(describe_answers(body)).encode() + b"\n" + body


def _write_files(folder: Path, digest: str, collected: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    for needed in (folder, folder / digest):
        needed.mkdir(mode=0o700, exist_ok=True)
    for version, answers in collected.items():
        file, content = folder / digest / version, format_answers(answers)
        if not file.exists() or file.read_bytes() != content:
            replace_file(file, content)
    others = sorted((each for each in folder.iterdir() if each.name != digest), key=lambda each: each.stat().st_mtime)
    for old in others[: max(0, len(others) - MAX_FOLDERS)]:
        shutil.rmtree(old, ignore_errors=True)
