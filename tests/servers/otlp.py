"""A collector of spans on loopback, which keeps the spans it receives."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.fixtures.http_services import HttpDouble


class OtlpCollector(HttpDouble):
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.let_go = threading.Event()
        self.let_go.set()

    def __exit__(self, *raised: object) -> None:
        self.let_go.set()
        super().__exit__(*raised)

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.let_go.wait(30)
        export = ExportTraceServiceRequest()
        export.ParseFromString(gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body)
        for resource in export.resource_spans:
            self.resources.append({a.key: a.value.string_value for a in resource.resource.attributes})
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        try:
            self.send(request, 200, b"", {"Content-Type": "application/x-protobuf"})
        except OSError:
            request.close_connection = True
