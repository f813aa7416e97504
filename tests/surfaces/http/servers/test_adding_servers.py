"""Adding servers over HTTP: what is written, and who may do it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.serving import replace_parts
from toolscript.app.app import App
from toolscript.configuration.snippets import ConfigurationPlace
from toolscript.domain.access import Scope
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.owner import PROXY_HEADERS

PATH = "/api/v1/servers"
HOSTILE = "<img src=x onerror=alert(1)>"
BODY = {"snippet": json.dumps({"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}})}
Connect = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".toolscript.json"


@pytest.fixture
def connect(app: App, tmp_path: Path) -> Connect:
    @asynccontextmanager
    async def open_client(
        url: str = "http://127.0.0.1", address: str = "127.0.0.1", **settings: Any
    ) -> AsyncIterator[httpx.AsyncClient]:
        served = ServedApp(own := replace(app.settings, **settings), replace_parts(app, settings=own))
        served.place = ConfigurationPlace(None, tmp_path, tmp_path, {})
        transport = httpx.ASGITransport(create_http_app(served), client=(address, 1234))
        async with httpx.AsyncClient(transport=transport, base_url=url) as client:
            yield client

    return open_client


def read_names(file: Path) -> list[str]:
    return [*json.loads(file.read_text())["mcpServers"]] if file.exists() else []


@pytest.mark.req("G-01")
async def test_a_snippet_is_checked_and_then_added(connect: Connect, file: Path) -> None:
    async with connect() as http:
        checked = await http.post(f"{PATH}/check", json=BODY)
        (server,) = checked.json()["servers"]
        assert (server["name"], server["transport"], server["runs"]) == ("git", "stdio", "uvx mcp-server-git")
        assert (checked.json()["added"], checked.json()["file"], read_names(file)) == (False, str(file), [])
        added = await http.post(PATH, json=BODY)
        assert (added.status_code, added.json()["added"]) == (201, True)
        assert read_names(file) == ["git"]
        again = await http.post(PATH, json=BODY)
        assert (again.status_code, "of this name already" in again.json()["error"]["message"]) == (400, True)
        hostile = {"snippet": json.dumps({"command": "x"}), "name": HOSTILE}
        assert (await http.post(PATH, json=hostile)).json()["servers"][0]["name"] == HOSTILE
        for snippet in ("npx -y x", '{"mcpServers": {"a/b": {"command": "x"}}}'):
            assert (await http.post(PATH, json={"snippet": snippet})).status_code == 400
        assert (await http.post(PATH, json={"snippet": "x" * 70_000})).status_code == 422


@pytest.mark.req("X-04")
@pytest.mark.parametrize(
    ("url", "address", "headers"),
    [
        ("http://127.0.0.1", "10.0.0.7", {}),
        ("http://tools.example.com", "127.0.0.1", {}),
        ("http://127.0.0.1", "127.0.0.1", {"X-Forwarded-For": "10.0.0.7"}),
        ("http://127.0.0.1", "127.0.0.1", {"Origin": "http://localhost:5173"}),
        ("http://127.0.0.1", "127.0.0.1", {"Origin": "null"}),
        ("http://127.0.0.1", "127.0.0.1", {"Origin": "https://evil.example"}),
    ],
    ids=["another machine", "a proxy's name", "forwarded", "an origin that may search", "no origin", "another page"],
)
async def test_without_keys_only_the_machine_itself_may_add_servers(
    connect: Connect, file: Path, url: str, address: str, headers: dict[str, str]
) -> None:
    allowed = {"allowed_hosts": ("tools.example.com",), "allowed_origins": ("http://localhost:5173",)}
    async with connect(url, address, **allowed) as http:
        for path in (PATH, f"{PATH}/check"):
            refused = await http.post(path, json=BODY, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN"), refused.text
    assert read_names(file) == []


@pytest.mark.req("X-04")
@pytest.mark.parametrize("header", ["X-Forwarded-Host", "X-Forwarded-Proto", *sorted(PROXY_HEADERS)])
@pytest.mark.req("X-11")
async def test_without_keys_no_header_of_a_proxy_is_let_through(connect: Connect, file: Path, header: str) -> None:
    async with connect("http://127.0.0.1", "127.0.0.1") as http:
        refused = await http.post(f"{PATH}/check", json=BODY, headers={header: "10.0.0.7"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")


@pytest.mark.req("X-04")
async def test_where_keys_are_needed_the_scope_admin_may_add_servers_from_anywhere(
    connect: Connect, app: App, file: Path
) -> None:
    _, weak = await app.access.keys.create("weak", [Scope.SEARCH, Scope.CALL, Scope.METRICS])
    _, strong = await app.access.keys.create("strong", [Scope.ADMIN])
    async with connect(address="10.0.0.7") as http:
        for path in (PATH, f"{PATH}/check"):
            assert (await http.post(path, json=BODY)).status_code == 401
            refused = await http.post(path, json=BODY, headers={"X-API-Key": weak})
            assert (refused.status_code, refused.json()["error"]["details"]) == (403, {"scope": "admin"})
        assert read_names(file) == []
        assert (await http.post(PATH, json=BODY, headers={"X-API-Key": strong})).status_code == 201
        foreign = {"X-API-Key": strong, "Origin": "https://evil.example"}
        assert (await http.post(PATH, json=BODY, headers=foreign)).status_code == 403


@pytest.mark.req("X-04")
async def test_a_form_of_another_page_cannot_add_servers(connect: Connect, file: Path) -> None:
    async with connect() as http:
        sent = await http.post(PATH, content=json.dumps(BODY), headers={"Content-Type": "text/plain"})
        assert sent.status_code == 422
    assert read_names(file) == []


@pytest.mark.req("G-01")
async def test_a_gateway_without_configuration_files_says_so(app: App) -> None:
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        refused = await http.post(PATH, json=BODY)
        assert (refused.status_code, "no configuration file" in refused.text) == (503, True)
