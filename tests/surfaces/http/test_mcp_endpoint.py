"""The MCP endpoint opens when the application is ready or when a request comes, and requests wait for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from toolscript.settings import load_settings
from toolscript.surfaces.http.mcp_endpoint import McpEndpoint
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp import server

pytestmark = pytest.mark.req("G-08")

ANSWER: Message = {"type": "http.response.start", "status": 204}


class Manager:
    """Records what happens to it; answers while it runs."""

    def __init__(self) -> None:
        self.is_running = asyncio.Event()
        self.has_ended = False

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        self.is_running.set()
        try:
            yield
        finally:
            self.has_ended = True

    async def asgi_app(self, _: Scope, __: Receive, send: Send) -> None:
        await send(ANSWER)


@pytest.fixture
def served(tmp_path: Path) -> ServedApp:
    return ServedApp(load_settings(variables={}, data_dir=tmp_path), ready=False)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    manager = Manager()
    monkeypatch.setattr(server, "build_endpoint", lambda *_: manager)
    return manager


async def request(endpoint: McpEndpoint) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    await endpoint({"type": "http"}, receive, send)
    return sent


def test_serving_http_does_not_wait_for_the_mcp_package() -> None:
    script = "import sys, toolscript.surfaces.http.server; print([m for m in ('mcp', 'mcp_types') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


async def test_it_opens_once_the_application_is_ready(served: ServedApp, manager: Manager) -> None:
    async with McpEndpoint(served).run():
        await asyncio.sleep(0)
        assert not manager.is_running.is_set()
        served.mark_ready()
        async with asyncio.timeout(30):
            await manager.is_running.wait()
    assert manager.has_ended


async def test_a_request_before_the_application_is_ready_opens_it(served: ServedApp, manager: Manager) -> None:
    endpoint = McpEndpoint(served)
    async with endpoint.run(), asyncio.timeout(30):
        assert [*await asyncio.gather(request(endpoint), request(endpoint))] == [[ANSWER], [ANSWER]]
    assert manager.has_ended


async def test_requests_get_the_error_that_opening_it_raised(
    served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(server, "build_endpoint")
    endpoint = McpEndpoint(served)
    async with endpoint.run(), asyncio.timeout(30):
        for _ in range(2):
            with pytest.raises(ImportError, match="build_endpoint"):
                await request(endpoint)


async def test_a_request_while_it_does_not_run_is_an_error(served: ServedApp) -> None:
    with pytest.raises(RuntimeError, match="not running"):
        await request(McpEndpoint(served))
