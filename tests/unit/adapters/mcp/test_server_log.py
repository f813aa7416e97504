"""Log messages of servers: which are asked for, and what is passed on of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.servers import make_scripted_server, serving_http
from toolscript.adapters.mcp.client import McpServers
from toolscript.adapters.mcp.server_log import ServerLog
from toolscript.domain.catalog import Item
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.ports.servers import ToolServer

TIMEOUT_SECONDS = 60.0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not holds():  # noqa: ASYNC110  (another process writes them)
            await asyncio.sleep(0.01)


async def find_tool(server: ToolServer, name: str) -> Item:
    return next(item for item in (await server.list_items()).items if item.name == name)


@pytest.mark.req("G-02", "X-04")
async def test_messages_of_a_program_are_requested_and_kept_without_secrets() -> None:
    lines: list[str] = []
    messages: list[Any] = [
        {"level": "warning", "logger": "disk", "data": "almost full"},
        {"level": "error", "data": {"token": "hush-hush-hush", "why": "<b>"}},
        {"level": "info", "data": "\x1b[31mfirst\x1b[0m\nsecond with hush-hush-hush"},
        {"level": 7, "logger": None, "data": "x" * 5000},
    ]
    spec = make_scripted_server(messages=messages, env={"TOKEN": "hush-hush-hush"})
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS, on_log=lines.append):
        await until(lambda: len(lines) >= 5)
    first, second, third, fourth, fifth = lines
    assert first == "[warning] disk: almost full"
    assert second.startswith('[error] {"token": ')
    assert "hush" not in str(lines)
    assert (third, fourth) == ("[info] first", "second with ***")
    assert (fifth[:10], len(fifth)) == ("[7] xxxxxx", 1001)


@pytest.mark.req("G-02")
async def test_a_server_of_2026_sends_its_messages_with_calls() -> None:
    lines: list[str] = []
    spec = make_scripted_server(modern=True, tools=["answer"], messages=[{"level": "info", "data": "called"}])
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS, on_log=lines.append) as server:
        answer = {"result": {"resultType": "complete", "content": []}}
        await server.call(await find_tool(server, "answer"), answer, within=TIMEOUT_SECONDS)
        await until(lambda: lines == ["[info] called"])


@pytest.mark.req("G-02")
@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.SSE])
async def test_messages_of_servers_elsewhere_are_passed_on(transport: Transport) -> None:
    lines: list[str] = []
    with serving_http() as served:
        spec = ServerSpec("web", transport, url=served.sse if transport is Transport.SSE else served.http)
        async with McpServers().connect(spec, within=TIMEOUT_SECONDS, on_log=lines.append) as server:
            await server.call(await find_tool(server, "note"), {"text": "almost full"}, within=TIMEOUT_SECONDS)
            await until(lambda: lines == ['[warning] disk: {"text": "almost full"}'])


@pytest.mark.req("G-02")
@pytest.mark.parametrize("behaviour", [{"ignores": ["logging/setLevel"]}, {"refuses": ["logging/setLevel"]}])
async def test_a_server_that_offers_messages_and_does_not_send_them_can_be_used(behaviour: dict[str, Any]) -> None:
    spec = make_scripted_server(messages=[], **behaviour)
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server:
        result = await server.call(await find_tool(server, "echo"), {"text": "x"}, within=TIMEOUT_SECONDS)
    assert result.structured == {"text": "x"}


@pytest.mark.req("G-02")
async def test_a_server_without_logging_gets_no_request_for_messages() -> None:
    async with McpServers().connect(make_scripted_server(), within=TIMEOUT_SECONDS) as server:
        seen = await server.call(await find_tool(server, "seen"), {}, within=TIMEOUT_SECONDS)
    assert "logging/setLevel" not in seen.structured


@pytest.mark.req("X-04")
def test_no_message_can_fail_the_connection_or_fill_the_log() -> None:
    lines: list[str] = []
    log = ServerLog(ServerSpec("a", Transport.STDIO, command="x"), lines.append)
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    for params in (None, {}, {"data": nested}, {"level": "y" * 5000, "logger": ["z"], "data": {1: 2}}):
        log.add_message(params)
    assert lines[:2] == ["[log] null", "[log] null"]
    assert "nested too deeply" in lines[2]
    log.add_message({"data": "line\n" * 10_000})
    assert len(lines) < 300


@pytest.mark.req("X-04")
@pytest.mark.parametrize("field", ["level", "logger"])
@pytest.mark.parametrize("length", range(80, 101))
def test_no_part_of_a_secret_is_left_where_a_name_is_cut(field: str, length: int) -> None:
    lines: list[str] = []
    log = ServerLog(ServerSpec("a", Transport.STDIO, command="x", env={"NAME": "plain-Secret-99"}), lines.append)
    log.add_message({field: "x" * length + "plain-Secret-99", "data": "m"})
    assert "pl" not in lines[0]
