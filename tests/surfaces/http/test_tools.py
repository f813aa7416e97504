"""The HTTP surface over an open application."""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from dataclasses import asdict
from typing import Any

import httpx
import pytest

from toolscript.app.app import App, open_app
from toolscript.retrieval.learned_ranking import LEARNED
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp


@pytest.fixture(scope="module")
async def http(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application with the demo's tools, which no test changes."""
    settings = load_settings(variables={}, data_dir=tmp_path_factory.mktemp("tools"), search_model="hashed-64")
    async with open_app(settings) as opened:
        await opened.catalogue.sync.run(load_demo_items())
        async with connect(opened) as client:
            yield client


def connect(app: App) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.mark.req("S-04")
async def test_an_explained_search_says_what_confidences_are_made_of(http: httpx.AsyncClient) -> None:
    given: dict[str, Any] = {"q": "read the contents of a file", "limit": 10, "threshold": 0, "explain": True}
    response = (await http.get("/search", params=given)).json()
    for hit in response["results"]:
        assert sum(hit["parts"].values()) == pytest.approx(hit["confidence"], abs=0.001)
        assert ("Semantic similarity" in hit["reason"]) <= (hit["parts"]["meaning"] > 0)
        assert ("Fuzzy match" in hit["reason"]) <= (hit["parts"]["name"] > 0)
    assert response["timingsMs"]["total"] > 0
    assert response["candidates"] >= len(response["results"])
    assert 0 < response["tokens"]["answer"] < response["tokens"]["allTools"]
    named = (await http.get("/search", params={"q": "read_file", "explain": True})).json()["results"][0]
    assert named["parts"]["name"] == named["confidence"] == 1.0
    plain = (await http.get("/search", params={"q": "read_file"})).json()
    assert "timingsMs" not in plain
    assert "parts" not in plain["results"][0]


@pytest.mark.req("S-01")
async def test_alpha_decides_how_much_meaning_counts(http: httpx.AsyncClient) -> None:
    given: dict[str, Any] = {"q": "show the contents of a directory", "limit": 20, "threshold": 0, "explain": True}
    by_words, by_meaning = [
        (await http.get("/search", params=given | {"alpha": alpha})).json()["results"] for alpha in (0, 1)
    ]
    assert not any(hit["parts"]["meaning"] for hit in by_words)
    assert not any(hit["parts"]["words"] for hit in by_meaning)
    assert (await http.get("/search", params=given | {"alpha": 1.1})).status_code == 422


@pytest.mark.req("Q-06")
@pytest.mark.parametrize("path", ["/search", "/api/v1/search"])
async def test_tools_below_the_threshold_are_listed_as_the_closest(http: httpx.AsyncClient, path: str) -> None:
    is_plain = path == "/search"
    query, threshold, hits = ("q", "threshold", "results") if is_plain else ("query", "tool_threshold", "tools")

    async def search(**given: Any) -> dict[str, Any]:
        given = {query: "read the contents of a file", **({} if is_plain else {"strategy": "direct"}), **given}
        response = await (http.get(path, params=given) if is_plain else http.post(path, json=given))
        answer: dict[str, Any] = response.json()
        return answer if response.status_code == 200 else {"status": response.status_code}

    found = await search(**{threshold: 1, "limit": 5, "closest": 3})
    assert found[hits] == []
    identity, score = ("toolId", "confidence") if is_plain else ("id", "score")
    assert [set(tool) for tool in found["closest"]] == [{identity, score, "description"}] * 3
    scores = [tool[score] for tool in found["closest"]]
    assert scores == sorted(scores, reverse=True)
    assert len((await search(**{threshold: 1, "limit": 2, "closest": 3}))["closest"]) == 2
    assert "closest" not in await search(**{threshold: 1})
    by_default = await search(limit=50)
    assert 1 <= len(by_default["closest"]) <= 3
    assert all(tool[score] < 0.35 for tool in by_default["closest"])
    assert "closest" not in await search(limit=50, closest=0)
    assert [await search(closest=closest) for closest in (-1, 4)] == [{"status": 422}] * 2


@pytest.mark.req("S-01", "S-04")
async def test_each_result_of_a_task_says_which_part_it_is_for(http: httpx.AsyncClient) -> None:
    task = (
        "Find out which containers are running on this machine and what their names are. Resize the picture of the "
        "team to half of its width. Finally convert the time of our next call from the time zone of Lisbon to that of "
        "Tokyo, and to that of Buenos Aires."
    )
    results = (await http.get("/search", params={"q": task, "limit": 5, "threshold": 0})).json()["results"]
    assert all(result["for"] in task for result in results)
    assert len({result["for"] for result in results}) >= 3
    short = (await http.get("/search", params={"q": "resize a picture"})).json()["results"]
    assert not any("for" in result for result in short)


@pytest.mark.req("S-04", "D-11", "X-03")
@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/search", 400, "q"),
        ("/search?q=" + "x" * 8001, 400, "q"),
        ("/search?q=x&limit=many", 422, "limit"),
        ("/search?q=x&threshold=1.01", 422, "threshold"),
    ],
)
async def test_an_invalid_request_gets_the_envelope_with_the_field(
    http: httpx.AsyncClient, path: str, status: int, field: str
) -> None:
    answer = await http.get(path)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", field)
    assert error["message"]


@pytest.mark.req("D-11", "X-03")
@pytest.mark.parametrize(
    ("request_line", "message"),
    [
        (
            "GET /search?query=read",
            "unknown parameter: 'query'; did you mean q? Allowed are q, limit, threshold, alpha, closest, ",
        ),
        (
            "GET /api/v1/search/tools?query=x&skill_id=a&itemtype=b",
            "'skill_id', 'itemtype'; did you mean skill_ids and ",
        ),
        ("POST /tools/filesystem__read_file?time_out=3", "unknown parameter: 'time_out'; did you mean timeout? "),
        ("DELETE /api/v1/skills/a?force=1", "unknown parameter: 'force'. This route has none"),
    ],
)
async def test_an_unknown_parameter_is_refused_with_the_name_that_was_meant(
    http: httpx.AsyncClient, request_line: str, message: str
) -> None:
    method, _, path = request_line.partition(" ")
    answer = await http.request(method, path)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["code"] == "VALIDATION_ERROR"
    assert message in error["message"]


@pytest.mark.req("D-11", "X-03")
async def test_an_unknown_field_is_named_before_those_that_are_missing(http: httpx.AsyncClient) -> None:
    answer = await http.post("/api/v1/search", json={"q": "read", "limits": 3})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith(
        "unknown fields: 'q', 'limits'; did you mean query and limit? Allowed are query, item_type, "
    )


@pytest.mark.req("D-11", "G-11")
@pytest.mark.parametrize(
    "path", ["/callback?code=a&state=b&session_state=c", "/.well-known/oauth-protected-resource?from=x"]
)
async def test_parameters_that_other_standards_define_are_accepted(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code in {200, 404}


@pytest.mark.req("X-03", "W-01")
@pytest.mark.parametrize("accept", ["*/*", "application/json"])
async def test_the_root_tells_programs_where_things_are(http: httpx.AsyncClient, accept: str) -> None:
    answer = await http.get("/", headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    places = answer.json()
    assert (places["name"], places["mcp"]) == ("Toolscript", "/mcp")
    for name in ("search", "openapi", "health", "ready"):
        assert (await http.get(places[name])).status_code == 200, name
    page = await http.get("/", headers={"Accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")


async def test_health_and_readiness_respond(http: httpx.AsyncClient) -> None:
    assert (await http.get("/health")).json()["status"] == "ok"
    assert (await http.get("/ready")).json() == {
        "status": "ready",
        "model": "hashed-64",
        "fallback": None,
        "servers": {},
    }


@pytest.mark.req("D-11")
async def test_an_unavailable_store_is_a_503(app: App) -> None:
    await app.stores.items.close()
    async with connect(app) as http:
        answer = await http.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "UNAVAILABLE"


@pytest.mark.req("D-11")
async def test_an_unknown_route_gets_the_envelope(http: httpx.AsyncClient) -> None:
    missing, wrong = await http.get("/nothing"), await http.patch("/search")
    assert (missing.status_code, wrong.status_code) == (404, 405)
    assert missing.json()["error"]["code"] == "NOT_FOUND"
    assert wrong.json()["error"]["code"] == "METHOD_NOT_ALLOWED"


@pytest.mark.req("D-11")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/search", ["GET", "POST"]),
        ("PATCH", "/documents/a/b", ["DELETE", "GET", "PUT"]),
        ("POST", "/openapi.json", ["GET", "HEAD"]),
    ],
)
async def test_a_wrong_method_gets_every_allowed_one(
    http: httpx.AsyncClient, method: str, path: str, allowed: list[str]
) -> None:
    answer = await http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, ", ".join(allowed))
    assert answer.json()["error"]["details"] == {"allowed": allowed}


@pytest.mark.req("S-04", "S-08")
async def test_statistics_have_the_number_of_tools_and_the_model(http: httpx.AsyncClient) -> None:
    assert (await http.get("/search/stats")).json() == {
        "indexedTools": 56,
        "embeddedSinceStart": 56,
        "model": "hashed-64",
        "dimensions": 64,
        "requestedModel": "hashed-64",
        "fallback": None,
        "alpha": 0.7,
        "learned": asdict(LEARNED),
        "limit": 3,
        "threshold": 0.35,
    }


@pytest.mark.req("D-10")
async def test_a_client_that_disconnects_while_sending_is_not_an_error(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    response: list[dict[str, Any]] = []
    sent = iter([{"type": "http.request", "body": b'{"q', "more_body": True}])

    async def receive() -> dict[str, Any]:
        return next(sent, {"type": "http.disconnect"})

    async def send(message: MutableMapping[str, Any]) -> None:
        response.append(dict(message))

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/api/v1/search",
        "raw_path": b"/api/v1/search",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-length", b"50")],
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await create_http_app(ServedApp(app.settings, app))(scope, receive, send)
    assert response[0]["status"] == 499
    assert "unexpected" not in {record.message for record in caplog.records}
