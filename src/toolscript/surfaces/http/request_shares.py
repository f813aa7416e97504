"""Refuses requests that are too many, before a route reads anything: in all, and of each caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from toolscript.domain.errors import Unavailable
from toolscript.domain.requests import share_holder
from toolscript.services.support.shares import MAX_PROBES, MAX_REQUESTS, Shares
from toolscript.surfaces.http.errors import error_response
from toolscript.surfaces.http.open_files import count_possible_connections
from toolscript.surfaces.http.served_app import ServedApp

# It costs nothing, so it is always answered.
HEALTH_PATH = "/health"
PROBE_PATHS = frozenset({"/ready", "/metrics"})
SEARCH_PATHS = frozenset(
    {"/search", "/search_knowledge", "/api/v1/search", "/api/v1/search/skills", "/api/v1/search/tools", "/api/v1/map"}
)


class RequestShares:
    """ASGI middleware inside of the guard, which says in whose share a request counts."""

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
            try:
                places.enter_context(self._hold_places(scope["path"]))
            except Unavailable as error:
                await error_response(error)(scope, receive, send)
                return
            await self._app(scope, receive, send)

    @contextmanager
    def _hold_places(self, path: str) -> Iterator[None]:
        holder = share_holder.get()
        with (self.probes if path in PROBE_PATHS else self.requests).hold(holder), ExitStack() as more:
            if path in SEARCH_PATHS and (app := self._served.current):
                more.enter_context(app.search_shares.hold(holder))
            yield
