"""An application that runs programs, with a scripted server behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.serving import serve
from tests.servers import make_scripted_server
from toolscript.app.app import App, open_app
from toolscript.domain.profiles import ItemRules, Profile
from toolscript.domain.programs import WORKFLOW_SERVER
from toolscript.settings import load_settings

TIMEOUT_SECONDS = 60.0
TOOLS = ["echo", "fail", "slow", "seen", "answer", "count"]
ACCEPT = {"Accept": "application/json, text/event-stream"}


@dataclass(frozen=True, slots=True)
class CodeClient:
    """Runs programs over HTTP and MCP."""

    http: httpx.AsyncClient
    app: App

    async def run(self, code: str, headers: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
        """The response of `POST /api/v1/run`."""
        response = await self.http.post("/api/v1/run", json={"code": code, **body}, headers=headers)
        answer: dict[str, Any] = response.json()
        return answer

    async def send(self, method: str, profile: str | None = None, **params: Any) -> dict[str, Any]:
        """The result of an MCP request, or the error."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        path = f"/mcp/{profile}" if profile else "/mcp"
        answer: dict[str, Any] = (await self.http.post(path, json=body, headers=ACCEPT)).json()
        return answer.get("result") or answer

    async def call(self, tool: str, profile: str | None = None, **arguments: Any) -> tuple[list[str], bool]:
        """The texts of a tool's result, and whether it is an error."""
        result = await self.send("tools/call", profile, name=tool, arguments=arguments)
        return [block["text"] for block in result["content"]], result["isError"]

    async def save(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """The response of a workflow that was saved."""
        response = await self.http.put(f"/api/v1/workflows/{name}", json=body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def call_over_http(self, tool: str, arguments: dict[str, Any]) -> httpx.Response:
        """The response of `POST /tools/{tool}`."""
        return await self.http.post(f"/tools/{tool}", json=arguments)


@asynccontextmanager
async def open_code_mode(folder: Path, language: str) -> AsyncIterator[App]:
    """An application that runs programs in a language, with a server `box`."""
    settings = load_settings(
        variables={}, data_dir=folder, search_model="hashed-64", index="memory:", port=0, code=language
    )
    async with open_app(settings, serving=True) as opened:
        await opened.servers.gateway.apply([make_scripted_server("box", tools=TOOLS)])
        await opened.servers.gateway.settle(TIMEOUT_SECONDS)
        yield opened


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with open_code_mode(tmp_path_factory.mktemp("code"), "python") as opened:
        opened.access.profiles.replace(
            [Profile("few", allow=ItemRules(tools=("box__echo",))), Profile("nothing", allow=ItemRules())]
        )
        yield opened


@pytest.fixture(scope="module")
async def client(app: App) -> AsyncIterator[CodeClient]:
    async with serve(app) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS) as http:
        yield CodeClient(http, app)


@pytest.fixture(scope="module")
async def typescript(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CodeClient]:
    pytest.importorskip("deno", reason="Deno has no wheel for this platform")
    async with (
        open_code_mode(tmp_path_factory.mktemp("typescript"), "typescript") as opened,
        serve(opened) as url,
        httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS) as http,
    ):
        yield CodeClient(http, opened)


@asynccontextmanager
async def open_workflows(folder: Path, languages: str) -> AsyncIterator[CodeClient]:
    """A gateway with workflows in these languages."""
    settings = load_settings(
        variables={}, data_dir=folder, search_model="hashed-64", index="memory:", port=0, code=languages
    )
    async with open_app(settings, serving=True) as app:
        app.access.profiles.replace(
            [
                Profile("few", allow=ItemRules(tools=("box__echo",))),
                Profile("all", allow=ItemRules(servers=("box", "workflows"))),
                Profile("half", allow=ItemRules(servers=("workflows",))),
            ]
        )
        await app.servers.gateway.apply([make_scripted_server("box", tools=TOOLS), WORKFLOW_SERVER])
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        async with serve(app) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS) as http:
            yield CodeClient(http, app)


@pytest.fixture
async def workflow_client(
    request: pytest.FixtureRequest, anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[CodeClient]:
    """A gateway with workflows, in Python or the languages that are its parameter."""
    languages = getattr(request, "param", "python")
    async with open_workflows(tmp_path_factory.mktemp("workflows"), languages) as client:
        yield client


@pytest.fixture(scope="module")
async def shared_workflows(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CodeClient]:
    """A gateway with workflows in Python, for tests that save none or one with a name of its own."""
    async with open_workflows(tmp_path_factory.mktemp("workflows"), "python") as client:
        yield client
