"""Refuses requests that are too many, before a route reads anything: in all, and of each caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscript.domain.errors import Unavailable
from toolscript.domain.requests import current_request
from toolscript.services.support.shares import MAX_PROBES, MAX_REQUESTS, Shares
from toolscript.surfaces.http.errors import error_response
from toolscript.surfaces.http.open_files import count_possible_connections
from toolscript.surfaces.http.served_app import ServedApp

# It costs nothing, so it is always answered.
HEALTH_PATH = "/health"
# Routes of other methods read no body, and would never take a place.
METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
PROBE_PATHS = frozenset({"/ready", "/metrics"})
SEARCH_PATHS = frozenset(
    {"/search", "/search_knowledge", "/api/v1/search", "/api/v1/search/skills", "/api/v1/search/tools", "/api/v1/map"}
)


class _PlacedRequest:
    """The messages of one request. It takes its place when its body has arrived: slow clients would keep others out. If
    there is none any more, the client gets an error, and the application learns that the client is gone."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, take_place: Callable[[], None]) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._take_place = take_place
        self._has_place = self._is_refused = self._is_started = False

    def take_place(self) -> None:
        """Raises Unavailable."""
        self._take_place()
        self._has_place = True

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body") and not self._has_place:
            try:
                self.take_place()
            except Unavailable as error:
                if not self._is_started:
                    self._is_refused = True
                    await error_response(error)(self._scope, self._receive, self._send)
                return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        self._is_started = True
        if not self._is_refused:
            await self._send(message)


class RequestShares:
    """ASGI middleware inside of the guard. The guard names the holder of the share that a request counts in."""

    def __init__(self, app: ASGIApp, served: ServedApp) -> None:
        self._app = app
        self._served = served
        # Each request in progress has a connection; the other half is for those that are refused.
        self.requests = Shares("requests", min(MAX_REQUESTS, count_possible_connections() // 2))
        self.probes = Shares("probes", MAX_PROBES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == HEALTH_PATH:
            await self._app(scope, receive, send)
            return
        with ExitStack() as places:
            request = _PlacedRequest(
                scope, receive, send, lambda: places.enter_context(self._hold_places(scope["path"]))
            )
            try:
                if scope["method"] in METHODS_WITH_BODY:
                    with self._hold_places(scope["path"]):  # refused before the body arrives
                        pass
                else:
                    request.take_place()
            except Unavailable as error:
                await error_response(error)(scope, receive, send)
                return
            await self._app(scope, request.receive, request.send)

    @contextmanager
    def _hold_places(self, path: str) -> Iterator[None]:
        holder = current_request().share_holder
        with (self.probes if path in PROBE_PATHS else self.requests).hold(holder), ExitStack() as more:
            if path in SEARCH_PATHS and (app := self._served.current):
                more.enter_context(app.access.search_shares.hold(holder))
            yield
