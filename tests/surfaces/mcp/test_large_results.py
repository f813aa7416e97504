"""Large results over MCP: cut for clients of every version, and read by their caller alone, at any gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp_types import CallToolResult
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from tests.fixtures.examples import choose
from tests.fixtures.mcp_requests import NEWEST, build_request
from tests.fixtures.serving import serve
from tests.servers import make_scripted_server
from toolscript.app.app import App, open_app
from toolscript.domain.access import Scope
from toolscript.domain.profiles import Profile
from toolscript.domain.servers import META_KEY
from toolscript.settings import load_settings

pytestmark = pytest.mark.req("G-18", "G-08")

TIMEOUT_SECONDS = 60.0
TOKENS = 1000
ROWS = {"rows": [{"id": n, "text": f"row number {n}"} for n in range(1000)]}
WOMBAT = {"rows": [*ROWS["rows"], {"id": 1000, "text": "a wombat"}]}


@dataclass(frozen=True, slots=True)
class Agent:
    """A client that sends plain requests, with a key or without one."""

    http: httpx.AsyncClient

    async def call(
        self, result: Any, version: str | None = NEWEST, path: str = "/mcp", **headers: str
    ) -> dict[str, Any]:
        """The gateway's result of a call whose server answers with `result`."""
        request = build_request("scripted__answer", {"result": result}, version)
        response = await self.http.post(path, json=request.body, headers=request.headers | headers)
        answer: dict[str, Any] = response.json()["result"]
        return answer

    async def read(self, endpoint: str = "/mcp", key: str = "", /, **arguments: Any) -> tuple[bool, list[str]]:
        """Whether `read_result` fails, and the texts of its result."""
        request = build_request("", {}, NEWEST)
        request.body["params"] |= {"name": "read_result", "arguments": arguments}
        headers = request.headers | {"Mcp-Name": "read_result"} | ({"X-API-Key": key} if key else {})
        answer = (await self.http.post(endpoint, json=request.body, headers=headers)).json()["result"]
        return answer["isError"], [block["text"] for block in answer["content"]]


@asynccontextmanager
async def open_gateway(folder: Path, store: str = "") -> AsyncIterator[App]:
    given = {"data_dir": folder, "search_model": "hashed-64", "index": "memory:", "port": 0, "store": store}
    settings = load_settings(variables={}, **given, result_tokens=TOKENS)
    async with open_app(settings, serving=True) as opened:
        await opened.servers.gateway.apply([make_scripted_server(tools=["answer"])])
        await opened.servers.gateway.settle(TIMEOUT_SECONDS)
        yield opened


@asynccontextmanager
async def connect(app: App) -> AsyncIterator[Agent]:
    async with serve(app) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS) as client:
        yield Agent(client)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with open_gateway(tmp_path / "data") as opened:
        yield opened


@pytest.fixture(scope="module")
async def agent(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Agent]:
    """An agent of a gateway that many tests use: none of them creates a key or a profile."""
    async with open_gateway(tmp_path_factory.mktemp("data")) as opened, connect(opened) as made:
        yield made


def build_text(value: Any, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": json.dumps(value)}], **more}


@pytest.mark.parametrize("version", choose([None, *HANDSHAKE_PROTOCOL_VERSIONS, NEWEST], None, NEWEST))
async def test_clients_of_every_version_get_a_valid_result_within_the_budget(agent: Agent, version: str | None) -> None:
    for value in (ROWS, ROWS["rows"]):
        answer = await agent.call(build_text(value, structuredContent=value), version)
        CallToolResult.model_validate(answer)
        assert len(json.dumps(answer["content"])) < 4 * TOKENS
        assert "structuredContent" not in answer
        _, texts = await agent.read(handle=answer["_meta"][META_KEY]["handle"], path="/0/text" if value != ROWS else "")
        assert texts[0] == ("row number 0" if value != ROWS else json.dumps(ROWS)[: len(texts[0])])


async def test_the_pages_are_the_whole_and_say_how_to_go_on(agent: Agent) -> None:
    handle = (await agent.call(build_text(ROWS)))["_meta"][META_KEY]["handle"]
    whole, page = "", 1
    while page:
        _, (text, note) = await agent.read(handle=handle, page=page)
        whole += text
        goes_on = f"page={page + 1} goes on" in note
        assert goes_on or note.endswith(", the last.]")
        page = page + 1 if goes_on else 0
    assert json.loads(whole) == ROWS


async def test_a_query_answers_with_parts_and_their_paths(agent: Agent) -> None:
    handle = (await agent.call(build_text(WOMBAT)))["_meta"][META_KEY]["handle"]
    is_error, texts = await agent.read(handle=handle, query="wombats")
    place, _, part = texts[0].partition("\n")
    assert not is_error
    assert "a wombat" in part
    _, (value,) = await agent.read(handle=handle, path=place.removeprefix("[path=").removesuffix("]"))
    assert "a wombat" in value
    assert await agent.read(handle=handle, query="zebra") == (
        False,
        ["No part of this result has a word of 'zebra'. Try other words, or read it with page."],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"handle": "r_0"}, "no such result: 'r_0': a result is kept for an hour, for the caller that got it; call"),
        ({"page": -1}, "page: must be a whole number from 1 to 1000000, or left out"),
        ({"page": 2, "query": "wombat"}, "page: cannot be combined with query"),
    ],
)
async def test_mistakes_are_one_sentence_with_what_is_allowed(
    agent: Agent, arguments: dict[str, Any], message: str
) -> None:
    known = {"handle": (await agent.call(build_text(ROWS)))["_meta"][META_KEY]["handle"]} if arguments else {}
    is_error, texts = await agent.read(**known | arguments)
    assert is_error
    assert texts[0].startswith(message)


async def test_empty_arguments_are_left_out(agent: Agent) -> None:
    handle = (await agent.call(build_text(ROWS)))["_meta"][META_KEY]["handle"]
    first = await agent.read(handle=handle)
    assert await agent.read(handle=handle, query="", path="", page=0) == first
    assert await agent.read(handle=handle, query=None, path=None, page="1") == first


@pytest.mark.req("X-04")
async def test_a_handle_of_another_key_or_profile_does_not_exist(app: App) -> None:
    app.access.profiles.replace([Profile("one"), Profile("two")])
    (_, ann), (_, bob) = [await app.access.keys.create(name, [Scope.SEARCH, Scope.CALL]) for name in ("ann", "bob")]
    async with connect(app) as agent:
        answer = await agent.call(build_text(ROWS), path="/mcp/one", **{"X-API-Key": ann})
        handle = answer["_meta"][META_KEY]["handle"]
        assert [
            (await agent.read(f"/mcp{profile}", key, handle=handle))[0]
            for key, profile in [(ann, "/one"), (bob, "/one"), (ann, "/two"), (ann, ""), (bob, "")]
        ] == [False, True, True, True, True]
        _, texts = await agent.read("/mcp/one", bob, handle=handle, query="row")
        assert texts[0].startswith(f"no such result: '{handle}'")


async def test_a_pinned_tool_that_is_called_directly_is_cut_too(app: App) -> None:
    app.access.profiles.replace([Profile("pins", pinned=("scripted__answer",))])
    async with connect(app) as agent:
        request = build_request("", {}, NEWEST)
        request.body["params"] |= {"name": "scripted__answer", "arguments": {"result": build_text(WOMBAT)}}
        headers = request.headers | {"Mcp-Name": "scripted__answer"}
        answer = (await agent.http.post("/mcp/pins", json=request.body, headers=headers)).json()["result"]
        assert len(json.dumps(answer)) < 4 * TOKENS
        handle = answer["_meta"][META_KEY]["handle"]
        assert await agent.read("/mcp/pins", handle=handle, path="rows.1000.text") == (False, ["a wombat"])


@pytest.mark.extended
async def test_another_gateway_of_the_same_store_reads_it(tmp_path: Path, postgres: str) -> None:
    async with open_gateway(tmp_path / "a", postgres) as one, connect(one) as agent:
        handle = (await agent.call(build_text(WOMBAT)))["_meta"][META_KEY]["handle"]
        async with open_gateway(tmp_path / "b", postgres) as other, connect(other) as agent_of_other:
            _, texts = await agent_of_other.read(handle=handle, query="wombat")
            assert "a wombat" in texts[0]


async def test_it_is_read_after_a_restart(tmp_path: Path) -> None:
    async with open_gateway(tmp_path / "data") as app, connect(app) as agent:
        handle = (await agent.call(build_text(WOMBAT)))["_meta"][META_KEY]["handle"]
    async with open_gateway(tmp_path / "data") as app, connect(app) as agent:
        _, texts = await agent.read(handle=handle, path="rows.1000.text")
        assert texts == ["a wombat"]
