"""Searches and calls while the gateway starts, over HTTP and MCP: they use what is stored, and wait for what is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from tests.fixtures.examples import choose
from tests.fixtures.limits import set_limits
from tests.servers import make_scripted_server
from toolscript.adapters.mcp.client import McpServers
from toolscript.app.app import App
from toolscript.domain.access import ApprovalPolicy
from toolscript.domain.catalog import Item, Skill
from toolscript.domain.limits import Limits
from toolscript.domain.profiles import ItemRules, Profile
from toolscript.domain.servers import ServerSpec
from toolscript.services.servers.gateway import Gateway
from toolscript.settings import Settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("A-06")

T = TypeVar("T")

TIMEOUT_SECONDS = 60.0
SENTENCE = "Still starting: slow. Their tools are not included yet: search again in a few seconds."
HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
SEARCHES = [
    ("/search", None, {"q": "echo"}),
    ("/api/v1/search", {"query": "echo", "strategy": "direct", "tool_threshold": 0}, {}),
]


class Client:
    """Sends requests over HTTP, and calls tools over MCP."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def search(self, path: str, body: Any, query: dict[str, Any]) -> tuple[list[str], Any]:
        """The ids of the tools that a search finds, and the servers that are still starting."""
        answer = await (self.http.post(path, json=body) if body else self.http.get(path, params=query))
        assert answer.status_code == 200, answer.text
        response = answer.json()
        if body:
            return [tool["id"] for tool in response["tools"]], response["metadata"].get("servers_starting")
        return [hit["toolId"] for hit in response["results"]], response.get("serversStarting")

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = (await self.http.post("/mcp", json=body, headers=HEADERS)).json()
        result: dict[str, Any] = answer.get("result") or answer["error"]
        return result

    async def use(self, tool: str, **arguments: Any) -> str:
        """The text of a tool's result."""
        return str((await self.send("tools/call", name=tool, arguments=arguments))["content"][0]["text"])


Call = Callable[[Client, str], Coroutine[Any, Any, str]]


async def call_over_http(client: Client, tool_id: str) -> str:
    return (await client.http.post(f"/tools/{tool_id}", json={"text": "x"})).text


async def call_over_mcp(client: Client, tool_id: str) -> str:
    return await client.use("call_tool", tool_id=tool_id, arguments={"text": "x"})


async def describe_over_http(client: Client, tool_id: str) -> str:
    return (await client.http.get(f"/tools/{tool_id}")).text


async def describe_over_mcp(client: Client, tool_id: str) -> str:
    return await client.use("describe_tool", tool_id=tool_id)


CALLS: list[Call] = [call_over_http, call_over_mcp]
USES: list[Call] = [*CALLS, describe_over_http, describe_over_mcp]


@asynccontextmanager
async def open_client(served: ServedApp) -> AsyncIterator[Client]:
    http = create_http_app(served)
    async with (
        http.router.lifespan_context(http),
        httpx.AsyncClient(transport=httpx.ASGITransport(http), base_url="http://127.0.0.1", timeout=None) as client,
        asyncio.timeout(TIMEOUT_SECONDS),
    ):
        yield Client(client)


@pytest.fixture
async def client(app: App) -> AsyncIterator[Client]:
    async with open_client(ServedApp(app.settings, app, ready=False)) as opened:
        yield opened


class Slow:
    """A server that is started, and does not answer before it is told to."""

    def __init__(self, folder: Path) -> None:
        self._signal = folder / "start"

    def make_spec(self, **behaviour: Any) -> ServerSpec:
        return make_scripted_server("slow", start_with=str(self._signal), **behaviour)

    def start(self) -> None:
        self._signal.touch()


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(tmp_path)


async def list_in_an_earlier_run(app: App, *specs: ServerSpec) -> None:
    earlier = Gateway(McpServers(), app.catalogue.sync)
    await earlier.apply(specs)
    await earlier.settle(TIMEOUT_SECONDS)
    await earlier.close()


async def start_waiting(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """The work, which must not end before something happens."""
    task = asyncio.create_task(work)
    done, _ = await asyncio.wait({task}, timeout=0.1)
    assert not done, task.result()
    return task


# --- calls ---


@pytest.mark.extended
@pytest.mark.parametrize("use", choose(USES, USES[0], describe_over_mcp))
async def test_a_tool_of_the_last_run_is_used_also_before_the_configuration_is_applied(
    use: Call, app: App, client: Client, slow: Slow
) -> None:
    await list_in_an_earlier_run(app, make_scripted_server("slow", tools=["echo"]))
    spec = slow.make_spec(tools=["echo"])
    app.servers.gateway.expect([spec])
    early = await start_waiting(use(client, "slow__echo"))
    await app.servers.gateway.apply([spec])
    if use in CALLS:
        assert not early.done()
        slow.start()
    answer = json.loads(await early)
    assert answer == {"text": "x"} if use in CALLS else answer["toolId"] == "slow__echo"


@pytest.mark.parametrize("use", choose(USES, USES[0], describe_over_mcp))
async def test_a_tool_that_was_never_listed_waits_for_its_server(
    use: Call, app: App, client: Client, slow: Slow
) -> None:
    await app.servers.gateway.apply([slow.make_spec(tools=["echo"])])
    early = await start_waiting(use(client, "slow__echo"))
    unknown = await start_waiting(use(client, "slow__nothing"))
    slow.start()
    answer = json.loads(await early)
    assert answer == {"text": "x"} if use in CALLS else answer["toolId"] == "slow__echo"
    assert "no such tool: 'slow__nothing'" in await unknown


@pytest.mark.extended
@pytest.mark.parametrize("use", choose(USES, USES[0], describe_over_mcp))
async def test_a_tool_of_no_configured_server_is_refused_once_the_configuration_is_known(
    use: Call, app: App, client: Client, slow: Slow
) -> None:
    await list_in_an_earlier_run(app, make_scripted_server("removed", tools=["echo"]))
    app.servers.gateway.expect([slow.make_spec()])
    early = [await start_waiting(use(client, tool_id)) for tool_id in ("removed__echo", "never__echo")]
    await app.servers.gateway.apply([slow.make_spec()])  # does not start
    for answer in [*await asyncio.gather(*early), await use(client, "removed__echo")]:
        assert "no such tool" in answer


async def test_a_call_waits_for_the_first_connection_of_a_server_as_long_as_that_may_take(app: App, slow: Slow) -> None:
    spec = slow.make_spec(tools=["echo"])
    gateway = Gateway(McpServers(), app.catalogue.sync, Limits(reconnect=0.0))
    await gateway.apply([spec])
    early = await start_waiting(gateway.call(Item("slow", "echo"), {"text": "x"}, TIMEOUT_SECONDS))
    slow.start()
    assert (await early).structured == {"text": "x"}
    await gateway.close()


async def test_a_call_waits_no_longer_than_its_time(app: App, client: Client, slow: Slow) -> None:
    await app.servers.gateway.apply([slow.make_spec()])
    answer = await client.http.post("/tools/slow__echo?timeout=0.1", json={"text": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "TIMED_OUT")


async def test_a_call_ends_when_its_server_is_removed_from_the_configuration(
    app: App, client: Client, slow: Slow
) -> None:
    await app.servers.gateway.apply([slow.make_spec()])
    early = await start_waiting(call_over_http(client, "slow__echo"))
    await app.servers.gateway.apply([])
    assert "no such tool" in await early


async def test_a_pinned_tool_and_a_prompt_wait_for_their_server(app: App, client: Client, slow: Slow) -> None:
    app.access.profiles.replace([Profile("default", pinned=("slow__e*",))])
    spec = slow.make_spec(tools=["echo"], prompts=True, resources=True)
    app.servers.gateway.expect([spec])
    early = await start_waiting(client.use("slow__echo", text="x"))
    prompt = await start_waiting(client.send("prompts/get", name="slow__greet", arguments={"name": "Ann"}))
    resource = await start_waiting(client.send("resources/read", uri="toolscript:slow/memo://welcome"))
    await app.servers.gateway.apply([spec])
    slow.start()
    assert json.loads(await early) == {"text": "x"}
    assert "messages" in await prompt
    assert "contents" in await resource


async def test_the_list_has_pinned_tools_of_the_last_run_before_the_configuration_is_applied(
    app: App, client: Client
) -> None:
    spec = make_scripted_server("slow", tools=["echo"])
    await list_in_an_earlier_run(app, spec)
    app.access.profiles.replace([Profile("default", pinned=("slow__echo",))])
    app.servers.gateway.expect([spec])
    assert "slow__echo" in [tool["name"] for tool in (await client.send("tools/list"))["tools"]]


async def test_the_approvals_of_a_server_are_known_before_it_is_connected(app: App) -> None:
    app.servers.gateway.expect([ServerSpec("slow", make_scripted_server().transport, approval=ApprovalPolicy.WRITES)])
    assert app.servers.gateway.get_approval("slow") is ApprovalPolicy.WRITES


# --- searches ---


@pytest.mark.parametrize(("path", "body", "query"), SEARCHES)
async def test_a_search_uses_what_is_stored_and_names_the_servers_that_are_still_starting(
    path: str, body: Any, query: dict[str, Any], app: App, client: Client, slow: Slow
) -> None:
    known = make_scripted_server("known", tools=["echo"])
    await list_in_an_earlier_run(app, known)
    hanging, new = make_scripted_server("known", tools=["echo"], hang=True), slow.make_spec(tools=["pid"])
    app.servers.gateway.expect([hanging, new], listed=["known"])
    assert await client.search(path, body, query) == (["known__echo"], ["slow"])
    await app.servers.gateway.apply([hanging, new])
    assert await client.search(path, body, query) == (["known__echo"], ["slow"])
    slow.start()
    await app.servers.gateway.settle(TIMEOUT_SECONDS, "slow")
    found, starting = await client.search(path, body, query)
    assert found[0] == "known__echo"
    assert starting is None


async def test_the_text_for_agents_ends_with_the_servers_that_are_still_starting(
    app: App, client: Client, slow: Slow
) -> None:
    known = make_scripted_server("known", tools=["echo"])
    await list_in_an_earlier_run(app, known)
    await app.stores.skills.save_skills([Skill("talk", "Talk", "Returns its arguments, as text")])
    await app.catalogue.skills.assign("known__echo", ["talk"])
    await app.servers.gateway.apply([known, slow.make_spec(tools=["pid"])])
    await app.servers.gateway.settle(TIMEOUT_SECONDS, "known")
    searches: list[dict[str, Any]] = [
        {"name": "search_tools", "query": "echo"},
        {"name": "search_tools", "query": "echo", "strategy": "direct"},
        {"name": "search_tools", "query": "echo", "skill_ids": ["talk"]},
        {"name": "search_tools", "query": "zzzz qqqq xxxx"},
        {"name": "search_skills", "query": "returns its arguments"},
        {"name": "search_skills", "query": "zzzz qqqq xxxx"},
    ]

    async def search_all() -> list[list[str]]:
        named = [dict(each) for each in searches]
        return [(await client.use(each.pop("name"), **each)).splitlines() for each in named]

    for lines in await search_all():
        assert lines[-1] == SENTENCE, lines
        assert len(lines) > 1
        assert not any("Not every tool is indexed" in line for line in lines)
    nothing = await client.use("search_tools", query="zzzz qqqq xxxx", skill_ids=["talk"])
    assert "slow" in nothing
    slow.start()
    await app.servers.gateway.settle(TIMEOUT_SECONDS)
    assert not any("starting" in line for lines in await search_all() for line in lines)


HIDING = [
    Profile("default", allow=ItemRules(servers=("known",))),
    Profile("default", deny=ItemRules(tools=("slow__*",))),
    Profile("default", read_only=True),
    Profile("default", deny=ItemRules(servers=("slow",))),
    Profile("default", allow=ItemRules(skills=("talk",))),
]


@pytest.mark.parametrize("profile", choose(HIDING, *HIDING[:3]))
async def test_nobody_learns_of_a_starting_server_that_the_profile_may_hide(
    profile: Profile, app: App, client: Client, slow: Slow
) -> None:
    known = make_scripted_server("known", tools=["echo"])
    await list_in_an_earlier_run(app, known)
    app.access.profiles.replace([profile])
    await app.servers.gateway.apply([known, slow.make_spec(tools=["pid"])])
    for path, body, query in SEARCHES:
        assert (await client.search(path, body, query))[1] is None
    nothing = await client.http.get("/api/v1/search/tools", params={"query": "zzzz", "threshold": 1})
    texts = [nothing.text, await client.use("search_tools", query="zzzz"), await client.use("search_skills", query="z")]
    assert not any("slow" in text for text in texts)
    assert "no such tool: 'slow__pid'" in await call_over_mcp(client, "slow__pid")  # at once: it does not start


# --- the first start ---


@pytest.mark.parametrize(("path", "body", "query"), SEARCHES)
async def test_at_the_first_start_a_search_waits_for_the_servers(
    path: str, body: Any, query: dict[str, Any], app: App, client: Client, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, first_listing=TIMEOUT_SECONDS)
    spec = slow.make_spec(tools=["echo"])
    app.servers.gateway.expect([spec])
    early = await start_waiting(client.search(path, body, query))
    await app.servers.gateway.apply([spec])
    assert not early.done()
    slow.start()
    assert await early == (["slow__echo"], None)


async def test_at_the_first_start_a_search_waits_no_longer_than_a_moment(
    app: App, client: Client, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, first_listing=0.01)
    await app.servers.gateway.apply([slow.make_spec()])
    for path, body, query in SEARCHES:
        assert await client.search(path, body, query) == ([], ["slow"])
    assert (await client.use("search_tools", query="echo")).splitlines()[-1] == SENTENCE


async def test_a_search_does_not_wait_for_a_server_when_others_are_in_the_catalogue(
    app: App, client: Client, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, first_listing=2 * TIMEOUT_SECONDS)
    await list_in_an_earlier_run(app, make_scripted_server("known", tools=["echo"]))
    await app.servers.gateway.apply([make_scripted_server("known", hang=True), slow.make_spec()])
    for path, body, query in SEARCHES:
        assert await client.search(path, body, query) == (["known__echo"], ["slow"])


# --- while the application is opening ---


@pytest.mark.parametrize("api_key", [None, "k" * 32])
async def test_requests_wait_until_the_application_is_open(api_key: str | None, app: App) -> None:
    await app.catalogue.sync.run([])
    settings = app.settings if api_key is None else replace(app.settings, api_key=api_key)
    served = ServedApp(settings, ready=False)
    async with open_client(served) as client:
        if api_key:
            assert (await client.http.get("/search?q=x")).status_code == 401
            client.http.headers["X-API-Key"] = api_key
        requests = [
            client.http.get("/search", params={"q": "x"}),
            client.http.post("/api/v1/search", json={"query": "x"}),
            client.http.get("/api/v1/search/tools", params={"query": "x"}),
            client.http.get("/tools/a__b"),
            client.http.post("/tools/a__b", json={}),
        ]
        early = [await start_waiting(request) for request in requests]
        assert (await client.http.get("/ready")).status_code == 503
        assert (await client.http.get("/health")).status_code == 200
        served.current = app
        assert [(await each).status_code for each in early] == [200, 200, 200, 404, 404]


async def test_requests_wait_no_longer_than_a_while_for_the_application(
    small: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, open_app=0.01)
    async with open_client(ServedApp(small, ready=False)) as client:
        assert (await client.http.get("/search?q=x")).status_code == 503
