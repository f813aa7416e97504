"""An HTTP server that answers a call with the code of a lost connection, and works on another call."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from tests.fixtures.http_services import HttpDouble
from toolscript.adapters.mcp import client
from toolscript.adapters.mcp.client import McpServer, McpServers
from toolscript.domain.catalog import Item
from toolscript.domain.errors import Unavailable, UpstreamFailed
from toolscript.domain.servers import ServerSpec, Transport

pytestmark = pytest.mark.req("G-05")

TIMEOUT_SECONDS = 30.0
SLOW, FAILING = Item("web", "slow"), Item("web", "failing")


class BusyServer(HttpDouble):
    """Answers the call of `slow` and pings when `may_answer` is set, and that of `failing` with -32000."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer, self.is_called = threading.Event(), threading.Event()

    def answer(self, request: Any, body: bytes) -> None:
        message = json.loads(body or b"{}")
        if "id" not in message:
            self.send(request, 202 if body else 405, b"")
            return
        name = message.get("params", {}).get("name")
        answer: dict[str, Any] = {"result": {}}
        if message["method"] == "initialize":
            version, about = message["params"]["protocolVersion"], {"name": "web", "version": "1"}
            answer = {"result": {"protocolVersion": version, "capabilities": {}, "serverInfo": about}}
        elif name == "failing":
            answer = {"error": {"code": -32000, "message": "the paper is out"}}
        else:
            self.is_called.set()
            self.may_answer.wait(TIMEOUT_SECONDS)
            answer = {"result": {"content": [{"type": "text", "text": "done"}]} if name else {}}
        self.send(request, 200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode())


@pytest.mark.slow
@pytest.mark.parametrize(("is_busy", "error"), [(True, UpstreamFailed), (False, Unavailable)])
async def test_a_server_that_answers_no_ping_is_lost_only_when_it_works_on_no_other_call(
    monkeypatch: pytest.MonkeyPatch, *, is_busy: bool, error: type[Exception]
) -> None:
    monkeypatch.setattr(client, "PING_TIMEOUT_SECONDS", 0.2)
    with BusyServer() as web:
        spec = ServerSpec("web", Transport.HTTP, url=f"{web.root}/mcp")
        async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server:
            calls = [asyncio.create_task(server.call(SLOW, {}, within=TIMEOUT_SECONDS))] if is_busy else []
            if is_busy:
                assert await asyncio.to_thread(web.is_called.wait, TIMEOUT_SECONDS)
            with pytest.raises(error):
                await server.call(FAILING, {}, within=TIMEOUT_SECONDS)
            web.may_answer.set()
            for result in await asyncio.gather(*calls):
                assert result.content == [{"type": "text", "text": "done"}]


async def test_an_answer_that_comes_while_the_connection_closes_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    open_server = McpServers._open

    async def fail_late() -> None:
        raise ExceptionGroup("as the SDK's", [anyio.ClosedResourceError()])

    async def open_and_fail_late(servers: McpServers, stack: AsyncExitStack, *parts: Any) -> McpServer:
        stack.push_async_callback(fail_late)
        return await open_server(servers, stack, *parts)

    monkeypatch.setattr(McpServers, "_open", open_and_fail_late)
    with BusyServer() as web:
        async with McpServers().connect(ServerSpec("web", Transport.HTTP, url=f"{web.root}/mcp"), within=60.0):
            pass
