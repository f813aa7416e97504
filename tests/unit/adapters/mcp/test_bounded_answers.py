"""Answers over HTTP are bounded as they are over pipes, whatever they are compressed with, and end with their call."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from tests.fixtures.http_services import HttpDouble
from tests.fixtures.limits import set_limits
from toolscript.adapters.mcp.client import McpServers
from toolscript.domain.catalog import Item
from toolscript.domain.errors import TimedOut, ToolscriptError, UpstreamFailed
from toolscript.domain.servers import ServerSpec, Transport

pytestmark = pytest.mark.req("X-11")

TIMEOUT_SECONDS = 60.0
MAX_BYTES = 2**20
# What a system keeps of a connection that nobody reads.
BUFFERED_BYTES = 16 * 2**20
ENDLESS_BYTES = 64 * 2**20
PIECE = b" " * 2**16
ECHO = Item("web", "echo")


class HostileServer(HttpDouble):
    """Answers the calls of its tools without end, or with an archive that unpacks to 64 MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.is_given_up, self.is_silent, self.is_answered = threading.Event(), threading.Event(), threading.Event()

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        message = json.loads(body or b"{}")
        name = message.get("params", {}).get("name")
        if "id" not in message:
            if self.is_silent.is_set() and message.get("method") == "notifications/cancelled":
                self.is_answered.wait(TIMEOUT_SECONDS)
            self.send(request, 202 if body else 405, b"")
        elif name in {None, "echo"}:
            self.send(request, 200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **_answer(message)}).encode())
        elif name == "lists":
            result = b'{"content":[],"structuredContent":[%s[]]}' % (b"[]," * 200_000)
            self.send(request, 200, b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (message["id"], result))
        elif name == "twice":
            packed = gzip.compress(gzip.compress(b"{}"))
            self.send(request, 200, packed, {"Content-Encoding": "gzip, gzip", "Content-Length": str(len(packed))})
        elif name in {"damaged", "damaged-error"}:
            self.send(
                request, 200 if name == "damaged" else 500, b"{}", {"Content-Encoding": "gzip", "Content-Length": "2"}
            )
        elif name == "bomb":
            packed = gzip.compress(b" " * ENDLESS_BYTES)
            self.send(request, 200, packed, {"Content-Encoding": "gzip", "Content-Length": str(len(packed))})
        else:
            self._send_endlessly(request, name)

    def _send_endlessly(self, request: BaseHTTPRequestHandler, name: str) -> None:
        kind = "text/event-stream" if name in {"comments", "endless-event"} else "application/json"
        request.send_response({"error": 500, "moved": 307}.get(name, 200))
        request.send_header("Content-Type", kind)
        request.send_header("Location", "/mcp/")
        request.send_header("Connection", "close")
        request.end_headers()
        piece = {"comments": b": nothing\n\n", "slow": b" "}.get(name, PIECE)
        try:
            while self.sent < ENDLESS_BYTES and not (name in {"slow", "comments"} and self.is_answered.wait(0.01)):
                request.wfile.write(piece)
                self.sent += len(piece)
        except ConnectionError:
            self.is_given_up.set()


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    if message["method"] != "initialize":
        return {"result": {"content": [{"type": "text", "text": "done"}]} if message["method"] != "ping" else {}}
    about = {"name": "web", "version": "1"}
    version = message["params"]["protocolVersion"]
    return {"result": {"protocolVersion": version, "capabilities": {}, "serverInfo": about}}


@pytest.fixture
def web() -> Iterator[HostileServer]:
    with HostileServer() as server:
        try:
            yield server
        finally:
            server.is_answered.set()


@pytest.mark.parametrize("name", ["endless", "endless-event", "bomb", "lists"])
async def test_an_answer_above_the_limit_names_the_limit_and_the_next_call_works(web: HostileServer, name: str) -> None:
    async with McpServers(MAX_BYTES).connect(_describe(web), within=TIMEOUT_SECONDS) as server:
        with pytest.raises(UpstreamFailed, match=r"larger than 1 MiB: raise TOOLSCRIPT_CALL_MAX_MIB"):
            await server.call(Item("web", name), {}, within=TIMEOUT_SECONDS)
        assert (await server.call(ECHO, {}, within=TIMEOUT_SECONDS)).text == "done"
    assert web.sent < BUFFERED_BYTES


async def test_an_answer_that_is_compressed_twice_is_refused(web: HostileServer) -> None:
    async with McpServers(MAX_BYTES).connect(_describe(web), within=TIMEOUT_SECONDS) as server:
        with pytest.raises(UpstreamFailed, match="compressed more than once"):
            await server.call(Item("web", "twice"), {}, within=TIMEOUT_SECONDS)


@pytest.mark.parametrize(("name", "reason"), [("damaged", "be decompressed"), ("damaged-error", "an error response")])
async def test_an_answer_that_cannot_be_decompressed_costs_its_call_and_not_the_connection(
    web: HostileServer, name: str, reason: str
) -> None:
    async with McpServers(MAX_BYTES).connect(_describe(web), within=TIMEOUT_SECONDS) as server:
        with pytest.raises(UpstreamFailed, match=reason):
            await server.call(Item("web", name), {}, within=TIMEOUT_SECONDS)
        assert (await server.call(ECHO, {}, within=TIMEOUT_SECONDS)).text == "done"


@pytest.mark.parametrize("name", ["error", "moved"])
async def test_the_body_of_an_error_or_a_redirect_is_not_read_to_its_end(web: HostileServer, name: str) -> None:
    async with McpServers(ENDLESS_BYTES).connect(_describe(web), within=TIMEOUT_SECONDS) as server:
        with pytest.raises(ToolscriptError):
            await server.call(Item("web", name), {}, within=TIMEOUT_SECONDS)
    assert web.sent < ENDLESS_BYTES


@pytest.mark.parametrize("name", ["slow", "comments"])
@pytest.mark.parametrize("is_silent", [False, True])
async def test_reading_ends_with_the_call(
    web: HostileServer, monkeypatch: pytest.MonkeyPatch, name: str, *, is_silent: bool
) -> None:
    set_limits(monkeypatch, notification=0.2)
    if is_silent:
        web.is_silent.set()
    async with McpServers(MAX_BYTES).connect(_describe(web), within=TIMEOUT_SECONDS) as server:
        with pytest.raises(TimedOut):
            await server.call(Item("web", name), {}, within=0.2)
        assert await asyncio.to_thread(web.is_given_up.wait, 10.0)
        # A notification without an answer holds up no later message.
        assert (await server.call(ECHO, {}, within=TIMEOUT_SECONDS)).text == "done"


def _describe(web: HostileServer) -> ServerSpec:
    return ServerSpec("web", Transport.HTTP, url=f"{web.root}/mcp")
