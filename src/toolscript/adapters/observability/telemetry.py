"""Traces requests and search stages with OpenTelemetry.

With an endpoint, spans go to that collector through a separate provider; nothing global changes. Without one, they go
to the provider of a host program that embeds Toolscript, if it has set one. With neither, a span costs next to nothing
and the library is not loaded.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from toolscript import __version__
from toolscript.adapters.outgoing.remote_services import require_http_url
from toolscript.domain.audit import CALL_EVENTS, SEARCH_EVENTS
from toolscript.domain.limits import current_limits
from toolscript.domain.requests import current_request

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

PREFIX = "search."
PATH = "/v1/traces"
NAME = "toolscript"
SERVER_FAULT = 500
CALL_EVENT = "tools.call"
EVENT_FIELDS = (
    "caller",
    "profile",
    "surface",
    "called_by",
    "tool",
    "server",
    "arguments",
    "query",
    "bytes",
    "hits",
    "error",
)

Headers = Iterable[tuple[bytes, bytes]]
EndRequest = Callable[[str, int], None]
"""Takes the route and the status of the response."""


class Telemetry:
    """Creates spans: `span` for the stages of a search, `request` for one HTTP request."""

    def __init__(self, endpoint: str | None = None) -> None:
        """Raises Invalid unless the endpoint is an http(s) URL, and ImportError without the exporter's package."""
        self._provider = _open_provider(_traces_url(endpoint)) if endpoint else None
        self._tracer = self._provider.get_tracer(NAME, __version__) if self._provider else None
        self._host_tracer: tuple[object, Tracer | None] = (None, None)

    def span(self, name: str) -> AbstractContextManager[object]:
        """A span around the block, inside the current span; records errors. A name without a dot is a stage of a
        search."""
        tracer = self._tracer or self._find_host_tracer()
        if tracer is None:
            return nullcontext()
        full = name if "." in name else PREFIX + name
        return tracer.start_as_current_span(full, attributes=_attributes())

    def request(self, method: str, headers: Headers) -> AbstractContextManager[EndRequest]:
        """A server span around one request, inside the caller's span if the headers name one (W3C traceparent).

        Where the host has created that span already, as FastAPI's instrumentation does, only the request id is added.
        """
        tracer = self._tracer or self._find_host_tracer()
        return nullcontext(_ignore_end) if tracer is None else _open_request_span(tracer, method, headers)

    def record(self, event: Mapping[str, Any]) -> None:
        """Adds what the audit says to the current span of a tool's call; other events get a span."""
        tracer = self._tracer or self._find_host_tracer()
        if tracer is None or event.get("type") not in CALL_EVENTS | SEARCH_EVENTS:
            return
        from opentelemetry.trace import StatusCode, get_current_span

        attributes = {f"{NAME}.{name}": event[name] for name in EVENT_FIELDS if event.get(name) not in {None, ""}}
        if event["type"] == CALL_EVENT:
            get_current_span().set_attributes(attributes)
            return
        end = time.time_ns()
        start = end - int(event["took_ms"] * 1e6)
        span = tracer.start_span(event["type"], start_time=start, attributes=attributes | _attributes())
        if event.get("error"):
            span.set_status(StatusCode.ERROR, event["error"])
        span.end(end)

    async def close(self) -> None:
        """Sends the remaining spans, for two seconds at the longest."""
        if self._provider is None:
            return
        # In a thread: shutdown waits for the collector without a limit.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, current_limits().trace_export)

    def _find_host_tracer(self) -> Tracer | None:
        """The tracer of a provider that the host has set for the whole process."""
        trace: Any = sys.modules.get("opentelemetry.trace")
        if trace is None:
            return None
        provider = trace.get_tracer_provider()
        if self._host_tracer[0] is not provider:
            is_missing = isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
            self._host_tracer = (provider, None if is_missing else provider.get_tracer(NAME, __version__))
        return self._host_tracer[1]


def _traces_url(endpoint: str) -> str:
    """The URL for spans at a collector's base URL. Raises Invalid."""
    allowed = "the base URL of an OpenTelemetry collector for OTLP over HTTP, such as http://127.0.0.1:4318"
    require_http_url(endpoint, "TOOLSCRIPT_OTLP_ENDPOINT", allowed)
    base = endpoint.rstrip("/")
    return base if base.endswith(PATH) else base + PATH


def _open_provider(url: str) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({SERVICE_NAME: NAME, SERVICE_VERSION: __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=url, timeout=current_limits().trace_export)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


@contextmanager
def _open_request_span(tracer: Tracer, method: str, headers: Headers) -> Iterator[EndRequest]:
    from opentelemetry import propagate, trace

    current = trace.get_current_span()
    if current.get_span_context().is_valid:
        current.set_attributes(_attributes())
        yield _ignore_end
        return
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in _TRACE_HEADERS}
    with tracer.start_as_current_span(
        method,
        context=propagate.extract(carrier) if carrier else None,
        kind=trace.SpanKind.SERVER,
        attributes={"http.request.method": method, **_attributes()},
    ) as span:

        def end_request(route: str, status: int) -> None:
            span.update_name(f"{method} {route}")
            span.set_attributes({"http.route": route, "http.response.status_code": status})
            if status >= SERVER_FAULT:
                span.set_status(trace.StatusCode.ERROR)

        yield end_request


_TRACE_HEADERS = frozenset({b"traceparent", b"tracestate"})


def _ignore_end(_: str, __: int) -> None:
    """For requests without a span of ours."""


def _attributes() -> dict[str, str]:
    current = current_request().request_id
    return {"request_id": current} if current else {}
