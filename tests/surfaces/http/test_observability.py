"""Request ids, log lines, metrics, spans and the query log."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from tests.fixtures.examples import is_thorough
from tests.servers.gateway import run_gateway
from tests.servers.otlp import OtlpCollector
from toolscript.app.app import App, open_app
from toolscript.domain.requests import current_request
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.request_tracking import RequestTracking
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("D-10")

# 20 µs are needed. In `make test` twenty times that, for slow machines and for coverage, which triples it.
MAX_SECONDS_PER_REQUEST = 50e-6 if is_thorough() and sys.gettrace() is None else 400e-6
KEY = "a-key-of-the-tests"
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture
async def served(small: Settings) -> AsyncIterator[App]:
    async with open_app(small, serving=True) as opened:
        yield opened


def client(serving: ServedApp) -> httpx.AsyncClient:
    """A client of the application with two more routes: one fails, one streams."""
    http = create_http_app(serving)

    async def broken() -> None:
        raise RuntimeError("nobody expected this")

    async def slow() -> StreamingResponse:
        async def lines() -> AsyncIterator[str]:
            for _ in range(3):
                await asyncio.sleep(0)
                yield current_request().get_or_create_id() + "\n"

        return StreamingResponse(lines())

    http.add_api_route("/broken", broken)
    http.add_api_route("/slow/{name}", slow)
    transport = httpx.ASGITransport(http, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.fixture
async def http(served: App) -> AsyncIterator[httpx.AsyncClient]:
    async with client(ServedApp(served.settings, served)) as opened:
        yield opened


@pytest.fixture(scope="module")
async def shared_http(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """For tests that look at the response only."""
    settings = load_settings(variables={}, data_dir=tmp_path_factory.mktemp("shared"), search_model="hashed-64")
    async with open_app(settings, serving=True) as app, client(ServedApp(settings, app)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/search?q=read", 200),
        ("GET", "/search?q=x&limit=0", 422),
        ("GET", "/nowhere", 404),
        ("DELETE", "/health", 405),
        ("POST", "/search", 422),
        ("GET", "/tools/none__such", 404),
        ("GET", "/broken", 500),
        ("GET", "/slow/one", 200),
        ("GET", "/metrics", 200),
        ("GET", "/openapi.json", 200),
    ],
)
async def test_every_response_has_the_id_of_its_request_and_is_no_page(
    shared_http: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await shared_http.request(method, path, headers={"X-Request-ID": "mine"})
    assert (answer.status_code, answer.headers.get_list("x-request-id")) == (status, ["mine"])
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    anonymous = await shared_http.request(method, path)
    UUID(anonymous.headers["x-request-id"])


async def test_responses_of_the_guard_have_an_id_too(http: httpx.AsyncClient) -> None:
    answer = await http.get("/health", headers={"Host": "evil.example", "X-Request-ID": "mine"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (403, "mine")


async def test_responses_have_the_id_while_the_application_is_opening(small: Settings) -> None:
    async with client(ServedApp(small)) as http:
        answer = await http.get("/ready", headers={"X-Request-ID": "mine"})
        assert (answer.status_code, answer.headers["x-request-id"]) == (503, "mine")


@pytest.mark.parametrize("sent", [b"", b"   ", b"x" * 129, "größer".encode(), b"tab\there", b"\x7f", b"\xff"])
async def test_an_invalid_id_is_replaced(shared_http: httpx.AsyncClient, sent: bytes) -> None:
    answer = await shared_http.get("/health", headers=[(b"X-Request-ID", sent)])
    UUID(answer.headers["x-request-id"])


@pytest.mark.parametrize("sent", ["a", "x" * 128, "00-abc/def:1=2", "two words"])
async def test_a_valid_id_is_kept(http: httpx.AsyncClient, sent: str) -> None:
    assert (await http.get("/health", headers={"X-Request-ID": sent})).headers["x-request-id"] == sent


async def test_the_id_is_set_during_the_request_and_reset_afterwards(
    http: httpx.AsyncClient,
) -> None:
    answers = await asyncio.gather(*(http.get("/slow/one", headers={"X-Request-ID": f"id{n}"}) for n in range(20)))
    assert [answer.text for answer in answers] == [f"id{n}\n" * 3 for n in range(20)]
    assert current_request().request_id is None


async def test_a_request_is_one_log_line_without_its_contents(http: httpx.AsyncClient, lines: io.StringIO) -> None:
    headers = {"X-Request-ID": "mine", "Authorization": "Bearer s3cr3t"}
    await http.get("/slow/s3cr3t?q=s3cr3t", headers=headers)
    (line,) = lines.getvalue().splitlines()
    fields = json.loads(line)
    assert fields.pop("ms") >= 0
    del fields["time"]
    assert fields == {
        "level": "info",
        "event": "request",
        "request_id": "mine",
        "method": "GET",
        "route": "/slow/{name}",
        "status": 200,
    }


async def test_an_unexpected_error_is_logged_with_the_request_id(http: httpx.AsyncClient, lines: io.StringIO) -> None:
    answer = await http.get("/broken", headers={"X-Request-ID": "mine"})
    assert answer.json()["error"]["code"] == "INTERNAL_ERROR"
    unexpected, request = map(json.loads, lines.getvalue().splitlines())
    assert (unexpected["event"], unexpected["request_id"]) == ("unexpected", "mine")
    assert "nobody expected this" in unexpected["exception"]
    assert (request["event"], request["request_id"], request["status"]) == ("request", "mine", 500)


def counts(exposition: str) -> dict[tuple[str, str, str], float]:
    return {
        (sample.labels["method"], sample.labels["route"], sample.labels["status"]): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
        if sample.name == "toolscript_http_requests_total"
    }


async def test_requests_are_counted_by_the_template_of_their_route(http: httpx.AsyncClient) -> None:
    for number in range(5):
        await http.get(f"/slow/{number}?q={number}")
        await http.get(f"/nowhere/{number}")
        await http.request(f"ODD{number}", "/health")
    await http.get("/broken")
    answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert counts(answer.text) == {
        ("GET", "/slow/{name}", "200"): 5,
        ("GET", "none", "404"): 5,
        ("other", "/health", "405"): 5,
        ("GET", "/broken", "500"): 1,
    }


async def test_metrics_need_the_key_where_there_is_one(served: App) -> None:
    settings = replace(served.settings, api_key=KEY)
    async with client(ServedApp(settings, served)) as http:
        assert (await http.get("/metrics")).status_code == 401
        assert (await http.get("/metrics", headers={"Authorization": f"Bearer {KEY}"})).status_code == 200


async def test_metrics_are_a_404_without_metrics(app: App) -> None:
    async with client(ServedApp(app.settings, app)) as http:
        answer = await http.get("/metrics")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND")


async def test_a_disconnected_client_is_counted_as_499(served: App) -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_: Message) -> None:
        """Does nothing."""

    scope: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(RequestTracking(never, ServedApp(served.settings, served))(scope, receive, send), 0.01)
    assert served.observability.metrics is not None
    assert counts(served.observability.metrics.exposition()[0].decode()) == {("GET", "none", "499"): 1}
    assert current_request().request_id is None


async def test_tracking_a_request_is_fast(served: App) -> None:
    start: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}

    async def bare(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start)
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_: Message) -> None:
        """Does nothing."""

    async def took(asgi: Any) -> float:
        started = time.thread_time()
        for _ in range(300):
            scope: Scope = {"type": "http", "method": "GET", "path": "/health", "headers": [(b"host", b"127.0.0.1")]}
            await asgi(scope, receive, send)
        return (time.thread_time() - started) / 300

    followed = RequestTracking(bare, ServedApp(served.settings, served))
    # The minimum of many runs, because other processes take the processor's caches away.
    assert min([await took(followed) for _ in range(20)]) - min([await took(bare) for _ in range(20)]) < (
        MAX_SECONDS_PER_REQUEST
    )


@pytest.mark.req("D-12")
def test_a_search_has_the_same_id_in_response_log_events_and_spans(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    with (
        OtlpCollector() as collector,
        run_gateway(
            tmp_path,
            DATA_DIR=str(tmp_path / "data"),
            LOG_LEVEL="info",
            EVENTS=str(events),
            OTLP_ENDPOINT=collector.root,
            DEBUG_BYPASS_AUTH="true",
        ) as gateway,
        httpx.Client(base_url=gateway.url, headers={"X-Debug-Bypass-Auth": "1"}, timeout=30) as http,
    ):
        assert http.put("/documents/one", json={"text": "The cat eats fish."}).status_code == 201
        query = {"query": "what does the cat eat", "search_type": "hybrid"}
        answer = http.post("/search", json=query, headers={"X-Request-ID": "mine", **CALLER})
        assert answer.json()["query_id"]
        streamed = http.post("/search", json=query, headers={"Accept": "application/x-ndjson", "X-Request-ID": "other"})
        assert list(map(json.loads, streamed.text.splitlines()))[-1]["done"]["query_id"]
        exposition = http.get("/metrics").text
    assert answer.headers["x-request-id"] == "mine"
    event, of_stream = map(json.loads, events.read_text().splitlines())
    assert (event["type"], event["request_id"], event["doc_ids"]) == ("documents.search", "mine", ["one"])
    lines = [json.loads(line) for line in gateway.log.read_text().splitlines()]
    assert [each["event"] for each in lines if each["level"] != "info"] == []
    assert [(each["route"], each["status"]) for each in lines if each.get("request_id") == "mine"] == [("/search", 200)]
    assert (of_stream["request_id"], of_stream["doc_ids"]) == ("other", ["one"])
    assert 'toolscript_searches_total{outcome="ok",type="hybrid"} 2.0' in exposition
    spans = {span.name: span for span in collector.spans if span.trace_id.hex() == TRACE}
    assert {"POST /search", "search.execute"} <= spans.keys()
    assert spans["search.execute"].parent_span_id == spans["POST /search"].span_id
    stages = {name: span for name, span in spans.items() if name.startswith("search.") and name != "search.execute"}
    assert {f"search.{name}" for name in event["timings_ms"] if name != "total"} == stages.keys()
    assert {span.parent_span_id for span in stages.values()} == {spans["search.execute"].span_id}
