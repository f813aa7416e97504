"""Servers of a registry on every surface: found, shown and added after one approval; never listed or called before."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.command_line import invoke, run_json
from tests.fixtures.serving import replace_parts
from tests.servers import make_scripted_spec
from tests.servers.gateway import run_gateway
from tests.servers.registry import RegistryDouble, describe_server
from toolscript.app.app import App, open_app
from toolscript.domain.access import Caller, Scope
from toolscript.domain.catalog import Item
from toolscript.domain.profiles import ItemRules, Profile
from toolscript.domain.requests import RequestContext, set_request
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp.definitions import SearchToolsArguments
from toolscript.surfaces.mcp.search_tools import search_tools

pytestmark = pytest.mark.req("O-02")

PATH = "/api/v1/registry"
TOKEN = {"name": "SLACK_TOKEN", "isRequired": True, "isSecret": True, "description": "A bot's token"}
PACKAGE = {"registryType": "pypi", "identifier": "slack-mcp", "version": "1.0.0", "transport": {"type": "stdio"}}
SLACK = describe_server(
    "io.github.ann/slack", "Post messages to Slack channels", packages=[PACKAGE | {"environmentVariables": [TOKEN]}]
)
REMOTE: dict[str, Any] = {
    "packages": [],
    "remotes": [{"type": "streamable-http", "url": "https://maps.example.com/mcp"}],
}
MAPS = describe_server("com.maps/mcp", "Routes and places on maps", **REMOTE)
QUERY = "post messages to slack channels"


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with RegistryDouble() as double:
        for server in (SLACK, MAPS):
            double.publish(server)
        yield double


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    settings = load_settings(
        variables={},
        data_dir=tmp_path,
        search_model="hashed-64",
        index="memory:",
        registry_hints=True,
        search_threshold=0.9,
    )
    async with open_app(settings, serving=True) as opened:
        await opened.catalogue.sync.run([Item("disk", "read_file", "Read a file")])
        yield opened


@pytest.fixture
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def test_a_registry_is_read_searched_and_forgotten_over_http(
    http: httpx.AsyncClient, registry: RegistryDouble
) -> None:
    early = await http.get(f"{PATH}/search", params={"q": QUERY})
    assert (early.status_code, "toolscript registry sync" in early.text) == (404, True)
    synced = await http.post(f"{PATH}/sync", json={"url": registry.root})
    assert (synced.status_code, synced.json()["added"], synced.json()["total"]) == (200, 2, 2)
    (server,) = (await http.get(f"{PATH}/search", params={"q": QUERY, "limit": 1})).json()["servers"]
    assert (server["name"], server["version"], server["publisher"]) == ("io.github.ann/slack", "1.0.0", "io.github.ann")
    assert server["digest"].startswith("sha256:")
    assert server["launches"][0]["runs"] == "uvx slack-mcp@1.0.0"
    assert server["launches"][0]["needs"] == "needs SLACK_TOKEN (secret)"
    (maps,) = (await http.get(f"{PATH}/search", params={"q": "com.maps/mcp"})).json()["servers"]
    assert (maps["suggestedName"], maps["launches"][0]["needs"]) == ("maps", "may ask for a login")
    assert (await http.get(f"{PATH}/search", params={"q": " "})).status_code == 400
    assert (await http.post(f"{PATH}/sync", json={"url": "ftp://x"})).status_code == 400
    registry.mode = "busy"
    assert (await http.post(f"{PATH}/sync", json={"url": registry.root})).status_code == 503
    assert (await http.delete(PATH, params={"url": registry.root})).status_code == 204
    assert (await http.delete(PATH, params={"url": registry.root})).status_code == 404


@pytest.mark.req("X-04", "X-09")
async def test_only_who_may_add_servers_has_a_registry_read(app: App, registry: RegistryDouble) -> None:
    own = ServedApp(settings := replace(app.settings, api_key="operator"), replace_parts(app, settings=settings))
    _, weak = await app.access.keys.create("weak", [Scope.SEARCH, Scope.CALL])
    transport = httpx.ASGITransport(create_http_app(own))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for key, status in ((weak, 403), ("none", 401), ("operator", 200)):
            headers = {"X-API-Key": key}
            answer = await client.post(f"{PATH}/sync", json={"url": registry.root}, headers=headers)
            assert answer.status_code == status
            assert (await client.get(f"{PATH}/search", params={"q": QUERY}, headers=headers)).status_code == status
            assert bool(registry.requests) is (status == 200)


async def search(app: App, query: str, profile: str | None = None) -> str:
    set_request(RequestContext(profile=profile))
    return await search_tools(app, SearchToolsArguments.parse({"query": query}), Caller("agent"))


@pytest.mark.req("G-08", "G-13", "X-09")
async def test_an_agent_learns_of_servers_only_where_that_is_switched_on_and_without_a_profile(
    app: App, registry: RegistryDouble
) -> None:
    assert "would:" not in await search(app, QUERY), "before a registry is read"
    await app.registry.sync(registry.root)
    answer = await search(app, QUERY)
    assert "No connected tool does this; these servers, which are not connected, would:" in answer
    assert "io.github.ann/slack" in answer
    assert "by io.github.ann, sha256:" in answer
    assert "uvx slack-mcp@1.0.0; needs SLACK_TOKEN (secret)" in answer
    assert answer.endswith(
        "You cannot add one. Tell the user: `toolscript servers add io.github.ann/slack` asks first."
    )
    assert "slack" not in await search(app, "read_file")
    app.access.profiles.replace([Profile("disk", allow=ItemRules(servers=("disk",)))])
    assert "io.github.ann" not in await search(app, QUERY, "disk")
    app.access.profiles.replace([])
    off = replace_parts(app, settings=replace(app.settings, registry_hints=False))
    assert "io.github.ann" not in await search(off, QUERY)
    registry.requests.clear()
    await search(app, QUERY)
    assert registry.requests == [], "searches stay on this machine"


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A `uvx` that starts a scripted server, whatever package it is asked for."""
    entry = make_scripted_spec(tools=["echo", "pid"])
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "uvx"
    words = " ".join(f"'{word}'" for word in (entry["command"], *entry["args"]))
    script.write_text(f"#!/bin/sh\nexec {words}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    return entry


@pytest.mark.slow
@pytest.mark.req("G-09", "G-15")
def test_a_server_is_found_added_after_a_question_and_waits_in_quarantine(
    small_folder: Path, registry: RegistryDouble, runner: dict[str, Any]
) -> None:
    folder = Path.cwd()
    file = folder / ".toolscript.json"
    file.write_text('{\n  // ours\n  "mcpServers": {}\n}\n')
    with run_gateway(folder, "--data-dir", str(small_folder)):
        assert "2 servers (2 added, 0 changed, 0 removed)" in invoke("registry", "sync", registry.root).stdout
        found = invoke("search", "--registry", QUERY).stdout
        assert "uvx slack-mcp@1.0.0; needs SLACK_TOKEN (secret)" in found
        assert "toolscript servers add io.github.ann/slack" in found
        add = ("servers", "add", "io.github.ann/slack")
        assert "--set NAME=VALUE" in invoke(*add, "--yes", code=2).stderr
        shown = invoke(*add, "--dry-run", "--set", "SLACK_TOKEN=t0p")
        assert "variable SLACK_TOKEN (secret, required): A bot's token" in shown.stdout
        refused = invoke(*add, "--set", "SLACK_TOKEN=t0p", given="n\n", code=2)
        assert "nothing was added" in refused.stderr
        assert json.loads(file.read_text().replace("// ours", ""))["mcpServers"] == {}
        added = invoke(*add, given="t0p\ny\n")
        assert "t0p" not in added.output
        assert "slack__echo" in added.stdout
        assert "approve --all --server slack" in added.stdout
        assert "// ours" in file.read_text()
        assert "slack__echo" in invoke("quarantine", "list").stdout
        assert "toolscript quarantine" in invoke("call", "slack__echo", "--arg", "text=x", code=6).stderr
        invoke("quarantine", "approve", "--all", "--server", "slack")
        assert "x" in invoke("call", "slack__echo", "--arg", "text=x").stdout
        again = invoke(*add, "--yes", "--set", "SLACK_TOKEN=t0p", code=2)
        assert "choose another name with --name" in again.stderr
    entry = json.loads(file.read_text().replace("// ours", ""))["mcpServers"]["slack"]
    assert entry == {
        "command": "uvx",
        "args": ["slack-mcp@1.0.0"],
        "env": {"SLACK_TOKEN": "t0p"},
        "trust": "review",
    }


@pytest.mark.slow
def test_without_a_gateway_the_same_is_found_and_added(
    small_folder: Path, registry: RegistryDouble, runner: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "toolscript registry sync" in invoke("search", "--registry", QUERY, code=4).stderr
    assert run_json("registry", "sync", registry.root)["total"] == 2
    assert run_json("search", "--registry", QUERY)["servers"][0]["name"] == "io.github.ann/slack"
    assert "no registry lists" in invoke("servers", "add", "io.github.ann/slac", code=4).stderr
    assert "for servers of a registry" in invoke("servers", "add", "-", "--remote", given="{}", code=2).stderr
    assert "cannot be added" in invoke("servers", "add", "io.github.ann/slack", "--remote", code=2).stderr
    wrong = invoke("servers", "add", "io.github.ann/slack", "--set", "TOKEN=1", code=2)
    assert "asks for SLACK_TOKEN" in wrong.stderr
    monkeypatch.setenv("SLACK_TOKEN", "s3cret")
    assert (
        "(secret, required, taken from your environment)"
        in invoke("servers", "add", "io.github.ann/slack", "--dry-run").stdout
    )
    added = run_json("servers", "add", "IO.github.ann/slack", "--yes", "--name", "chat")
    assert (added["added"], added["tools"]) == (True, None)
    entry = json.loads(Path(added["file"]).read_text())["mcpServers"]["chat"]
    assert entry["env"] == {"SLACK_TOKEN": "${SLACK_TOKEN}"}, "the secret stays in its variable"
    assert run_json("registry", "remove", registry.root) == {"removed": registry.root}
    assert "no such registry was read" in invoke("registry", "remove", registry.root, code=4).stderr


@pytest.mark.slow
def test_what_a_publisher_sets_or_could_take_is_decided_by_the_person(
    small_folder: Path, registry: RegistryDouble, runner: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = [
        {"name": "NODE_ENV", "value": "production"},
        {"name": "UNITS", "default": "metric"},
        {"name": "AWS_SECRET_ACCESS_KEY", "description": "region"},
        {"name": "LOG_LEVEL", "isRequired": True, "choices": ["debug", "info"]},
    ]
    tides = describe_server("io.github.eve/tides", packages=[PACKAGE | {"environmentVariables": variables}])
    registry.publish(tides, status="deprecated", message="compromised, do not install")
    invoke("registry", "sync", registry.root)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.setenv("LOG_LEVEL", "trace")
    add = ("servers", "add", "io.github.eve/tides")
    assert "needs LOG_LEVEL" in invoke(*add, "--yes", code=2).stderr
    monkeypatch.setenv("LOG_LEVEL", "info")
    shown = invoke(*add, "--dry-run")
    assert "io.github.eve/tides is deprecated: compromised, do not install" in shown.stderr
    assert "the publisher sets variable NODE_ENV=production\n" in shown.stdout
    assert "the publisher sets variable UNITS=metric\n" in shown.stdout
    with RegistryDouble() as other:
        other.publish(tides)
        invoke("registry", "sync", other.root)
        assert f"listed at {other.root}" in invoke("search", "--registry", "io.github.eve/tides").stdout
        several = invoke(*add, "--yes", code=2).stderr
        assert all(f"{each.root}" in several for each in (registry, other))
        assert "does not list" in invoke(*add, "--registry", "http://127.0.0.1:9", code=4).stderr
        added = run_json(*add, "--yes", "--registry", f"{other.root}/")
    entry = json.loads(Path(added["file"]).read_text())["mcpServers"]["tides"]
    assert entry["env"] == {"NODE_ENV": "production", "UNITS": "metric", "LOG_LEVEL": "${LOG_LEVEL}"}
