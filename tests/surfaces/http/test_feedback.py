"""Feedback over HTTP: searches followed by calls, marks, what was learnt, and who may do what."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.fixtures.examples import choose
from toolscript.app.app import App, open_app
from toolscript.domain.access import Caller, Scope
from toolscript.domain.servers import CallResult
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

FEEDBACK = "/api/v1/feedback"
TOOL = "git__git_commit"
QUERY = "git commit"


@pytest.fixture
async def http(app: App, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    async def call(*_: object, **__: object) -> CallResult:
        return CallResult({"content": [{"type": "text", "text": "done"}]})

    await app.catalogue.sync.run([item for item in load_demo_items() if item.server in {"git", "email"}])
    monkeypatch.setattr(app.servers.gateway, "call", call)  # tools of the demo have no server
    async with connect(app, "192.0.2.1") as client:
        yield client


@pytest.fixture(scope="module")
async def untouched(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application in which no test records anything."""
    settings = load_settings(variables={}, data_dir=tmp_path_factory.mktemp("feedback"), search_model="hashed-64")
    async with open_app(settings) as opened:
        await opened.catalogue.sync.run([item for item in load_demo_items() if item.id == TOOL])
        async with connect(opened, "192.0.2.1") as client:
            yield client


def connect(app: App, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)), client=(address, 1234))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


async def list_successes(app: App) -> list[tuple[str, str]]:
    await app.tools.feedback.close()
    return [(success.item_id, success.request) for success in await app.stores.feedback.get_verdicts()]


@pytest.mark.parametrize("kind", choose(["hybrid", "hierarchical", "tools"], "hybrid", "tools"))
async def test_a_search_and_a_call_of_its_hit_are_a_success(app: App, http: httpx.AsyncClient, kind: str) -> None:
    match kind:
        case "hybrid":
            found = await http.get("/search", params={"q": QUERY, "limit": 20, "threshold": 0})
        case "hierarchical":
            body = {"query": QUERY, "strategy": "direct", "limit": 50, "tool_threshold": 0}
            found = await http.post("/api/v1/search", json=body)
        case _:
            found = await http.get("/api/v1/search/tools", params={"query": QUERY, "limit": 50, "threshold": 0})
    assert TOOL in found.text
    async with connect(app, "192.0.2.2") as stranger:
        assert (await stranger.post(f"/tools/{TOOL}", json={"repo_path": ".", "message": "x"})).status_code == 200
    assert await list_successes(app) == []
    assert (await http.post(f"/tools/{TOOL}", json={"repo_path": ".", "message": "x"})).status_code == 200
    assert await list_successes(app) == [(TOOL, QUERY)]


async def test_a_call_that_is_refused_is_no_success(app: App, http: httpx.AsyncClient) -> None:
    assert TOOL in (await http.get("/search", params={"q": QUERY})).text
    assert (await http.post(f"/tools/{TOOL}", json={"message": 7})).status_code >= 400
    assert await list_successes(app) == []


async def test_a_mark_is_recorded_listed_applied_and_forgotten(app: App, http: httpx.AsyncClient) -> None:
    mark = {"tool_id": TOOL, "query": "keep a snapshot"}
    answer = await http.post(FEEDBACK, json=mark)
    assert (answer.status_code, answer.json()) == (200, {**mark, "useful": True, "changed": True})
    await app.tools.feedback.apply()
    applied = (await http.get(FEEDBACK)).json()
    (tool,) = applied["tools"]
    assert (applied["enabled"], tool["tool_id"], tool["successes"], tool["state"]) == (True, TOOL, 1, "moved")
    assert 0.95 <= tool["cosine"] < 1
    assert (await http.get(f"{FEEDBACK}/{TOOL}")).json() == {
        **tool,
        "requests": ["keep a snapshot"],
        "wrong_requests": [],
    }
    assert (await http.delete(f"{FEEDBACK}/{TOOL}")).json() == {"removed": 1}
    assert (await http.get(f"{FEEDBACK}/{TOOL}")).status_code == 404
    assert (await http.delete(FEEDBACK)).json() == {"removed": 0}


@pytest.mark.req("Q-05")
async def test_a_mark_as_wrong_is_listed_applied_and_taken_back(app: App, http: httpx.AsyncClient) -> None:
    mark = {"tool_id": TOOL, "query": "keep a snapshot", "useful": False}
    assert (await http.post(FEEDBACK, json=mark)).json() == {**mark, "changed": True}
    await app.tools.feedback.apply()
    (tool,) = (await http.get(FEEDBACK)).json()["tools"]
    assert (tool["successes"], tool["wrong"], tool["state"]) == (0, 1, "moved")
    assert 0.95 <= tool["cosine"] < 1
    found = (await http.get(f"{FEEDBACK}/{TOOL}")).json()
    assert (found["requests"], found["wrong_requests"]) == ([], ["keep a snapshot"])
    assert (await http.post(FEEDBACK, json={**mark, "useful": None})).json()["changed"]
    assert (await http.get(FEEDBACK)).json()["tools"] == []


async def test_what_one_key_recorded_is_forgotten(app: App, http: httpx.AsyncClient) -> None:
    for name in ("good", "bad"):
        await app.tools.feedback.mark(Caller(key=name), TOOL, "keep a snapshot")
    await app.tools.feedback.mark(Caller(), TOOL, "keep a snapshot")
    found = (await http.get(f"{FEEDBACK}/{TOOL}")).json()
    assert (found["successes"], found["keys"]) == (1, {"good": 1, "bad": 1, "": 1})
    assert (await http.delete(FEEDBACK, params={"key": "bad"})).json() == {"removed": 1}
    assert (await http.delete(f"{FEEDBACK}/{TOOL}", params={"key": ""})).json() == {"removed": 1}
    assert (await http.get(f"{FEEDBACK}/{TOOL}")).json()["keys"] == {"good": 1}


@pytest.mark.parametrize("path", [FEEDBACK, f"{FEEDBACK}/{TOOL}"])
async def test_an_unknown_condition_forgets_nothing(app: App, http: httpx.AsyncClient, path: str) -> None:
    await app.tools.feedback.mark(Caller(key="good"), TOOL, "keep a snapshot")
    answer = await http.delete(path, params={"caller": "bad"})
    assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (422, "caller")
    assert len(await list_successes(app)) == 1


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"tool_id": TOOL}, 422, "query"),
        ({"tool_id": TOOL, "query": ""}, 422, "query"),
        ({"tool_id": TOOL, "query": " "}, 400, "query"),
        ({"tool_id": TOOL, "query": "x" * 1001}, 422, "query"),
        ({"tool_id": TOOL, "query": "x", "useful": "yes"}, 422, "useful"),
    ],
)
async def test_an_invalid_mark_names_the_field(
    untouched: httpx.AsyncClient, body: dict[str, str], status: int, field: str
) -> None:
    answer = await untouched.post(FEEDBACK, json=body)
    assert answer.status_code == status
    assert field in str(answer.json()["error"]["details"])


async def test_a_mark_of_an_unknown_tool_is_not_found(untouched: httpx.AsyncClient) -> None:
    assert (await untouched.post(FEEDBACK, json={"tool_id": "git__nope", "query": "x"})).status_code == 404


async def test_marks_need_the_scope_of_calls_and_the_rest_that_of_administrators(
    app: App, http: httpx.AsyncClient
) -> None:
    _, searching = await app.access.keys.create("searching", [Scope.SEARCH])
    _, calling = await app.access.keys.create("calling", [Scope.SEARCH, Scope.CALL])
    mark = {"tool_id": TOOL, "query": "keep a snapshot"}
    assert (await http.post(FEEDBACK, json=mark, headers={"X-API-Key": searching})).status_code == 403
    assert (await http.post(FEEDBACK, json=mark, headers={"X-API-Key": calling})).status_code == 200
    assert [success.caller for success in await app.stores.feedback.get_verdicts()] == ["calling"]
    for method, path in (("GET", FEEDBACK), ("DELETE", FEEDBACK), ("GET", f"{FEEDBACK}/{TOOL}")):
        assert (await http.request(method, path, headers={"X-API-Key": calling})).status_code == 403


async def test_the_same_key_is_the_same_caller_at_any_address(app: App, http: httpx.AsyncClient) -> None:
    _, key = await app.access.keys.create("ci", [Scope.SEARCH, Scope.CALL])
    headers = {"X-API-Key": key}
    assert TOOL in (await http.get("/search", params={"q": QUERY}, headers=headers)).text
    async with connect(app, "192.0.2.2") as elsewhere:
        await elsewhere.post(f"/tools/{TOOL}", json={"repo_path": ".", "message": "x"}, headers=headers)
    assert await list_successes(app) == [(TOOL, QUERY)]
