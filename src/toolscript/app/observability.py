"""Opens the query log, metrics and tracing. Imports only what the settings name."""

from __future__ import annotations

from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolscript.adapters.observability.event_sinks import Sinks, open_http_sink, open_jsonl_sink
from toolscript.app.extras import missing_extra
from toolscript.domain.search import no_span
from toolscript.ports.observability import EventSink
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.adapters.observability.prometheus import PrometheusMetrics
    from toolscript.adapters.observability.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Observability:
    """The sinks of events; when serving HTTP, also metrics and tracing."""

    events: EventSink
    metrics: PrometheusMetrics | None
    telemetry: Telemetry | None

    def span(self, name: str) -> AbstractContextManager[object]:
        """A span for a stage of that name."""
        return self.telemetry.span(name) if self.telemetry else no_span(name)


def open_observability(settings: Settings, stack: AsyncExitStack, *, serving: bool) -> Observability:
    """Opens what the settings name. Raises Invalid."""
    metrics = _metrics() if serving else None
    sinks: list[EventSink] = [metrics] if metrics else []
    if settings.events:
        is_url = settings.events.startswith(("http://", "https://"))
        sinks.append(open_http_sink(settings.events) if is_url else open_jsonl_sink(Path(settings.events).expanduser()))
    events = Sinks(sinks)
    stack.push_async_callback(events.close)
    if metrics:
        metrics.watch_drops(lambda: events.dropped)
    telemetry = _telemetry(settings) if serving or settings.otlp_endpoint else None
    if telemetry:
        stack.push_async_callback(telemetry.close)
    return Observability(events, metrics, telemetry)


def _metrics() -> PrometheusMetrics:
    from toolscript.adapters.observability.prometheus import PrometheusMetrics

    return PrometheusMetrics()


def _telemetry(settings: Settings) -> Telemetry:
    try:
        from toolscript.adapters.observability.telemetry import Telemetry

        return Telemetry(settings.otlp_endpoint)
    except ImportError as error:
        raise missing_extra("telemetry", "TOOLSCRIPT_OTLP_ENDPOINT") from error
