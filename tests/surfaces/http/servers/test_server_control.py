"""Starting and stopping servers over HTTP, their logs, and who may do that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp_types import CallToolRequestParams

from tests.fixtures.waiting import until
from tests.servers import make_scripted_server
from toolscript.app.app import App, open_app
from toolscript.domain.access import Principal, Scope
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp.server import answer_call

TIMEOUT_SECONDS = 60.0
ODD = "odd name?#%"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    settings = load_settings(variables={}, data_dir=tmp_path / "data", search_model="hashed-64")
    async with open_app(settings) as app:
        specs = [make_scripted_server("own", tools=["echo"], log=["it <b>starts</b>"]), make_scripted_server(ODD)]
        await app.servers.gateway.apply(specs)
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        yield app


@pytest.fixture
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=TIMEOUT_SECONDS) as client:
        yield client


async def get_server(http: httpx.AsyncClient, name: str = "own") -> dict[str, Any]:
    servers = (await http.get("/servers")).json()["servers"]
    return next(server for server in servers if server["name"] == name)


@pytest.mark.req("G-04", "S-01")
async def test_a_stopped_server_is_shown_as_such_everywhere_until_it_is_started(
    app: App, http: httpx.AsyncClient
) -> None:
    answer = (await http.post("/api/v1/servers/own/stop")).json()
    assert (answer["state"], answer["reason"], answer["tools"]) == ("stopped", "stopped on request", 1)
    assert await get_server(http) == answer
    assert (await http.get("/ready")).json()["servers"] == {"stopped": 1, "ready": 1}
    hits = (await http.get("/search", params={"q": "echo"})).json()["results"]
    assert next(hit for hit in hits if hit["toolId"] == "own__echo")["serverState"] == "stopped"
    assert (await http.get("/tools/own__echo")).json()["serverState"] == "stopped"
    found = (await http.post("/api/v1/search", json={"query": "echo"})).json()["tools"]
    assert next(hit for hit in found if hit["id"] == "own__echo")["server_state"] == "stopped"

    async def identify() -> Principal:
        return Principal("default")

    listed = await answer_call(app, CallToolRequestParams(name="search_tools", arguments={"query": "echo"}), identify)
    (line,) = [line for line in listed["content"][0]["text"].splitlines() if line.startswith("own__echo")]
    assert line.endswith("(stopped)")
    refused = await http.post("/tools/own__echo", json={"text": "x"})
    assert refused.status_code == 503
    assert "`toolscript servers start own`" in refused.json()["error"]["message"]
    assert (await http.post("/api/v1/servers/own/start")).json()["state"] in {"connecting", "ready"}
    assert (await http.post("/tools/own__echo", json={"text": "x"})).json() == {"text": "x"}


@pytest.mark.extended
@pytest.mark.req("G-04")
async def test_restarts_calls_and_log_lines_are_in_the_list_of_servers(http: httpx.AsyncClient) -> None:
    assert (await http.post("/tools/own__echo", json={"text": "x"})).status_code == 200
    assert (await http.post("/api/v1/servers/own/restart")).json()["state"] in {"connecting", "ready"}

    async def has_restarted() -> bool:
        return bool((await get_server(http))["restarts"])

    await until(has_restarted)
    server = await get_server(http)
    assert (server["restarts"], server["restartReason"]) == (1, "restarted on request")
    assert [call["ok"] for call in server["recentCalls"]] == [True]

    async def has_logged_twice() -> bool:
        log = (await http.get("/api/v1/servers/own/log")).json()
        return [line["text"] for line in log["lines"] if line["source"] == "server"] == ["it <b>starts</b>"] * 2

    await until(has_logged_twice)
    log = (await http.get("/api/v1/servers/own/log")).json()
    assert (await get_server(http))["logLines"] == len(log["lines"])
    assert {line["text"] for line in log["lines"] if line["source"] == "gateway"} == {
        "connected",
        "restarted on request",
    }


@pytest.mark.req("G-04")
async def test_names_are_part_of_a_path_and_unknown_ones_are_not_found(http: httpx.AsyncClient) -> None:
    assert (await http.post("/api/v1/servers/odd%20name%3F%23%25/stop")).json()["name"] == ODD
    for method, path in (("POST", "own2/stop"), ("POST", "nobody/start"), ("POST", "x/restart"), ("GET", "nobody/log")):
        refused = await http.request(method, f"/api/v1/servers/{path}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "NOT_FOUND")


@pytest.mark.req("X-04")
async def test_only_keys_with_the_scope_admin_control_servers_and_are_named_in_the_reason(
    app: App, http: httpx.AsyncClient
) -> None:
    _, weak = await app.access.keys.create("weak", [Scope.SEARCH, Scope.CALL])
    _, strong = await app.access.keys.create("ann", [Scope.ADMIN])
    for method, action in (("POST", "start"), ("POST", "stop"), ("POST", "restart"), ("GET", "log")):
        path = f"/api/v1/servers/own/{action}"
        assert (await http.request(method, path, headers={"Via": "1.1 proxy"})).status_code == 401
        refused = await http.request(method, path, headers={"X-API-Key": weak})
        assert (refused.status_code, refused.json()["error"]["details"]) == (403, {"scope": "admin"})
    from_elsewhere = {"X-API-Key": strong, "Origin": "https://evil.example"}
    assert (await http.post("/api/v1/servers/own/stop", headers=from_elsewhere)).status_code == 403
    answer = await http.post("/api/v1/servers/own/stop", headers={"X-API-Key": strong})
    assert answer.json()["reason"] == "stopped by ann"
