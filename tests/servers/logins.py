"""An authorization server, MCP servers that want its tokens, and a user with a browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.servers.preloaded import build_command
from tests.servers.processes import run_server
from tests.servers.real import MODULES, NODE
from toolscript.domain.servers import OAuthSpec, ServerSpec, Transport

HERE = Path(__file__).parent
MAX_STEPS = 10


@dataclass(frozen=True, slots=True)
class Authorization:
    """A running authorization server."""

    issuer: str

    def get_record(self) -> dict[str, Any]:
        """What it issued: `secrets`, and the numbers of `grants` and `errors` by kind, and of new `clients`."""
        record: dict[str, Any] = httpx.get(f"{self.issuer}/test/record", timeout=60).json()
        return record

    def revoke_everything(self, refresh_token: str, client_id: str) -> None:
        """Ends a login at the authorization server, as a user does on its web pages."""
        form = {"token": refresh_token, "client_id": client_id}
        httpx.post(f"{self.issuer}/token/revocation", data=form, timeout=60).raise_for_status()


@contextmanager
def serving_authorization(**options: Any) -> Iterator[Authorization]:
    """An authorization server in a process of its own; see `authorization.mjs` for the options."""
    command = [str(NODE), str(HERE / "authorization.mjs"), str(MODULES), json.dumps(options)]
    with run_server("The authorization server", command, "Run `make test`, which installs it.") as ready:
        yield Authorization(ready["issuer"])


@dataclass(frozen=True, slots=True)
class ProtectedServer:
    """Where an MCP server that wants tokens is reached."""

    http: str
    sse: str
    moved: str
    port: int

    def make_spec(self, transport: Transport = Transport.HTTP, name: str = "web", **oauth: Any) -> ServerSpec:
        url = self.sse if transport is Transport.SSE else self.http
        return ServerSpec(name, transport, url=url, oauth=OAuthSpec(**oauth))


@contextmanager
def serving_protected(issuer: str, **options: Any) -> Iterator[ProtectedServer]:
    """An MCP server in a process of its own; see `protected.py` for the options."""
    command = [*build_command("tests.servers.protected"), json.dumps({"issuer": issuer, **options})]
    with run_server("The protected server", command, kill=True) as ready:
        yield ProtectedServer(**ready)


def follow_redirects(url: str) -> str:
    """Logs in as a user in a browser does; returns the address that the browser is sent back to."""
    end = parse_qs(urlsplit(url).query)["redirect_uri"][0]
    with httpx.Client(timeout=60) as browser:
        for _ in range(MAX_STEPS):
            response = browser.get(url)
            assert response.is_redirect, response.text
            url = str(response.url.join(response.headers["location"]))
            if url.startswith(end):
                return url
    raise AssertionError(f"no redirect to {end}")


@dataclass(slots=True)
class UserWithBrowser:
    """Logs in at once. `change` may change the address that the browser is sent back to."""

    redirect_uri: str = "http://127.0.0.1:7777/callback"
    change: Callable[[str], str] = str
    visited: list[str] = field(default_factory=list)

    async def visit(self, url: str) -> str:
        self.visited.append(url)
        return self.change(follow_redirects(url))


@contextmanager
def recording_requests(status: int = 200, body: bytes = b"") -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server of somebody else: its address, and the headers of every request to it."""
    requests: list[dict[str, str]] = []

    class Recorder(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            requests.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
