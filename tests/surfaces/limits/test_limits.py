"""Limits of calls over HTTP, MCP and the command line: the same sentence everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from tests.servers import make_scripted_server, make_scripted_spec
from toolscript.app.app import open_app
from toolscript.domain.access import CallLimit, Scope
from toolscript.settings import load_settings
from toolscript.surfaces.cli.main import run
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("G-19")

MCP_HEADERS = {"Accept": "application/json, text/event-stream"}


async def test_a_call_beyond_a_limit_gets_the_same_sentence_over_http_and_mcp(tmp_path: Path) -> None:
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64")
    async with open_app(settings, serving=True) as app:
        limits = (("fail", CallLimit(per_minute=1)),)
        await app.servers.gateway.apply([replace(make_scripted_server(), tool_limits=limits)])
        await app.servers.gateway.settle(60)
        _, slow = await app.access.keys.create("slow", [Scope.CALL], limit=CallLimit(per_minute=1))
        _, fast = await app.access.keys.create("fast", [Scope.CALL])
        http = create_http_app(served := ServedApp(settings, app))
        served.mark_ready()
        async with (
            http.router.lifespan_context(http),
            httpx.AsyncClient(transport=httpx.ASGITransport(http), base_url="http://127.0.0.1") as client,
        ):

            async def call(tool: str, key: str) -> httpx.Response:
                return await client.post(f"/tools/scripted__{tool}", json={"text": "a"}, headers={"X-API-Key": key})

            async def call_over_mcp(tool: str, key: str) -> tuple[bool, str]:
                params = {
                    "name": "call_tool",
                    "arguments": {"tool_id": f"scripted__{tool}", "arguments": {"text": "a"}},
                }
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                answer = await client.post("/mcp", json=body, headers=MCP_HEADERS | {"X-API-Key": key})
                result = answer.json()["result"]
                return result.get("isError", False), result["content"][0]["text"]

            assert (await call("echo", slow)).status_code == 200
            refused = await call("echo", slow)
            assert refused.status_code == 429
            assert 1 <= int(refused.headers["Retry-After"]) <= 60
            sentence = refused.json()["error"]["message"]
            assert sentence.startswith("calls with the key slow are limited to 1 a minute: try again in ")
            is_error, text = await call_over_mcp("echo", slow)
            assert is_error
            assert text.rpartition("in ")[0] == sentence.rpartition("in ")[0]
            assert (await call("echo", fast)).status_code == 200
            assert (await call("fail", fast)).status_code == 502
            assert (
                (await call("fail", fast)).json()["error"]["message"].startswith("calls of scripted__fail are limited")
            )
            assert [(await call("echo", fast)).status_code for _ in range(5)] == [200] * 5


def test_a_limit_of_the_configuration_ends_a_command_with_3(
    small_folder: Path, start_gateway: Callable[[], None]
) -> None:
    entry = make_scripted_spec() | {"limits": {"perMinute": 1}}
    Path(".toolscript.json").write_text(json.dumps({"mcpServers": {"scripted": entry}}))
    start_gateway()
    arguments = ["call", "scripted__echo", '{"text": "a"}']
    assert CliRunner().invoke(run, arguments).exit_code == 0
    refused = CliRunner().invoke(run, arguments)
    assert refused.exit_code == 3, refused.output
    assert "calls to the server scripted are limited to 1 a minute: try again in " in refused.output


def test_a_key_is_created_with_limits_and_listed_with_them(small_folder: Path) -> None:
    created = CliRunner().invoke(
        run, ["keys", "create", "agent", "--scope", "call", "--rate", "60", "--concurrent", "4", "--json"]
    )
    assert created.exit_code == 0, created.output
    listed = CliRunner().invoke(run, ["keys", "list"]).output
    assert "60 a minute, 4 at a time" in listed
    assert CliRunner().invoke(run, ["keys", "create", "b", "--scope", "call", "--rate", "0"]).exit_code == 2
