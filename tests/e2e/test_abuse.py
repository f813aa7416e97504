"""Attacks on a running gateway: it answers others throughout, restarts no healthy server, and does not grow."""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.fixtures.examples import choose
from tests.servers import make_scripted_spec
from tests.servers.gateway import RunningGateway, run_gateway

pytestmark = pytest.mark.req("X-03", "X-05", "X-06")

# How long the gateway may be busy until it answers. Processor time, because other programs may stop it for seconds.
# A slow machine takes more than a second for 900 honest answers; an attack that works takes ten and more.
MAX_BUSY_SECONDS = 3.0
READY_SECONDS = 60.0
MAX_GROWTH = 1.5
POLL_SECONDS = 0.02


def refer(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


NODE = {"oneOf": [{"properties": {"next": refer("node"), "kind": {"const": n}}} for n in range(3)]}
SCHEMAS: dict[str, dict[str, Any]] = {
    "doubling": {
        "properties": {"x": refer("a0")},
        "$defs": {f"a{n}": {"allOf": [refer(f"a{n + 1}"), refer(f"a{n + 1}")]} for n in range(28)} | {"a28": {}},
    },
    "unique": {"properties": {"x": {"type": "array", "uniqueItems": True}}},
    "pattern": {"patternProperties": {"^(a+)+$": {}}},
    "recursive": {"properties": {"x": refer("node")}, "$defs": {"node": NODE}},
    "wide": {"properties": {f"p{n}": {"type": "string"} for n in range(5000)}},
}


def nest(levels: int) -> dict[str, Any]:
    return {"kind": 9} if levels == 0 else {"kind": 9, "next": nest(levels - 1)}


ARGUMENTS: dict[str, Any] = {
    "doubling": {"x": 1},
    "unique": {"x": [{"n": n, "text": "x" * 20} for n in range(3000)]},
    "pattern": {"a" * 40 + "!": 1},
    "recursive": {"x": nest(14)},
    "wide": {f"p{n}": "x" for n in range(5000)},
}


@dataclass
class Watch:
    """Requests /health again and again while attacks run."""

    url: str
    process: psutil.Process
    max_busy_seconds: float = 0.0
    """The longest processor time of the gateway until it has answered."""
    failures: list[str] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            with httpx.Client(base_url=self.url, timeout=60) as http:
                while True:
                    is_last, before = self.is_over.wait(POLL_SECONDS), self._measure_work()
                    assert http.get("/health").status_code == 200
                    self.max_busy_seconds = max(self.max_busy_seconds, self._measure_work() - before)
                    if is_last:
                        return
        except (AssertionError, httpx.HTTPError) as error:
            self.failures.append(repr(error))

    def _measure_work(self) -> float:
        used = self.process.cpu_times()
        return float(used.user + used.system)


@contextmanager
def expect_calm(gateway: RunningGateway, process: psutil.Process) -> Iterator[None]:
    """Whatever happens in the block: others are answered, no server is restarted, and the memory hardly grows."""
    idle, before, watch = process.memory_info().rss, read_attempts(gateway), Watch(gateway.url, process)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        yield
    finally:
        watch.is_over.set()
        thread.join()
    assert watch.failures == []
    assert watch.max_busy_seconds < MAX_BUSY_SECONDS
    assert process.memory_info().rss < MAX_GROWTH * idle
    assert read_attempts(gateway) == before


def read_attempts(gateway: RunningGateway) -> dict[str, int]:
    """How often each server was started, once all are ready: the gateway serves before the last one is."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        servers = httpx.get(f"{gateway.url}/servers", timeout=30).json()["servers"]
        states = {server["state"] for server in servers}
        if states == {"ready"} or time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    assert states == {"ready"}
    return {server["name"]: server["attempts"] for server in servers}


@pytest.fixture(autouse=True, scope="module")
def _open_files() -> Iterator[None]:
    """Lets this process open its side of the connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 4000), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("abuse")
    tools = [
        {"name": name, "description": name, "inputSchema": {"type": "object", **schema}}
        for name, schema in SCHEMAS.items()
    ]
    listing, configuration = folder / "listing.json", folder / "servers.json"
    listing.write_text(json.dumps({"tools": tools}))
    servers = {"bad": make_scripted_spec(listing=str(listing)), "good": make_scripted_spec()}
    configuration.write_text(json.dumps({"mcpServers": servers}))
    arguments = ("--config", str(configuration), "--data-dir", str(folder / "data"))
    with run_gateway(folder, *arguments, CALL_MAX_MIB="1") as running:
        yield running


@pytest.fixture(scope="module")
def process(gateway: RunningGateway) -> psutil.Process:
    """The gateway's own process: commands are forks, so it is not the child of this one."""
    note = json.loads((Path(gateway.log).parent / "data" / "gateway.json").read_text())
    return psutil.Process(note["pid"])


def connect(gateway: RunningGateway) -> socket.socket:
    address = urlsplit(gateway.url)
    return socket.create_connection((address.hostname, address.port or 80), timeout=60)


def send(gateway: RunningGateway, head: str, *, repeat: bytes = b"", times: int = 64) -> int:
    """Sends the beginning of a request and then the same bytes again and again; the status of the response."""
    with connect(gateway) as client:
        with suppress(OSError):  # it may close the connection before it has read all of it
            client.sendall(head.replace("\n", "\r\n").encode())
            for _ in range(times):
                client.sendall(repeat)
        with suppress(ConnectionResetError):
            if answer := client.recv(100):
                return int(answer.split()[1])
    return 0


def send_endless_body(gateway: RunningGateway, path: str) -> int:
    head = f"POST {path} HTTP/1.1\nHost: localhost\nContent-Type: application/json\nTransfer-Encoding: chunked\n\n"
    return send(gateway, head, repeat=b"100000\r\n" + b" " * 2**20 + b"\r\n", times=40)


def open_connections(gateway: RunningGateway, count: int, content: bytes = b"") -> int:
    """Opens connections that send this and no more; the status of a search while they are open."""
    with ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(connect(gateway))
            with suppress(OSError):
                client.sendall(content)
        return httpx.get(f"{gateway.url}/search?q=echo", timeout=60).status_code


STREAM = b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
HEAD = "GET /health HTTP/1.1\nHost: localhost\n"
# The attacks, and the status of their response. 0: the connection may be closed before the response is read.
ATTACKS: dict[str, tuple[Callable[[RunningGateway], int], set[int]]] = {
    "a header of 64 MB": (lambda g: send(g, f"{HEAD}X-Long: ", repeat=b"a" * 2**20), {431, 0}),
    "a million headers": (lambda g: send(g, HEAD, repeat=b"X-Many: a\r\n" * 16_000), {431, 0}),
    "an endless request line": (lambda g: send(g, "GET /", repeat=b"a" * 2**20), {431, 0}),
    "an endless body": (lambda g: send_endless_body(g, "/tools/good__echo"), {413, 0}),
    "an endless message": (lambda g: send_endless_body(g, "/mcp"), {413, 0}),
    "two hosts": (lambda g: send(g, f"{HEAD}Host: evil.example\n\n"), {400}),
    "500 idle connections": (lambda g: open_connections(g, 500), {200}),
    "500 slow heads": (lambda g: open_connections(g, 500, b"GET /health HT"), {200}),
    "500 slow bodies": (
        lambda g: open_connections(g, 500, b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"),
        {200},
    ),
    "900 streams": (lambda g: open_connections(g, 900, STREAM), {200}),
    "2500 idle connections": (lambda g: open_connections(g, 2500), {200}),
}


# "2500 idle connections" shows what 500 do, and a body of a tool's call what one of a message does.
CHOSEN = [
    "a million headers",
    "an endless request line",
    "an endless body",
    "two hosts",
    "900 streams",
    "2500 idle connections",
]


@pytest.mark.parametrize("name", choose(ATTACKS, *CHOSEN))
def test_an_attack_on_the_connection_disturbs_nobody(
    gateway: RunningGateway, process: psutil.Process, name: str
) -> None:
    attack, statuses = ATTACKS[name]
    with expect_calm(gateway, process):
        assert attack(gateway) in statuses


@pytest.mark.extended
@pytest.mark.req("X-12")
@pytest.mark.parametrize(
    "request_text",
    [
        "GET /search?q=echo HTTP/1.1\r\nHost: localhost\r\n\r\n",
        'POST /tools/good__slow?timeout=2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n{"seconds":60}',
    ],
    ids=["searches", "slow calls"],
)
def test_of_many_requests_at_once_each_is_answered(
    gateway: RunningGateway, process: psutil.Process, request_text: str
) -> None:
    with expect_calm(gateway, process), ExitStack() as stack:
        clients = [stack.enter_context(connect(gateway)) for _ in range(1500)]
        for client in clients:
            client.sendall(request_text.encode())
        answers = [client.recv(1000) for client in clients]
    refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503")]
    assert all(b"retry-after: 1" in answer for answer in refused)
    assert {answer[:12] for answer in answers} <= {b"HTTP/1.1 200", b"HTTP/1.1 503", b"HTTP/1.1 504"}


@pytest.mark.parametrize("name", choose(SCHEMAS, *list(SCHEMAS)[:2]))
def test_a_hostile_schema_disturbs_nobody(gateway: RunningGateway, process: psutil.Process, name: str) -> None:
    with expect_calm(gateway, process), httpx.Client(base_url=gateway.url, timeout=60) as http:
        assert http.post(f"/tools/bad__{name}", json=ARGUMENTS[name]).status_code in {200, 422}
        assert http.get(f"/tools/bad__{name}").status_code == 200
        for path in ("/runtime/tools.ts", "/runtime/tools.py", "/tools"):
            assert http.get(path, params={"filter": f"bad__{name}"}).status_code == 200


@pytest.mark.parametrize("code", [-32000, -32001])
def test_an_error_code_of_a_server_restarts_nothing(
    gateway: RunningGateway, process: psutil.Process, code: int
) -> None:
    with expect_calm(gateway, process):
        answer = httpx.post(f"{gateway.url}/tools/good__error", json={"message": "no", "code": code}, timeout=30)
        assert (answer.status_code, "no" in answer.json()["error"]["message"]) == (502, True)


def test_an_answer_above_the_limit_restarts_nothing(gateway: RunningGateway, process: psutil.Process) -> None:
    with expect_calm(gateway, process):
        answer = httpx.post(f"{gateway.url}/tools/good__echo", json={"text": "x" * 2**20}, timeout=30)
        assert answer.status_code == 502
        assert "TOOLSCRIPT_CALL_MAX_MIB" in answer.json()["error"]["message"]
