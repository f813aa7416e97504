"""Routes from the bytes of a body to those of an answer. The framework describes them and stays out of their way: what
it does between the guard and such a route is a fifth of a search that was asked for before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolscript.surfaces.http.bodies import whole_body
from toolscript.surfaces.http.errors import EXPECTED, answer_to

JSON = "application/json"


class BareRoute(APIRoute):
    """A route whose function takes the body and returns JSON."""

    def __init__(self, path: str, endpoint: Callable[[bytes], Awaitable[bytes]], **said: Any) -> None:
        async def usual(request: Request) -> Response:
            return Response(await endpoint(await whole_body(request.receive)), media_type=JSON)

        super().__init__(path, usual, **{**said, "name": endpoint.__name__})
        self.app = request_response(usual)
        self.answer = endpoint


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
        try:
            answer = await route.answer(await whole_body(receive))
        except EXPECTED as error:
            response = await answer_to(Request(scope), error)
            await response(scope, receive, send)
            return
        headers = [(b"content-type", JSON.encode()), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})
