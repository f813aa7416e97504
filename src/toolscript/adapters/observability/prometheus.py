"""Counts and times for Prometheus.

Every label has few values, whatever callers send: routes are templates, methods and kinds of search are known ones,
and a tenant is never a label.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SEARCH_TYPES = frozenset({"semantic", "keyword", "hybrid", "knowledge"})
# What is searched, by the type of the event.
SEARCHED = {"documents.search": "documents", "knowledge.search": "knowledge"}
OTHER = "other"
MOST_NAMES = 64
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STAGE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

log = logging.getLogger(__name__)


class PrometheusMetrics:
    """An event sink that counts, and a count of HTTP requests. The registry is its own: several may live side by
    side in a process."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self._names: set[str] = set()
        self._http = Counter(
            "toolscript_http_requests",
            "Requests that were answered; status 499: the caller left before.",
            ("method", "route", "status"),
            registry=registry,
        )
        self._http_seconds = Histogram(
            "toolscript_http_request_seconds",
            "From the first byte of a request to the last one of its answer.",
            ("method", "route"),
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        # Finding them by their labels takes longer than counting does.
        self._of_requests: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._searches = Counter(
            "toolscript_searches",
            "Searches of documents, by their type, and of knowledge. Outcome: ok, degraded (something was done "
            "without), or the code of the error.",
            ("type", "outcome"),
            registry=registry,
        )
        self._stages = Histogram(
            "toolscript_stage_seconds",
            "How long each stage of a search takes.",
            ("search", "stage"),
            buckets=STAGE_BUCKETS,
            registry=registry,
        )
        self._degraded = Counter(
            "toolscript_degraded", "Searches that had to do without something.", ("what",), registry=registry
        )
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

    def request_done(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts one HTTP request. The route is its template."""
        known = method if method in METHODS else OTHER
        kept = self._of_requests.get((known, route, status))
        if kept is None:
            kept = self._http.labels(known, route, str(status)), self._http_seconds.labels(known, route)
            self._of_requests[known, route, status] = kept
        kept[0].inc()
        kept[1].observe(seconds)

    def record(self, event: Mapping[str, Any]) -> None:
        """Counts a search of documents or knowledge; other events are none of its business. Never raises."""
        try:
            if event.get("type") in SEARCHED:
                self._count_search(SEARCHED[event["type"]], event)
        except (TypeError, ValueError, AttributeError) as error:
            log.debug("event_not_counted", extra={"reason": str(error)})

    def watch_drops(self, dropped: Callable[[], int]) -> None:
        """Shows how many events were lost on their way to the analytics sinks. To be called once."""
        self._registry.register(_Drops(dropped))

    def exposition(self) -> tuple[bytes, str]:
        """Everything, in Prometheus' text format, and the content type of that."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    async def close(self) -> None:
        """There is nothing to be written."""

    def _count_search(self, searched: str, event: Mapping[str, Any]) -> None:
        kind = str(event.get("search_type", searched))
        degraded = list(event.get("degraded") or ())
        outcome = event.get("error") or ("degraded" if degraded else "ok")
        self._searches.labels(kind if kind in SEARCH_TYPES else OTHER, self._bounded(outcome)).inc()
        for what in degraded:
            self._degraded.labels(self._bounded(what)).inc()
        for name, milliseconds in (event.get("timings_ms") or {}).items():
            self._stages.labels(searched, self._bounded(name)).observe(float(milliseconds) / 1000)

    def _bounded(self, name: Any) -> str:
        """A name that code has chosen, of which there are few; should that ever not be so, the rest are one."""
        told = str(name)
        if told not in self._names:
            if len(self._names) >= MOST_NAMES:
                return OTHER
            self._names.add(told)
        return told


class _Drops(Collector):
    """Read when somebody looks."""

    def __init__(self, dropped: Callable[[], int]) -> None:
        self._dropped = dropped

    def collect(self) -> Iterable[Metric]:
        told = "Events that never reached the analytics sinks, because those were down or too slow."
        yield CounterMetricFamily("toolscript_events_dropped", told, value=self._dropped())
