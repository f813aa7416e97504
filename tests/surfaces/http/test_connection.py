"""Limits of a connection: the size of a head, the time to send a request, the number of connections."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from starlette.types import Message, Receive, Scope, Send

from tests.fixtures.limits import set_limits
from tests.fixtures.serving import serve
from toolscript.app.app import App, open_app
from toolscript.settings import load_settings
from toolscript.surfaces.http import connection, open_files

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    settings = load_settings(variables={}, data_dir=tmp_path_factory.mktemp("connection"), search_model="hashed-64")
    async with open_app(settings) as opened:
        yield opened


@pytest.fixture(scope="module")
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
    async with asyncio.timeout(60):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


async def read_status(streams: Streams) -> int:
    reader, writer = streams
    writer.write(REQUEST)
    async with asyncio.timeout(60):
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
    async with connect(url) as (reader, writer):
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        set_limits(monkeypatch, request_head=0.2)
        writer.write(REQUEST[:-2])
        first, _, rest = (await read_all(reader)).partition(b"HTTP/1.1 ")
        async with connect(url) as (silent, _):
            assert await read_all(silent) == b""
    status, error = int(rest.split()[0]), json.loads(rest.partition(b"\r\n\r\n")[2])["error"]
    assert first
    assert status == 408
    assert "0.2 seconds" in str(error["message"])


async def test_a_slow_body_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, request_body=0.2)
    async with connect(url) as (reader, writer):
        writer.write(b"POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        status, error = await read_response(reader)
    assert status == 408
    assert "body" in str(error["message"])


async def test_a_body_in_pieces_is_not_slow(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, request_body=0.5)
    for _ in range(10):  # on a busy machine a pause between two pieces may be too long
        if await send_in_pieces(url) == b"200":
            return
    pytest.fail("every body was cut off")


async def send_in_pieces(url: str) -> bytes:
    """The status of a request whose body takes more than 0.5 s; empty if the connection was closed."""
    body = json.dumps({"query": "read a file"}).encode()
    async with connect(url) as (reader, writer):
        head = f"POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode())
        for number in range(len(body)):
            writer.write(body[number : number + 1])
            await asyncio.sleep(0.03)
        with suppress(OSError, asyncio.IncompleteReadError):
            return (await reader.readuntil(b"\r\n")).split()[1]
    return b""


# --- an application that answers when the test says so ---


class Application:
    """Answers in two pieces: the first at once if the path is `/stream`, the rest when `finish` is set."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()
        self.before_reading: Callable[[], None] = lambda: None
        self.size = 10
        self.headers: list[tuple[bytes, bytes]] = []
        self.received: list[Message] = []
        self.connections: set[Any] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b"x" * self.size
        start: Message = {"type": "http.response.start", "status": 200, "headers": []}
        if scope["path"] == "/stream":
            await send(start)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        if scope["path"] != "/fast":
            await self.finish.wait()
        if scope["path"] == "/read":
            self.before_reading()
            self.received.append(await receive())
            while self.received[-1].get("more_body"):
                self.received.append(await receive())
            self.headers = list(scope["headers"])
        if scope["path"] != "/stream":
            await send(start)
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def application() -> Application:
    return Application()


@pytest.fixture
async def address(application: Application) -> AsyncIterator[str]:
    """Where the application is served, over the gateway's own kind of connection."""
    config = uvicorn.Config(
        application, http=connection.LimitedConnection, log_level="critical", ws="none", lifespan="off"
    )
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = asyncio.create_task(server.serve(sockets=[listening]))
        application.connections = server.server_state.connections
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        application.finish.set()
        server.should_exit = server.force_exit = True
        await running


def build_request(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


async def wait_until(is_reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_reached():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def read_all(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        return await reader.read()


@pytest.mark.parametrize("stray", [b"\r\n", b"GET /stream HTT"], ids=["line-end", "half-a-request"])
async def test_no_timer_cuts_a_response(
    address: str, application: Application, stray: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(address) as (reader, writer):
        writer.write(build_request("/stream"))
        await reader.readuntil(b"x" * application.size + b"\r\n")
        set_limits(monkeypatch, request_head=0.1)
        set_limits(monkeypatch, request_body=0.1)
        writer.write(stray)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.5)
        application.finish.set()
        assert (await read_all(reader)).startswith(b"a\r\n" + b"x" * application.size + b"\r\n0\r\n\r\n")


async def test_a_large_head_after_a_request_gets_no_response_of_its_own(address: str, application: Application) -> None:
    async with connect(address) as (reader, writer):
        writer.write(build_request("/stream"))
        await reader.readuntil(b"x" * application.size)
        writer.write(b"GET /stream?" + b"a" * 400_000)
        with suppress(ConnectionResetError):
            assert b"HTTP/1.1" not in await read_all(reader)


async def test_a_response_that_is_not_read_does_not_keep_the_connection(
    address: str, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, request_body=0.1)
    application.size = 30_000_000
    async with connect(address) as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(build_request("/fast", "Connection: close"))
        await wait_until(lambda: bool(application.connections))
        await wait_until(lambda: not application.connections)


@pytest.mark.parametrize("trailer", [b"X: " + b"a" * 200_000, b"X-Many: a\r\n" * 20_000], ids=["one", "many"])
async def test_endless_trailers_are_refused(address: str, application: Application, trailer: bytes) -> None:
    application.finish.set()
    async with connect(address) as (reader, writer):
        writer.write(build_request("/read", "Transfer-Encoding: chunked", method="POST") + b"1\r\na\r\n0\r\n" + trailer)
        assert (await read_response(reader))[0] == 431


async def test_trailers_do_not_become_headers(address: str, application: Application) -> None:
    application.finish.set()
    request = build_request("/read", "Transfer-Encoding: chunked", "Connection: close", method="POST")
    async with connect(address) as (reader, writer):
        writer.write(request + b"1\r\na\r\n0\r\nX-Api-Key: stolen\r\n\r\n")
        assert (await read_all(reader)).startswith(b"HTTP/1.1 200")
    assert b"x-api-key" not in dict(application.headers)


async def test_a_client_that_waits_for_100_continue_is_not_slow(
    address: str, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, request_body=0.1)
    request = build_request("/read", "Content-Length: 1", "Expect: 100-continue", "Connection: close", method="POST")
    async with connect(address) as (reader, writer):
        writer.write(request)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.5)
        application.before_reading = lambda: set_limits(monkeypatch, request_body=60.0)
        application.finish.set()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"a")
        assert (await read_all(reader)).startswith(b"HTTP/1.1 200")


async def test_the_time_of_a_client_that_waits_for_100_continue_begins_when_it_may_send(
    address: str, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, request_body=0.3)
    application.before_reading = lambda: set_limits(monkeypatch, request_body=60.0)
    application.finish.set()
    request = build_request("/read", "Content-Length: 1", "Expect: 100-continue", "Connection: close", method="POST")
    async with connect(address) as (reader, writer):
        writer.write(request)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.6)
        writer.write(b"a")
        assert (await read_all(reader)).startswith(b"HTTP/1.1 200")


async def test_line_ends_do_not_keep_a_connection_open(
    address: str, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(address) as (reader, writer):
        writer.write(build_request("/stream"))
        await reader.readuntil(b"x" * application.size)
        set_limits(monkeypatch, request_head=0.2)
        application.finish.set()
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"\r\n")
        with suppress(ConnectionResetError):
            await read_all(reader)


async def test_an_upgrade_is_answered_as_a_plain_request(address: str) -> None:
    async with connect(address) as (reader, writer):
        writer.write(build_request("/fast", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"))
        assert (await reader.readuntil(b"\r\n")) == b"HTTP/1.1 200 OK\r\n"


async def test_silent_connections_give_way_and_those_with_a_request_do_not(
    address: str, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 20)
    await check_limit_of_20(address)


@pytest.mark.req("X-12")
async def test_connections_whose_requests_were_not_read_yet_are_all_answered(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 20)
    parts = urlsplit(address)
    with ExitStack() as stack:
        clients = []
        for _ in range(60):  # the loop does not run meanwhile
            clients.append(stack.enter_context(socket.create_connection((parts.hostname, parts.port or 0))))
            clients[-1].sendall(build_request("/fast"))
            clients[-1].setblocking(False)
        loop, statuses = asyncio.get_running_loop(), []
        for client in clients:
            head = await asyncio.wait_for(loop.sock_recv(client, 1000), 60)
            statuses.append(head.split()[1])
            assert head.startswith(b"HTTP/1.1 200") or b"retry-after: 1" in head
    assert set(statuses) == {b"200", b"503"}
    assert statuses.count(b"200") >= 20


@pytest.mark.req("X-12")
@pytest.mark.parametrize("handler", ["timeout_keep_alive_handler", "_end_head"])
async def test_a_request_that_arrives_with_the_end_of_the_pause_is_answered(
    address: str, application: Application, handler: str
) -> None:
    async with connect(address) as (reader, writer):
        writer.write(build_request("/fast"))
        await reader.readuntil(b"0\r\n\r\n")
        (served,) = application.connections
        writer.write(build_request("/fast"))  # at once; the other side is in this loop and has not read it
        getattr(served, handler)()
        assert await asyncio.wait_for(reader.readuntil(b"\r\n"), 60) == b"HTTP/1.1 200 OK\r\n"


async def test_there_are_fewer_connections_where_a_process_may_open_few_files(
    address: str, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "RESERVED_FILES", 980)
    with limit_open_files(1000):
        await check_limit_of_20(address)


async def check_limit_of_20(address: str) -> None:
    unfinished = build_request("/read", "Content-Length: 100", method="POST") + b"{"
    async with AsyncExitStack() as stack:
        for sent in [b""] * 40 + [b"GET /"] * 40 + [unfinished] * 40:
            _, writer = await stack.enter_async_context(connect(address))
            writer.write(sent)
        reader, writer = await stack.enter_async_context(connect(address))
        writer.write(build_request("/fast"))
        assert await asyncio.wait_for(reader.readuntil(b"\r\n"), 60) == b"HTTP/1.1 200 OK\r\n"
        for _ in range(20):
            reader, writer = await stack.enter_async_context(connect(address))
            writer.write(build_request("/stream"))
            assert await asyncio.wait_for(reader.readuntil(b"\r\n"), 60) == b"HTTP/1.1 200 OK\r\n"
        for _ in range(3):
            refused, _ = await stack.enter_async_context(connect(address))
            status, error = await read_response(refused)
            assert status == 503
            assert "more than 20 connections" in str(error["message"])


async def test_a_server_may_open_more_files_than_a_process_usually_may(app: App) -> None:
    with limit_open_files(256):
        async with serve(app):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > connection.MAX_CONNECTIONS
            assert open_files.count_possible_connections() > connection.MAX_CONNECTIONS


@pytest.mark.parametrize("error", [ValueError, OSError])
async def test_a_server_starts_where_it_may_not_open_more_files(
    app: App, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    with limit_open_files(256), monkeypatch.context() as patch:
        patch.setattr(resource, "setrlimit", refuse)
        async with serve(app) as url, connect(url) as streams:
            assert await read_status(streams) == 200
            assert open_files.count_possible_connections() == 256 - open_files.RESERVED_FILES


@contextmanager
def limit_open_files(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
