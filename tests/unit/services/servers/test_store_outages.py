"""A store or an index that fails: servers stay connected, and their tools can be called."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.fixtures.serving import build_calls
from tests.fixtures.waiting import until
from tests.servers import make_scripted_server as spec
from toolscript.adapters.mcp.client import McpServers
from toolscript.app.app import App
from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import Limits
from toolscript.domain.servers import ServerState
from toolscript.services.catalogue.snapshot import Change
from toolscript.services.servers.gateway import Gateway

pytestmark = [pytest.mark.req("X-07"), pytest.mark.slow]

TIMEOUTS = Limits(connect=20, call=20, reconnect=20, heartbeat=20, first_pause=0.05, max_pause=0.1)


async def fail(*_: Any, **__: Any) -> Any:
    raise Unavailable("the store is not available right now")


async def test_a_server_stays_connected_while_the_catalogue_cannot_be_updated(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway(McpServers(), app.catalogue.sync, TIMEOUTS)
    run, attempts = app.catalogue.sync.run, []

    async def run_if_possible(*given: Any, **named: Any) -> Any:
        attempts.append(given)
        return await (fail() if len(attempts) < 4 else run(*given, **named))

    monkeypatch.setattr(app.catalogue.sync, "run", run_if_possible)
    await gateway.apply([spec("up", tools=["pid"])])
    await until(lambda: gateway.statuses[0].reason is not None)
    (status,) = gateway.statuses
    assert status.state is ServerState.CONNECTING
    assert status.reason == "its tools are not in the catalogue yet: the store is not available right now"
    await until(lambda: gateway.statuses[0].state is ServerState.READY)
    assert (gateway.statuses[0].reason, gateway.statuses[0].attempts) == (None, 1)
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == ["catalogue_not_updated"]
    assert (await build_calls(app, gateway).call("up__pid", {})).structured
    await gateway.close()


async def test_a_tool_that_was_read_once_is_called_without_the_store(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(McpServers(), app.catalogue.sync, TIMEOUTS)
    calls = build_calls(app, gateway)
    await gateway.apply([spec("up", tools=["echo"])])
    await gateway.settle(30)
    stored = await calls.describe("up__echo")
    await app.tools.search.search("echo")  # reads the catalogue
    for method in ("get_items", "get_fingerprints", "get_schemas"):
        monkeypatch.setattr(app.stores.items, method, fail)
    assert await calls.describe("up__echo") == stored
    assert (await calls.call("up__echo", {"text": "hello"})).structured == {"text": "hello"}
    app.catalogue.snapshots.advance(Change.ITEMS)  # a write, after which nothing could be read
    assert (await calls.call("up__echo", {"text": "again"})).structured == {"text": "again"}
    with pytest.raises(Unavailable, match="the store is not available"):
        await calls.call("up__unknown", {})
    await gateway.close()
