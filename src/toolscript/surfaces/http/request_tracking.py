"""Gives every request an id, times it, counts it and logs it in one line.

The id is the caller's own `X-Request-ID` where it is printable, so that both logs can be joined. It is set while the
request is processed, and sent back with every response, also with unexpected errors.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscript.domain.access import Grant
from toolscript.domain.errors import Unavailable
from toolscript.domain.requests import COMMAND_LINE, RequestContext, current_request, use_request
from toolscript.surfaces.callers import identify_holder
from toolscript.surfaces.http.errors import error_response
from toolscript.surfaces.http.served_app import ServedApp

HEADER = b"x-request-id"
# What an answer contains may come from servers and documents: no browser is to take it for a page or a script.
NO_SNIFF = (b"x-content-type-options", b"nosniff")
OUR_HEADERS = frozenset({HEADER, NO_SNIFF[0]})
NO_ROUTE = "none"
MCP_PATH = "/mcp"
NO_STATUS = 499
NO_KEY = Grant(scopes=frozenset())
UNKNOWN_CLIENT = "unknown"
STOPPING = Unavailable("the gateway is stopping and did not finish this request: send it again when it runs")
_PRINTABLE = re.compile(rb"[ -~]{1,128}")

log = logging.getLogger(__name__)


def is_mcp_path(path: str) -> bool:
    """Whether MCP clients send their requests there: `/mcp`, or `/mcp/PROFILE`."""
    return path == MCP_PATH or get_mcp_profile(path) is not None


def get_mcp_profile(path: str) -> str | None:
    """The profile that a path names."""
    name = path.removeprefix(f"{MCP_PATH}/")
    return None if name in {path, ""} or "/" in name else name


class RequestTracking:
    """ASGI middleware around everything else. Of a request, it logs only the method, the route and the key's name."""

    def __init__(self, app: ASGIApp, served: ServedApp) -> None:
        self.app = app
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else None
        sent: bytes = next((value.strip() for name, value in scope["headers"] if name == HEADER), b"")
        request = RequestContext(
            request_id=sent.decode("ascii") if _PRINTABLE.fullmatch(sent) else str(uuid4()),
            client_address=address or UNKNOWN_CLIENT,
            surface=_find_surface(scope),
            scopes=NO_KEY.scopes,
            share_holder=identify_holder(NO_KEY, address),
        )
        with use_request(request):
            await self._answer(scope, receive, send, request.request_id or "")

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        status = NO_STATUS

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [pair for pair in message.get("headers", ()) if pair[0].lower() not in OUR_HEADERS]
                message = {**message, "headers": [*headers, (HEADER, request_id.encode()), NO_SNIFF]}
            await send(message)

        telemetry = self._served.current and self._served.current.observability.telemetry
        started = time.perf_counter()

        async def answer() -> None:
            try:
                await self.app(scope, receive, send_with_id)
            except asyncio.CancelledError:
                if status == NO_STATUS and self._served.is_stopping.is_set():
                    await error_response(STOPPING)(scope, receive, send_with_id)
                raise

        try:
            if not telemetry:
                await answer()
                return
            with telemetry.request(scope["method"], scope["headers"]) as finish:
                try:
                    await answer()
                finally:
                    finish(_route_template(scope), status)
        finally:
            self._record(scope, status, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        method, route = scope["method"], _route_template(scope)
        app = self._served.current
        if app is not None and app.observability.metrics is not None:
            app.observability.metrics.count_request(method, route, status, seconds)
        if log.isEnabledFor(logging.INFO):
            fields = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000, 1)}
            caller = current_request().caller_name
            log.info("request", extra=fields | ({"caller": caller} if caller else {}))


def _find_surface(scope: Scope) -> str:
    """How the caller asks, for events. The command line says so itself."""
    if is_mcp_path(scope["path"]):
        return "mcp"
    agent = next((value for name, value in scope["headers"] if name == b"user-agent"), b"")
    return "cli" if agent == COMMAND_LINE.encode() else "http"


def _route_template(scope: Scope) -> str:
    """Returns the template of the route, never the path: each path would be a new label of the metrics. For MCP, also
    the method of the protocol."""
    route = scope.get("route")
    template = getattr(route, "path_format", None) or getattr(route, "path", None)
    if is_mcp_path(scope["path"]):
        return f"{MCP_PATH} {scope.get('mcp_method', '')}".rstrip()
    return str(template) if template else NO_ROUTE
