"""Counts and times for Prometheus.

Every label has few values, and clients cannot add more: routes are templates, methods and search types come from fixed
sets, and a tenant is never a label.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from toolscript.domain.lru_cache import LruCache
from toolscript.domain.servers import ServerState, ServerStatus

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SEARCH_TYPES = frozenset({"semantic", "keyword", "hybrid", "knowledge", "tools", "hierarchical", "skills"})
# The searched content by event type.
SEARCH_EVENTS = {
    "documents.search": "documents",
    "knowledge.search": "knowledge",
    "tools.search": "tools",
    "hierarchical.search": "hierarchical",
    "skills.search": "skills",
}
CALL_EVENT = "tools.call"
SERVER = "server"
OTHER = "other"
MAX_NAMES = 64
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STAGE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

log = logging.getLogger(__name__)


class PrometheusMetrics:
    """Counts HTTP requests, and searches as an event sink. Each instance has its own registry, so that a process can
    have several."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self._names: set[str] = set()
        text = "HTTP requests by status; 499: the client disconnected before the response."
        self._http = Counter("toolscript_http_requests", text, ("method", "route", "status"), registry=registry)
        text = "Time from the first byte of a request to the last byte of its response."
        self._http_seconds = Histogram(
            "toolscript_http_request_seconds", text, ("method", "route"), buckets=REQUEST_BUCKETS, registry=registry
        )
        # Looking them up by their labels takes longer than counting.
        self._request_metrics: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        text = (
            "Searches of documents, by their type, and of knowledge, tools, tools through skills (hierarchical) and "
            "skills. Outcome: ok, degraded (a part was unavailable), or the error code."
        )
        self._searches = Counter("toolscript_searches", text, ("type", "outcome"), registry=registry)
        text = "Duration of each stage of a search."
        self._stages = Histogram(
            "toolscript_stage_seconds", text, ("search", "stage"), buckets=STAGE_BUCKETS, registry=registry
        )
        text = "Searches without a part that was unavailable."
        self._degraded = Counter("toolscript_degraded", text, ("what",), registry=registry)
        text = "Calls of tools. Outcome: ok, or the error code."
        self._calls = Counter("toolscript_tool_calls", text, ("server", "outcome"), registry=registry)
        text = "Calls whose arguments could not be checked in time; the server got them as they were."
        self._unchecked = Counter("toolscript_unchecked_calls", text, registry=registry)
        text = "Points in the collections of the index."
        self._points = Gauge("toolscript_index_points", text, ("collection",), registry=registry)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts one HTTP request. `route` is the path template."""
        known = method if method in METHODS else OTHER
        found = self._request_metrics.get((known, route, status))
        if found is None:
            found = self._http.labels(known, route, str(status)), self._http_seconds.labels(known, route)
            self._request_metrics[known, route, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def record(self, event: Mapping[str, Any]) -> None:
        """Counts a search or a call; ignores other events. Never raises."""
        try:
            if event.get("type") in SEARCH_EVENTS:
                self._count_search(SEARCH_EVENTS[event["type"]], event)
            elif event.get("type") == CALL_EVENT:
                self._calls.labels(event["server"], event["error"] or "ok").inc()
                self._unchecked.inc(not event["arguments_checked"])
        except (TypeError, ValueError, AttributeError) as error:
            log.debug("event_not_counted", extra={"reason": str(error)})

    def watch_drops(self, dropped: Callable[[], int], lost_by_audit: Callable[[], int] = lambda: 0) -> None:
        """Adds the numbers of events that the sink and the audit lost to the metrics. Call once."""
        self._registry.register(_DroppedEvents(dropped, lost_by_audit))

    def watch_servers(self, statuses: Callable[[], Sequence[ServerStatus]]) -> None:
        """Adds the state and the number of items of every server to the metrics. Call once."""
        self._registry.register(_ServerStates(statuses))

    def watch_caches(self, caches: Mapping[str, LruCache[Any, Any]]) -> None:
        """Adds how often the caches of these names were of use to the metrics. Call once."""
        self._registry.register(_CacheUses(caches))

    @property
    def servers(self) -> frozenset[str]:
        """The servers that metrics name."""
        samples = (sample for family in self._registry.collect() for sample in family.samples)
        return frozenset(sample.labels[SERVER] for sample in samples if SERVER in sample.labels)

    def exposition(
        self, points: Mapping[str, int] | None = None, *, hidden_servers: Collection[str] = ()
    ) -> tuple[bytes, str]:
        """All metrics in Prometheus' text format, and its content type, without hidden servers. `points` has
        the sizes of the collections of the index that are known."""
        self._points.clear()  # collections that are gone, or whose size is not known now
        for collection, count in (points or {}).items():
            self._points.labels(collection).set(count)
        return generate_latest(_VisibleMetrics(self._registry, hidden_servers)), CONTENT_TYPE_LATEST

    async def close(self) -> None:
        """Does nothing: counts are not written anywhere."""

    def _count_search(self, searched: str, event: Mapping[str, Any]) -> None:
        kind = str(event.get("search_type", searched))
        degraded = list(event.get("degraded") or ())
        outcome = event.get("error") or ("degraded" if degraded else "ok")
        self._searches.labels(kind if kind in SEARCH_TYPES else OTHER, self._limit_names(outcome)).inc()
        for what in degraded:
            self._degraded.labels(self._limit_names(what)).inc()
        for name, milliseconds in (event.get("timings_ms") or {}).items():
            self._stages.labels(searched, self._limit_names(name)).observe(float(milliseconds) / 1000)

    def _limit_names(self, name: Any) -> str:
        """The name as a label. There are few; beyond the maximum, further names become `other`."""
        label = str(name)
        if label not in self._names:
            if len(self._names) >= MAX_NAMES:
                return OTHER
            self._names.add(label)
        return label


class _VisibleMetrics(CollectorRegistry):
    """The metrics of a registry without hidden servers."""

    def __init__(self, registry: CollectorRegistry, hidden_servers: Collection[str]) -> None:
        super().__init__()
        self._all = registry
        self._hidden = hidden_servers

    def collect(self) -> Iterable[Metric]:
        for family in self._all.collect():
            if self._hidden:
                family.samples = [each for each in family.samples if each.labels.get(SERVER) not in self._hidden]
            yield family


class _DroppedEvents(Collector):
    """Reads the number of lost events when metrics are collected."""

    def __init__(self, dropped: Callable[[], int], lost_by_audit: Callable[[], int]) -> None:
        self._dropped = dropped
        self._lost_by_audit = lost_by_audit

    def collect(self) -> Iterable[Metric]:
        text = "Events that never reached a sink or the audit, because those were down or too slow."
        yield CounterMetricFamily("toolscript_events_dropped", text, value=self._dropped())
        text = "Calls and searches that are not in the audit, because its store was full, down or too slow."
        yield CounterMetricFamily("toolscript_audit_lost", text, value=self._lost_by_audit())


class _CacheUses(Collector):
    """Reads the use of caches when metrics are collected."""

    def __init__(self, caches: Mapping[str, LruCache[Any, Any]]) -> None:
        self._caches = caches

    def collect(self) -> Iterable[Metric]:
        text = "Lookups in caches: vectors of requests for tools and texts, results of hierarchical searches."
        lookups = CounterMetricFamily("toolscript_cache_lookups", text, labels=("cache", "outcome"))
        for name, cache in self._caches.items():
            lookups.add_metric([name, "hit"], cache.hits)
            lookups.add_metric([name, "miss"], cache.misses)
        return [lookups]


class _ServerStates(Collector):
    """Reads the states of the servers when metrics are collected."""

    def __init__(self, statuses: Callable[[], Sequence[ServerStatus]]) -> None:
        self._statuses = statuses

    def collect(self) -> Iterable[Metric]:
        text = "Whether the server is connected, or asleep until a call: 1; 0 while it connects, failed or is stopped."
        up = GaugeMetricFamily("toolscript_server_up", text, labels=("server",))
        text = "Whether the server is asleep: 1 from its stop to the next call."
        asleep = GaugeMetricFamily("toolscript_server_asleep", text, labels=("server",))
        text = "Whether somebody has stopped the server: 1 until it is started."
        stopped = GaugeMetricFamily("toolscript_server_stopped", text, labels=("server",))
        text = "How often the server was connected again after it was lost, or on request, since the gateway started."
        restarts = CounterMetricFamily("toolscript_server_restarts", text, labels=("server",))
        text = "Tools, prompts and resources of the server."
        items = GaugeMetricFamily("toolscript_server_items", text, labels=("server", "type"))
        for status in self._statuses():
            up.add_metric([status.name], status.state in {ServerState.READY, ServerState.ASLEEP})
            asleep.add_metric([status.name], status.state is ServerState.ASLEEP)
            stopped.add_metric([status.name], status.state is ServerState.STOPPED)
            restarts.add_metric([status.name], status.restarts)
            for kind, count in status.items.items():
                items.add_metric([status.name, kind], count)
        return [up, asleep, stopped, restarts, items]
