"""Log messages of servers: which are asked for, and what is passed on of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.examples import choose
from tests.fixtures.waiting import until
from tests.servers import make_scripted_server, serving_http
from toolscript.adapters.mcp.client import McpServers
from toolscript.adapters.mcp.server_log import MAX_LOG_CHARACTERS, MAX_MESSAGE_CHARACTERS, ServerLog
from toolscript.domain.catalog import Item
from toolscript.domain.redaction import MARGIN
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.ports.servers import ToolServer

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 60.0


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
    assert (fifth[:10], len(fifth)) == ("[log] xxxx", 1001)


@pytest.mark.req("G-02")
async def test_a_server_of_2026_sends_its_messages_with_calls() -> None:
    lines: list[str] = []
    spec = make_scripted_server(modern=True, tools=["answer"], messages=[{"level": "info", "data": "called"}])
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS, on_log=lines.append) as server:
        answer = {"result": {"resultType": "complete", "content": []}}
        await server.call(await find_tool(server, "answer"), answer, within=TIMEOUT_SECONDS)
        await until(lambda: lines == ["[info] called"])


@pytest.mark.req("G-02")
async def test_messages_of_servers_elsewhere_are_passed_on() -> None:
    with serving_http() as served:
        for transport, url in ((Transport.HTTP, served.http), (Transport.SSE, served.sse)):
            lines: list[str] = []
            spec = ServerSpec("web", transport, url=url)
            async with McpServers().connect(spec, within=TIMEOUT_SECONDS, on_log=lines.append) as server:
                await server.call(await find_tool(server, "note"), {"text": "almost full"}, within=TIMEOUT_SECONDS)
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    while lines != ['[warning] disk: {"text": "almost full"}']:  # noqa: ASYNC110  (from a process)
                        await asyncio.sleep(0.01)


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
    assert lines[3] == f'[{"y" * 100}…] {{"1": 2}}'
    log.add_message({"data": "line\n" * 10_000})
    assert lines[4:] == ["[log] line", *["line"] * 18, "…"]


MANY = 1_000_000
LONG_MESSAGES: dict[str, Callable[[], dict[str, Any]]] = {
    "text": lambda: {"data": "token=a " * MANY},
    "lines": lambda: {"data": "\n" * 9 * MANY},
    "list": lambda: {"data": [0] * 6 * MANY},
    "nested text": lambda: {"data": {"text": ["token=a " * MANY]}},
    "lists as names": lambda: {"data": "m", "level": [0] * 3 * MANY, "logger": [0] * 3 * MANY},
    "large number": lambda: {"data": 1 << MANY},
}


@pytest.mark.req("X-04")
@pytest.mark.parametrize("name", LONG_MESSAGES)
def test_a_long_message_takes_little_more_time_than_a_short_one(name: str) -> None:
    message = LONG_MESSAGES[name]()
    lines: list[str] = []
    log = ServerLog(ServerSpec("a", Transport.STDIO, command="x", env={"NAME": "plain-Secret-99"}), lines.append)
    began = time.process_time()
    log.add_message(message)
    assert time.process_time() - began < 2
    assert 1 <= len(lines) <= 20
    assert all(len(line) <= 1001 for line in lines)


@pytest.mark.req("X-04")
def test_of_many_messages_in_a_second_the_first_are_kept_and_the_others_counted() -> None:
    lines: list[str] = []
    now = 100.0
    log = ServerLog(ServerSpec("a", Transport.STDIO, command="x"), lines.append, clock=lambda: now)
    for number in range(10_000):
        log.add_message({"level": "info", "data": f"{number} token={'a' * 900}"})
    assert len(lines) == 50
    now = 101.0
    log.add_message({"level": "info", "data": "later"})
    assert lines[50:] == ["[log] 9950 messages left out: too many in a second", "[info] later"]


@pytest.mark.req("X-04")
@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: {"t": [text]}], ids=["text", "json"])
@pytest.mark.parametrize("secrets_before", choose([0, 50], 50))
@pytest.mark.parametrize("rest", ["." * 10_000, " plain-Secret-99" * 1000], ids=["dots", "secrets"])
@pytest.mark.parametrize("line_length", choose([50, 100_000], 50))
def test_no_part_of_a_secret_is_left_where_a_message_is_cut(
    wrap: Callable[[str], Any], secrets_before: int, rest: str, line_length: int
) -> None:
    secret = "plain-Secret-99"
    spec = ServerSpec("a", Transport.STDIO, command="x", env={"NAME": secret})
    room = MAX_MESSAGE_CHARACTERS + MAX_LOG_CHARACTERS + MARGIN + len(secret)
    before = f"{secret} " * secrets_before
    before += "".join("\n" if at % line_length == line_length - 1 else "." for at in range(room))
    for end in [*range(900, 1150), *range(room - 150, room + 5)]:
        lines: list[str] = []
        log = ServerLog(spec, lines.append)
        text = f"{before[:end]}{secret}{rest}"
        log.add_message({"data": wrap(text)})
        log.add_line(text.replace("\n", " "))
        assert "pl" not in "".join(lines)


@pytest.mark.req("X-04")
@pytest.mark.parametrize("field", ["level", "logger"])
@pytest.mark.parametrize("length", range(80, 101))
def test_no_part_of_a_secret_is_left_where_a_name_is_cut(field: str, length: int) -> None:
    lines: list[str] = []
    log = ServerLog(ServerSpec("a", Transport.STDIO, command="x", env={"NAME": "plain-Secret-99"}), lines.append)
    log.add_message({field: "x" * length + "plain-Secret-99", "data": "m"})
    assert "pl" not in lines[0]
