"""Opens the query log, metrics and tracing. Imports only what the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscript.adapters.models.batching_embedder import BatchingEmbedder
from toolscript.adapters.observability.audit_sink import AuditSink
from toolscript.adapters.observability.event_sinks import Sinks, open_http_sink, open_jsonl_sink
from toolscript.app.audit import open_audit
from toolscript.app.extras import require_extra
from toolscript.app.models import Model
from toolscript.domain.audit import AuditState
from toolscript.domain.lru_cache import LruCache
from toolscript.domain.search import no_span
from toolscript.ports.observability import AuditStore, EventSink
from toolscript.services.support.server_changes import ServerChanges
from toolscript.services.tools.hierarchical_search import HierarchicalSearch
from toolscript.services.tools.hybrid_search import ToolSearch
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.adapters.observability.prometheus import PrometheusMetrics
    from toolscript.adapters.observability.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Observability:
    """The sinks of events; when serving HTTP, also metrics and tracing."""

    events: EventSink
    audit: AuditStore | None
    audit_sink: AuditSink | None
    metrics: PrometheusMetrics | None
    telemetry: Telemetry | None

    def span(self, name: str) -> AbstractContextManager[object]:
        """A span for a stage of that name."""
        return self.telemetry.span(name) if self.telemetry else no_span(name)

    def watch_caches(
        self, model: Model, text_model: Model, tools: ToolSearch, hierarchical: HierarchicalSearch
    ) -> None:
        """Adds the use of caches to the metrics, if there are some."""
        if self.metrics is None:
            return
        models = {"tool_requests": model.embedder}
        if text_model.embedder is not model.embedder:
            models["text_requests"] = text_model.embedder
        caches: dict[str, LruCache[Any, Any]] = {
            "tool_results": tools.cache,
            "hierarchical_results": hierarchical.cache,
        }
        caches |= {name: model.cache for name, model in models.items() if isinstance(model, BatchingEmbedder)}
        self.metrics.watch_caches(caches)

    @property
    def audit_problem(self) -> AuditState | None:
        """What is wrong with the audit, if something is: lost events, or a store that fails."""
        state = self.audit_sink.state if self.audit_sink else None
        return state if state and (state.lost or state.reason) else None


def open_observability(settings: Settings, stack: AsyncExitStack, *, serving: bool) -> Observability:
    """Opens what the settings name. Raises Invalid."""
    metrics = telemetry = None
    sinks: list[EventSink] = []
    if serving:
        from toolscript.adapters.observability.prometheus import PrometheusMetrics

        metrics = PrometheusMetrics()
        sinks.append(metrics)
    if settings.events:
        is_url = settings.events.startswith(("http://", "https://"))
        sinks.append(open_http_sink(settings.events) if is_url else open_jsonl_sink(Path(settings.events).expanduser()))
    if serving or settings.otlp_endpoint:
        with require_extra("telemetry", "TOOLSCRIPT_OTLP_ENDPOINT"):
            from toolscript.adapters.observability.telemetry import Telemetry

            telemetry = Telemetry(settings.otlp_endpoint)
        sinks.append(telemetry)
    audit = open_audit(settings)
    audit_sink = AuditSink(audit) if audit else None
    if audit and audit_sink:
        stack.push_async_callback(audit.close)
        sinks.append(audit_sink)
    events = Sinks(sinks)
    stack.push_async_callback(events.close)
    if metrics:
        metrics.watch_drops(lambda: events.dropped, lambda: audit_sink.dropped if audit_sink else 0)
    return Observability(events, audit, audit_sink, metrics, telemetry)


@asynccontextmanager
async def open_server_changes(settings: Settings) -> AsyncIterator[ServerChanges]:
    """For changes that a command makes without an application; writes their events at the end. Raises Invalid."""
    async with AsyncExitStack() as stack:
        yield ServerChanges(open_observability(settings, stack, serving=False).events)
