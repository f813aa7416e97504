"""The card of the MCP server and the catalogue that names it, as clients read them before they connect."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from tests.fixtures.serving import serve
from toolscript import __version__
from toolscript.app.app import App, open_app
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp.definitions import TOOLS

pytestmark = pytest.mark.req("G-21")

CARD, CATALOG = "/mcp/server-card", "/.well-known/ai-catalog.json"
SETTINGS = load_settings(variables={}, search_model="hashed-64", index="memory:", store="sqlite://", port=0)


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with open_app(SETTINGS) as opened:
        yield opened


async def get(path: str, settings: Settings = SETTINGS, **headers: str) -> httpx.Response:
    """The response of a gateway that is still starting: nothing has to be open for it."""
    transport = httpx.ASGITransport(create_http_app(ServedApp(settings)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3780") as client:
        return await client.get(path, headers=headers)


async def test_a_client_that_knows_the_host_finds_the_server_and_connects(app: App) -> None:
    async with serve(app) as url, httpx.AsyncClient() as http:
        catalog = await http.get(f"{url}{CATALOG}")
        (entry,) = catalog.json()["entries"]
        card = await http.get(entry["url"], headers={"Accept": entry["type"]})
        assert card.headers["content-type"] == entry["type"] == "application/mcp-server-card+json"
        (remote,) = card.json()["remotes"]
        assert remote["type"] == "streamable-http"
        async with Client(remote["url"]) as client:
            assert (await client.list_tools()).tools


async def test_the_card_has_the_fields_of_the_extension_and_the_bounds_of_its_schema() -> None:
    response = await get(CARD)
    card = response.json()
    assert card["$schema"] == "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", card["name"])
    assert card["version"] == __version__
    assert 1 <= len(card["description"]) <= 100
    assert card.keys() <= {"$schema", "name", "version", "description", "title", "remotes"}
    assert not any(tool.name in response.text for tool in TOOLS)


async def test_the_catalogue_has_the_required_fields() -> None:
    response = await get(CATALOG)
    assert response.headers["content-type"] == "application/ai-catalog+json"
    catalog = response.json()
    assert catalog["specVersion"] == "1.0"
    assert catalog["entries"][0].keys() >= {"identifier", "type", "url"}


async def test_every_version_that_the_card_names_is_spoken(app: App) -> None:
    named = (await get(CARD)).json()["remotes"][0]["supportedProtocolVersions"]
    assert named == [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS]
    async with serve(app) as url, httpx.AsyncClient() as http:
        for version in HANDSHAKE_PROTOCOL_VERSIONS:
            about = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
            accept = {"Accept": "application/json, text/event-stream"}
            answer = await http.post(f"{url}/mcp", json=message, headers=accept)
            assert answer.json()["result"]["protocolVersion"] == version
        async with Client(f"{url}/mcp") as client:
            assert client.session.protocol_version in MODERN_PROTOCOL_VERSIONS


@pytest.mark.parametrize(
    ("host", "scheme", "name", "identifier"),
    [
        ("tools.example.com:8443", "https", "com.example.tools/toolscript", "urn:air:tools.example.com:toolscript"),
        ("localhost:3780", "http", "localhost/toolscript", "urn:air:localhost:toolscript"),
        ("192.168.1.7", "http", "192.168.1.7/toolscript", "urn:air:192.168.1.7:toolscript"),
        ("[::1]:3780", "http", "localhost/toolscript", "urn:air:localhost:toolscript"),
    ],
)
async def test_addresses_are_those_under_which_the_client_came(
    host: str, scheme: str, name: str, identifier: str
) -> None:
    settings = replace(SETTINGS, host="0.0.0.0", allowed_hosts=("tools.example.com",), api_key="k" * 32)
    headers = {"Host": host, "X-Forwarded-Proto": scheme}
    card, catalog = [(await get(path, settings, **headers)).json() for path in (CARD, CATALOG)]
    assert card["name"] == name
    assert card["remotes"][0]["url"] == f"{scheme}://{host}/mcp"
    assert catalog["entries"][0]["identifier"] == identifier
    assert catalog["entries"][0]["url"] == f"{scheme}://{host}/mcp/server-card"


@pytest.mark.req("X-04")
@pytest.mark.parametrize("path", [CARD, CATALOG])
async def test_pages_of_any_origin_may_read_them_except_on_loopback(path: str) -> None:
    public = replace(SETTINGS, host="0.0.0.0", api_key="k" * 32)
    response = await get(path, public, Origin="https://page.example")
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, "*")
    assert "max-age" in response.headers["cache-control"]
    assert (await get(path, Origin="https://page.example")).status_code == 403
    assert (await get("/health", public, Origin="https://page.example")).status_code == 403
    assert (await get(path, public, Host="evil.example")).status_code == 403
