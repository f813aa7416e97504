"""Large results over HTTP and on the command line: whole by default, cut on request, and read with the handle."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.command_line import invoke, run_json
from tests.fixtures.examples import choose
from tests.servers import make_scripted_server, make_scripted_spec
from toolscript.app.app import App
from toolscript.domain.access import Scope
from toolscript.domain.servers import META_KEY
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("G-18")

TIMEOUT_SECONDS = 60.0
ROWS = {"rows": [{"id": n, "text": f"row number {n}"} for n in range(1000)] + [{"id": 1000, "text": "a wombat"}]}
RESULT = {"content": [{"type": "text", "text": json.dumps(ROWS)}], "structuredContent": ROWS}
CALL = "/tools/scripted__answer"


@pytest.fixture
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    await app.servers.gateway.apply([make_scripted_server(tools=["answer"])])
    await app.servers.gateway.settle(TIMEOUT_SECONDS)
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def cut(http: httpx.AsyncClient, **headers: str) -> str:
    """The handle of a result that was cut."""
    answer = await http.post(CALL, json={"result": RESULT}, params={"max_tokens": 1000}, headers=headers)
    body = answer.json()
    assert len(json.dumps(body)) < 4000
    assert body["content"][0]["text"].startswith('{"rows": [{"id": 0, "text": "row number 0"}')
    handle: str = body["_meta"][META_KEY]["handle"]
    return handle


async def test_a_program_gets_the_whole_unless_it_asks_for_less_and_reads_the_rest_with_the_handle(
    http: httpx.AsyncClient,
) -> None:
    assert (await http.post(CALL, json={"result": RESULT})).json() == ROWS
    assert (await http.post(CALL, json={"result": RESULT}, params={"max_tokens": 900_000})).json() == ROWS
    place = f"/api/v1/results/{await cut(http)}"
    first = (await http.get(place)).json()
    assert (first["page"], first["pages"]) == (1, 1)
    assert json.loads(first["text"]) == ROWS
    assert (await http.get(place, params={"path": "rows.1000.text"})).json()["text"] == "a wombat"
    found = (await http.get(place, params={"query": "wombats"})).json()
    assert found["query"] == "wombats"
    assert "a wombat" in found["hits"][0]["text"]
    assert "a wombat" in (await http.get(place, params={"path": found["hits"][0]["path"]})).json()["text"]


async def test_mistakes_say_what_is_allowed(http: httpx.AsyncClient) -> None:
    mistakes: list[tuple[dict[str, str], int, str]] = [
        ({"path": "rwos"}, 404, "no 'rwos' at the top: there are rows"),
        ({"page": "2"}, 400, "page: must be a whole number from 1 to 1"),
        ({"page": "1", "query": "wombat"}, 422, "page: cannot be combined with query"),
        ({"page": "0"}, 422, "page"),
    ]
    place = f"/api/v1/results/{await cut(http)}"
    for params, status, message in mistakes:
        answer = await http.get(place, params=params)
        assert answer.status_code == status, params
        assert message in answer.json()["error"]["message"]


@pytest.mark.req("X-04")
async def test_the_handle_of_another_key_does_not_exist(http: httpx.AsyncClient, app: App) -> None:
    (_, ann), (_, bob) = [await app.access.keys.create(name, [Scope.SEARCH, Scope.CALL]) for name in ("ann", "bob")]
    _, searching = await app.access.keys.create("searching", [Scope.SEARCH])
    place = f"/api/v1/results/{await cut(http, **{'X-API-Key': ann})}"
    statuses = [(await http.get(place, headers={"X-API-Key": key})).status_code for key in (ann, bob, searching)]
    assert statuses == [200, 404, 403]


@pytest.mark.parametrize("with_gateway", choose([False, True], True))
def test_commands_cut_and_read(small_folder: Path, start_gateway: Callable[[], None], with_gateway: bool) -> None:
    spec = make_scripted_spec(tools=["answer"])
    Path(".toolscript.json").write_text(json.dumps({"mcpServers": {"scripted": spec}}))
    if with_gateway:
        start_gateway()
    given = ["call", "scripted__answer", json.dumps({"result": RESULT})]
    assert run_json(*given) == ROWS
    answer: dict[str, Any] = run_json(*given, "--max-tokens", "1000")
    handle = answer["_meta"][META_KEY]["handle"]
    assert json.loads(invoke("results", handle, "--path", "rows.1000").output) == {"id": 1000, "text": "a wombat"}
    assert "a wombat" in invoke("results", handle, "--query", "wombats").output
    assert "No part has a word of 'zebra'." in invoke("results", handle, "--query", "zebra").output
    assert run_json("results", handle)["pages"] == 1
    assert "toolscript results r_" in invoke(*given, "--max-tokens", "1000").output
    assert "no such result: 'r_0'" in invoke("results", "r_0", code=4).output
