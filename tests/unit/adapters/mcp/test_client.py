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
from tests.fixtures.limits import set_limits
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
    set_limits(monkeypatch, ping=0.2)
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


@pytest.mark.parametrize("closed", [anyio.ClosedResourceError, anyio.BrokenResourceError])
async def test_an_answer_that_comes_while_the_connection_closes_is_ignored(
    monkeypatch: pytest.MonkeyPatch, closed: type[Exception]
) -> None:
    open_server = McpServers._open

    async def fail_late() -> None:
        raise ExceptionGroup("as the SDK's", [closed()])

    async def open_and_fail_late(servers: McpServers, stack: AsyncExitStack, *parts: Any) -> McpServer:
        stack.push_async_callback(fail_late)
        return await open_server(servers, stack, *parts)

    monkeypatch.setattr(McpServers, "_open", open_and_fail_late)
    with BusyServer() as web:
        async with McpServers().connect(ServerSpec("web", Transport.HTTP, url=f"{web.root}/mcp"), within=60.0):
            pass


class EndlessServer(HttpDouble):
    """Lists two tools and two resources a page; `last` is the number of the last page, after which comes `then`."""

    def __init__(self, last: int, then: str | None = None) -> None:
        super().__init__()
        self.last, self.then = last, then

    def answer(self, request: Any, body: bytes) -> None:
        message = json.loads(body or b"{}")
        if "id" not in message:
            self.send(request, 202 if body else 405, b"")
            return
        page = int((message.get("params") or {}).get("cursor") or 0)
        result: dict[str, Any] = {}
        if message["method"] == "initialize":
            version, about = message["params"]["protocolVersion"], {"name": "web", "version": "1"}
            capabilities: dict[str, Any] = {"tools": {}, "resources": {}}
            result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": about}
        elif message["method"] in {"tools/list", "resources/list"}:
            key = message["method"].partition("/")[0]
            result = {key: [{"name": f"{key[0]}{page}{n}", "uri": f"note:{page}{n}"} for n in "ab"]}
            result["nextCursor"] = str(page + 1) if page < self.last else self.then
        elif message["method"].endswith("list"):
            result = {"resourceTemplates": []}
        self.send(request, 200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())


@pytest.mark.slow
@pytest.mark.req("X-12")
@pytest.mark.parametrize(
    ("web", "max_items", "max_pages", "count", "problems"),
    [
        (EndlessServer(2), 12, 3, 12, []),
        (EndlessServer(2), 9, 3, 9, ["it lists more than 9 tools, prompts and resources: the rest is left out"]),
        (EndlessServer(2), 5, 3, 5, ["it lists more than 5 tools, prompts and resources: the rest is left out"]),
        (EndlessServer(9**9), 4, 99, 4, ["it lists more than 4 tools, prompts and resources: the rest is left out"]),
        (
            EndlessServer(9**9),
            99,
            3,
            12,
            [f"{each}/list has more than 3 pages: the rest is left out" for each in ("tools", "resources")],
        ),
        (
            EndlessServer(1, then="1"),
            99,
            9,
            8,
            [
                f"{each}/list names a page that it has sent before: what follows is left out"
                for each in ("tools", "resources")
            ],
        ),
    ],
)
async def test_a_server_that_lists_too_much_is_listed_in_part_and_its_status_says_so(
    monkeypatch: pytest.MonkeyPatch, web: EndlessServer, max_items: int, max_pages: int, count: int, problems: list[str]
) -> None:
    monkeypatch.setattr(client, "MAX_ITEMS", max_items)
    monkeypatch.setattr(client, "MAX_PAGES", max_pages)
    with web:
        spec = ServerSpec("web", Transport.HTTP, url=f"{web.root}/mcp")
        async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server:
            listing = await server.list_items()
    assert len(listing.items) == count
    assert [*listing.problems] == problems
