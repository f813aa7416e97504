"""Lines of a server's standard output: answers above the limit become errors of their own requests."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp_types import JSONRPCError

from toolscript.adapters.mcp import messages, stdio
from toolscript.adapters.mcp.messages import parse_message
from toolscript.adapters.mcp.stdio import _read_lines

pytestmark = pytest.mark.req("G-05")

LIMIT = 1000
CONTENT = b'{"content": [{"id": 7, "text": "' + b"a" * 2 * LIMIT + b'"}, {"id": 8}]}'
ANSWERS = {
    "id first": b'{"jsonrpc": "2.0", "id": 4, "result": ' + CONTENT + b"}",
    "id last": b'{"jsonrpc": "2.0", "result": ' + CONTENT + b', "id": 4}',
    "version last": b'{"result":' + CONTENT + b',"id":4,"jsonrpc":"2.0"}',
    "a method in the result": b'{"id": 4, "result": {"method": "x", "of": ' + CONTENT + b"}}",
}


async def read_in_parts(text: bytes, size: int) -> list[bytes]:
    stream = asyncio.StreamReader()

    async def feed() -> None:
        for start in range(0, len(text), size):
            stream.feed_data(text[start : start + size])
            await asyncio.sleep(0)
        stream.feed_eof()

    feeding = asyncio.create_task(feed())
    lines = [line async for line in _read_lines(stream, LIMIT)]
    await feeding
    return lines


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_an_answer_above_the_limit_fails_its_own_request(kind: str, size: int) -> None:
    long, short, _ = await read_in_parts(ANSWERS[kind] + b'\n{"id": 5}\n', size)
    assert short == b'{"id": 5}'
    message = parse_message(long, LIMIT)
    assert isinstance(message, JSONRPCError)
    assert message.id == 4


@pytest.mark.parametrize(
    "line",
    [
        b'{"result": ' + CONTENT + b"}",
        b'{"params": ' + CONTENT + b', "method": "x", "id": 4}',
        b'{"method": "x", "params": ' + CONTENT + b"}",
    ],
)
def test_a_line_above_the_limit_that_answers_no_request_is_skipped(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a message"):
        parse_message(line, LIMIT)


async def test_only_the_beginning_and_the_end_of_a_long_line_are_kept() -> None:
    (line,) = await read_in_parts(b"a" * 50 * LIMIT + b"the end", 100)
    assert line.endswith(b"the end")
    assert LIMIT < len(line) < 2 * LIMIT


@pytest.mark.req("X-12")
async def test_a_long_message_is_read_in_a_thread_where_others_get_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SMALL_MESSAGE_BYTES", 100)
    parsed: list[tuple[str, bool]] = []

    def note(line: bytes, max_bytes: int, *decoder: Any) -> Any:
        is_slow = [type(each.scan_once).__name__ == "function" for each in decoder] == [True]
        parsed.append((threading.current_thread().name, is_slow))
        return parse_message(line, max_bytes, *decoder)

    monkeypatch.setattr(messages, "parse_message", note)
    stream = asyncio.StreamReader()
    values: dict[str, Any] = {"a": [None, 1.5, {"b": "\u20ac\\"}], "c": "x" * 200}
    for number, result in enumerate(({}, values)):
        stream.feed_data(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode() + b"\n")
    stream.feed_data(b"no message " * 20 + b"\n")
    stream.feed_eof()
    process: Any = SimpleNamespace(stdout=stream, note_disconnect=lambda: None, stray_line=b"")
    deliver, collect = anyio.create_memory_object_stream[Any](9)
    with collect:
        await stdio._receive(process, deliver, "files", LIMIT)
        received = [collect.receive_nowait().message.result for _ in range(2)]
    assert received == [{}, values]
    main = threading.current_thread().name
    assert [(name == main, is_slow) for name, is_slow in parsed] == [(True, False), (False, True), (False, True)]


@pytest.mark.req("G-02", "A-05")
@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", ""),
        ("starting\nno key\n\n", "no key"),
        ("Traceback (most recent call last):\n  ...\nValueError: no key\n", "ValueError: no key"),
        (
            "Error: no key\n    at open (a.js:3) {\n  code: 'X'\n}\n\nNode.js v16.20.2\n",
            "Error: no key (Node.js v16.20.2)",
        ),
        ("Node.js v16.20.2\n", "Node.js v16.20.2"),
        (
            "npm error code E404\nnpm error 404 Not Found - GET https://r/x\nnpm error 404 Note that\n"
            "npm error A complete log of this run can be found in: /x\n",
            "npm error 404 Not Found - GET https://r/x",
        ),
        (
            "npm ERR! A complete log of this run can be found in:\n",
            "npm ERR! A complete log of this run can be found in:",
        ),
    ],
)
def test_the_decisive_line_is_above_the_trailers_of_node_and_npm(log: str, line: str) -> None:
    assert stdio.find_decisive_line(log) == line
