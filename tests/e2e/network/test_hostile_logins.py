"""An authorization server that answers byte by byte, as seen by a whole gateway."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest

from tests.fixtures.http_services import HttpDouble
from tests.servers.gateway import run_gateway
from toolscript.app.logins import open_logins
from toolscript.domain.logins import Login, name_login
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.settings import load_settings

pytestmark = [pytest.mark.req("X-11"), pytest.mark.slow, pytest.mark.extended]

MAX_STOP_SECONDS = 10.0


class DrippingServer(HttpDouble):
    """Wants a login, and renews it one byte at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.is_renewing, self.is_over = threading.Event(), threading.Event()

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        if request.path != "/token":
            self.send(request, 401, b"{}", {"WWW-Authenticate": "Bearer"})
            return
        request.send_response(200)
        request.send_header("Content-Length", "100000")
        request.end_headers()
        self.is_renewing.set()
        while not self.is_over.wait(0.05):
            request.wfile.write(b" ")


@pytest.fixture
def server() -> Iterator[DrippingServer]:
    with DrippingServer() as started:
        try:
            yield started
        finally:
            started.is_over.set()


def test_a_gateway_answers_and_ends_while_a_login_is_renewed_byte_by_byte(
    tmp_path: Path, server: DrippingServer
) -> None:
    spec = ServerSpec("web", Transport.HTTP, url=f"{server.root}/mcp")
    asyncio.run(_save_expired_login(tmp_path, spec, f"{server.root}/token"))
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"web": {"type": "http", "url": spec.url}}}))
    with run_gateway(tmp_path, "--config", str(config), "--data-dir", str(tmp_path / "data")) as gateway:
        assert server.is_renewing.wait(60.0)
        began = time.monotonic()
        assert httpx.get(f"{gateway.url}/health", timeout=60).status_code == 200
        assert time.monotonic() - began < 5.0
        began = time.monotonic()
    assert time.monotonic() - began < MAX_STOP_SECONDS


async def _save_expired_login(folder: Path, spec: ServerSpec, token_endpoint: str) -> None:
    login = Login("1", "", spec.url, "me", token_endpoint, "old", "refresh", expires_at=1.0)
    async with open_logins(load_settings(variables={}, data_dir=folder / "data")) as logins:
        await logins._store.save(name_login(spec), login)
