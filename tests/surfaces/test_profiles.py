"""Profiles on every surface: what a caller may not see can be neither found, listed, described, generated nor called,
also when its exact name is known, also from caches that another caller has filled. All profiles pin all tools: what is
pinned and hidden is neither listed nor called by its own name."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.fixtures.examples import choose
from tests.fixtures.limits import set_limits
from tests.fixtures.serving import replace_parts
from tests.servers import make_scripted_server
from tests.servers.registry import RegistryDouble, describe_server
from toolscript.app.app import App, open_app
from toolscript.domain.access import Scope
from toolscript.domain.catalog import Item, ItemType, Skill
from toolscript.domain.profiles import ItemRules, Profile
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.domain.tool_overrides import ToolOverride, apply_override, attach_override
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp.definitions import TOOL_SCOPES, TOOLS

pytestmark = pytest.mark.req("G-13", "G-14", "O-01", "O-03")

READ_ONLY = {"readOnlyHint": True}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
RENAMED = ToolOverride("cancelOrder")
ITEMS = [
    Item("disk", "read_file", "Read a file", input_schema=SCHEMA, annotations=READ_ONLY),
    Item("disk", "write_file", "Write a file", input_schema=SCHEMA),
    Item("post", "send_email", "Send an email message", input_schema=SCHEMA),
    Item("post", "fetch_email", "Fetch an email message", input_schema=SCHEMA, annotations=READ_ONLY),
    Item("post", "summary", "Summarise the mailbox", type=ItemType.PROMPT),
    Item(
        "shop",
        "listOrders",
        "List the orders",
        input_schema=SCHEMA,
        annotations=READ_ONLY | {"operation": "GET /orders"},
    ),
    Item("shop", "placeOrder", "Place an order", input_schema=SCHEMA, annotations={"operation": "POST /orders"}),
    apply_override(attach_override(Item("shop", "dropOrder", "Cancel an order", input_schema=SCHEMA), RENAMED)),
    Item("disk", "notes", "The notes", type=ItemType.RESOURCE, annotations={"uri": "file:///notes"}),
]
SKILLS = {"files": ["disk__read_file", "disk__write_file"], "mail": ["post__send_email", "post__fetch_email"]}
RULES = [
    Profile("disk", allow=ItemRules(servers=("disk",))),
    Profile("reader", read_only=True),
    Profile("quiet", deny=ItemRules(tools=("post__send_*", "write_file", "list*", "dropOrder"))),
    Profile("mailers", allow=ItemRules(skills=("mail",)), deny=ItemRules(tools=("fetch_*",))),
    Profile("nothing", allow=ItemRules()),
    Profile("staff", allow=ItemRules(servers=("post",)), keys=frozenset({"staff-key"})),
]
PROFILES = [replace(each, pinned=("*__*",)) for each in RULES]
VISIBLE = {
    "default": {item.id for item in ITEMS},
    "disk": {"disk__read_file", "disk__write_file", "disk__resource:notes"},
    "reader": {
        *("disk__read_file", "post__fetch_email", "post__prompt:summary", "disk__resource:notes"),
        "shop__listOrders",
    },
    "quiet": {
        *("disk__read_file", "post__fetch_email", "post__prompt:summary", "disk__resource:notes"),
        *("shop__placeOrder", "shop__cancelOrder"),  # the server's name for it counts nowhere
    },
    "mailers": {"post__send_email"},
    "nothing": set[str](),
}
QUERIES = [
    "read or write a file",
    "send an email message",
    "summarise the mailbox",
    "notes",
    "orders",
    *VISIBLE["default"],
]
OPERATOR_KEY = "the key of the operator"
ACCEPT = {"Accept": "application/json, text/event-stream"}


@dataclass
class Client:
    """Sends requests with a key, and with the profile in the path of MCP."""

    http: httpx.AsyncClient
    key: str = OPERATOR_KEY
    profile: str | None = None

    async def get(self, path: str, **query: Any) -> httpx.Response:
        return await self.http.get(path, params=query, headers={"X-API-Key": self.key})

    async def post(self, path: str, body: Any) -> httpx.Response:
        return await self.http.post(path, json=body, headers=ACCEPT | {"X-API-Key": self.key})

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.send("tools/call", {"name": tool, "arguments": arguments})

    async def list_tools(self) -> dict[str, str]:
        """The names of the listed tools with their descriptions."""
        return {tool["name"]: tool["description"] for tool in (await self.send("tools/list", {}))["tools"]}

    async def send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        path = f"/mcp/{self.profile}" if self.profile else "/mcp"
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer: dict[str, Any] = (await self.post(path, body)).json()
        return answer.get("result") or answer

    async def read_text(self, tool: str, **arguments: Any) -> str:
        return str((await self.call(tool, **arguments))["content"][0]["text"])


@pytest.fixture(autouse=True)
def _read_keys_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of waiting until the keys that were read are too old."""
    set_limits(monkeypatch, keys_max_age=0.0)


@pytest.fixture(scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("profiles")
    settings = load_settings(
        variables={}, data_dir=folder, search_model="hashed-64", api_key=OPERATOR_KEY, code="python"
    )
    async with open_app(settings, serving=True) as opened:
        await opened.stores.skills.save_skills([Skill("files", "Files", "Files"), Skill("mail", "Mail", "Mail")])
        await opened.catalogue.sync.run(ITEMS)
        for skill, item_ids in SKILLS.items():
            for item_id in item_ids:
                await opened.catalogue.skills.assign(item_id, [skill])
        opened.access.profiles.replace(PROFILES)
        document = str(folder / "none.yaml")
        tools = {"dropOrder": RENAMED}
        shop = ServerSpec("shop", Transport.OPENAPI, url="http://127.0.0.1:9", openapi=document, tools=tools)
        await opened.servers.gateway.apply(
            [*(make_scripted_server(name, crash=True) for name in ("disk", "post")), shop]
        )
        await opened.servers.gateway.settle(60)
        yield opened


@asynccontextmanager
async def serve(app: App) -> AsyncIterator[httpx.AsyncClient]:
    http = create_http_app(ServedApp(app.settings, app))
    transport = httpx.ASGITransport(http)
    async with (
        http.router.lifespan_context(http),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        yield client


@pytest.fixture
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    async with serve(app) as client:
        yield client


def read_overview(description: str) -> set[str]:
    """The servers and skills that the description of `search_tools` names."""
    overview = description.removeprefix(TOOLS[0].description or "?")
    return {name for name in ("disk", "post", "shop", "files", "mail") if re.search(rf"\b{name}\b", overview)}


def find_ids(text: str) -> set[str]:
    return {item.id for item in ITEMS if re.search(rf"(?<!\w){re.escape(item.id)}(?!\w)", text)}


@pytest.mark.parametrize("profile", choose([*VISIBLE, "disk"], "default", "disk", "reader", "mailers"))
async def test_over_mcp_each_profile_shows_its_tools_and_no_other(http: httpx.AsyncClient, profile: str) -> None:
    client, visible = Client(http, profile=None if profile == "default" else profile), VISIBLE[profile]
    found = set()
    for query in QUERIES:
        hits = find_ids((await client.read_text("search_tools", query=query, limit=20)).partition(repr(query))[0])
        assert hits <= visible, query
        found |= hits
    assert found == visible
    for item in ITEMS:
        described = await client.call("describe_tool", tool_id=item.id)
        called = await client.read_text("call_tool", tool_id=item.id, arguments={})
        assert described.get("isError", False) is (item.id not in visible)
        assert ("no such tool" in called) is (item.id not in visible), "a visible one gets to its server, which is off"
        direct = await client.read_text(item.id)
        is_callable = profile != "default" and item.id in visible and item.type is ItemType.TOOL
        assert direct.startswith(f"no such tool: {item.id!r}: use search_tools, ") is not is_callable
        assert find_ids(direct) <= visible | {item.id}
        assert find_ids(called) <= visible | {item.id}
    listed = await client.list_tools()
    pinned = {i.id for i in ITEMS if i.type is ItemType.TOOL and i.id in visible and profile != "default"}
    assert {name for name in listed if name not in TOOL_SCOPES} == pinned
    assert read_overview(listed["search_tools"]) == {
        *{item.server for item in ITEMS if item.id in visible},
        *{name for name, item_ids in SKILLS.items() if visible & {*item_ids}},
    }
    skills = await client.read_text("search_skills", query="email file mail files")
    counts = {name: len(visible & {*item_ids}) for name, item_ids in SKILLS.items()}
    assert {
        n: int(c) for n, c in re.findall(r"^(files|mail)  [\d.]+  (\d+) tool", skills, re.MULTILINE)
    }.items() <= counts.items()
    assert not any(re.search(rf"^{name} ", skills, re.MULTILINE) for name, count in counts.items() if not count)


@pytest.mark.req("O-02")
async def test_a_server_of_a_registry_is_no_tool_and_a_profile_hides_it(app: App) -> None:
    name, query = "io.github.ann/slack", "post messages to slack channels"
    settings = replace(app.settings, registry_hints=True, search_threshold=0.95)
    with RegistryDouble() as registry:
        registry.publish(describe_server(name, "Post messages to Slack channels"))
        await app.registry.sync(registry.root)
    _, secret = await app.access.keys.create("narrow-key", [Scope.SEARCH, Scope.CALL, Scope.ADMIN])
    app.access.profiles.replace([*PROFILES, Profile("narrow", allow=ItemRules(), keys=frozenset({"narrow-key"}))])
    async with serve(replace_parts(app, settings=settings)) as http:
        for profile in (None, *(each.name for each in PROFILES[:5])):
            client = Client(http, profile=profile)
            assert (name in await client.read_text("search_tools", query=query)) is (profile is None)
            assert name not in json.dumps(await client.list_tools())
            for answer in (
                await client.read_text("call_tool", tool_id=name, arguments={}),
                await client.read_text("describe_tool", tool_id=name),
                await client.read_text(name),
            ):
                assert answer.startswith("no such tool")
        for key, status in ((OPERATOR_KEY, 200), (secret, 403)):
            client = Client(http, key)
            assert (await client.get("/api/v1/registry/search", q=query)).status_code == status
            assert (await client.get(f"/tools/{quote(name)}")).status_code == 404
            for path, given in (
                ("/tools", {}),
                ("/search", {"q": query, "threshold": 0}),
                ("/api/v1/search/tools", {"query": query, "threshold": 0}),
            ):
                assert name not in (await client.get(path, **given)).text
    await app.registry.remove(registry.root)
    app.access.profiles.replace(PROFILES)


@pytest.mark.extended
@pytest.mark.req("C-01")
@pytest.mark.parametrize("profile", choose([*VISIBLE, "disk"], "default", "disk", "mailers"))
async def test_what_a_profile_hides_is_hidden_from_programs(http: httpx.AsyncClient, profile: str) -> None:
    client, visible = Client(http, profile=None if profile == "default" else profile), VISIBLE[profile]
    for item in ITEMS:
        call = f'call("call_tool", {{"tool_id": {item.id!r}, "arguments": {{}}}})'
        by_id = await client.read_text("run_code", code=f'call = eval("call_host")\nawait {call}')
        assert ("NOT_FOUND: no such tool" in by_id) is (item.id not in visible), "others get to their server"
        describe = f'call("describe_tool", {{"tool_id": {item.id!r}}})'
        described = await client.read_text("run_code", code=f'call = eval("call_host")\nawait {describe}')
        assert ("NOT_FOUND: no such tool" in described) is (item.id not in visible)
        if item.type is ItemType.TOOL:
            named = await client.read_text("run_code", code=f"await tools.{item.server}.{item.name}({{}})")
            assert ("no such" in named) is (item.id not in visible)
            assert find_ids(named) <= visible
        assert find_ids(by_id) <= visible | {item.id}
    for query in QUERIES:
        code = f"[found['id'] for found in await search_tools({query!r}, 20)]"
        assert find_ids(await client.read_text("run_code", code=code)) <= visible
        types = await client.read_text("search_tools", query=query, output="types", limit=20)
        tools = {item.id for item in ITEMS if item.type is ItemType.TOOL and f"async def {item.name}(" in types}
        assert tools <= visible


async def test_over_http_the_key_of_a_profile_shows_its_tools_and_no_other(app: App) -> None:
    secrets = {name: (await app.access.keys.create(f"key-{name}", [*Scope], tenant="acme"))[1] for name in VISIBLE}
    app.access.profiles.replace(
        [replace(each, keys=frozenset({f"key-{each.name}"})) if each.name in VISIBLE else each for each in PROFILES]
    )
    async with serve(app) as http:
        for profile, visible in [*VISIBLE.items(), *reversed(VISIBLE.items())]:
            client = Client(http, secrets[profile])
            assert {tool["toolId"] for tool in (await client.get("/tools")).json()["tools"]} == visible
            for language in ("ts", "py"):
                source = (await client.get(f"/runtime/tools.{language}")).text
                assert {i.id for i in ITEMS if i.type is ItemType.TOOL and i.id in source} == {
                    i.id for i in ITEMS if i.type is ItemType.TOOL and i.id in visible
                }
            for item in ITEMS:
                path = f"/tools/{quote(item.id)}"
                assert (await client.get(path)).status_code == (200 if item.id in visible else 404)
                assert (await client.post(path, {})).status_code == (503 if item.id in visible else 404)
                mark = await client.post("/api/v1/feedback", {"tool_id": item.id, "query": "read my mail"})
                assert mark.status_code == (200 if item.id in visible else 404)
            for query in QUERIES:
                for answer in [
                    await client.get("/search", q=query, limit=100, threshold=0),
                    await client.get("/api/v1/search/tools", query=query, limit=50, threshold=0),
                    *[
                        await client.post("/api/v1/search", {"query": query, "strategy": each, "tool_threshold": 0})
                        for each in ("hierarchical", "direct", "hybrid")
                    ],
                ]:
                    assert answer.status_code == 200
                    assert find_ids(answer.text.replace(json.dumps(query), "")) <= visible
            skills = (await client.get("/api/v1/skills")).json()["skills"]
            counts = {s["id"]: s["tool_count"] for s in skills if s["id"] in SKILLS}
            expected = {name: len(visible & {*item_ids}) for name, item_ids in SKILLS.items()}
            assert counts == {name: count for name, count in expected.items() if count}
            for name, count in counts.items():
                assert len((await client.get(f"/api/v1/skills/{name}/tools")).json()["tools"]) == count
    app.access.profiles.replace(PROFILES)


async def test_what_is_hidden_is_answered_like_what_does_not_exist(http: httpx.AsyncClient) -> None:
    client = Client(http, profile="disk")
    hidden = await client.read_text("describe_tool", tool_id="post__send_email")
    unknown = await client.read_text("describe_tool", tool_id="post__sent_email")
    assert hidden.startswith("no such tool: 'post__send_email': did you mean disk__")
    assert unknown.startswith("no such tool: 'post__sent_email': did you mean disk__")
    assert find_ids(hidden) - {"post__send_email"} == find_ids(unknown)


@pytest.mark.req("X-12")
async def test_metrics_name_no_hidden_server(app: App) -> None:
    _, secret = await app.access.keys.create("metrics-key", [Scope.METRICS])
    staff = Profile("watchers", allow=ItemRules(servers=("post",)), keys=frozenset({"metrics-key"}))
    app.access.profiles.replace([*PROFILES, staff])
    async with serve(app) as http:
        await Client(http).post("/tools/disk__read_file", {})
        for key, servers in [(secret, {"post"}), (OPERATOR_KEY, {"post", "disk", "shop"})]:
            metrics = (await Client(http, key).get("/metrics")).text
            assert set(re.findall(r'server="(\w+)"', metrics)) == servers
            assert "toolscript_http_requests_total" in metrics
    app.access.profiles.replace(PROFILES)


async def test_a_key_has_its_own_profile_and_can_choose_no_other(app: App) -> None:
    _, secret = await app.access.keys.create("staff-key", [Scope.SEARCH, Scope.CALL])
    _, other = await app.access.keys.create("other-key", [Scope.SEARCH, Scope.CALL])
    async with serve(app) as http:
        assert {t["toolId"] for t in (await Client(http, secret).get("/tools")).json()["tools"]} == {
            item.id for item in ITEMS if item.server == "post"
        }
        for key, profile in [(secret, "disk"), (other, "staff")]:
            refused = await Client(http, key).post(f"/mcp/{profile}", {})
            assert refused.status_code == 403
            assert repr(profile) in refused.json()["error"]["message"]
        assert (await http.post("/mcp/disk", json={})).status_code == 401, "who has no key learns of no profile"
        unknown = await Client(http, other).post("/mcp/unknown", {})
        assert unknown.status_code == 404
        assert "no such profile: 'unknown'" in unknown.json()["error"]["message"]


async def test_a_claim_of_an_access_token_chooses_the_profile(app: App) -> None:
    support = Profile("support", allow=ItemRules(servers=("post",)), claims=(("groups", frozenset({"support"})),))
    app.access.profiles.replace([*PROFILES, support])
    assert app.access.profiles.choose(None, key="oauth:ada", claims={"groups": ["sales", "support"]}) == "support"
    assert app.access.profiles.choose(None, key="oauth:ada", claims={"groups": "sales support"}) == "support"
    assert app.access.profiles.choose(None, key="oauth:bob", claims={"groups": ["sales"]}) == "default"
    app.access.profiles.replace(PROFILES)


async def test_a_default_profile_is_for_all_who_have_no_other(app: App) -> None:
    app.access.profiles.replace([*PROFILES, Profile("default", deny=ItemRules(servers=("post",)))])
    _, secret = await app.access.keys.create("agent", [Scope.SEARCH])
    async with serve(app) as http:
        listed = (await Client(http, secret).get("/tools")).json()["tools"]
        assert {tool["serverName"] for tool in listed} == {"disk", "shop"}
    app.access.profiles.replace(PROFILES)


async def test_a_read_only_gateway_shows_nobody_a_tool_that_may_change_something(app: App) -> None:
    async with open_app(replace(app.settings, read_only=True, index="memory:", store="sqlite://")) as other:
        await other.catalogue.sync.run(ITEMS)
        other.access.profiles.replace(PROFILES)
        assert {item.id for item in await other.tools.listing.matching(None)} == VISIBLE["reader"]
        async with serve(replace_parts(other)) as http:
            text = await Client(http, profile="disk").read_text("search_tools", query="write a file", limit=20)
            assert "disk__read_file" in text
            assert "disk__write_file" not in text
