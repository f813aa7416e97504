"""Spans with OpenTelemetry, so that a request can be followed through this program and those around it.

With an endpoint, spans go to that collector through a provider of our own: nothing global is touched. Without one,
they go to the provider of whoever runs us inside their program, if they have one. Where there is neither, a span costs
next to nothing, and the library is not even loaded.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolscript import __version__
from toolscript.domain.errors import Invalid
from toolscript.domain.requests import request_id

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

PREFIX = "search."
PATH = "/v1/traces"
NAME = "toolscript"
PATIENCE_SECONDS = 2.0
SERVER_FAULT = 500

Headers = Iterable[tuple[bytes, bytes]]
Tell = Callable[[str, int], None]
"""To be told the route and the status of the answer."""


class Telemetry:
    """Makes spans. `span` is for the stages of a search, `request` for what an HTTP server does for one request."""

    def __init__(self, endpoint: str | None = None) -> None:
        """Raises Invalid for an endpoint that is no http(s) URL, and ImportError where the exporter is not
        installed."""
        self._provider = _exporting_to(_traces(endpoint)) if endpoint else None
        self._tracer = self._provider.get_tracer(NAME, __version__) if self._provider else None
        self._of_host: tuple[object, Tracer | None] = (None, None)

    def span(self, name: str) -> AbstractContextManager[object]:
        """A span for as long as the block lasts, inside of the one that is current; errors are recorded."""
        tracer = self._tracer or self._tracer_of_host()
        if tracer is None:
            return nullcontext()
        full = name if name.startswith(PREFIX) else PREFIX + name
        return tracer.start_as_current_span(full, attributes=_attributes())

    def request(self, method: str, headers: Headers) -> AbstractContextManager[Tell]:
        """A server's span around one request, inside of the caller's if its headers name one (W3C traceparent).

        Where somebody has made that span already, as FastAPI does for a host's provider, it only gets the id.
        """
        tracer = self._tracer or self._tracer_of_host()
        return nullcontext(_untold) if tracer is None else _served(tracer, method, headers)

    async def close(self) -> None:
        """Gives what is left a moment to be sent."""
        if self._provider is None:
            return
        # It may take as long as the collector does: nobody waits for that.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, PATIENCE_SECONDS)

    def _tracer_of_host(self) -> Tracer | None:
        """The tracer of a provider that somebody has set for the whole process."""
        trace: Any = sys.modules.get("opentelemetry.trace")
        if trace is None:
            return None
        provider = trace.get_tracer_provider()
        if self._of_host[0] is not provider:
            is_none = isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
            self._of_host = (provider, None if is_none else provider.get_tracer(NAME, __version__))
        return self._of_host[1]


def _traces(endpoint: str) -> str:
    """The URL for spans of a collector's base URL."""
    url = urlsplit(endpoint)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise Invalid(
            "TOOLSCRIPT_OTLP_ENDPOINT is not usable: give the base URL of an OpenTelemetry collector that takes OTLP "
            "over HTTP, such as http://127.0.0.1:4318",
            details={"field": "TOOLSCRIPT_OTLP_ENDPOINT"},
        )
    base = endpoint.rstrip("/")
    return base if base.endswith(PATH) else base + PATH


def _exporting_to(url: str) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({SERVICE_NAME: NAME, SERVICE_VERSION: __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=PATIENCE_SECONDS)))
    return provider


@contextmanager
def _served(tracer: Tracer, method: str, headers: Headers) -> Iterator[Tell]:
    from opentelemetry import propagate, trace

    around = trace.get_current_span()
    if around.get_span_context().is_valid:
        around.set_attributes(_attributes())
        yield _untold
        return
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in _CARRIED}
    with tracer.start_as_current_span(
        method,
        context=propagate.extract(carrier) if carrier else None,
        kind=trace.SpanKind.SERVER,
        attributes={"http.request.method": method, **_attributes()},
    ) as span:

        def tell(route: str, status: int) -> None:
            span.update_name(f"{method} {route}")
            span.set_attributes({"http.route": route, "http.response.status_code": status})
            if status >= SERVER_FAULT:
                span.set_status(trace.StatusCode.ERROR)

        yield tell


_CARRIED = frozenset({b"traceparent", b"tracestate"})


def _untold(_: str, __: int) -> None:
    """Somebody else tells it, or nobody wants to know."""


def _attributes() -> dict[str, str]:
    known = request_id.get()
    return {"request_id": known} if known else {}
