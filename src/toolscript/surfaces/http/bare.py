"""Routes that read and answer themselves. The framework describes them, and stays out of their way: between the guard
and a route without parameters it takes as long as comparing all skills does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.routing import BaseRoute, request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolscript.surfaces.http.errors import EXPECTED, answer_to


class BareRoute(APIRoute):
    """A route whose function takes the request and returns the response."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = request_response(self.endpoint)


class BareRoutes:
    """ASGI middleware that leads straight to bare routes, by method and path. Whatever is not called exactly as they
    are goes the usual way."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        bare = [route for route in routes if isinstance(route, BareRoute)]
        self._routes = {(method, route.path): route for route in bare for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        try:
            response = await route.endpoint(request)
        except EXPECTED as error:
            response = await answer_to(request, error)
        await response(scope, receive, send)
