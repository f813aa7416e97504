"""The `search_knowledge` tool: the same response as over HTTP, as text and as an object."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent

from tests.fixtures.knowledge_search import DECISION, HARBOUR, MOON, ROSES, WARNING, stock
from tests.fixtures.serving import replace_parts, serve
from toolscript.adapters.mongo.knowledge import MongoKnowledgeReader
from toolscript.app.app import App, local_token
from toolscript.domain.access import Principal
from toolscript.retrieval.retriever import Retriever
from toolscript.services.access.rates import Rates
from toolscript.services.knowledge.search import KnowledgeSearch
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.mcp.native import answer_request
from toolscript.surfaces.mcp.server import answer_call, build_server

pytestmark = [pytest.mark.req("K-01"), pytest.mark.usefixtures("_swept")]

EVERYTHING = {MOON.id, HARBOUR.id, ROSES.id, WARNING.id, DECISION.id}


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with stock(tmp_path_factory.mktemp("data")) as opened:
        yield opened


@asynccontextmanager
async def over_stdio(app: App) -> AsyncIterator[Client]:
    """A client like that of `toolscript mcp`."""

    async def caller() -> Principal:
        return Principal(app.settings.tenant)

    server = build_server(
        lambda params, _: answer_call(app, params, caller),
        lambda method, params, _: answer_request(app, method, params),
        app.tools.native_changes.open,
    )
    async with Client(server) as client:
        yield client


async def call(client: Client, **arguments: Any) -> CallToolResult:
    result = await client.call_tool("search_knowledge", arguments)
    assert isinstance(result, CallToolResult)
    return result


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def search(client: Client, **arguments: Any) -> dict[str, Any]:
    result = await call(client, **arguments)
    assert not result.is_error, text_of(result)
    response: dict[str, Any] = json.loads(text_of(result))
    assert result.structured_content == response
    return response


async def over_plain_http(app: App, **request: Any) -> dict[str, Any]:
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        response: dict[str, Any] = (await http.post("/search_knowledge", json=request)).json()
    return response


@pytest.mark.parametrize(
    "body",
    [
        {"query": "spring", "type": ["warning", "decision"], "topics": ["ships"]},
        {"query": "enter the harbour", "answer": True, "context": "section"},
        {"query": "spring", "filters": {"must": [{"field": "kind", "op": "eq", "value": "Markdown"}]}},
    ],
)
async def test_the_result_is_the_response_of_http_as_text_and_as_an_object(app: App, body: dict[str, Any]) -> None:
    expected = await over_plain_http(app, **body)
    async with over_stdio(app) as client:
        assert await search(client, **body) == expected
    async with serve(app) as url, Client(f"{url}/mcp") as client:
        assert await search(client, **body) == expected


@pytest.mark.req("K-04")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"limit": "2"}, None),
        ({"limit": 2, "answer": "true", "context": "section"}, None),
        ({"type": "warning, decision"}, {WARNING.id, DECISION.id}),
        ({"type": '["warning", "decision"]'}, {WARNING.id, DECISION.id}),
        ({"topics": '["Ships"]'}, {WARNING.id, HARBOUR.id}),
        ({"filters": {"authors": {"contains": "rose"}}}, {ROSES.id, DECISION.id}),
        ({"filters": '{"kind": ["PDF", "EPUB"]}', "type": "chunk"}, {MOON.id, HARBOUR.id}),
        ({"filters": {"year": {"gte": 2024}}}, set()),
        ({"type": None, "topics": None, "limit": None}, EVERYTHING),
        ({"type": [], "topics": ""}, EVERYTHING),
        ({"type": "[]"}, EVERYTHING),
    ],
)
async def test_lists_and_numbers_written_as_strings_are_accepted(
    app: App, arguments: dict[str, Any], expected: set[str] | None
) -> None:
    async with over_stdio(app) as client:
        response = await search(client, query="spring at sea", **arguments)
    ids = {result["id"] for result in response["results"]}
    assert len(ids) == 2 if expected is None else ids == expected


@pytest.mark.req("K-03")
@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({}, "query"),
        ({"query": 7}, "query"),
        ({"query": "moon", "limit": 0}, "limit"),
        ({"query": "moon", "limit": "many"}, "limit"),
        ({"query": "moon", "limit": True}, "limit"),
        ({"query": "moon", "type": 3}, "type"),
        ({"query": "moon", "topics": {"a": 1}}, "topics"),
        ({"query": "moon", "filters": "kind=pdf"}, "filters"),
        ({"query": "moon", "filters": {"kind": "film"}}, "unknown kind of file 'film': use one of Markdown"),
        ({"query": "moon", "filters": {"date": {"after": "2024-01-01"}}}, "'after' is not one of"),
        ({"query": "moon", "filters": {"must": {"kind": "PDF"}}}, "lists of conditions"),
    ],
)
async def test_wrong_arguments_are_refused_by_name(app: App, arguments: dict[str, Any], word: str) -> None:
    async with over_stdio(app) as client:
        result = await call(client, **arguments)
    assert result.is_error
    assert word in text_of(result)
    assert "\n" not in text_of(result)


@pytest.mark.parametrize("query", ["\ud800 half a pair", "\x00 none", "日本 👩‍💻"])
async def test_any_text_may_be_a_query(app: App, query: str) -> None:
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "search_knowledge", "arguments": {"query": query}},
    }
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    async with serve(app) as url, httpx.AsyncClient(headers=headers, trust_env=False) as http:
        answer = await http.post(f"{url}/mcp", content=json.dumps(request).encode())
    assert answer.status_code < 500
    response = answer.json()
    assert "error" in response or len(response["result"]["structuredContent"]["results"]) == len(EVERYTHING)


@pytest.mark.req("K-03")
async def test_the_rate_limit_counts_searches_over_mcp_and_http_together(app: App) -> None:
    limited = replace_parts(app, knowledge_rates=Rates(2))
    async with serve(limited) as url, Client(f"{url}/mcp") as client:
        assert not (await call(client, query="moon")).is_error
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.post(f"{url}/search_knowledge?query=moon")).status_code == 200
            assert (await http.post(f"{url}/search_knowledge?query=moon")).status_code == 429
        refused = await call(client, query="moon")
        assert refused.is_error
        assert "each client may send 2 requests a minute: try again in" in text_of(refused)
        assert not (await client.call_tool("search_tools", {"query": "read a file"})).is_error


@pytest.mark.extended
@pytest.mark.req("K-03", "K-05")
async def test_errors_name_the_address_of_the_store_over_stdio_and_not_over_http(app: App) -> None:
    reader = MongoKnowledgeReader.at("mongodb://127.0.0.1:9/hidden", timeout_seconds=0.5)
    search = KnowledgeSearch(Retriever(app.model.embedder, app.index), app.index, reader, app.observability.events)
    broken = replace_parts(app, knowledge_search=search)
    try:
        async with serve(broken) as url, Client(f"{url}/mcp") as client:
            refused = await call(client, query="moon")
        async with over_stdio(broken) as client:
            own = await call(client, query="moon")
    finally:
        await reader.close()
    assert refused.is_error
    assert text_of(refused) == (
        "knowledge search is unavailable: the store failed, see the gateway's log. Try again in a moment"
    )
    assert own.is_error
    assert "127.0.0.1:9/hidden" in text_of(own)


@pytest.mark.req("K-03")
async def test_searches_over_stdio_are_not_limited(app: App) -> None:
    async with over_stdio(replace_parts(app, knowledge_rates=Rates(1))) as client:
        for _ in range(3):
            assert not (await call(client, query="moon")).is_error


@pytest.mark.req("K-03")
async def test_searches_of_the_owner_of_the_data_folder_are_not_limited(app: App) -> None:
    headers = {
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {local_token(app.access.local_key, 'default')}",
    }
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "search_knowledge", "arguments": {"query": "moon"}},
    }
    async with serve(replace_parts(app, knowledge_rates=Rates(1))) as url, httpx.AsyncClient(trust_env=False) as http:
        for _ in range(3):
            response = (await http.post(f"{url}/mcp", json=request, headers=headers)).json()
            assert not response["result"].get("isError")


async def test_the_tool_is_described_and_read_only(app: App) -> None:
    async with over_stdio(app) as client:
        (tool,) = [each for each in (await client.list_tools()).tools if each.name == "search_knowledge"]
    assert tool.annotations is not None
    assert (tool.annotations.read_only_hint, tool.annotations.open_world_hint) == (True, False)
    fields = ["query", "limit", "type", "topics", "answer", "context", "filters", "min_relevance"]
    assert list(tool.input_schema["properties"]) == fields
    assert tool.input_schema["required"] == ["query"]
    assert tool.input_schema["properties"]["limit"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 100,
        "default": 10,
        "description": "Maximum results.",
    }
    assert "Cite what you use" in (tool.description or "")
