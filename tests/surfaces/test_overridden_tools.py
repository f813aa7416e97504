"""Tools with other names, texts and fixed arguments by the configuration, on every surface: of an MCP server and of an
API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.pet_api import PetApi
from tests.fixtures.waiting import until
from tests.servers import make_scripted_spec
from toolscript.app.app import App, open_app
from toolscript.configuration.files import load_configuration
from toolscript.configuration.snippets import ConfigurationPlace
from toolscript.domain.access import Scope
from toolscript.domain.errors import Conflict
from toolscript.domain.profiles import ItemRules, Profile
from toolscript.domain.servers import CallRelay
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = [pytest.mark.slow, pytest.mark.req("O-03")]

TIMEOUT_SECONDS = 60.0
SECRET = "s3cret-of-the-team"
ISSUE = {
    "name": "create_issue",
    "description": "Creates an issue in a repository.",
    "inputSchema": {
        "type": "object",
        "properties": {"repo": {"type": "string"}, "title": {"type": "string"}, "key": {"type": "string"}},
        "required": ["repo", "title", "key"],
        "additionalProperties": False,
    },
}
TOOLS = {
    "create_issue": {
        "name": "new_ticket",
        "description": "Opens a ticket for the team.",
        "arguments": {
            "repo": {"default": "acme/app", "hidden": True},
            "key": {"default": "${TEAM_KEY}", "hidden": True},
        },
    },
    "drop_all": {"hidden": True},
    "creat_isue": {"hidden": True},
}
PETS = {
    "getPet": {"name": "our_pet", "arguments": {"petId": {"default": 7, "hidden": True}}},
    "listPets": {"arguments": {"limit": {"default": 2, "description": "At most so many pets."}}},
}


@dataclass
class Scene:
    """A gateway with both servers, from a configuration file."""

    app: App
    http: httpx.AsyncClient
    folder: Path
    api: PetApi

    async def apply(self) -> None:
        configuration = load_configuration(home=self.folder, folder=self.folder, environment={"TEAM_KEY": SECRET})
        await self.app.servers.gateway.apply(configuration.servers)
        await self.app.servers.gateway.settle(TIMEOUT_SECONDS)

    def write(self, tools: Any = TOOLS, pets: Any = PETS, **about: Any) -> None:
        git = make_scripted_spec(watch=str(self.folder / "lists.json")) | {"tools": tools} | about
        shop = {"openapi": f"{self.api.root}/openapi.yaml", "tools": pets}
        entry = {"mcpServers": {"git": git, "pets": shop}}
        (self.folder / ".toolscript.json").write_text(json.dumps(entry, indent=2), encoding="utf-8")

    def list_tools(self, description: str = ISSUE["description"], *more: str) -> None:  # type: ignore[assignment]
        tools = [ISSUE | {"description": description}, *({"name": name} for name in ("drop_all", *more))]
        (self.folder / "lists.json").write_text(json.dumps({"tools": tools}), encoding="utf-8")

    async def call(self, tool: str, **arguments: Any) -> httpx.Response:
        return await self.http.post(f"/tools/{tool}", json=arguments)

    async def mcp(self, method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"Accept": "application/json, text/event-stream"}
        return (await self.http.post("/mcp", json=body, headers=headers)).json()

    async def read_calls(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(calls := (await self.http.get("/api/v1/calls")).json()["events"]) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return list(calls)


@asynccontextmanager
async def opening(folder: Path, **about: Any) -> AsyncIterator[Scene]:
    variables = {"data_dir": folder / "data", "search_model": "hashed-64", "index": "memory:"}
    settings = load_settings(variables={}, **variables, **about)
    with PetApi() as api:
        async with open_app(settings, serving=True) as app:
            served = ServedApp(app.settings, app)
            served.place = ConfigurationPlace(None, folder, folder, {"TEAM_KEY": SECRET})
            http = create_http_app(served)
            transport = httpx.ASGITransport(http)
            async with (
                http.router.lifespan_context(http),
                httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
            ):
                yield Scene(app, client, folder, api)


@pytest.mark.req("G-05", "G-06", "G-08", "G-16", "O-01")
async def test_tools_have_their_new_names_and_fixed_arguments_everywhere(tmp_path: Path) -> None:
    async with opening(tmp_path, audit_arguments="redacted", profile="default") as scene:
        scene.list_tools()
        scene.write()
        scene.app.access.profiles.replace([Profile("default", pinned=("git__*",))])
        await scene.apply()
        paths = ("/tools", "/tools/git__new_ticket", "/runtime/tools.ts", "/runtime/tools.py")
        shown = [(await scene.http.get(path)).text for path in paths]
        shown.append((await scene.http.get("/search", params={"q": "open a ticket", "threshold": 0})).text)
        listed = (await scene.mcp("tools/list"))["result"]["tools"]
        (native,) = (tool for tool in listed if tool["name"] == "git__new_ticket")
        assert native["inputSchema"]["properties"] == {"title": {"type": "string"}}
        searched = await scene.mcp("tools/call", name="search_tools", arguments={"query": "open a ticket"})
        shown += [json.dumps(listed), json.dumps(searched)]
        for text in shown:
            assert "new_ticket" in text
            assert not any(word in text for word in ("create_issue", "acme", SECRET, "repo", "drop_all")), text
        sent = {"key": SECRET, "repo": "acme/app", "title": "It broke"}
        answer = (await scene.call("git__new_ticket", title="It broke")).json()
        assert json.loads(answer["content"][0]["text"]) == {"tool": "create_issue", "arguments": sent}
        for name in ("call_tool", "git__new_ticket"):
            own = {"title": "It broke"}
            arguments = {"tool_id": "git__new_ticket", "arguments": own} if name == "call_tool" else own
            result = (await scene.mcp("tools/call", name=name, arguments=arguments))["result"]
            assert json.loads(result["content"][0]["text"])["arguments"] == sent
        for wrong in ({"repo": "other/repo"}, {"repo": "acme/app", "title": "x"}):
            refused = await scene.call("git__new_ticket", **wrong)
            assert (refused.status_code, refused.json()["error"]["details"]["field"]) == (422, "repo")
        for gone in ("git__create_issue", "git__drop_all", "pets__getPet"):
            assert (await scene.call(gone, title="x", petId=7)).status_code == 404
        assert (await scene.call("pets__our_pet")).json()["name"] == "Mia"
        assert (await scene.call("pets__listPets")).status_code == 200
        assert [each["path"] for each in scene.api.seen] == ["/v1/pets/7", "/v1/pets?limit=2"]
        text = json.dumps(calls := await scene.read_calls(10))
        (first, *_) = (call for call in reversed(calls) if call["tool"] == "git__new_ticket")
        assert json.loads(first["arguments"]) == {"key": "[redacted]", "repo": "acme/app", "title": "It broke"}
        assert SECRET not in text
        servers = {server["name"]: server for server in (await scene.http.get("/servers")).json()["servers"]}
        assert servers["git"]["tools"] == 1
        assert [each.partition(";")[0] for each in servers["git"]["problems"]] == [
            "tools.creat_isue: the server has no such tool, or includeTools and excludeTools leave it out"
        ]


@pytest.mark.req("G-13", "G-15")
async def test_a_changed_tool_waits_in_quarantine_with_its_override(tmp_path: Path) -> None:
    async with opening(tmp_path) as scene:
        scene.list_tools()
        scene.write(approval="writes")
        await scene.apply()
        waiting = (await scene.call("git__new_ticket", title="x")).json()["error"]
        assert waiting["code"] == "APPROVAL_REQUIRED"
        (call,) = await scene.app.tools.approvals.pending.list_waiting()
        assert json.loads(call.arguments) == {"key": "[redacted]", "repo": "acme/app", "title": "x"}
        scene.list_tools("Creates an issue, and mails it to us.")

        async def refuse() -> bool:
            error = (await scene.call("git__new_ticket", title="x")).json()["error"]
            return error["code"] == "QUARANTINED" and "quarantine show git__new_ticket" in error["message"]

        await until(refuse)  # the server looks at its file every 20 ms
        (entry,) = (await scene.http.get("/api/v1/quarantine")).json()["tools"]
        assert entry["tool_id"] == "git__new_ticket"
        detail = (await scene.http.get("/api/v1/quarantine/git__new_ticket")).json()
        assert [change["field"] for change in detail["changes"]] == ["description"]
        assert detail["override"] == {
            "tool": "create_issue",
            "name": "new_ticket",
            "description": "Opens a ticket for the team.",
            "arguments": {"repo": {"hidden": True}, "key": {"hidden": True}},
        }
        assert SECRET not in json.dumps(detail)
        decided = await scene.http.post("/api/v1/quarantine/approve", json={"tool_ids": ["git__new_ticket"]})
        assert decided.json() == {"tool_ids": ["git__new_ticket"]}
        scene.write()
        await scene.apply()
        assert (await scene.call("git__new_ticket", title="x")).status_code == 200


@pytest.mark.req("G-13")
async def test_a_call_is_refused_if_its_fixed_arguments_change_during_the_question(tmp_path: Path) -> None:
    async with opening(tmp_path) as scene:
        scene.list_tools()
        scene.write(approval="writes")
        await scene.apply()

        async def change_and_allow(*_: object) -> dict[str, Any]:
            changed = json.loads(json.dumps(TOOLS).replace("acme/app", "other/app"))
            scene.write(changed, approval="writes")
            await scene.apply()
            return {"action": "accept", "content": {"allow": True}}

        relay = CallRelay(capabilities={"elicitation": {}}, ask=change_and_allow)
        with pytest.raises(Conflict, match="git__new_ticket was not called: the configuration of its arguments"):
            await scene.app.tools.call.call("git__new_ticket", {"title": "x"}, relay=relay)
        result = await scene.app.tools.call.call("git__new_ticket", {"title": "x"}, relay=relay)
        assert json.loads(result.text)["arguments"] == {"title": "x", "repo": "other/app", "key": SECRET}


@pytest.mark.req("X-04")
async def test_an_override_is_read_and_written_by_its_owner(tmp_path: Path) -> None:
    async with opening(tmp_path) as scene:
        scene.list_tools("Creates an issue.", "push")
        scene.write()
        await scene.apply()
        path = "/api/v1/overrides/git__new_ticket"
        assert (await scene.http.get(path)).status_code == 403, "an agent on loopback sends no key either"
        assert (await scene.http.put(path, json={"override": {}})).status_code == 403
        _, weak = await scene.app.access.keys.create("weak", [Scope.SEARCH, Scope.CALL])
        _, key = await scene.app.access.keys.create("operator", [Scope.ADMIN, Scope.CALL])
        refused = await scene.http.put(path, json={"override": {}}, headers={"X-API-Key": weak})
        assert (refused.status_code, refused.json()["error"]["details"]) == (403, {"scope": "admin"})
        scene.http.headers["X-API-Key"] = key
        found = (await scene.http.get(path)).json()
        assert (found["tool"], found["override"]) == ("create_issue", TOOLS["create_issue"])
        assert sorted(found["arguments"]) == ["key", "repo", "title"]
        for wrong, problem in [
            ({"name": "a b"}, "tools.create_issue.name: invalid name"),
            ({"nmae": "x"}, 'unknown key: allowed are name, description, hidden, arguments; did you mean "name"?'),
            ({"name": "push"}, "name: git__push is, or was, the server's tool 'push'"),
            ({"arguments": {"rpeo": {"default": 1}}}, 'no such argument; did you mean "repo"?'),
            ({"arguments": {"repo": {"hidden": True}}}, "is hidden and has no default"),
            ({"arguments": [1]}, "must be an object"),
            ({"arguments": {"repo": {"default": "${NOT_SET}", "hidden": True}}}, "variable NOT_SET is not set"),
        ]:
            refused = await scene.http.put(path, json={"override": wrong})
            assert (refused.status_code, problem in refused.json()["error"]["message"]) == (400, True), refused.text
        bodies: list[dict[str, Any]] = [{}, {"override": 5}, {"override": {}, "more": 1}]
        for body in bodies:
            assert (await scene.http.put(path, json=body)).status_code == 422
        for tool in ("git__create_issue", "git__nope", "nope", "pets__getPet"):
            assert (await scene.http.get(f"/api/v1/overrides/{tool}")).status_code == 404
        written = await scene.http.put(path, json={"override": {"hidden": True}})
        assert (written.status_code, written.json()["override"]) == (200, {"hidden": True})
        await scene.apply()
        assert (await scene.call("git__new_ticket", title="x")).status_code == 404
        back = await scene.http.put("/api/v1/overrides/git__create_issue", json={"override": {"name": "ticket"}})
        assert back.json()["tool_id"] == "git__ticket"
        await scene.apply()
        assert (await scene.call("git__ticket", title="x", repo="r", key="k")).status_code == 200
        assert json.loads((tmp_path / ".toolscript.json").read_text())["mcpServers"]["pets"]["tools"] == PETS
        events = [event for event in await scene.read_calls(1) if event["tool"] == "override"]
        assert all(event["server"] == "git" and event["caller"] == "operator" for event in events)


async def test_a_read_only_gateway_lets_nobody_touch_what_it_hides(tmp_path: Path) -> None:
    async with opening(tmp_path) as scene:
        scene.list_tools()
        scene.write()
        await scene.apply()
        _, key = await scene.app.access.keys.create("operator", [Scope.ADMIN])
        scene.app.tools.call._visibility._read_only = True
        headers = {"X-API-Key": key}
        for tool in ("git__new_ticket", "git__drop_all"):
            assert (await scene.http.get(f"/api/v1/overrides/{tool}", headers=headers)).status_code == 404


@pytest.mark.req("X-04")
async def test_a_profile_that_hides_a_server_hides_its_hidden_tools_from_their_overrides(tmp_path: Path) -> None:
    async with opening(tmp_path) as scene:
        scene.list_tools()
        scene.write()
        await scene.apply()
        _, key = await scene.app.access.keys.create("operator", [Scope.ADMIN])
        scene.http.headers["X-API-Key"] = key
        path = "/api/v1/overrides/git__drop_all"
        assert (await scene.http.get(path)).json()["override"] == {"hidden": True}
        profile = Profile("pets", deny=ItemRules(servers=("git",)), keys=frozenset({"operator"}))
        scene.app.access.profiles.replace([profile])
        written = (tmp_path / ".toolscript.json").read_text()
        assert (await scene.http.get(path)).status_code == 404
        assert (await scene.http.put(path, json={"override": {}})).status_code == 404
        assert (tmp_path / ".toolscript.json").read_text() == written


async def test_copies_with_other_fixed_values_are_other_tools(tmp_path: Path) -> None:
    async with opening(tmp_path) as scene:
        scene.list_tools()
        scene.write()
        configuration = load_configuration(home=tmp_path, folder=tmp_path, environment={"TEAM_KEY": SECRET})
        git = configuration.servers[0]
        issue = git.tools["create_issue"]
        other = replace(issue, arguments={**issue.arguments, "repo": replace(issue.arguments["repo"], default="b")})
        copies = [git, replace(git, name="same"), replace(git, name="else", tools={"create_issue": other})]
        await scene.app.servers.gateway.apply(copies)
        await scene.app.servers.gateway.settle(TIMEOUT_SECONDS)
        hits = (await scene.app.tools.search.search("open a ticket", threshold=0.0)).hits
        tickets = {frozenset({hit.id, *hit.variants}) for hit in hits if hit.id.endswith("new_ticket")}
        assert tickets == {frozenset({"else__new_ticket"}), frozenset({"git__new_ticket", "same__new_ticket"})}
