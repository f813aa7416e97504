"""Search quality over HTTP: judged queries on the catalogue of the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from toolscript.app.app import App
from toolscript.evaluation.live import MAX_QUERIES
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("W-01")

PATH = "/api/v1/evaluate"


@pytest.fixture
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    await app.catalogue.sync.run(load_demo_items())
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def measure(http: httpx.AsyncClient, *queries: dict[str, Any]) -> list[Any]:
    answer = await http.post(PATH, json={"queries": queries})
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()["results"]
    return found


async def test_queries_are_scored_by_what_a_search_finds(http: httpx.AsyncClient) -> None:
    searched = (await http.get("/search", params={"q": "git_commit", "threshold": 0, "limit": 100})).json()["results"]
    first, second = searched[0], searched[1]["toolId"]
    right, near, none = await measure(
        http,
        {"query": "git_commit", "relevant": [first["toolId"]]},
        {"query": "git_commit", "relevant": [second]},
        {"query": "git_commit", "relevant": []},
    )
    assert (right["first"], right["confidence"], right["rank"]) == (first["toolId"], first["confidence"], 1)
    assert (right["scores"]["hit@1"], right["scores"]["ndcg@10"]) == (1, 1)
    assert (near["rank"], near["scores"]["hit@1"], near["scores"]["r@5"], near["scores"]["mrr"]) == (2, 0, 1, 0.5)
    assert (none["rank"], none["scores"], none["confidence"]) == (0, None, first["confidence"])


async def test_one_member_of_each_group_is_enough(http: httpx.AsyncClient) -> None:
    tools = ["git__git_commit", "no__such"]
    every, either = await measure(
        http,
        {"query": "git_commit", "relevant": tools},
        {"query": "git_commit", "relevant": tools, "groups": [tools]},
    )
    assert (every["scores"]["r@10"], either["scores"]["r@10"]) == (0.5, 1)
    cases: list[list[list[str]]] = [[], [[]], [[], tools]]
    for groups in cases:
        (found,) = await measure(http, {"query": "git_commit", "relevant": tools, "groups": groups})
        assert found["scores"]["r@10"] == (1 if tools in groups else 0.5)


async def test_a_query_that_cannot_be_searched_finds_nothing(http: httpx.AsyncClient) -> None:
    (found,) = await measure(http, {"query": "?", "relevant": ["git__git_commit"]})
    assert (found["first"], found["confidence"], found["scores"]["mrr"]) == (None, 0, 0)
    assert "the query" in found["problem"]


@pytest.mark.parametrize("count", [0, MAX_QUERIES + 1])
async def test_a_request_has_some_queries_and_not_too_many(http: httpx.AsyncClient, count: int) -> None:
    queries = [{"query": "git", "relevant": []}] * count
    assert (await http.post(PATH, json={"queries": queries})).status_code == 422
