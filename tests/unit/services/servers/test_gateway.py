"""The gateway over real connections: which servers are ready, which failed and why, and what is in the catalogue."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.fixtures.limits import set_limits
from tests.fixtures.serving import build_calls
from tests.fixtures.waiting import until
from tests.servers import make_scripted_server as spec
from tests.servers import serving_http
from toolscript.adapters.agent_skills.folders import AgentSkillFolders
from toolscript.adapters.mcp.client import McpServers
from toolscript.app.app import App, open_app
from toolscript.domain.errors import Invalid, InvalidArguments, NotFound, Unavailable
from toolscript.domain.limits import Limits
from toolscript.domain.servers import ServerSpec, ServerState, Transport
from toolscript.ports.servers import ToolServer
from toolscript.services.catalogue.sync import ItemCounts
from toolscript.services.servers.gateway import Gateway
from toolscript.services.tools.call import CallTool
from toolscript.settings import load_settings

pytestmark = pytest.mark.slow

TIMEOUTS = Limits(connect=10, call=10, reconnect=10, heartbeat=10, first_pause=0.05, max_pause=0.2, poll=0.02)
TIMEOUT_SECONDS = 60.0
UNUSABLE_SCHEMAS: dict[str, Any] = {
    "unknown type": {"type": "nonsense"},
    "remote reference": {"$ref": "http://127.0.0.1:9/schema.json"},
    "reference to nothing": {"$ref": "#/nowhere"},
    "invalid pattern": {"properties": {"a": {"pattern": "("}}},
    "number for properties": {"properties": 5},
    "array": ["no", "object"],
}
INNER = {"type": "object", "properties": {"y": {"type": "integer"}}, "additionalProperties": False}
NESTED = {"type": "object", "properties": {"xs": {"type": "array", "items": INNER}}}
SLOW_PATTERN = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(\w+\s?)*$"}}}


@pytest.fixture(scope="module")
async def shared_calls(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CallTool]:
    """Calls of two servers that tests share: `good` has the usual tools, `odd` tools with difficult schemas."""
    folder = tmp_path_factory.mktemp("shared")
    tools = [
        *({"name": name, "inputSchema": schema} for name, schema in UNUSABLE_SCHEMAS.items()),
        {"name": "deep", "inputSchema": NESTED},
        {"name": "pattern", "inputSchema": SLOW_PATTERN},
    ]
    lists = folder / "lists.json"
    lists.write_text(json.dumps({"tools": tools}))
    async with open_app(load_settings(variables={}, data_dir=folder / "data", search_model="hashed-64")) as app:
        # A quarter of a call's time is for the check of its arguments, in which a process starts.
        gateway = Gateway(McpServers(), app.catalogue.sync, replace(TIMEOUTS, call=240))
        await gateway.apply([spec("good", resources=True), spec("odd", watch=str(lists))])
        await gateway.settle(TIMEOUT_SECONDS)
        yield build_calls(app, gateway)
        await gateway.close()


@pytest.fixture
async def gateway(app: App) -> AsyncIterator[Gateway]:
    gateway = Gateway(McpServers(), app.catalogue.sync, TIMEOUTS)
    yield gateway
    await gateway.close()


@pytest.fixture
def calls(app: App, gateway: Gateway) -> CallTool:
    return build_calls(app, gateway)


def states(gateway: Gateway) -> dict[str, str]:
    return {s.name: s.state.value for s in gateway.statuses}


async def count_received(calls: CallTool) -> int:
    """How many calls the server `good` has received, this one included."""
    seen = (await calls.call("good__seen", {})).structured
    assert seen is not None
    return int(seen["tools/call"])


async def ids(app: App) -> set[str]:
    return {m.id for m in await app.stores.items.get_fingerprints() if m.is_active}


@pytest.mark.req("G-02")
async def test_failing_servers_do_not_affect_others_and_report_their_reasons(app: App) -> None:
    gateway = Gateway(McpServers(), app.catalogue.sync, Limits(first_pause=60))
    await gateway.apply(
        [spec("good"), spec("crash", crash=True), spec("hang", hang=True), ServerSpec("no", Transport.STDIO, "nope")]
    )
    await until(lambda: list(states(gateway).values()).count("connecting") == 1)
    assert states(gateway) == {"good": "ready", "crash": "failed", "hang": "connecting", "no": "failed"}
    reasons = {s.name: s.reason for s in gateway.statuses}
    assert "exited with code 3" in (reasons["crash"] or "")
    assert "command not found: nope" in (reasons["no"] or "")
    assert (await app.tools.search.search("echo")).hits[0].id == "good__echo"
    await gateway.close()


@pytest.mark.req("G-02")
async def test_a_server_that_failed_is_tried_again_until_it_works(gateway: Gateway, tmp_path: Path) -> None:
    needed = tmp_path / "needed"
    await gateway.apply([spec("late", crash_unless=str(needed))])
    await until(lambda: gateway.statuses[0].attempts >= 3)
    assert gateway.statuses[0].reason is not None
    needed.touch()
    await until(lambda: gateway.statuses[0].state is ServerState.READY)
    assert gateway.statuses[0].reason is None


@pytest.mark.req("G-02")
async def test_pauses_between_attempts_grow_and_are_in_the_status(app: App) -> None:
    slow = Gateway(McpServers(), app.catalogue.sync, Limits(first_pause=30, max_pause=100))
    await slow.apply([ServerSpec("no", Transport.STDIO, "nope")])
    await slow.settle(TIMEOUT_SECONDS)
    (status,) = slow.statuses
    assert status.retry_in_seconds is not None
    assert 20 < status.retry_in_seconds <= 36
    await slow.close()


@pytest.mark.req("G-03")
async def test_a_change_that_a_server_announces_is_indexed_and_nothing_else(
    app: App, gateway: Gateway, tmp_path: Path
) -> None:
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [{"name": "first"}], "prompts": [{"name": "p"}]}))
    await gateway.apply([spec("moving", watch=str(lists)), spec("still", tools=["echo"])])
    await gateway.settle(TIMEOUT_SECONDS)
    numbers = {m.id: (m.number, m.digest) for m in await app.stores.items.get_fingerprints()}
    lists.write_text(json.dumps({"tools": [{"name": "second"}, {"name": "third"}], "prompts": [{"name": "p"}]}))
    await until(lambda: gateway.statuses[0].items == {"tool": 2, "prompt": 1})
    assert await ids(app) == {"moving__second", "moving__third", "moving__prompt:p", "still__echo"}
    after = {m.id: (m.number, m.digest) for m in await app.stores.items.get_fingerprints()}
    assert after["still__echo"] == numbers["still__echo"]
    assert (await app.tools.search.search("second")).hits[0].id == "moving__second"
    assert "moving__first" not in {h.id for h in (await app.tools.search.search("first", threshold=0.0)).hits}


@pytest.mark.req("G-03")
async def test_an_edit_of_the_configuration_starts_restarts_and_ends_only_what_it_must(
    app: App, gateway: Gateway, tmp_path: Path
) -> None:
    wanted = [spec("stays"), spec("changes"), spec("goes")]
    stamp = [0]
    await gateway.apply(wanted)
    await gateway.settle(TIMEOUT_SECONDS)
    calls = build_calls(app, gateway)
    before = {n: (await calls.call(f"{n}__pid", {})).structured for n in ("stays", "changes")}
    following = asyncio.create_task(gateway.follow(0, lambda: stamp[0], lambda: wanted))
    await asyncio.sleep(0)
    wanted = [spec("stays"), spec("changes", tools=["pid"]), spec("comes")]
    stamp[0] = 1
    await until(lambda: states(gateway) == {"stays": "ready", "changes": "ready", "comes": "ready"})
    after = {n: (await calls.call(f"{n}__pid", {})).structured for n in ("stays", "changes")}
    assert after["stays"] == before["stays"]
    assert after["changes"] != before["changes"]
    assert {i.partition("__")[0] for i in await ids(app)} == {"stays", "changes", "comes"}
    assert {i for i in await ids(app) if i.startswith("changes")} == {"changes__pid"}
    following.cancel()


@pytest.mark.req("G-01", "G-03")
async def test_an_edit_before_the_first_poll_is_applied(gateway: Gateway) -> None:
    await gateway.apply([spec("old")])
    following = asyncio.create_task(gateway.follow("as it was read", lambda: "edited since", lambda: [spec("new")]))
    await until(lambda: states(gateway) == {"new": "ready"})
    following.cancel()


@pytest.mark.req("G-01", "G-03")
async def test_an_invalid_edit_is_reported_and_changes_nothing(gateway: Gateway) -> None:
    stamp = [0]

    def load() -> list[ServerSpec]:
        if stamp[0] == 1:
            raise Invalid("line 3: wrong")
        return []

    await gateway.apply([spec("good")])
    await gateway.settle(TIMEOUT_SECONDS)
    following = asyncio.create_task(gateway.follow(0, lambda: stamp[0], load))
    await asyncio.sleep(0)
    stamp[0] = 1
    await until(lambda: gateway.configuration_error == "line 3: wrong")
    assert states(gateway) == {"good": "ready"}
    stamp[0] = 2
    await until(lambda: gateway.configuration_error is None)
    assert states(gateway) == {}
    following.cancel()


@pytest.mark.req("G-05")
async def test_a_call_to_a_server_that_is_not_available_says_why(app: App) -> None:
    limits = Limits(reconnect=0.3, first_pause=0.05, max_pause=0.1)
    gateway = Gateway(McpServers(), app.catalogue.sync, limits)
    await gateway.apply([spec("good")])
    await gateway.settle(TIMEOUT_SECONDS)
    await gateway.apply([ServerSpec("good", Transport.STDIO, "nope")])
    with pytest.raises(Unavailable, match="server good is not available: command not found: nope"):
        await build_calls(app, gateway).call("good__echo", {"text": "x"})
    await gateway.close()


@pytest.mark.req("G-05", "X-03")
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "text"),
        ({"text": "x", "times": 0}, "times"),
        ([], ""),
        (None, ""),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_naming_the_field(
    shared_calls: CallTool, arguments: Any, field: str
) -> None:
    received = await count_received(shared_calls)
    with pytest.raises(InvalidArguments) as caught:
        await shared_calls.call("good__echo", arguments)
    assert caught.value.details["field"] == field
    assert await count_received(shared_calls) == received + 1


@pytest.mark.req("G-05")
async def test_a_nested_field_is_named_by_its_path(shared_calls: CallTool) -> None:
    for given, field in (({"xs": [{"y": 1}, {"y": "z"}]}, "xs.1.y"), ({"xs": [{"z": 1}]}, "xs.0.z")):
        with pytest.raises(InvalidArguments) as caught:
            await shared_calls.call("odd__deep", given)
        assert caught.value.details["field"] == field


@pytest.mark.req("G-05", "X-04")
@pytest.mark.parametrize("tool", UNUSABLE_SCHEMAS)
async def test_a_tool_with_an_unusable_schema_can_be_called(shared_calls: CallTool, tool: str) -> None:
    answer = json.loads((await shared_calls.call(f"odd__{tool}", {"a": "b"})).text)
    assert (answer["tool"], answer["arguments"]) == (tool, {"a": "b"})


@pytest.mark.req("G-03", "G-05")
async def test_a_resource_of_a_template_is_read_with_its_variables(shared_calls: CallTool) -> None:
    with pytest.raises(InvalidArguments) as caught:
        await shared_calls.call("good__resource:memos", {"year": "2026"})
    assert caught.value.details["field"] == "month"
    answer = (await shared_calls.call("good__resource:memos", {"year": "2026", "month": "ä/b"})).structured
    assert answer is not None
    assert answer["contents"][0]["uri"] == "memo://2026/%C3%A4%2Fb"


@pytest.mark.req("G-02", "G-05")
async def test_an_http_server_is_reconnected_after_an_outage(app: App) -> None:
    limits = Limits(heartbeat=0.1, first_pause=0.05, max_pause=0.1)
    gateway = Gateway(McpServers(), app.catalogue.sync, limits)
    with serving_http() as web:
        await gateway.apply([ServerSpec("web", Transport.HTTP, url=web.http)])
        await gateway.settle(TIMEOUT_SECONDS)
        assert states(gateway) == {"web": "ready"}
    await until(lambda: states(gateway) == {"web": "failed"})
    with serving_http(port=web.port):
        await until(lambda: states(gateway) == {"web": "ready"})
        result = await build_calls(app, gateway).call("web__echo", {"text": "again"})
        assert result.structured == {"text": "again"}
    await gateway.close()


@pytest.mark.req("G-02")
async def test_a_server_that_keeps_dying_is_retried_with_pauses(app: App) -> None:
    gateway = Gateway(McpServers(), app.catalogue.sync, Limits(first_pause=0.2, max_pause=60))
    await gateway.apply([spec("dies", crash_after_listing=True)])
    await until(lambda: gateway.statuses[0].attempts >= 2)
    await until(lambda: (gateway.statuses[0].retry_in_seconds or 0) > 0.5)
    await gateway.close()


@pytest.mark.req("G-02", "G-05")
async def test_a_call_makes_one_attempt_on_a_server_that_fails_and_does_not_wait_for_more(
    app: App, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    gateway = Gateway(McpServers(), app.catalogue.sync, Limits(reconnect=120, first_pause=120))
    await gateway.apply([spec("s")])
    await gateway.settle(TIMEOUT_SECONDS)
    script = f"echo x >> {starts}; exit 1"
    await gateway.apply([ServerSpec("s", Transport.STDIO, "sh", args=("-c", script))])
    await gateway.settle(TIMEOUT_SECONDS)
    for attempts in (2, 3):
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable, match="exited with code 1"):
                await build_calls(app, gateway).call("s__echo", {"text": "x"})
        assert starts.read_text().count("x") == attempts
    await gateway.close()


@pytest.mark.req("G-02")
async def test_closing_while_a_connection_is_abandoned_leaves_no_process(app: App) -> None:
    gateway = Gateway(McpServers(), app.catalogue.sync, Limits(connect=0.3))
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    await gateway.apply([spec("deaf", hang=True, deaf=True, child=True)])
    await until(lambda: len({p.pid for p in psutil.Process().children(recursive=True)} - before) > 0)
    await asyncio.sleep(0.6)  # the attempt has failed and its processes are ending
    await gateway.close()
    await until(
        lambda: (
            {p.pid for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE} <= before
        )
    )


@pytest.mark.req("G-01", "G-08")
async def test_a_tool_that_an_edit_excludes_cannot_be_called_any_more(
    app: App, calls: CallTool, gateway: Gateway
) -> None:
    await gateway.apply([spec("s")])
    await gateway.settle(TIMEOUT_SECONDS)
    await gateway.apply([spec("s", exclude=("echo",), slow_start=0.5)])
    with pytest.raises(NotFound):
        await calls.call("s__echo", {"text": "x"})


@pytest.mark.req("G-02", "G-05")
async def test_a_server_that_is_busy_with_a_call_stays_connected(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(McpServers(), app.catalogue.sync, Limits(connect=60, heartbeat=0.2, call=60))
    await gateway.apply([spec("s", serial=True)])
    await gateway.settle(TIMEOUT_SECONDS)
    set_limits(monkeypatch, ping=0.5)  # shorter than the call
    answer = await build_calls(app, gateway).call("s__slow", {"seconds": 1.2})
    assert answer.text == "It took 1.2 s."
    assert gateway.statuses[0].attempts == 1
    await gateway.close()


@pytest.mark.req("G-03")
async def test_constant_change_notices_lead_to_debounced_listings(app: App) -> None:
    gateway = Gateway(McpServers(), app.catalogue.sync, Limits(debounce=0.3))
    started, listings = time.monotonic(), 0
    await gateway.apply([spec("s", restless=True)])
    await gateway.settle(TIMEOUT_SECONDS)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while listings < 3:
            seen = await build_calls(app, gateway).call("s__seen", {})
            assert isinstance(seen.structured, dict)
            listings = seen.structured["tools/list"]
    assert listings <= 2 + (time.monotonic() - started) / 0.3
    await gateway.close()


@pytest.mark.req("G-03", "G-02")
async def test_a_list_that_fails_costs_that_list_alone(gateway: Gateway) -> None:
    await gateway.apply([spec("s", prompts=True, resources=True, refuses=["resources/templates/list"])])
    await gateway.settle(TIMEOUT_SECONDS)
    (status,) = gateway.statuses
    assert (status.state, status.items["prompt"], status.items["resource"]) == (ServerState.READY, 2, 2)
    assert status.problems == ("resources/templates/list failed: resources/templates/list is broken",)


@pytest.mark.req("X-12", "G-03")
async def test_problems_with_names_that_are_no_utf_8_can_be_sent() -> None:
    @asynccontextmanager
    async def connect(*_: Any, **__: Any) -> AsyncIterator[ToolServer]:
        yield AgentSkillFolders(["/none/\udcff"])

    servers: Any = SimpleNamespace(connect=connect)
    gateway = Gateway(servers, None, Limits())
    await gateway.apply([ServerSpec("s", Transport.INTERNAL)])
    await gateway.settle(TIMEOUT_SECONDS)
    (status,) = gateway.statuses
    assert status.problems == ("/none/\\udcff: no such folder",)
    await gateway.close()


@pytest.mark.req("G-01", "G-03")
async def test_a_reload_that_fails_for_another_reason_than_the_file_is_repeated(
    app: App, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gateway.apply([spec("old")])
    await gateway.settle(TIMEOUT_SECONDS)
    configure, failing = app.catalogue.sync.configure, [True, True]

    async def busy(servers: Any, **how: Any) -> ItemCounts:
        if failing:
            failing.pop()
            raise Unavailable("the store is busy")
        return await configure(servers, **how)

    monkeypatch.setattr(app.catalogue.sync, "configure", busy)
    stamp = [0]
    following = asyncio.create_task(gateway.follow(0, lambda: stamp[0], lambda: [spec("new")]))
    await asyncio.sleep(0)
    stamp[0] = 1
    await until(lambda: gateway.configuration_error == "the store is busy")
    assert "old" in states(gateway)
    await until(lambda: states(gateway) == {"new": "ready"})
    assert gateway.configuration_error is None
    following.cancel()


@pytest.mark.req("G-05", "X-03")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object()])
async def test_arguments_that_are_not_json_are_refused_before_they_are_sent(shared_calls: CallTool, value: Any) -> None:
    with pytest.raises(InvalidArguments, match="not valid JSON"):
        await shared_calls.call("good__echo", {"text": "x", "more": value})
    assert (await shared_calls.call("good__echo", {"text": "x"})).structured == {"text": "x"}


@pytest.mark.req("G-05", "X-04")
async def test_patterns_are_left_to_the_server_to_check(shared_calls: CallTool) -> None:
    async with asyncio.timeout(60):
        await shared_calls.call("odd__pattern", {"a": "x" * 40 + "!"})
