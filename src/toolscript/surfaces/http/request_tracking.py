"""Every request has an id, is timed, counted and told in one log line.

The id is the caller's own where that is sane, so that one line of theirs finds ours. It is known to whatever is done
for the request, and comes back with every answer, also with those that nobody expected.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscript.domain.requests import request_id

if TYPE_CHECKING:
    from toolscript.surfaces.http.served_app import ServedApp

HEADER = b"x-request-id"
NO_ROUTE = "none"
NO_STATUS = 499
_SANE = re.compile(rb"[ -~]{1,128}")

log = logging.getLogger(__name__)


class RequestTracking:
    """ASGI middleware around everything else. Nothing of what a request says is logged but its method."""

    def __init__(self, app: ASGIApp, serving: ServedApp) -> None:
        self.app = app
        self._served = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = _given(scope)
        answered = _Answered(send, given)
        token = request_id.set(given)
        started = time.perf_counter()
        try:
            await self._answer(scope, receive, answered)
        finally:
            self._tell(scope, answered.status, time.perf_counter() - started)
            request_id.reset(token)

    async def _answer(self, scope: Scope, receive: Receive, answered: _Answered) -> None:
        opened = self._served.current
        telemetry = opened.telemetry if opened else None
        if telemetry is None:
            await self.app(scope, receive, answered)
            return
        with telemetry.request(scope["method"], scope["headers"]) as tell:
            try:
                await self.app(scope, receive, answered)
            finally:
                tell(_route(scope), answered.status)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        method, route = scope["method"], _route(scope)
        opened = self._served.current
        if opened is not None and opened.metrics is not None:
            opened.metrics.count_request(method, route, status, seconds)
        if log.isEnabledFor(logging.INFO):
            told = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000, 1)}
            log.info("request", extra=told)


class TrackedApi(FastAPI):
    """FastAPI with `RequestIds` around all of it. Middleware that is added the usual way stands inside of the answer
    to unexpected errors, which would then come without an id."""

    def __init__(self, serving: ServedApp, **said: Any) -> None:
        super().__init__(**said)
        self._served = serving

    def build_middleware_stack(self) -> ASGIApp:
        return RequestTracking(super().build_middleware_stack(), self._served)


class _Answered:
    """Sends what is answered, with the id; keeps the status."""

    __slots__ = ("_id", "_send", "status")

    def __init__(self, send: Send, given: str) -> None:
        self._send = send
        self._id = given.encode()
        self.status = NO_STATUS

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [pair for pair in message.get("headers", ()) if pair[0].lower() != HEADER]
            message = {**message, "headers": [*headers, (HEADER, self._id)]}
        await self._send(message)


def _given(scope: Scope) -> str:
    """The id that the caller has sent, or a new one."""
    for name, value in scope["headers"]:
        if name == HEADER:
            sent: bytes = value.strip()
            if _SANE.fullmatch(sent):
                return sent.decode("ascii")
            break
    return secrets.token_hex(16)


def _route(scope: Scope) -> str:
    """The template of the route that answered, never the path that was asked for: of those there is no end."""
    route = scope.get("route")
    found = getattr(route, "path_format", None) or getattr(route, "path", None)
    return str(found) if found else NO_ROUTE
