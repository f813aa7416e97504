"""Servers that are asleep, over HTTP and MCP: they are healthy, found, marked, and woken by a call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp_types import CallToolRequestParams

from tests.servers import make_scripted_server
from toolscript.app.app import App, open_app
from toolscript.domain.access import Principal
from toolscript.domain.servers import CallState, ServerStart, ServerState
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp.server import answer_call

TIMEOUT_SECONDS = 60.0


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    """An application with one server that sleeps and one that does not."""
    spec = make_scripted_server("rare", tools=["echo"], prompts=True, resources=True)
    settings = load_settings(variables={}, data_dir=tmp_path / "data", search_model="hashed-64")
    async with open_app(settings) as app:
        await app.servers.gateway.apply(
            [replace(spec, start=ServerStart.LAZY), make_scripted_server("busy", tools=["pid"])]
        )
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not any(status.state is ServerState.ASLEEP for status in app.servers.gateway.statuses):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        yield app


@pytest.fixture
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def call_mcp(app: App, tool: str, **arguments: Any) -> str:
    async def identify() -> Principal:
        return Principal("default")

    result = await answer_call(app, CallToolRequestParams(name=tool, arguments=arguments), identify)
    (block,) = result["content"]
    return str(block["text"])


@pytest.mark.req("G-04", "G-17")
async def test_a_gateway_with_sleeping_servers_is_healthy_and_ready(http: httpx.AsyncClient) -> None:
    assert (await http.get("/health")).json()["status"] == "ok"
    assert (await http.get("/ready")).json()["servers"] == {"asleep": 1, "ready": 1}
    servers = {s["name"]: s for s in (await http.get("/servers")).json()["servers"]}
    rare = servers["rare"]
    assert (rare["state"], rare["reason"], rare["retryInSeconds"]) == ("asleep", None, None)
    assert (rare["tools"], rare["prompts"], rare["resources"]) == (1, 2, 3)


@pytest.mark.req("G-04", "S-01", "G-17")
async def test_tools_of_sleeping_servers_are_found_and_marked_until_a_call_wakes_the_server(
    app: App, http: httpx.AsyncClient
) -> None:
    for state in ("asleep", None):
        found = (await http.get("/search", params={"q": "echo"})).json()["results"][0]
        assert (found["toolId"], found.get("serverState")) == ("rare__echo", state)
        assert (await http.get("/tools/rare__echo")).json().get("serverState") == state
        for body in ({"query": "echo"}, {"query": "echo", "strategy": "direct"}):
            hit = (await http.post("/api/v1/search", json=body)).json()["tools"][0]
            assert (hit["id"], hit.get("server_state")) == ("rare__echo", state)
        hit = (await http.get("/api/v1/search/tools", params={"query": "echo"})).json()[0]
        assert (hit["id"], hit.get("server_state")) == ("rare__echo", state)
        text = await call_mcp(app, "search_tools", query="echo")
        assert text.splitlines()[0].endswith("  (asleep)") == (state is not None)
        described = json.loads(await call_mcp(app, "describe_tool", tool_id="rare__echo"))
        assert described.get("serverState") == state
        if state:
            assert (await http.post("/tools/rare__echo", json={"text": "x"})).json() == {"text": "x"}


@pytest.mark.req("G-05", "G-08", "G-17")
async def test_prompts_and_resources_of_a_sleeping_server_are_listed_and_reading_one_wakes_it(
    app: App, http: httpx.AsyncClient
) -> None:
    listed = {tool["toolId"] for tool in (await http.get("/tools", params={"filter": "rare"})).json()["tools"]}
    assert {"rare__prompt:greet", "rare__resource:welcome"} <= listed
    assert app.servers.gateway.find_call_state("rare") is CallState.ASLEEP
    answer = await http.post("/tools/rare__resource:welcome", json={})
    assert "What memo://welcome holds" in answer.text
    assert app.servers.gateway.find_call_state("rare") is None


@pytest.mark.req("G-03", "G-17")
async def test_a_sync_lists_sleeping_servers_too(app: App, http: httpx.AsyncClient) -> None:
    servers = (await http.post("/api/v1/sync", json={}, timeout=TIMEOUT_SECONDS)).json()["servers"]
    assert {s["name"]: s["error"] for s in servers} == {"rare": None, "busy": None}
    rare = next(s for s in app.servers.gateway.statuses if s.name == "rare")
    assert rare.attempts == 2
