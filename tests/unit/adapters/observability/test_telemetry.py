"""Spans: their names and parents, and that they reach a collector."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.fixtures.limits import set_limits
from tests.fixtures.requests import as_request
from tests.servers.otlp import OtlpCollector
from toolscript.adapters.observability.telemetry import Telemetry
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.search import SearchReport
from toolscript.surfaces.http.app import GatewayApi

pytestmark = pytest.mark.req("D-10")

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    with OtlpCollector() as double:
        yield double


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Where the spans of a host's own provider go: one that was set for the whole process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    return exporter


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def parent_of(spans: dict[str, ReadableSpan], name: str) -> str | None:
    """The name of the span that one is inside of."""
    parent = spans[name].parent
    return next((n for n, s in spans.items() if parent and s.context and s.context.span_id == parent.span_id), None)


async def search(telemetry: Telemetry) -> SearchReport:
    """What a search does: two stages at once, then a third."""
    report = SearchReport(span=telemetry.span)

    async def one(name: str) -> None:
        with report.stage(name):
            await asyncio.sleep(0)

    with telemetry.span("execute"):
        await asyncio.gather(one("embed"), one("weigh"))
        await one("rank")
    return report


async def test_stages_are_inside_the_span_of_their_search(hosts: InMemorySpanExporter) -> None:
    with as_request(request_id="one-of-many"):
        await search(Telemetry())
    spans = by_name(hosts)
    assert spans.keys() == {"search.execute", "search.embed", "search.weigh", "search.rank"}
    assert {parent_of(spans, f"search.{name}") for name in ("embed", "weigh", "rank")} == {"search.execute"}
    assert parent_of(spans, "search.execute") is None
    assert {(span.attributes or {})["request_id"] for span in spans.values()} == {"one-of-many"}


async def test_a_name_with_the_prefix_is_not_prefixed_again(hosts: InMemorySpanExporter) -> None:
    with Telemetry().span("search.execute"):
        pass
    assert list(by_name(hosts)) == ["search.execute"]


async def test_an_error_is_recorded_and_passed_on(hosts: InMemorySpanExporter) -> None:
    with pytest.raises(Unavailable), Telemetry().span("rank"):
        raise Unavailable("the index is down")
    span = by_name(hosts)["search.rank"]
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


async def test_without_a_provider_a_span_costs_next_to_nothing() -> None:
    telemetry = Telemetry()
    report = await search(telemetry)
    assert report.timings_ms.keys() == {"embed", "weigh", "rank"}
    started = time.thread_time()
    for _ in range(1000):
        with telemetry.span("rank"):
            pass
    assert (time.thread_time() - started) / 1000 < 0.0005
    await telemetry.close()


def _api(telemetry: Telemetry) -> GatewayApi:
    """An application with a search, a route that fails in a way nobody expected, and one during which it stops."""
    opened = SimpleNamespace(observability=SimpleNamespace(telemetry=telemetry, metrics=None))
    is_stopping = asyncio.Event()
    http = GatewayApi(cast("Any", SimpleNamespace(current=opened, is_stopping=is_stopping)))

    @http.get("/search/{name}")
    async def searching(name: str) -> dict[str, str]:
        await search(telemetry)
        return {"name": name}

    @http.get("/broken")
    async def broken() -> None:
        raise RuntimeError("nobody expected this")

    @http.get("/stopping")
    async def stopping() -> None:
        is_stopping.set()
        raise asyncio.CancelledError

    return http


def _client(telemetry: Telemetry) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(_api(telemetry), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


async def test_a_host_provider_gets_one_server_span_with_the_search_inside(hosts: InMemorySpanExporter) -> None:
    async with _client(Telemetry()) as http:
        await http.get("/search/fish?q=secret", headers={"X-Request-ID": "mine", **CALLER})
    spans = by_name(hosts)
    servers = [span for span in spans.values() if span.kind is SpanKind.SERVER]
    assert [span.name for span in servers] == ["GET /search/{name}"]
    server = servers[0]
    assert (server.attributes or {})["request_id"] == "mine"
    assert f"{server.context and server.context.trace_id:032x}" == TRACE
    outer = parent_of(spans, "search.execute")
    while outer and outer != server.name:
        outer = parent_of(spans, outer)
    assert outer == server.name


@pytest.fixture
async def exported(collector: OtlpCollector) -> AsyncIterator[tuple[OtlpCollector, Telemetry]]:
    telemetry = Telemetry(collector.root)
    yield collector, telemetry
    await telemetry.close()


async def test_a_collector_gets_every_span_of_a_request(exported: tuple[OtlpCollector, Telemetry]) -> None:
    collector, telemetry = exported
    async with _client(telemetry) as http:
        await http.get("/search/fish?q=secret", headers={"X-Request-ID": "mine", **CALLER})
    await telemetry.close()
    assert set(collector.requests) == {"POST /v1/traces"}
    assert {resource["service.name"] for resource in collector.resources} == {"toolscript"}
    spans = {span.name: span for span in collector.spans}
    assert spans.keys() == {"GET /search/{name}", "search.execute", "search.embed", "search.weigh", "search.rank"}
    server = spans["GET /search/{name}"]
    assert (server.trace_id.hex(), server.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")
    assert spans["search.execute"].parent_span_id == server.span_id
    assert {spans[f"search.{n}"].parent_span_id for n in ("embed", "weigh", "rank")} == {
        spans["search.execute"].span_id
    }
    attributes = {a.key: a.value.string_value or a.value.int_value for a in server.attributes}
    assert attributes == {
        "http.request.method": "GET",
        "http.route": "/search/{name}",
        "http.response.status_code": 200,
        "request_id": "mine",
    }


async def test_an_error_status_marks_the_span_of_its_request(exported: tuple[OtlpCollector, Telemetry]) -> None:
    collector, telemetry = exported
    async with _client(telemetry) as http:
        assert (await http.get("/broken")).status_code == 500
        assert (await http.get("/nowhere")).status_code == 404
    await telemetry.close()
    spans = {span.name: span for span in collector.spans}
    assert spans.keys() == {"GET /broken", "GET none"}
    assert (spans["GET /broken"].status.code, spans["GET none"].status.code) == (2, 0)
    assert [event.name for event in spans["GET /broken"].events] == ["exception"]


async def test_the_span_of_a_request_that_a_stopping_gateway_ends_has_the_status_that_is_sent(
    exported: tuple[OtlpCollector, Telemetry],
) -> None:
    collector, telemetry = exported
    async with _client(telemetry) as http:
        with suppress(asyncio.CancelledError):
            await http.get("/stopping")
    await telemetry.close()
    (span,) = collector.spans
    assert {a.key: a.value.int_value for a in span.attributes}["http.response.status_code"] == 503
    assert span.status.code == 2


@pytest.mark.parametrize("sent", ["", "nonsense", "00-0-0-01", f"00-{'0' * 32}-{'0' * 16}-01", "\xff"])
async def test_a_request_without_a_traceparent_starts_a_new_trace(
    exported: tuple[OtlpCollector, Telemetry], sent: str
) -> None:
    collector, telemetry = exported
    with telemetry.request("GET", [(b"traceparent", sent.encode("latin-1"))]) as tell:
        tell("/search", 200)
    await telemetry.close()
    (span,) = collector.spans
    assert (span.name, span.parent_span_id) == ("GET /search", b"")


@pytest.mark.slow
async def test_a_collector_that_hangs_delays_closing_only_for_a_while(
    collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, trace_export=0.2)
    collector.let_go.clear()
    telemetry = Telemetry(collector.root)
    await search(telemetry)
    started = time.monotonic()
    await telemetry.close()
    assert time.monotonic() - started < 60


@pytest.mark.slow
async def test_without_a_collector_nothing_fails() -> None:
    telemetry = Telemetry("http://127.0.0.1:9")
    await search(telemetry)
    started = time.monotonic()
    await telemetry.close()
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("ending", ["", "/", "/v1/traces", "/v1/traces/"])
async def test_the_endpoint_may_be_the_base_url_or_the_url_of_traces(collector: OtlpCollector, ending: str) -> None:
    telemetry = Telemetry(collector.root + ending)
    with telemetry.span("execute"):
        pass
    await telemetry.close()
    assert collector.requests == ["POST /v1/traces"]


@pytest.mark.parametrize("endpoint", ["nowhere", "ftp://there", "http://", "grpc://there:4317"])
def test_an_invalid_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_OTLP_ENDPOINT is not a valid URL"):
        Telemetry(endpoint)


@pytest.mark.req("G-16")
async def test_the_events_of_the_audit_are_attributes_of_spans(hosts: InMemorySpanExporter) -> None:
    telemetry = Telemetry()
    event = {"caller": "ci", "surface": "mcp", "profile": "", "took_ms": 5.0, "error": None}
    with telemetry.span("tools.call"):
        telemetry.record(event | {"type": "tools.call", "tool": "git__log", "arguments": "sha256:1", "bytes": 7})
    telemetry.record(event | {"type": "tools.search", "query": "commits", "hits": 0, "error": "VALIDATION_ERROR"})
    telemetry.record(event | {"type": "documents.search", "query": "private"})
    spans = by_name(hosts)
    assert spans.keys() == {"tools.call", "tools.search"}
    assert spans["tools.call"].attributes == {
        "toolscript.caller": "ci",
        "toolscript.surface": "mcp",
        "toolscript.tool": "git__log",
        "toolscript.arguments": "sha256:1",
        "toolscript.bytes": 7,
    }
    searched = spans["tools.search"]
    assert searched.status.status_code is StatusCode.ERROR
    assert (searched.attributes or {})["toolscript.query"] == "commits"
    assert ((searched.end_time or 0) - (searched.start_time or 0)) == 5_000_000
