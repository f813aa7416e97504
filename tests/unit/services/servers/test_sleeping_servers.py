"""Servers that start with their first call and stop when nobody uses them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.fixtures.serving import build_calls
from tests.fixtures.waiting import until
from tests.servers import make_scripted_server
from toolscript.adapters.mcp.client import McpServers
from toolscript.app.app import App
from toolscript.domain.catalog import Item
from toolscript.domain.errors import Unavailable, UpstreamFailed
from toolscript.domain.limits import Limits
from toolscript.domain.servers import CallState, ServerSpec, ServerStart
from toolscript.services.servers.gateway import LISTING_SLOTS, Gateway
from toolscript.services.tools.call import CallTool

pytestmark = pytest.mark.slow

TIMEOUTS = Limits(connect=30, call=30, heartbeat=10, first_pause=0.05, max_pause=0.2)
TIMEOUT_SECONDS = 60.0
NEVER = 0.0
SOON = 0.2 / 60


@pytest.fixture
async def gateway(app: App) -> AsyncIterator[Gateway]:
    gateway = Gateway(McpServers(), app.catalogue.sync, TIMEOUTS)
    yield gateway
    await gateway.close()


@pytest.fixture
def calls(app: App, gateway: Gateway) -> CallTool:
    return build_calls(app, gateway)


@pytest.fixture
def count_processes() -> Iterator[Callable[[], int]]:
    """Counts the servers' processes; in the end there must be none."""
    yield count_servers
    assert count_servers() == 0


def count_servers() -> int:
    count = 0
    for process in psutil.Process().children():
        with suppress(psutil.Error):
            count += any("scripted.py" in word for word in process.cmdline())
    return count


def make_lazy(name: str, idle_minutes: float = NEVER, starts: Path | None = None) -> ServerSpec:
    """A lazy server; each of its starts adds a line to the file `starts`."""
    spec = make_scripted_server(name, tools=["echo", "pid", "slow", "die"])
    if starts:
        line = f'echo {name} >> "{starts}"; exec "$0" "$@"'
        spec = replace(spec, command="sh", args=("-c", line, spec.command, *spec.args))
    return replace(spec, start=ServerStart.LAZY, idle_minutes=idle_minutes)


def states(gateway: Gateway) -> dict[str, str]:
    return {s.name: s.state.value for s in gateway.statuses}


def digests(*specs: ServerSpec) -> dict[str, str]:
    return {spec.name: spec.digest for spec in specs}


async def list_once(gateway: Gateway, *specs: ServerSpec) -> None:
    await gateway.apply(specs)
    await gateway.settle(TIMEOUT_SECONDS)
    await until(lambda: set(states(gateway).values()) == {"asleep"})


@pytest.mark.req("G-02", "G-03", "G-17")
async def test_a_lazy_server_that_is_not_in_the_catalogue_is_listed_and_sleeps(
    app: App, gateway: Gateway, count_processes: Callable[[], int]
) -> None:
    await list_once(gateway, make_lazy("a"))
    await until(lambda: count_processes() == 0)
    (status,) = gateway.statuses
    assert (status.items, status.reason, status.attempts) == ({"tool": 4}, None, 1)
    assert not gateway.is_incomplete
    assert (await app.tools.search.search("echo")).hits[0].id == "a__echo"
    assert gateway.find_call_state("a") is CallState.ASLEEP
    assert gateway.find_call_state("unknown") is None
    await gateway.close()


@pytest.mark.extended
@pytest.mark.req("G-02", "G-03", "G-17")
async def test_a_lazy_server_of_an_earlier_run_is_not_started_unless_its_entry_has_changed(
    app: App, gateway: Gateway, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    same, other = make_lazy("same", starts=starts), make_lazy("other", starts=starts)
    await list_once(gateway, same, other)
    listed = digests(same, other)
    await gateway.close()
    changed = replace(other, exclude_tools=("die",))
    again = Gateway(McpServers(), app.catalogue.sync, TIMEOUTS)
    await again.apply([same, changed], listed=listed)
    await again.settle(TIMEOUT_SECONDS)
    await until(lambda: states(again) == {"same": "asleep", "other": "asleep"})
    assert sorted(starts.read_text().split()) == ["other", "other", "same"]
    assert {s.name: s.items for s in again.statuses} == {"same": {"tool": 4}, "other": {"tool": 3}}
    await again.close()


@pytest.mark.req("G-05", "G-17")
async def test_concurrent_calls_start_a_sleeping_server_once(gateway: Gateway, calls: CallTool, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    await list_once(gateway, make_lazy("a", starts=starts))
    answers = await asyncio.gather(*(calls.call("a__echo", {"text": str(n)}) for n in range(20)))
    assert [(a.structured or {})["text"] for a in answers] == [str(n) for n in range(20)]
    assert starts.read_text().split() == ["a", "a"]  # to be listed, and for the calls
    await until(lambda: states(gateway) == {"a": "ready"})


@pytest.mark.req("G-05", "G-17")
async def test_a_server_stops_when_nobody_has_used_it_for_a_while_and_not_during_a_call(
    gateway: Gateway, calls: CallTool, count_processes: Callable[[], int]
) -> None:
    await list_once(gateway, make_lazy("a", SOON))
    answer = await calls.call("a__slow", {"seconds": 0.5})
    assert answer.text == "It took 0.5 s."
    await until(lambda: states(gateway) == {"a": "asleep"})
    assert count_processes() == 0
    first, second = await asyncio.gather(*(calls.call("a__pid", {}) for _ in range(2)))
    assert first.structured == second.structured
    await until(lambda: states(gateway) == {"a": "asleep"})
    await gateway.close()


@pytest.mark.extended
@pytest.mark.req("G-05", "G-17")
async def test_an_eager_server_with_an_idle_time_starts_at_once_stops_and_is_woken(
    gateway: Gateway, calls: CallTool
) -> None:
    await gateway.apply([replace(make_lazy("a", SOON), start=ServerStart.EAGER)])
    await gateway.settle(TIMEOUT_SECONDS)
    assert gateway.statuses[0].items == {"tool": 4}
    await until(lambda: states(gateway) == {"a": "asleep"})
    assert (await calls.call("a__echo", {"text": "x"})).structured == {"text": "x"}


@pytest.mark.req("G-05", "G-17")
async def test_a_lazy_server_that_dies_in_a_call_is_started_by_the_next_call(gateway: Gateway, calls: CallTool) -> None:
    await list_once(gateway, make_lazy("a"))
    with pytest.raises(UpstreamFailed, match="lost during the call"):
        await calls.call("a__die", {})
    assert (await calls.call("a__echo", {"text": "x"})).structured == {"text": "x"}


@pytest.mark.extended
@pytest.mark.req("G-02", "G-05", "G-17")
async def test_a_sleeping_server_that_cannot_start_fails_the_call_with_the_reason(
    app: App, gateway: Gateway, calls: CallTool, tmp_path: Path
) -> None:
    needed = tmp_path / "needed"
    needed.touch()
    spec = make_scripted_server("a", tools=["echo"], crash_unless=str(needed))
    await list_once(gateway, replace(spec, start=ServerStart.LAZY))
    needed.unlink()
    with pytest.raises(Unavailable, match="It needs"):
        await calls.call("a__echo", {"text": "x"})
    await until(lambda: states(gateway) == {"a": "asleep"})
    assert "It needs" in (gateway.statuses[0].reason or "")
    assert (await app.tools.search.search("echo")).hits[0].id == "a__echo"
    needed.touch()
    assert (await calls.call("a__echo", {"text": "x"})).structured == {"text": "x"}
    await until(lambda: gateway.statuses[0].reason is None)


@pytest.mark.req("G-03", "G-17")
async def test_a_refresh_lists_sleeping_servers_and_lets_them_sleep_again(
    app: App, gateway: Gateway, tmp_path: Path, count_processes: Callable[[], int]
) -> None:
    lists = tmp_path / "lists.json"
    lists.write_text('{"tools": [{"name": "first"}]}')
    spec = replace(make_scripted_server("a", watch=str(lists)), start=ServerStart.LAZY)
    await list_once(gateway, spec)
    lists.write_text('{"tools": [{"name": "first"}, {"name": "second"}]}')
    (result,) = await gateway.refresh()
    assert (result.reason, result.report and result.report.added) == (None, 1)
    assert (await app.tools.search.search("second")).hits[0].id == "a__second"
    await until(lambda: states(gateway) == {"a": "asleep"} and count_processes() == 0)
    await gateway.close()


@pytest.mark.extended
@pytest.mark.req("G-02", "G-17")
async def test_of_fifty_servers_only_those_run_that_are_used(
    gateway: Gateway, calls: CallTool, count_processes: Callable[[], int]
) -> None:
    specs, maximum = [make_lazy(f"s{n}") for n in range(50)], 0
    await gateway.apply(specs)
    while set(states(gateway).values()) != {"asleep"}:
        maximum = max(maximum, count_processes())
        await asyncio.sleep(0.01)
    assert 0 < maximum <= LISTING_SLOTS
    await asyncio.gather(*(calls.call(f"s{n}__echo", {"text": "x"}) for n in (3, 30, 47) for _ in range(5)))
    await until(lambda: count_processes() == 3)
    assert sorted(n for n, state in states(gateway).items() if state != "asleep") == ["s3", "s30", "s47"]
    await gateway.close()


@pytest.mark.req("G-02", "G-05", "G-17")
async def test_a_hundred_known_servers_are_there_at_once_and_none_is_started(
    app: App, gateway: Gateway, calls: CallTool, count_processes: Callable[[], int]
) -> None:
    specs = [make_lazy(f"s{n}") for n in range(100)]
    items = [Item(spec.name, tool, f"{tool} of {spec.name}") for spec in specs for tool in ("echo", "pid")]
    await app.catalogue.sync.run(items)
    began = time.monotonic()
    await gateway.apply(specs, listed=digests(*specs))
    await gateway.settle(TIMEOUT_SECONDS)
    assert time.monotonic() - began < 120
    assert set(states(gateway).values()) == {"asleep"}
    assert count_processes() == 0
    assert sum(status.items["tool"] for status in gateway.statuses) == 200
    assert (await calls.call("s77__echo", {"text": "x"})).structured == {"text": "x"}
    assert count_processes() == 1
    await gateway.close()


@pytest.mark.req("G-05", "G-17")
async def test_a_call_does_not_wait_for_servers_that_are_being_listed(gateway: Gateway, calls: CallTool) -> None:
    wanted = make_lazy("wanted")
    await list_once(gateway, wanted)
    blocked = [
        replace(make_scripted_server(f"b{n}", hang=True), start=ServerStart.LAZY) for n in range(LISTING_SLOTS + 1)
    ]
    await gateway.apply([wanted, *blocked])
    changed = replace(wanted, exclude_tools=("die",))
    await gateway.apply([changed, *blocked])  # it is to be listed again, and no slot is free
    assert (await calls.call("wanted__echo", {"text": "x"})).structured == {"text": "x"}
