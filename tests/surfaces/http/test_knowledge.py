"""Knowledge over HTTP: the exact response, requests in the query string or the body, and the rate limit."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from io import StringIO
from typing import Any

import httpx
import pytest

from tests.fixtures.knowledge_search import DECISION, HARBOUR, MOON, ROSES, TIDES, WARNING, stock
from tests.fixtures.serving import replace_parts, serve
from toolscript.app.app import App, local_token, open_app
from toolscript.services.access.rates import Rates
from toolscript.settings import Settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.input_limits import MAX_BODY_BYTES
from toolscript.surfaces.http.routers.knowledge import MAX_SEARCH_BYTES
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.logs import JsonLines

pytestmark = pytest.mark.req("K-01")

SEARCH = "/search_knowledge"
PARAMETERS = ["query", "limit", "type", "topics", "answer", "context", "min_relevance"]
CLIENT_HEADERS = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Client-IP", "X-Request-ID")
CODES = {"VALIDATION_ERROR", "NOT_FOUND", "RATE_LIMITED", "INTERNAL_ERROR"}


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with stock(tmp_path_factory.mktemp("data")) as opened:
        yield opened


@asynccontextmanager
async def open_client(app: App, address: str = "192.0.2.7", **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    serving = ServedApp(replace(app.settings, **settings), app)
    transport = httpx.ASGITransport(create_http_app(serving), client=(address, 40_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="module")
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(app) as client:
        yield client


async def search_ok(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await http.post(SEARCH, json=fields)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


def ids(response: dict[str, Any]) -> list[str]:
    return [result["id"] for result in response["results"]]


def refusal(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error of a response in the envelope, without internal details."""
    assert answer.status_code == status, answer.text
    response = answer.json()
    assert response.keys() == {"error"}
    error: dict[str, Any] = response["error"]
    assert error.keys() == {"code", "message", "details"}
    assert error["code"] == code
    assert error["code"] in CODES
    assert error["message"]
    assert isinstance(error["details"], dict)
    assert "Traceback" not in answer.text
    return error


# --- the response ---


@pytest.mark.req("K-01", "K-02")
async def test_the_response_is_exactly_as_specified(http: httpx.AsyncClient) -> None:
    answer = await http.post(SEARCH, params={"query": "never enter the harbour at low water", "limit": 3})
    assert answer.headers["content-type"] == "application/json"
    response = answer.json()
    scores = [result.pop("score") for result in response["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(isinstance(score, float) and 0 <= score <= 1 for score in scores)
    relevances = [result.pop("relevance") for result in response["results"]]
    assert all(isinstance(relevance, float) and 0 <= relevance <= 1 for relevance in relevances)
    assert isinstance(response["metadata"].pop("nothing_relevant"), bool)
    third = response["results"].pop()
    assert third["type"] in {"chunk", "extraction"}
    assert response == {
        "results": [
            {
                "id": WARNING.id,
                "type": "extraction",
                "content": "warning (ships, safety)\nwarning: never enter the harbour at low water",
                "source": {
                    "source_id": TIDES.id,
                    "chunk_id": HARBOUR.id,
                    "title": "Of Tides",
                    "authors": ["A. Moon", "B. Sea"],
                    "position": {"chapter": "2 Harbours", "section": None, "page": 40},
                },
            },
            {
                "id": HARBOUR.id,
                "type": "chunk",
                "content": HARBOUR.content,
                "source": {
                    "source_id": TIDES.id,
                    "chunk_id": HARBOUR.id,
                    "title": "Of Tides",
                    "authors": ["A. Moon", "B. Sea"],
                    "position": {"chapter": "2 Harbours", "section": None, "page": 40},
                },
            },
        ],
        "metadata": {
            "query": "never enter the harbour at low water",
            "sources_cited": sorted({"Of Tides", third["source"]["title"]}),
            "result_count": 3,
            "search_type": "semantic",
        },
    }


@pytest.mark.req("F-03")
async def test_a_minimum_relevance_leaves_out_the_rest_and_nonsense_finds_nothing_relevant(
    http: httpx.AsyncClient,
) -> None:
    whole = await search_ok(http, query="never enter the harbour at low water")
    minimum = whole["results"][1]["relevance"]
    kept = await search_ok(http, query="never enter the harbour at low water", min_relevance=minimum)
    assert kept["results"] == [result for result in whole["results"] if result["relevance"] >= minimum]
    by_parameter = await http.post(SEARCH, params={"query": "asdf qwer zxcv", "min_relevance": 0.3})
    assert by_parameter.json()["results"] == []
    assert by_parameter.json()["metadata"]["nothing_relevant"]
    assert (await search_ok(http, query="asdf qwer zxcv"))["metadata"]["nothing_relevant"]
    answer = await http.post(SEARCH, json={"query": "moon", "min_relevance": 2})
    assert refusal(answer, 422, "VALIDATION_ERROR")["details"]["field"] == "min_relevance"


async def test_keys_have_the_specified_order(http: httpx.AsyncClient) -> None:
    response = await search_ok(http, query="moon")
    assert list(response) == ["results", "metadata"]
    assert list(response["results"][0]) == ["id", "score", "relevance", "type", "content", "source"]
    assert list(response["results"][0]["source"]) == ["source_id", "chunk_id", "title", "authors", "position"]
    assert list(response["results"][0]["source"]["position"]) == ["chapter", "section", "page"]
    assert list(response["metadata"]) == ["query", "sources_cited", "result_count", "nothing_relevant", "search_type"]


async def test_ten_results_by_default(app: App, http: httpx.AsyncClient) -> None:
    fields: list[int] = []

    async def search(ask: Any) -> Any:
        fields.append(ask.limit)
        return await app.texts.knowledge_search.search(ask)

    watched = replace_parts(app, knowledge_search=type("Watched", (), {"search": staticmethod(search)})())
    async with open_client(watched) as client:
        await search_ok(client, query="moon")
        await search_ok(client, query="moon", limit=None)
        await client.post(SEARCH, params={"query": "moon", "limit": 100})
    assert fields == [10, 10, 100]


async def test_without_knowledge_the_response_is_empty(small: Settings) -> None:
    async with open_app(small, serving=True) as app, open_client(app) as http:
        response = await search_ok(http, query="moon")
        descriptions = [await app.index.describe(name) for name in ("chunks", "extractions")]
    metadata = {"query": "moon", "sources_cited": [], "result_count": 0, "search_type": "semantic"}
    assert response == {"results": [], "metadata": {**metadata, "nothing_relevant": True}}
    assert descriptions == [None, None]


# --- query string and body ---

SAME: dict[str, Callable[[], dict[str, Any]]] = {
    "in the address": lambda: {"params": {"query": "spring", "limit": 2, "type": "chunk", "topics": "roses"}},
    "in the body": lambda: {"json": {"query": "spring", "limit": 2, "type": "chunk", "topics": "roses"}},
    "lists in the body": lambda: {"json": {"query": "spring", "limit": 2, "type": ["chunk"], "topics": ["roses"]}},
    "in both": lambda: {
        "params": {"query": "spring", "limit": 2, "type": "chunk"},
        "json": {"query": "spring", "limit": 2, "type": ["chunk"], "topics": "Roses"},
    },
    "some here and some there": lambda: {
        "params": {"query": "spring", "type": "chunk"},
        "json": {"limit": 2, "topics": ["roses"]},
    },
    "an empty object beside the address": lambda: {
        "params": {"query": "spring", "limit": 2, "type": "chunk", "topics": "roses"},
        "json": {},
    },
    "nulls in the body": lambda: {
        "params": {"query": "spring", "limit": 2, "type": "chunk", "topics": "roses"},
        "json": {"query": None, "limit": None, "type": None, "topics": None},
    },
    "blanks for a body": lambda: {
        "params": {"query": "spring", "limit": 2, "type": "chunk", "topics": "roses"},
        "content": b" \n",
    },
    "a body that does not say what it is": lambda: {
        "content": json.dumps({"query": "spring", "limit": 2, "type": "chunk", "topics": "roses"}).encode(),
    },
}


@pytest.mark.parametrize("way", SAME)
async def test_query_string_and_body_are_equivalent(http: httpx.AsyncClient, way: str) -> None:
    answer = await http.post(SEARCH, **SAME[way]())
    assert answer.status_code == 200, answer.text
    assert ids(answer.json()) == [ROSES.id]


@pytest.mark.req("K-04")
@pytest.mark.parametrize(
    "fields",
    [
        [("type", "warning"), ("type", "decision")],
        [("type", " warning , ,decision, ")],
    ],
)
async def test_the_query_string_may_have_several_types(http: httpx.AsyncClient, fields: list[tuple[str, str]]) -> None:
    answer = await http.post(SEARCH, params=[("query", "spring"), *fields])
    assert set(ids(answer.json())) == {WARNING.id, DECISION.id}


@pytest.mark.req("K-04")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"type": ["chunk", "decision"]}, {MOON.id, HARBOUR.id, ROSES.id, DECISION.id}),
        ({"topics": "ships, roses", "type": "chunk"}, {HARBOUR.id, ROSES.id}),
        ({"type": [], "topics": []}, {MOON.id, HARBOUR.id, ROSES.id, WARNING.id, DECISION.id}),
    ],
)
async def test_types_and_topics_filter_the_results(
    http: httpx.AsyncClient, fields: dict[str, Any], expected: set[str]
) -> None:
    response = await search_ok(http, query="spring at sea", **fields)
    assert set(ids(response)) == expected
    assert response["metadata"]["result_count"] == len(expected)


def condition(field: str, op: str, value: Any) -> dict[str, Any]:
    return {"field": field, "op": op, "value": value}


@pytest.mark.req("K-04")
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"must": [condition("authors", "contains", "moon")]}, {MOON.id, HARBOUR.id, WARNING.id}),
        ({"should": [condition("title", "eq", "gardens"), condition("year", "gte", 2020)]}, {ROSES.id, DECISION.id}),
    ],
)
async def test_filters_on_sources_restrict_the_results(
    http: httpx.AsyncClient, filters: dict[str, Any], expected: set[str]
) -> None:
    response = await search_ok(http, query="spring at sea", filters=filters)
    assert set(ids(response)) == expected
    answer = await http.post(SEARCH, params={"query": "spring at sea"}, json={"filters": filters})
    assert answer.json() == response


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing at all": ({}, "query"),
    "a long query in the address": ({"params": {"query": "x" * 1001}}, "query"),
    "a query that is no text": ({"json": {"query": 7}}, "query"),
    "a limit that is too large": ({"params": {"query": "moon", "limit": 101}}, "limit"),
    "a limit in words": ({"params": {"query": "moon", "limit": "ten"}}, "limit"),
    "a limit in words in the body": ({"json": {"query": "moon", "limit": "10"}}, "limit"),
    "types that are no texts": ({"json": {"query": "moon", "type": ["chunk", 3]}}, "type"),
    "topics that are an object": ({"json": {"query": "moon", "topics": {"a": 1}}}, "topics"),
    "a long topic": ({"params": {"query": "moon", "topics": "x" * 201}}, "topics"),
    "a topic with half a character": ({"content": b'{"query": "moon", "topics": ["a\\ud800"]}'}, "body"),
    "a field that nobody knows": ({"json": {"query": "moon", "top_k": 3}}, "top_k"),
    "two limits": ({"params": {"query": "moon", "limit": 3}, "json": {"limit": 4}}, "limit"),
    "topics in another order": (
        {"params": {"query": "moon", "topics": "a,b"}, "json": {"topics": ["b", "a", "c"]}},
        "topics",
    ),
    "a parameter that nobody knows beside a body": ({"params": {"q": "moon"}, "json": {"query": "moon"}}, "q"),
    "an empty parameter that nobody knows": ({"params": "query=moon&top_k"}, "top_k"),
    "two limits in the address": ({"params": [("query", "moon"), ("limit", 3), ("limit", "")]}, "limit"),
    "filters in the address": ({"params": {"query": "moon", "filters": "{}"}}, "filters"),
    "filters that are a text": ({"json": {"query": "moon", "filters": "kind=pdf"}}, "filters"),
    "fields for filters": ({"json": {"query": "moon", "filters": {"kind": "PDF"}}}, "filters.kind"),
    "an unknown operator": (
        {"json": {"query": "moon", "filters": {"must": [condition("year", "over", 3)]}}},
        "filters.must.0.op",
    ),
    "an unknown kind of file": (
        {"json": {"query": "moon", "filters": {"must": [condition("kind", "eq", "film")]}}},
        "filters",
    ),
    "no JSON": ({"params": {"query": "moon"}, "content": b"{"}, "body"),
    "a list for a body": ({"params": {"query": "moon"}, "json": []}, "body"),
    "half a character": ({"content": b'{"query": "\xff"}'}, "body"),
    "a large body": ({"content": b" " * (MAX_SEARCH_BYTES + 1)}, "body"),
    "a huge body": ({"content": b" " * (MAX_BODY_BYTES + 1)}, "Content-Length"),
}


@pytest.mark.req("K-03")
@pytest.mark.parametrize("wrong", WRONG)
async def test_an_invalid_request_is_refused_with_the_name_of_the_field(http: httpx.AsyncClient, wrong: str) -> None:
    given, field = WRONG[wrong]
    status = 413 if wrong in {"a large body", "a huge body"} else 422
    error = refusal(await http.post(SEARCH, **given), status, "VALIDATION_ERROR")
    assert error["details"]["field"] == field


@pytest.mark.req("K-03")
async def test_a_difference_between_query_string_and_body_is_an_error(http: httpx.AsyncClient) -> None:
    error = refusal(await http.post(SEARCH, params={"query": "moon"}, json={"query": "sea"}), 422, "VALIDATION_ERROR")
    assert error["message"] == (
        "query: the query string and the body differ: give it in one of them, or the same in both"
    )


@pytest.mark.req("K-03")
async def test_unknown_and_repeated_parameters_are_named(http: httpx.AsyncClient) -> None:
    error = refusal(await http.post(f"{SEARCH}?query=a&topic=b&topic=c&top%20k=3"), 422, "VALIDATION_ERROR")
    assert error["message"] == (
        f"unknown parameters: 'topic', 'top k'; did you mean topics? Allowed are {', '.join(PARAMETERS)}"
    )
    assert error["details"] == {"field": "topic", "allowed": PARAMETERS}
    error = refusal(await http.post(f"{SEARCH}?query=a&limit=1&query=b&limit=2"), 422, "VALIDATION_ERROR")
    assert error["message"] == "query, limit: given more than once in the query string: give one of each"


# --- credentials and rate limit ---


@pytest.mark.req("F-04")
async def test_an_answer_needs_a_key_where_other_routes_do(app: App, http: httpx.AsyncClient) -> None:
    assert "answer" in await search_ok(http, query="harbour", answer=True)
    async with open_client(app, api_key="a key", knowledge_public=True) as guarded:
        refused = await guarded.post(SEARCH, json={"query": "harbour", "answer": True})
        assert refused.status_code == 401
        assert "search without `answer`" in refused.json()["error"]["message"]
        allowed = await guarded.post(SEARCH, json={"query": "harbour", "answer": True}, headers={"X-API-Key": "a key"})
        assert allowed.status_code == 200
        assert (await guarded.post(SEARCH, json={"query": "harbour"})).status_code == 200


@pytest.mark.req("K-03")
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nonsense"}, {"X-API-Key": "wrong"}])
async def test_public_knowledge_requires_no_key_where_every_other_route_does(app: App, headers: dict[str, str]) -> None:
    async with open_client(app, api_key="a key", knowledge_public=True) as http:
        assert (await http.post(SEARCH, params={"query": "moon"}, headers=headers)).status_code == 200
        assert (await http.get("/tools", headers=headers)).status_code == 401
        assert (await http.get(SEARCH, headers=headers)).status_code == 405


@pytest.mark.req("K-03")
async def test_requests_over_the_rate_are_refused_with_retry_after(app: App) -> None:
    async with open_client(replace_parts(app, knowledge_rates=Rates(2))) as http:
        for _ in range(2):
            await search_ok(http, query="moon")
        for given in ({"params": {"query": "moon"}}, {"json": {"limit": 1000}}, {"content": b"{"}):
            answer = await http.post(SEARCH, **given)
            error = refusal(answer, 429, "RATE_LIMITED")
            assert 29 <= int(answer.headers["retry-after"]) <= 30
            assert error["details"]["requests_per_minute"] == 2


@pytest.mark.req("K-03")
async def test_a_refused_request_is_neither_read_nor_searched(app: App) -> None:
    read: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        read.append(b"{")
        yield b"{"

    async with open_client(replace_parts(app, knowledge_rates=Rates(1), knowledge_search=None)) as http:
        assert (await http.post(SEARCH, content=b"{")).status_code == 422
        refusal(await http.post(SEARCH, content=body()), 429, "RATE_LIMITED")
    assert read == []


@pytest.mark.req("K-03")
async def test_each_address_has_its_own_rate(app: App) -> None:
    limited = replace_parts(app, knowledge_rates=Rates(1))
    response = []
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"):
        async with open_client(limited, address) as http:
            response.append((await http.post(SEARCH, params={"query": "moon"})).status_code)
    assert response == [200, 200, 429, 200, 429, 200]


@pytest.mark.req("K-03")
async def test_no_header_changes_the_client(app: App) -> None:
    async with (
        serve(replace_parts(app, knowledge_rates=Rates(1))) as url,
        httpx.AsyncClient(base_url=url, trust_env=False) as http,
    ):
        response = []
        for n in range(3):
            headers = dict.fromkeys(CLIENT_HEADERS, f"198.51.100.{n}")
            response.append((await http.post(SEARCH, params={"query": "moon"}, headers=headers)).status_code)
    assert response == [200, 429, 429]


@pytest.mark.req("K-03")
async def test_this_machines_own_commands_are_not_limited(app: App) -> None:
    limited = replace_parts(app, knowledge_rates=Rates(1))
    own = {"Authorization": f"Bearer {local_token(app.access.local_key, 'acme')}"}
    others = {"Authorization": f"Bearer {local_token('another key that is long enough, too', 'acme')}"}
    async with open_client(limited, "127.0.0.1") as http:
        for _ in range(4):
            assert (await http.post(SEARCH, params={"query": "moon"}, headers=own)).status_code == 200
        assert (await http.post(SEARCH, params={"query": "moon"}, headers=others)).status_code == 200
        assert (await http.post(SEARCH, params={"query": "moon"}, headers=others)).status_code == 429


# --- while the application is opening, and unexpected errors ---


@pytest.mark.req("K-03")
async def test_while_the_application_is_opening_every_search_is_a_503(small: Settings) -> None:
    transport = httpx.ASGITransport(create_http_app(ServedApp(small)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        error = refusal(await http.post(SEARCH, params={"query": "moon"}), 503, "INTERNAL_ERROR")
    assert "still starting" in error["message"]


@pytest.mark.req("K-03")
async def test_an_unexpected_error_is_reported_without_its_traceback(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    serving = ServedApp(app.settings, replace_parts(app, knowledge_search=None))
    transport = httpx.ASGITransport(create_http_app(serving), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        error = refusal(await http.post(SEARCH, params={"query": "moon"}), 500, "INTERNAL_ERROR")
    assert error["message"] == "internal error of the gateway: its log has the details"


# --- OpenAPI, metrics and logs ---


async def searches(http: httpx.AsyncClient) -> dict[str, float]:
    """The number of knowledge searches by outcome."""
    response = (await http.get("/metrics")).text
    counted = re.findall(r'toolscript_searches_total{outcome="(.*)",type="knowledge"} (.*)', response)
    return {outcome: float(number) for outcome, number in counted}


@pytest.mark.req("K-07")
async def test_searches_are_counted_and_their_stages_timed(app: App, http: httpx.AsyncClient) -> None:
    before = await searches(http)
    await search_ok(http, query="moon")
    await http.post(SEARCH, params={"query": " "})
    after = await searches(http)
    assert all(after[outcome] == before.get(outcome, 0) + 1 for outcome in ("ok", "VALIDATION_ERROR"))
    response = (await http.get("/metrics")).text
    for stage in ("embed", "rank", "read", "total"):
        assert f'toolscript_stage_seconds_count{{search="knowledge",stage="{stage}"}}' in response
    assert 'route="/search_knowledge",status="422"' in response


@pytest.mark.req("K-07")
async def test_the_log_names_the_request(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = StringIO()
    monkeypatch.setattr(caplog.handler, "stream", written)
    monkeypatch.setattr(caplog.handler, "formatter", JsonLines())
    with caplog.at_level(logging.INFO, logger="toolscript.services.knowledge.search"):
        await http.post(SEARCH, params={"query": "moon", "limit": 2}, headers={"X-Request-ID": "mine"})
    (line,) = [each for each in map(json.loads, written.getvalue().splitlines()) if each["event"] == "search_knowledge"]
    assert (line["event"], line["query"], line["result_count"]) == ("search_knowledge", "moon", 2)
    assert (line["request_id"], line["level"]) == ("mine", "info")
    assert 0 < line["latency_ms"] < 2000
