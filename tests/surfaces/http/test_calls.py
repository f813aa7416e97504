"""The audit over HTTP and MCP: every call and every search is in it, with who, what and how, and without secrets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.limits import set_limits
from tests.servers import make_scripted_server
from toolscript.app.app import App, open_app
from toolscript.configuration.snippets import ConfigurationPlace
from toolscript.domain.access import Scope
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("G-16")

PATH = "/api/v1/calls"
MCP_HEADERS = {"Accept": "application/json, text/event-stream"}
PASSWORD = "hunter2-is-short"
TOKEN = "ghp_" + "aB3" * 12
TIMEOUT_SECONDS = 30.0
both_ways = pytest.mark.parametrize("audited", ["digest", "redacted"], indirect=True)


class Audited:
    """A gateway with one server, and what its audit says."""

    def __init__(self, app: App, client: httpx.AsyncClient) -> None:
        self.app, self.client = app, client

    async def call(self, tool: str, arguments: Any, key: str = "", **headers: str) -> httpx.Response:
        headers |= {"X-API-Key": key} if key else {}
        return await self.client.post(f"/tools/{tool}", json=arguments, headers=headers)

    async def call_over_mcp(self, name: str, arguments: Any, key: str = "") -> dict[str, Any]:
        params = {"name": name, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = MCP_HEADERS | ({"X-API-Key": key} if key else {})
        answer = await self.client.post("/mcp", json=body, headers=headers)
        result: dict[str, Any] = answer.json()["result"]
        return result

    async def list_events(self, count: int, key: str = "", **filters: Any) -> list[dict[str, Any]]:
        """So many events, which are written within a second."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                headers = {"X-API-Key": key} if key else {}
                answer = await self.client.get(PATH, params=filters, headers=headers)
                assert answer.status_code == 200, answer.text
                events: list[dict[str, Any]] = answer.json()["events"]
                if len(events) >= count:
                    assert len(events) == count, events
                    return events
                await asyncio.sleep(0.02)


@pytest.fixture
async def audited(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Audited]:
    set_limits(monkeypatch, audit_interval=0.01)  # tests wait for what is written
    settings = load_settings(
        variables={},
        data_dir=tmp_path / "data",
        search_model="hashed-64",
        audit_arguments=getattr(request, "param", "digest"),
        events=str(tmp_path / "events.jsonl"),
    )
    async with open_app(settings, serving=True) as app:
        await app.servers.gateway.apply([make_scripted_server()])
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        http = create_http_app(served := ServedApp(settings, app))
        served.mark_ready()
        served.place = ConfigurationPlace(None, tmp_path, tmp_path, {})
        async with (
            http.router.lifespan_context(http),
            httpx.AsyncClient(transport=httpx.ASGITransport(http), base_url="http://127.0.0.1") as client,
        ):
            yield Audited(app, client)


@pytest.mark.req("W-01")
async def test_each_query_of_an_evaluation_is_an_event(audited: Audited) -> None:
    queries = [{"query": query, "relevant": ["scripted__echo"]} for query in ("echo", "steal the keys")]
    assert (await audited.client.post("/api/v1/evaluate", json={"queries": queries})).status_code == 200
    events = await audited.list_events(2, kind="searches")
    assert sorted((event["tool"], event["query"], event["surface"]) for event in events) == [
        ("tools.search", "echo", "http"),
        ("tools.search", "steal the keys", "http"),
    ]


@both_ways
async def test_every_call_says_who_called_what_how_it_went_and_how_long_it_took(audited: Audited) -> None:
    arguments = {"text": "hello"}
    await audited.call("scripted__echo", arguments, **{"X-Request-ID": "mine"})
    (event,) = await audited.list_events(1)
    assert (event["tool"], event["server"], event["outcome"]) == ("scripted__echo", "scripted", "ok")
    assert (event["caller"], event["surface"], event["profile"]) == ("127.0.0.1", "http", "")
    assert event["request_id"] == "mine"
    assert 0 < event["ms"] < TIMEOUT_SECONDS * 1000
    assert 20 < event["bytes"] < 500
    if audited.app.settings.audit_arguments == "digest":
        assert event["arguments"].startswith("sha256:")
    else:
        assert json.loads(event["arguments"]) == arguments
    await audited.call("scripted__fail", {})
    await audited.call("scripted__none", {})
    await audited.call("scripted__echo", {"wrong": 1})
    await audited.call("scripted__echo", ["no object"])
    outcomes = [(event["tool"], event["outcome"]) for event in await audited.list_events(4, outcome="error")]
    assert outcomes == [
        ("scripted__echo", "VALIDATION_ERROR"),
        ("scripted__echo", "VALIDATION_ERROR"),
        ("scripted__none", "NOT_FOUND"),
        ("scripted__fail", "UPSTREAM_ERROR"),
    ]
    assert [event["outcome"] for event in await audited.list_events(1, outcome="NOT_FOUND")] == ["NOT_FOUND"]


@pytest.mark.extended
async def test_callers_are_named_by_their_keys_on_every_surface(audited: Audited) -> None:
    _, key = await audited.app.access.keys.create("ci", [Scope.CALL, Scope.SEARCH, Scope.ADMIN])
    await audited.call("scripted__echo", {"text": "a"}, key)
    await audited.call("scripted__echo", {"text": "a"}, key, **{"User-Agent": "toolscript-command-line"})
    await audited.call_over_mcp("call_tool", {"tool_id": "scripted__echo", "arguments": {"text": "a"}}, key)
    events = await audited.list_events(3, key, caller="ci")
    assert {event["surface"] for event in events} == {"http", "cli", "mcp"}
    assert len({event["arguments"] for event in events}) == 1
    assert all(event["request_id"] for event in events)
    refused = await audited.client.get(PATH, headers={"Via": "1.1 proxy"})
    assert refused.status_code == 401
    await audited.app.access.keys.create("searcher", [Scope.SEARCH])


async def test_searches_are_events_on_every_surface(audited: Audited) -> None:
    await audited.client.get("/search", params={"q": f"echo with {TOKEN}", "threshold": 0})
    await audited.client.post("/api/v1/search", json={"query": "find an echo"})
    await audited.call_over_mcp("search_tools", {"query": "return my text"})
    await audited.client.get("/search", params={"q": ""})
    events = await audited.list_events(4, kind="searches")
    by_query = {event["query"]: event for event in events}
    assert by_query["return my text"]["surface"] == "mcp"
    assert by_query["echo with [redacted]"]["tool"] == "tools.search"
    assert by_query["echo with [redacted]"]["hits"] >= 1
    assert by_query["find an echo"]["tool"] == "hierarchical.search"
    assert by_query[""]["outcome"] == "VALIDATION_ERROR"
    assert (await audited.client.get(PATH)).json()["events"] == []


@both_ways
async def test_secrets_are_in_no_event_and_no_file(audited: Audited) -> None:
    folder = audited.app.settings.data
    arguments = {
        "text": f"curl -H 'Authorization: Bearer {TOKEN}' https://user:{PASSWORD}@example.org",
        "password": PASSWORD,
        "nested": {"apiKey": PASSWORD, "list": ["--token", PASSWORD], "pin": 271828},
    }
    await audited.call("scripted__echo", arguments)
    await audited.list_events(1)
    events = folder.parent / "events.jsonl"
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not events.exists() or b"scripted__echo" not in events.read_bytes():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    files = [*folder.glob("audit.db*"), events]
    written = b"".join(file.read_bytes() for file in files)
    assert len(files) >= 2
    assert b"scripted__echo" in written
    for secret in (TOKEN, PASSWORD, "271828"):
        assert secret.encode() not in written, secret


@pytest.mark.req("X-12")
@pytest.mark.parametrize("audited", ["redacted"], indirect=True)
async def test_a_configured_secret_is_in_no_event_whatever_field_it_is_passed_in(audited: Audited) -> None:
    spec = make_scripted_server()
    configured = replace(
        spec,
        env={**spec.env, "MAIL_PASSWORD": "open sesame", "REGION": "north"},
        headers={"Authorization": "Bearer short1"},
        args=(*spec.args, "--api-key", "words-for-a-key"),
        url="https://user:hidden%20word@mail.example?token=tok-en",
    )
    secrets = ("open sesame", "short1", "words-for-a-key", "hidden word", "tok-en")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(audited.app.servers.gateway), "specs", {"scripted": configured})
        text = f"north {' '.join(secrets)} " + "x" * 1000 + secrets[0]
        await audited.call("scripted__echo", {"text": text, "other": [{secrets[0]: secrets[1]}]})
        (event,) = await audited.list_events(1)
    assert "north" in event["arguments"]
    for secret in secrets:
        assert secret not in event["arguments"]


async def test_pages_and_a_summary_of_calls(audited: Audited) -> None:
    for number in range(5):
        await audited.call("scripted__echo", {"text": str(number)})
    await audited.call("scripted__fail", {})
    newest = await audited.list_events(6)
    found, token = [], None
    while True:
        page = (await audited.client.get(PATH, params={"limit": 4} | ({"page_token": token} if token else {}))).json()
        found += page["events"]
        token = page["next_page_token"]
        if token is None:
            break
    assert found == newest
    rows = (await audited.client.get(f"{PATH}/summary")).json()
    assert [(row["name"], row["calls"], row["errors"]) for row in rows["rows"]] == [
        ("scripted__echo", 5, 0),
        ("scripted__fail", 1, 1),
    ]
    (row,) = (await audited.client.get(f"{PATH}/summary", params={"by": "server", "since": "1h"})).json()["rows"]
    assert (row["name"], row["calls"], row["errors"]) == ("scripted", 6, 1)
    assert row["p50_ms"] <= row["p95_ms"]


async def test_invalid_filters_are_refused_with_the_field(audited: Audited) -> None:
    for field, value in (("since", "yesterday"), ("until", "12 parsecs"), ("page_token", "x"), ("kind", "dreams")):
        refused = await audited.client.get(PATH, params={field: value})
        assert (refused.status_code, refused.json()["error"]["details"]["field"]) == (422, field)


async def test_without_an_audit_nothing_is_written_and_asking_says_so(tmp_path: Path) -> None:
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64", audit="false")
    async with open_app(settings) as app:
        transport = httpx.ASGITransport(create_http_app(ServedApp(settings, app)))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await client.post("/tools/none__such", json={})
            answer = await client.get(PATH)
    assert (answer.status_code, "TOOLSCRIPT_AUDIT=true" in answer.text) == (404, True)
    assert not (tmp_path / "audit.db").exists()


async def test_refused_requests_are_events_with_who_what_and_why(audited: Audited) -> None:
    _, admin = await audited.app.access.keys.create("admin", [Scope.ADMIN])
    await audited.list_events(0, admin, kind="refusals")  # from now on a key is required
    await audited.call("scripted__echo", {"text": "a"}, "wrong-" + TOKEN)
    await audited.call("scripted__echo", {"text": "a"}, admin)
    await audited.call_over_mcp("call_tool", {"tool_id": "scripted__echo", "arguments": {"text": "a"}}, admin)
    await audited.client.post("/mcp", json={}, headers=MCP_HEADERS | {"Via": "1.1 proxy"})
    events = await audited.list_events(4, admin, kind="refusals")
    listed = [(event["tool"], event["caller"], event["surface"], event["outcome"]) for event in events]
    assert listed == [
        ("POST /mcp", "127.0.0.1", "mcp", "UNAUTHORIZED"),
        ("POST /mcp", "admin", "mcp", "FORBIDDEN"),
        ("POST /tools/scripted__echo", "admin", "http", "FORBIDDEN"),
        ("POST /tools/scripted__echo", "127.0.0.1", "http", "UNAUTHORIZED"),
    ]
    assert events[1]["reason"] == "this key or token may not call tools: it lacks the scope call"
    assert TOKEN not in str(events)
    assert (await audited.list_events(2, admin, kind="refusals", caller="admin"))[0]["request_id"]
    assert await audited.list_events(0, admin) == []


@pytest.mark.req("G-01")
async def test_changes_of_servers_are_events_with_who_and_what_and_without_secrets(
    audited: Audited, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolscript")
    _, admin = await audited.app.access.keys.create("admin", [Scope.ADMIN])
    await audited.list_events(0, admin, kind="servers")  # from now on a key is required
    entry: dict[str, Any] = {
        "command": "uvx",
        "args": ["tool", "--password", PASSWORD, f"--url=https://a:{PASSWORD}@b"],
    }
    entry |= {"env": {"GH_TOKEN": TOKEN}}
    snippet = {"mcpServers": {"new": entry, "web": {"url": f"https://w.example/mcp?token={TOKEN}"}}}
    headers = {"X-API-Key": admin}
    assert (
        await audited.client.post("/api/v1/servers", json={"snippet": json.dumps(snippet)}, headers=headers)
    ).status_code == 201
    for action, name in (("stop", "scripted"), ("start", "scripted"), ("restart", "scripted"), ("stop", "nobody")):
        await audited.client.post(f"/api/v1/servers/{name}/{action}", headers=headers)
    events = await audited.list_events(6, admin, kind="servers")
    assert [(event["tool"], event["server"], event["outcome"]) for event in events] == [
        ("stop", "nobody", "NOT_FOUND"),
        ("restart", "scripted", "ok"),
        ("start", "scripted", "ok"),
        ("stop", "scripted", "ok"),
        *[("add", event["server"], "ok") for event in events[4:]],
    ]
    assert {event["caller"] for event in events} == {"admin"}
    about = {event["server"]: event["about"] for event in events[4:]}
    assert about["new"].startswith("uvx tool --password '[redacted]'")
    assert about["new"].endswith(" with GH_TOKEN")
    assert about["web"].startswith("https://w.example/mcp")
    assert PASSWORD not in str(events)
    assert TOKEN not in str(events)
    assert len(await audited.list_events(3, admin, kind="servers", server="scripted", outcome="ok")) == 3
    assert len(await audited.list_events(1, admin, kind="servers", outcome="error")) == 1
    lines = [r for r in caplog.records if r.message in {"servers_added", "server_started", "server_stopped"}]
    assert {vars(line)["caller"] for line in lines} == {"admin"}
    assert len(lines) == 3
