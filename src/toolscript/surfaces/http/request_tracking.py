"""Gives every request an id, times it, counts it and logs it in one line.

The id is the caller's own `X-Request-ID` where it is printable, so that both logs can be joined. It is set while the
request is processed, and sent back with every response, also with unexpected errors.
"""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscript.domain.requests import request_id
from toolscript.surfaces.http.served_app import ServedApp

HEADER = b"x-request-id"
NO_ROUTE = "none"
NO_STATUS = 499
_PRINTABLE = re.compile(rb"[ -~]{1,128}")

log = logging.getLogger(__name__)


class RequestTracking:
    """ASGI middleware around everything else. It logs nothing that a request contains but its method."""

    def __init__(self, app: ASGIApp, served: ServedApp) -> None:
        self.app = app
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = _read_or_create_id(scope)
        sender = _Sender(send, request)
        token = request_id.set(request)
        started = time.perf_counter()
        try:
            await self._process(scope, receive, sender)
        finally:
            self._record(scope, sender.status, time.perf_counter() - started)
            request_id.reset(token)

    async def _process(self, scope: Scope, receive: Receive, sender: _Sender) -> None:
        app = self._served.current
        if app is None or app.observability.telemetry is None:
            await self.app(scope, receive, sender)
            return
        with app.observability.telemetry.request(scope["method"], scope["headers"]) as finish:
            try:
                await self.app(scope, receive, sender)
            finally:
                finish(_route_template(scope), sender.status)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        method, route = scope["method"], _route_template(scope)
        app = self._served.current
        if app is not None and app.observability.metrics is not None:
            app.observability.metrics.count_request(method, route, status, seconds)
        if log.isEnabledFor(logging.INFO):
            fields = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000, 1)}
            log.info("request", extra=fields)


class _Sender:
    """Sends a response with the request's id, and keeps its status."""

    __slots__ = ("_id", "_send", "status")

    def __init__(self, send: Send, request: str) -> None:
        self._send = send
        self._id = request.encode()
        self.status = NO_STATUS

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [pair for pair in message.get("headers", ()) if pair[0].lower() != HEADER]
            message = {**message, "headers": [*headers, (HEADER, self._id)]}
        await self._send(message)


def _read_or_create_id(scope: Scope) -> str:
    sent: bytes = next((value.strip() for name, value in scope["headers"] if name == HEADER), b"")
    return sent.decode("ascii") if _PRINTABLE.fullmatch(sent) else secrets.token_hex(16)


def _route_template(scope: Scope) -> str:
    """Returns the template of the route, never the path: a label per path would grow without end."""
    route = scope.get("route")
    template = getattr(route, "path_format", None) or getattr(route, "path", None)
    return str(template) if template else NO_ROUTE
