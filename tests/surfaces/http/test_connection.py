"""Limits of a connection: the size of a head, the time to send a request, the number of connections."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest

from tests.fixtures.serving import serve
from toolscript.app.app import App
from toolscript.surfaces.http import connection

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
async def url(app: App) -> AsyncIterator[str]:
    async with serve(app) as url:
        yield url


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Streams]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, dict[str, object]]:
    """The status, and the error of the envelope. The connection must have been closed."""
    async with asyncio.timeout(10):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


async def read_status(streams: Streams) -> int:
    reader, writer = streams
    writer.write(REQUEST)
    async with asyncio.timeout(10):
        return int((await reader.readuntil(b"\r\n")).split()[1])


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health?" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-Many: a\r\n" * 6_000 + b"\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Endless: " + b"a" * 300_000,
    ],
    ids=["request-line", "one-header", "many-headers", "without-an-end"],
)
async def test_a_head_above_64_kib_is_refused_and_the_connection_closed(url: str, head: bytes) -> None:
    async with connect(url) as (reader, writer):
        writer.write(head)
        status, error = await read_response(reader)
    assert status == 431
    assert "64 KiB" in str(error["message"])


async def test_a_large_head_below_the_limit_is_answered(url: str) -> None:
    async with connect(url) as (reader, writer):
        writer.write(REQUEST[:-2] + b"X-Long: " + b"a" * 60_000 + b"\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).split()[1] == b"200"


async def test_what_is_not_http_gets_an_error_envelope(url: str) -> None:
    async with connect(url) as (reader, writer):
        writer.write(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
        status, error = await read_response(reader)
    assert status == 400
    assert error["code"] == "VALIDATION_ERROR"


async def test_a_slow_head_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    async with connect(url) as (reader, writer), connect(url) as (silent, _):
        writer.write(REQUEST[:-2])
        status, error = await read_response(reader)
        assert await silent.read() == b""
    assert status == 408
    assert "0.2 seconds" in str(error["message"])


async def test_a_slow_body_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BODY_SECONDS", 0.2)
    async with connect(url) as (reader, writer):
        writer.write(b"POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        status, error = await read_response(reader)
    assert status == 408
    assert "body" in str(error["message"])


async def test_a_body_in_pieces_is_not_slow(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BODY_SECONDS", 0.5)
    body = json.dumps({"query": "read a file"}).encode()
    began = time.monotonic()
    async with connect(url) as (reader, writer):
        head = f"POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode())
        for number in range(len(body)):
            writer.write(body[number : number + 1])
            await asyncio.sleep(0.03)
        assert (await reader.readuntil(b"\r\n")).split()[1] == b"200"
    assert time.monotonic() - began > 0.5


async def test_idle_connections_give_way_and_busy_ones_do_not(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 20)
    async with AsyncExitStack() as stack:
        for _ in range(60):
            await stack.enter_async_context(connect(url))
        assert await read_status(await stack.enter_async_context(connect(url))) == 200
        busy = b"POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        for _ in range(20):
            _, writer = await stack.enter_async_context(connect(url))
            writer.write(busy)
            await writer.drain()
        refused, _ = await stack.enter_async_context(connect(url))
        status, error = await read_response(refused)
    assert status == 503
    assert "more than 20 connections" in str(error["message"])
