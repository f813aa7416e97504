"""Servers that a person stops, starts and restarts, and what is recorded about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures.serving import build_calls
from tests.fixtures.waiting import until
from tests.servers import make_scripted_server
from toolscript.adapters.mcp.client import McpServers
from toolscript.app.app import App
from toolscript.domain.errors import NotFound, Unavailable, UpstreamFailed
from toolscript.domain.limits import Limits
from toolscript.domain.servers import CallState, ServerSpec, ServerStart, ServerState, ServerStatus
from toolscript.services.servers.gateway import Gateway
from toolscript.services.tools.call import CallTool

pytestmark = pytest.mark.slow

TIMEOUTS = Limits(connect=30, call=30, heartbeat=10, first_pause=0.05, max_pause=0.2)
TIMEOUT_SECONDS = 60.0


@pytest.fixture
async def gateway(app: App) -> AsyncIterator[Gateway]:
    gateway = Gateway(McpServers(), app.catalogue.sync, TIMEOUTS)
    yield gateway
    await gateway.close()


@pytest.fixture
def calls(app: App, gateway: Gateway) -> CallTool:
    return build_calls(app, gateway)


def make_counted(name: str, starts: Path) -> ServerSpec:
    """A server that adds a line to a file with each of its starts."""
    spec = make_scripted_server(name, tools=["echo", "pid", "slow", "die", "fail"])
    line = f'echo {name} >> "{starts}"; exec "$0" "$@"'
    return replace(spec, command="sh", args=("-c", line, spec.command, *spec.args))


def get_status(gateway: Gateway, name: str = "a") -> ServerStatus:
    return next(status for status in gateway.statuses if status.name == name)


async def until_ready(gateway: Gateway, name: str = "a") -> None:
    await until(lambda: get_status(gateway, name).state is ServerState.READY)


@pytest.mark.req("G-02", "G-05")
async def test_a_stopped_server_refuses_calls_and_stays_found_until_it_is_started(
    app: App, gateway: Gateway, calls: CallTool, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    await gateway.apply([make_counted("a", starts), make_scripted_server("b", tools=["echo"])])
    await gateway.settle(TIMEOUT_SECONDS)
    stopped = await gateway.stop_server("a", "stopped by ann")
    assert (stopped.state, stopped.reason, stopped.items) == (ServerState.STOPPED, "stopped by ann", {"tool": 5})
    assert (stopped.attempts, stopped.retry_in_seconds) == (1, None)
    for _ in range(10):  # refused calls do not open the circuit breaker
        with pytest.raises(Unavailable, match=r"server a is stopped by ann: .*`toolscript servers start a`"):
            await calls.call("a__echo", {"text": "x"})
    assert (await calls.call("b__echo", {"text": "x"})).structured == {"text": "x"}
    assert "a__echo" in [hit.id for hit in (await app.tools.search.search("echo")).hits]
    assert gateway.find_call_state("a") is CallState.STOPPED
    assert (await gateway.stop_server("a", "stopped by ben")).reason == "stopped by ann"
    assert gateway.stopped == {"a": "stopped by ann"}
    await gateway.start_server("a")
    assert (await calls.call("a__echo", {"text": "x"})).structured == {"text": "x"}
    assert starts.read_text().split() == ["a", "a"]
    assert (get_status(gateway).restarts, gateway.stopped) == (0, {})


@pytest.mark.req("G-02")
async def test_a_stopped_server_stays_stopped_when_its_entry_changes_and_in_the_next_run(
    app: App, gateway: Gateway, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    spec = make_counted("a", starts)
    await gateway.apply([spec])
    await gateway.settle(TIMEOUT_SECONDS)
    await gateway.stop_server("a", "stopped by ann")
    await gateway.apply([replace(spec, exclude_tools=("die",))])
    assert get_status(gateway).reason == "stopped by ann"
    remembered = gateway.stopped
    await gateway.close()
    again = Gateway(McpServers(), app.catalogue.sync, TIMEOUTS)
    await again.apply([spec], stopped=remembered)
    await again.settle(TIMEOUT_SECONDS)
    assert get_status(again).state is ServerState.STOPPED
    assert not again.is_incomplete
    assert starts.read_text().split() == ["a"]
    await again.apply([])
    assert again.stopped == {}  # a server that comes back later is another one
    await again.close()


@pytest.mark.req("G-05")
async def test_stopping_a_server_ends_its_calls_and_those_that_wait_for_it(gateway: Gateway, calls: CallTool) -> None:
    await gateway.apply([make_scripted_server("a", tools=["slow"]), make_scripted_server("b", hang=True)])
    await until_ready(gateway)
    running = asyncio.create_task(calls.call("a__slow", {"seconds": 600}))
    await until(lambda: get_status(gateway).state is ServerState.READY and not running.done())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await gateway.stop_server("a", "stopped on request")
        with pytest.raises((UpstreamFailed, Unavailable), match="stopped"):
            await running
        assert (await gateway.stop_server("b", "stopped on request")).state is ServerState.STOPPED


@pytest.mark.req("G-05")
async def test_a_restart_is_a_new_process_with_its_reason(gateway: Gateway, calls: CallTool, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    await gateway.apply([make_counted("a", starts)])
    await gateway.settle(TIMEOUT_SECONDS)
    await gateway.restart_server("a", "restarted by ann")
    assert (await calls.call("a__echo", {"text": "x"})).structured == {"text": "x"}
    await until_ready(gateway)
    status = get_status(gateway)
    assert (status.restarts, status.restart_reason) == (1, "restarted by ann")
    with pytest.raises(UpstreamFailed):
        await calls.call("a__die", {})
    assert (await calls.call("a__echo", {"text": "x"})).structured == {"text": "x"}
    status = get_status(gateway)
    assert status.restarts == 2
    assert "exited with code 7" in (status.restart_reason or "")
    assert starts.read_text().split() == ["a"] * 3
    assert [line.text for line in gateway.get_log("a") if line.source == "gateway"].count("connected") == 3


@pytest.mark.req("G-05")
async def test_a_server_that_sleeps_runs_when_it_is_started(gateway: Gateway, tmp_path: Path) -> None:
    lazy = replace(make_counted("a", tmp_path / "starts"), start=ServerStart.LAZY, idle_minutes=0.0)
    await gateway.apply([lazy])
    await until(lambda: get_status(gateway).state is ServerState.ASLEEP)
    await gateway.start_server("a")
    await until_ready(gateway)
    await gateway.start_server("a")  # it runs already
    assert get_status(gateway).attempts == 2
    await gateway.stop_server("a", "stopped on request")
    await gateway.start_server("a")
    await until_ready(gateway)


@pytest.mark.req("G-05")
async def test_a_failed_server_is_tried_at_once_when_it_is_started(app: App, tmp_path: Path) -> None:
    gateway = Gateway(McpServers(), app.catalogue.sync, replace(TIMEOUTS, first_pause=3600, max_pause=3600))
    await gateway.apply([make_scripted_server("a", crash_unless=str(tmp_path / "go"))])
    await gateway.settle(TIMEOUT_SECONDS)
    assert get_status(gateway).state is ServerState.FAILED
    (tmp_path / "go").touch()
    await gateway.start_server("a")
    await until_ready(gateway)
    await gateway.close()


@pytest.mark.req("G-05")
@pytest.mark.parametrize("change", ["restart", "apply"])
async def test_a_change_whose_caller_is_cancelled_is_made_to_its_end(gateway: Gateway, change: str) -> None:
    spec = make_scripted_server("a", tools=["echo"])
    await gateway.apply([spec])
    await until_ready(gateway)
    changed = replace(spec, exclude_tools=("die",))
    work = gateway.restart_server("a", "restarted by ann") if change == "restart" else gateway.apply([changed])
    changing = asyncio.create_task(work)
    while get_status(gateway).state is ServerState.READY:  # noqa: ASYNC110 (the moment while the old process ends)
        await asyncio.sleep(0)
    changing.cancel()
    await until(lambda: [line.text for line in gateway.get_log("a")].count("connected") == 2)
    await until_ready(gateway)
    assert changing.cancelled()


@pytest.mark.req("G-02")
async def test_a_name_that_is_not_configured_is_refused_with_the_nearest(gateway: Gateway) -> None:
    await gateway.apply([make_scripted_server("github", tools=["echo"])])
    for action in (gateway.start_server("gihtub"), gateway.stop_server("gihtub", ""), gateway.restart_server("x", "")):
        with pytest.raises(NotFound, match="no such server"):
            await action
    with pytest.raises(NotFound, match='did you mean "github"'):
        gateway.get_log("gihtub")


@pytest.mark.req("G-05")
@pytest.mark.parametrize("change", ["restart", "start", "apply"])
async def test_a_change_while_the_gateway_closes_leaves_no_server_running(app: App, change: str) -> None:
    gateway = Gateway(McpServers(), app.catalogue.sync, TIMEOUTS)
    spec = make_scripted_server("a", tools=["echo"])
    await gateway.apply([spec])
    await gateway.settle(TIMEOUT_SECONDS)

    async def change_servers() -> None:
        match change:
            case "restart":
                await gateway.restart_server("a", "restarted by ann")
            case "start":
                await gateway.stop_server("a", "stopped by ann")
                await gateway.start_server("a")
            case _:
                await gateway.apply([replace(spec, exclude_tools=("die",)), make_scripted_server("b")])

    changing = asyncio.create_task(change_servers())
    for _ in range(2):  # until the change has begun
        await asyncio.sleep(0)
    await gateway.close()
    await asyncio.gather(changing, return_exceptions=True)
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("connection to")] == []
    with pytest.raises(Unavailable, match="the gateway is stopping"):
        await gateway.apply([spec])
