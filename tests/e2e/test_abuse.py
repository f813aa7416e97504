"""Attacks on a running gateway: it answers others throughout, restarts no healthy server, and does not grow."""

from __future__ import annotations

import json
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

from tests.servers import make_scripted_spec
from tests.servers.gateway import RunningGateway, run_gateway

pytestmark = pytest.mark.req("X-03", "X-05")

POLL_SECONDS = 0.05
MAX_P99_SECONDS = 1.0
MAX_GAP_SECONDS = 3.0
MAX_GROWTH = 1.5
FREE_GROWTH_BYTES = 64 * 2**20


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
    """Polls /health until the block ends; each entry is how long a response took."""

    url: str
    seconds: list[float] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=30) as http:
            while not self.is_over.wait(POLL_SECONDS):
                began = time.monotonic()
                assert http.get("/health").status_code == 200
                self.seconds.append(time.monotonic() - began)


@contextmanager
def expect_calm(gateway: RunningGateway, process: psutil.Process) -> Iterator[None]:
    idle, watch = process.memory_info().rss, Watch(gateway.url)
    before = read_attempts(gateway)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        yield
    finally:
        watch.is_over.set()
        thread.join(60)
    ordered = sorted(watch.seconds)
    assert ordered
    assert ordered[int(len(ordered) * 0.99) - 1] < MAX_P99_SECONDS
    assert ordered[-1] < MAX_GAP_SECONDS
    assert process.memory_info().rss < MAX_GROWTH * idle + FREE_GROWTH_BYTES
    assert read_attempts(gateway) == before


def read_attempts(gateway: RunningGateway) -> dict[str, int]:
    servers = httpx.get(f"{gateway.url}/servers", timeout=30).json()["servers"]
    assert {server["state"] for server in servers} == {"ready"}
    return {server["name"]: server["attempts"] for server in servers}


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
        httpx.get(f"{running.url}/runtime/tools.ts", timeout=60)
        yield running


@pytest.fixture(scope="module")
def process(gateway: RunningGateway) -> psutil.Process:
    """The gateway's own process: commands are forks, so it is not the child of this one."""
    note = json.loads((Path(gateway.log).parent / "data" / "gateway.json").read_text())
    return psutil.Process(note["pid"])


def connect(gateway: RunningGateway) -> socket.socket:
    address = urlsplit(gateway.url)
    return socket.create_connection((address.hostname, address.port or 80), timeout=30)


def send_head(gateway: RunningGateway, content: bytes) -> None:
    with connect(gateway) as client, suppress(OSError):
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(64):
            client.sendall(content)


def send_endless_body(gateway: RunningGateway, path: str) -> None:
    with connect(gateway) as client, suppress(OSError):
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(32):
            client.sendall(b"100000\r\n" + b" " * 2**20 + b"\r\n")


def open_idle(gateway: RunningGateway, count: int, content: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(connect(gateway))
            with suppress(OSError):
                client.sendall(content)
        assert httpx.get(f"{gateway.url}/search?q=echo", timeout=30).status_code == 200


ATTACKS: dict[str, Callable[[RunningGateway], object]] = {
    "a header of 64 MB": lambda g: send_head(g, b"X-Long: " + b"a" * 2**20),
    "a million headers": lambda g: send_head(g, b"X-Many: a\r\n" * 20_000),
    "an endless body": lambda g: send_endless_body(g, "/tools/good__echo"),
    "an endless message": lambda g: send_endless_body(g, "/mcp"),
    "500 idle connections": lambda g: open_idle(g, 500, b""),
    "500 slow heads": lambda g: open_idle(g, 500, b"GET /health HT"),
    "1 500 idle connections": lambda g: open_idle(g, 1500, b""),
    "two hosts": lambda g: send_head(g, b"Host: evil.example\r\n\r\n"),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_on_the_connection_disturbs_nobody(
    gateway: RunningGateway, process: psutil.Process, attack: Callable[[RunningGateway], object]
) -> None:
    with expect_calm(gateway, process):
        attack(gateway)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_hostile_schema_disturbs_nobody(gateway: RunningGateway, process: psutil.Process, name: str) -> None:
    with expect_calm(gateway, process), httpx.Client(base_url=gateway.url, timeout=60) as http:
        assert http.post(f"/tools/bad__{name}", json=ARGUMENTS[name]).status_code in {200, 422}
        assert http.get(f"/tools/bad__{name}").status_code == 200
        for path in ("/runtime/tools.ts", "/runtime/tools.py", "/tools"):
            assert http.get(path, params={"filter": f"bad__{name}"}).status_code == 200


@pytest.mark.parametrize("code", [-32000, -32001])
def test_an_error_code_of_a_server_restarts_nothing(gateway: RunningGateway, process: psutil.Process, code: int) -> None:
    with expect_calm(gateway, process):
        answer = httpx.post(f"{gateway.url}/tools/good__error", json={"message": "no", "code": code}, timeout=30)
        assert (answer.status_code, "no" in answer.json()["error"]["message"]) == (502, True)


def test_an_answer_above_the_limit_restarts_nothing(gateway: RunningGateway, process: psutil.Process) -> None:
    with expect_calm(gateway, process):
        answer = httpx.post(f"{gateway.url}/tools/good__echo", json={"text": "x" * 2**20}, timeout=30)
        assert answer.status_code == 502
        assert "TOOLSCRIPT_CALL_MAX_MIB" in answer.json()["error"]["message"]
