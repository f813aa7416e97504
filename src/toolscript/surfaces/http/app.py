"""The HTTP application: the routers, the guard before them, and the MCP endpoint beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp

from toolscript import __version__
from toolscript.surfaces.console.static_files import CONSOLE_PATHS, ConsoleFiles
from toolscript.surfaces.http.errors import add_error_handlers
from toolscript.surfaces.http.guard import Guard, parse_origin
from toolscript.surfaces.http.input_limits import InputLimits
from toolscript.surfaces.http.mcp_endpoint import McpEndpoint
from toolscript.surfaces.http.openapi import complete_document, errors
from toolscript.surfaces.http.parameters import check_parameters
from toolscript.surfaces.http.request_shares import RequestShares
from toolscript.surfaces.http.request_tracking import MCP_PATH, RequestTracking
from toolscript.surfaces.http.routers import (
    agent_skills,
    approvals,
    calls,
    catalogue_check,
    code,
    discovery,
    documents,
    evaluation,
    feedback,
    hierarchical,
    jobs,
    keys,
    knowledge,
    logins,
    overrides,
    quarantine,
    registry,
    results,
    servers,
    sign_in,
    skills,
    states,
    tools,
    workflows,
)
from toolscript.surfaces.http.served_app import ServedApp

# A request is matched with the routers in this order, at some 30 µs each: those of searches and calls come first.
ROUTERS = (
    tools.router,
    hierarchical.router,
    agent_skills.router,
    states.router,
    discovery.router,
    documents.router,
    documents.health_router,
    knowledge.router,
    jobs.router,
    skills.router,
    feedback.router,
    calls.router,
    overrides.router,
    quarantine.router,
    servers.router,
    registry.router,
    logins.router,
    sign_in.router,
    approvals.router,
    keys.router,
    results.router,
    code.router,
    evaluation.router,
    catalogue_check.router,
    workflows.router,
    tools.clients_router,
)
ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]

# What programs get at `/`, where browsers get the console. Paths, because a proxy may have another address.
INDEX = {
    "name": "Toolscript",
    "version": __version__,
    "search": "/search?q=read+a+file",
    "mcp": MCP_PATH,
    "openapi": "/openapi.json",
    "health": "/health",
    "ready": "/ready",
    "console": "/ with Accept: text/html, as browsers send it",
}

for _route in ROUTES:  # after what refuses or counts callers
    _route.dependencies.append(Depends(check_parameters))

# Included once for all applications of a process: FastAPI prepares included routes with their first request.
_API = APIRouter(responses=errors(401, 403, 422, 500, 503))
for _router in ROUTERS:
    _API.include_router(_router)


class GatewayApi(FastAPI):
    """FastAPI with `RequestTracking` around everything: other middleware is inside of the handler of unexpected errors,
    and responses of that handler would have no request id."""

    def __init__(self, served: ServedApp, **options: Any) -> None:
        super().__init__(**options)
        self.state.served = served
        self.state.routes = ROUTES

    def build_middleware_stack(self) -> ASGIApp:
        return RequestTracking(super().build_middleware_stack(), self.state.served)

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI document."""
        if self.openapi_schema is None:
            complete_document(super().openapi(), ROUTES, self.state.served.settings)
        return self.openapi_schema or {}


def create_http_app(served: ServedApp) -> FastAPI:
    """Creates the HTTP application. The guard and the limits check every request before a route reads its body."""
    endpoint = McpEndpoint(served)

    @asynccontextmanager
    async def run_endpoint(_: FastAPI) -> AsyncIterator[None]:
        async with endpoint.run():
            yield

    http = GatewayApi(
        served,
        title="Toolscript",
        version=__version__,
        description="One search engine for everything an agent needs to find, and one gateway to call it.",
        docs_url=None,  # the page would load its scripts from the network
        redoc_url=None,
        lifespan=run_endpoint,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # RequestTracking has its own
    )
    http.add_middleware(InputLimits)
    http.add_middleware(RequestShares, served=served)
    http.add_middleware(Guard, served=served, routes=ROUTES)
    if origins := served.settings.allowed_origins:  # outside of the guard: a browser asks first, without a key
        http.add_middleware(
            CORSMiddleware,
            allow_origins=[parse_origin(origin) for origin in origins],
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["Retry-After", "X-Request-ID"],
        )
    add_error_handlers(http)
    http.router.routes.extend(_API.routes)
    # GET would open a stream for messages of the server, which sends none, and DELETE end a session: there are none.
    for path in (MCP_PATH, f"{MCP_PATH}/{{profile}}"):
        http.router.routes.append(Route(path, endpoint, methods=["POST"], include_in_schema=False))
    http.router.routes.extend(
        Route(path, ConsoleFiles(INDEX), methods=["GET"], include_in_schema=False) for path in CONSOLE_PATHS
    )
    return http
