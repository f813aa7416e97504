"""The counts and times for Prometheus; no client can create unlimited labels."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from toolscript.adapters.observability.prometheus import PrometheusMetrics
from toolscript.domain.lru_cache import LruCache
from toolscript.domain.servers import ServerState, ServerStatus, Transport

pytestmark = pytest.mark.req("D-10")

SEARCH: dict[str, Any] = {
    "type": "documents.search",
    "tenant": "acme",
    "query": "a secret plan",
    "search_type": "hybrid",
    "took_ms": 12.0,
    "timings_ms": {"embed": 4.0, "rank": 2.5},
    "degraded": [],
    "doc_ids": ["one"],
    "error": None,
}


def samples(metrics: PrometheusMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The metrics as Prometheus reads them."""
    text, _ = metrics.exposition()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(metrics: PrometheusMetrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, tuple(sorted(labels.items()))))


def test_requests_are_counted_and_timed_by_route() -> None:
    metrics = PrometheusMetrics()
    for _ in range(3):
        metrics.count_request("GET", "/documents/{doc_id}", 200, 0.004)
    metrics.count_request("GET", "/documents/{doc_id}", 404, 0.2)
    labels = {"method": "GET", "route": "/documents/{doc_id}"}
    assert value(metrics, "toolscript_http_requests_total", **labels, status="200") == 3
    assert value(metrics, "toolscript_http_requests_total", **labels, status="404") == 1
    assert value(metrics, "toolscript_http_request_seconds_count", **labels) == 4
    assert value(metrics, "toolscript_http_request_seconds_sum", **labels) == pytest.approx(0.212)
    assert value(metrics, "toolscript_http_request_seconds_bucket", **labels, le="0.005") == 3


def test_a_search_is_counted_by_type_and_outcome_and_its_stages_are_timed() -> None:
    metrics = PrometheusMetrics()
    metrics.record(SEARCH)
    metrics.record({**SEARCH, "degraded": ["embedder", "reranker"]})
    metrics.record({**SEARCH, "search_type": "keyword", "error": "RATE_LIMITED", "timings_ms": {}})
    assert value(metrics, "toolscript_searches_total", type="hybrid", outcome="ok") == 1
    assert value(metrics, "toolscript_searches_total", type="hybrid", outcome="degraded") == 1
    assert value(metrics, "toolscript_searches_total", type="keyword", outcome="RATE_LIMITED") == 1
    assert value(metrics, "toolscript_degraded_total", what="reranker") == 1
    assert value(metrics, "toolscript_stage_seconds_count", search="documents", stage="embed") == 2
    assert value(metrics, "toolscript_stage_seconds_sum", search="documents", stage="rank") == pytest.approx(0.005)


def test_searches_for_tools_are_counted_and_their_stages_timed() -> None:
    metrics = PrometheusMetrics()
    for kind in ("tools.search", "hierarchical.search", "skills.search"):
        metrics.record({"type": kind, "timings_ms": {"embed": 3.0, "total": 4.0}, "degraded": [], "error": None})
    for searched in ("tools", "hierarchical", "skills"):
        assert value(metrics, "toolscript_searches_total", type=searched, outcome="ok") == 1
        assert value(metrics, "toolscript_stage_seconds_count", search=searched, stage="embed") == 1


def test_caches_and_the_index_are_measured() -> None:
    metrics = PrometheusMetrics()
    cache: LruCache[str, str] = LruCache(1)
    metrics.watch_caches({"tool_requests": cache})
    cache.hits, cache.misses = 4, 1
    text = metrics.exposition({"documents": 12})[0].decode()
    assert 'toolscript_cache_lookups_total{cache="tool_requests",outcome="hit"} 4.0' in text
    assert 'toolscript_cache_lookups_total{cache="tool_requests",outcome="miss"} 1.0' in text
    assert 'toolscript_index_points{collection="documents"} 12.0' in text
    assert "toolscript_index_points{" not in metrics.exposition()[0].decode()


def test_metrics_contain_neither_tenants_nor_queries() -> None:
    metrics = PrometheusMetrics()
    metrics.record(SEARCH)
    text, kind = metrics.exposition()
    assert b"acme" not in text
    assert b"secret" not in text
    assert kind.startswith("text/plain; version=")


def test_clients_cannot_create_unlimited_labels() -> None:
    metrics = PrometheusMetrics()
    before = len(samples(metrics))
    for number in range(1000):
        metrics.count_request(f"METHOD{number}", "none", 404, 0.001)
        timings = {f"stage{number}": 1.0}
        metrics.record({**SEARCH, "search_type": f"type{number}", "error": f"CODE{number}", "timings_ms": timings})
    assert value(metrics, "toolscript_http_requests_total", method="other", route="none", status="404") == 1000
    assert len(samples(metrics)) - before < 1500


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "something.else"},
        {"type": "documents.search"},
        {**SEARCH, "timings_ms": {"rank": "slow"}},
        {**SEARCH, "timings_ms": 7, "degraded": 7},
        {**SEARCH, "search_type": None},
    ],
)
def test_an_event_of_another_shape_is_ignored(event: dict[str, Any]) -> None:
    metrics = PrometheusMetrics()
    metrics.record(event)
    metrics.exposition()


async def test_two_instances_are_independent() -> None:
    one, other = PrometheusMetrics(), PrometheusMetrics()
    one.record(SEARCH)
    assert value(other, "toolscript_searches_total", type="hybrid", outcome="ok") is None
    await one.close()
    await other.close()


def test_lost_events_are_counted() -> None:
    metrics = PrometheusMetrics()
    lost = 0
    metrics.watch_drops(lambda: lost)
    assert value(metrics, "toolscript_events_dropped_total") == 0
    lost = 7
    assert value(metrics, "toolscript_events_dropped_total") == 7


def test_servers_are_up_or_down_and_have_items() -> None:
    metrics = PrometheusMetrics()
    statuses = [
        ServerStatus("files", Transport.STDIO, ServerState.READY, items={"tool": 12, "prompt": 1}, restarts=2),
        ServerStatus("github", Transport.HTTP, ServerState.FAILED, reason="refused", items={"tool": 40}),
        ServerStatus("slow", Transport.STDIO, ServerState.CONNECTING),
        ServerStatus("rare", Transport.STDIO, ServerState.ASLEEP, items={"tool": 3}),
        ServerStatus("off", Transport.STDIO, ServerState.STOPPED),
    ]
    metrics.watch_servers(lambda: statuses)
    up = {
        server: value(metrics, "toolscript_server_up", server=server) for server in ("files", "github", "slow", "rare")
    }
    assert up == {"files": 1, "github": 0, "slow": 0, "rare": 1}
    assert value(metrics, "toolscript_server_asleep", server="rare") == 1
    assert value(metrics, "toolscript_server_up", server="off") == 0
    assert value(metrics, "toolscript_server_stopped", server="off") == 1
    assert value(metrics, "toolscript_server_stopped", server="files") == 0
    assert value(metrics, "toolscript_server_restarts_total", server="files") == 2
    assert value(metrics, "toolscript_server_asleep", server="files") == 0
    assert value(metrics, "toolscript_server_items", server="files", type="tool") == 12
    assert value(metrics, "toolscript_server_items", server="github", type="tool") == 40
    del statuses[1]
    assert value(metrics, "toolscript_server_up", server="github") is None


def test_calls_are_counted_by_server_and_outcome() -> None:
    metrics = PrometheusMetrics()
    call = {"type": "tools.call", "tool": "files__read", "server": "files", "arguments_checked": True, "error": None}
    metrics.record(call)
    metrics.record(call | {"error": "TIMED_OUT", "arguments_checked": False})
    assert value(metrics, "toolscript_tool_calls_total", server="files", outcome="ok") == 1
    assert value(metrics, "toolscript_tool_calls_total", server="files", outcome="TIMED_OUT") == 1
    assert value(metrics, "toolscript_unchecked_calls_total") == 1
