"""Tools of the demo have no servers: hits and calls say so, on every surface."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.surfaces.cli.configuration.test_remembered_configuration import toolscript
from toolscript.app.app import open_app
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("X-08", "G-09")

MARK = "demo: cannot be called"
REASON = "time__current_time is a tool of the demo catalogue and has no server: it cannot be called"


def test_hits_of_commands_say_that_a_demo_tool_cannot_be_called(demo_folder: Path) -> None:
    for more in ([], ["--strategy", "hierarchical"]):
        assert MARK in toolscript("search", "what time is it", *more).stdout
    found = json.loads(toolscript("search", "what time is it", "--json").stdout)
    assert {hit["serverState"] for hit in found["results"]} == {MARK}
    assert REASON in toolscript("call", "time__current_time", code=3).stderr


async def test_hits_and_calls_of_a_gateway_say_that_a_demo_tool_cannot_be_called(tmp_path: Path) -> None:
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64")
    async with open_app(settings, serving=True, demo=True) as app:
        await app.catalogue.sync.run([item for item in load_demo_items() if item.server == "time"])
        http = create_http_app(ServedApp(settings, app))
        async with (
            http.router.lifespan_context(http),
            httpx.AsyncClient(transport=httpx.ASGITransport(http), base_url="http://127.0.0.1") as client,
        ):
            hits = (await client.get("/search?q=current+time&threshold=0")).json()["results"]
            assert {hit["serverState"] for hit in hits} == {MARK}
            assert (await client.get("/tools/time__current_time")).json()["serverState"] == MARK
            called = await client.post("/tools/time__current_time", json={})
            assert (called.status_code, REASON in called.json()["error"]["message"]) == (503, True)
            for name, arguments, expected in (
                ("search_tools", {"query": "current time"}, f"({MARK})"),
                ("call_tool", {"tool_id": "time__current_time", "arguments": {}}, REASON),
            ):
                params = {"name": name, "arguments": arguments}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                answer = await client.post("/mcp", json=body, headers={"Accept": "application/json, text/event-stream"})
                assert expected in answer.json()["result"]["content"][0]["text"]
