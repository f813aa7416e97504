"""Results over HTTP do not pass through the SDK's reader, which is strict and holds up the event loop."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from tests.fixtures.http_services import HttpDouble
from toolscript.adapters.mcp import lenient_reader, messages
from toolscript.adapters.mcp.client import McpServers
from toolscript.adapters.mcp.messages import PendingResults, parse_message, read_events
from toolscript.domain.catalog import Item
from toolscript.domain.errors import Unavailable
from toolscript.domain.servers import ServerSpec, Transport

pytestmark = pytest.mark.req("X-11")

TIMEOUT_SECONDS = 60.0
MAX_BYTES = 2**20
DEEP = '{"type":"object","properties":{"a":' * 30 + '{"anyOf":' * 100 + "[]" + "}" * 100 + "}}" * 30
TOOLS = '{"tools":[{"name":"whole","inputSchema":{"type":"object"}},%s]}'
FLAWED = {"half a pair": '{"name":"\\ud800x"}', "deep": f'{{"name":"deep","inputSchema":{DEEP}}}'}


class FlawedServer(HttpDouble):
    """Lists a tool that the SDK cannot read, as JSON or as an event."""

    def __init__(self, flaw: str, *, has_events: bool) -> None:
        super().__init__()
        self._flaw = flaw
        self._has_events = has_events

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        message = json.loads(body or b"{}")
        if "id" not in message:
            self.send(request, 202 if body else 405, b"")
            return
        result = b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (message["id"], self._answer(message).encode())
        if self._has_events:
            event = b"event: message\r\ndata: %s\r\n\r\n" % result
            self.send(request, 200, event, {"Content-Type": "text/event-stream", "Content-Length": str(len(event))})
        else:
            self.send(request, 200, result)

    def _answer(self, message: dict[str, Any]) -> str:
        match message["method"]:
            case "initialize":
                version, about = message["params"]["protocolVersion"], {"name": "web", "version": "1"}
                return json.dumps({"protocolVersion": version, "capabilities": {}, "serverInfo": about})
            case "tools/list":
                return TOOLS % self._flaw
            case _:
                return '{"content":[{"type":"text","text":"done"}]}'


class RedirectingServer(HttpDouble):
    """Redirects the handshake to another machine, and answers everything else with an empty object."""

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        message = json.loads(body or b"{}")
        if message.get("method") == "initialize":
            self.send(request, 307, b"", {"Location": "http://169.254.169.254/", "Content-Length": "0"})
        else:
            self.send(request, 200, b'{"jsonrpc":"2.0","id":%d,"result":{}}' % message.get("id", 0))


@pytest.fixture(params=[False, True], ids=["json", "events"])
def has_events(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("flaw", FLAWED)
async def test_what_the_sdk_cannot_read_costs_its_tool_and_not_the_server(flaw: str, *, has_events: bool) -> None:
    with FlawedServer(FLAWED[flaw], has_events=has_events) as web:
        spec = ServerSpec("web", Transport.HTTP, url=f"{web.root}/mcp")
        async with McpServers(MAX_BYTES).connect(spec, within=TIMEOUT_SECONDS) as server:
            assert "whole" in [item.name for item in (await server.list_items()).items]
            assert (await server.call(Item("web", "whole"), {}, within=TIMEOUT_SECONDS)).text == "done"


async def test_the_reason_names_where_a_server_redirects_the_handshake() -> None:
    with RedirectingServer() as web:
        spec = ServerSpec("web", Transport.HTTP, url=f"{web.root}/mcp")
        with pytest.raises(Unavailable, match=r"Redirect to http://169\.254\.169\.254/ not followed"):
            async with McpServers(MAX_BYTES).connect(spec, within=TIMEOUT_SECONDS):
                pass


async def test_an_answer_that_is_nested_without_end_is_an_error_of_its_request() -> None:
    content = b'{"jsonrpc":"2.0","id":7,"result":{"a":%s%s}}' % (b"[" * 100_000, b"]" * 100_000)
    error = json.loads(await PendingResults(MAX_BYTES * 64).replace_result(content, 7))
    assert error == {"jsonrpc": "2.0", "id": 7, "error": {"code": -32603, "message": "unreadable answer"}}


async def test_a_long_result_is_read_in_a_thread_and_the_sdk_gets_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[bool] = []

    def note(*arguments: Any) -> Any:
        readers.append(threading.current_thread() is threading.main_thread())
        return parse_message(*arguments)

    monkeypatch.setattr(messages, "SMALL_MESSAGE_BYTES", 1000)
    monkeypatch.setattr(messages, "parse_message", note)
    result = {"tools": [{"name": f"tool_{n}"} for n in range(1000)]}
    content = json.dumps({"jsonrpc": "2.0", "id": 7, "result": result}).encode()
    results = PendingResults(MAX_BYTES)
    stand_in = await results.replace_result(content, 3)
    assert readers == [False]
    assert len(stand_in) < 200
    short = json.loads(stand_in)
    assert short["id"] == 3
    assert results.take(short["result"]) == result
    assert results.take(result) is result


async def test_of_results_that_nobody_takes_a_bounded_part_is_kept() -> None:
    results = PendingResults(1000)
    content = b'{"jsonrpc":"2.0","id":7,"result":{"text":"%s"}}' % (b"x" * 400)
    first, *_, last = [json.loads(await results.replace_result(content))["result"] for _ in range(20)]
    with pytest.raises(ValueError, match="too late"):
        results.take(first)
    assert results.take(last)["text"]


@pytest.mark.parametrize("size", [1, 5, 10_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_events_are_passed_on_whatever_parts_they_come_in(size: int, end: bytes) -> None:
    lines = [b"event: endpoint", b"data: /messages", b"", b": nothing", b"", b"id: 5"]
    lines += [b'data: {"jsonrpc":"2.0",', b'data: "id":1,"result":{"a":1}}', b"", b'data: {"method":"m"}', b"", b""]
    stream = end.join(lines)
    results = PendingResults(1000)

    async def send() -> AsyncIterator[bytes]:
        for start in range(0, len(stream), size):
            yield stream[start : start + size]
            await asyncio.sleep(0)

    passed_on = b"".join([part async for part in read_events(send(), results, None)])
    events = [
        event.strip().split("\n")
        for event in passed_on.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n\n")
    ]
    assert events[0] == ["event: endpoint", "data: /messages"]
    assert events[2][0] == "id: 5"
    assert results.take(json.loads(events[2][1].removeprefix("data: "))["result"]) == {"a": 1}
    assert events[3] == ['data: {"method":"m"}']


@pytest.mark.parametrize("kind", ["list", "object"])
async def test_a_result_with_many_values_is_cleaned_in_a_thread(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    threads: set[threading.Thread] = set()

    def note(value: Any) -> Any:
        threads.add(threading.current_thread())
        return remove_unstorable(value)

    remove_unstorable = lenient_reader._remove_unstorable
    monkeypatch.setattr(lenient_reader, "_remove_unstorable", note)
    inside: Any = [math.inf] * 20_000 if kind == "list" else {str(n): math.inf for n in range(20_000)}
    cleaned = await lenient_reader.clean_result({"structuredContent": {"rows": inside}})
    assert threading.main_thread() not in threads
    rows = cleaned["structuredContent"]["rows"]
    assert {*rows.values()} == {None} if kind == "object" else {*rows} == {None}
