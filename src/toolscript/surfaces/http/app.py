"""The HTTP application: routes that parse, call one service, and answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import PlainTextResponse
from starlette.routing import Route

from toolscript import __version__
from toolscript.codegen.python import generate_python
from toolscript.codegen.typescript import generate_typescript
from toolscript.domain.errors import InvalidArguments, Unavailable
from toolscript.surfaces.http.bodies import whole_body
from toolscript.surfaces.http.errors import answer_errors
from toolscript.surfaces.http.guard import Guard
from toolscript.surfaces.http.openapi import EVERYWHERE, NEEDS_NOTHING, DescribedHttp, errors
from toolscript.surfaces.http.routers.documents import add_documents
from toolscript.surfaces.http.routers.hierarchical import add_hierarchical
from toolscript.surfaces.http.routers.knowledge import add_knowledge
from toolscript.surfaces.http.routers.metrics import add_metrics
from toolscript.surfaces.http.routers.skills import add_skills
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.json.tools import (
    build_call_response,
    build_readiness_response,
    build_search_response,
    build_servers_response,
    build_stats_response,
    build_tool_response,
    build_tools_response,
)
from toolscript.surfaces.mcp.server import McpEndpoint, build_endpoint

Filter = Annotated[
    str | None,
    Query(description="Servers and tools, separated by commas: `github,filesystem__read_file`. Without it, all."),
]
ToolId = Annotated[str, Path(description="`server__tool`, as searches tell it.", examples=["filesystem__read_file"])]


def create_http_app(serving: ServedApp) -> FastAPI:
    """The HTTP application. Everything is checked by the guard before a route sees it."""
    endpoint = build_endpoint(serving.wait_until_ready)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with endpoint.running():
            yield

    http = DescribedHttp(
        serving,
        title="Toolscript",
        version=__version__,
        description="One search engine for everything an agent needs to find, and one door to call it.",
        docs_url=None,  # the page would load its scripts from the network
        redoc_url=None,
        lifespan=lifespan,
        responses=EVERYWHERE,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # ours follows requests
    )
    settings = serving.settings
    http.asks_for_key = bool(settings.api_key)
    http.add_middleware(Guard, bound_to=settings.host, allowed=settings.allowed_hosts, key=settings.api_key)
    answer_errors(http)
    add_hierarchical(http, serving)  # first, because routes are tried in this order
    _add_states(http, serving)
    add_documents(http, serving)
    add_knowledge(http, serving)
    _add_search(http, serving)
    add_metrics(http, serving)
    add_skills(http, serving)
    _add_tools(http, serving)
    _add_clients(http, serving)
    _add_mcp(http, endpoint)
    return http


def _add_states(http: FastAPI, serving: ServedApp) -> None:
    @http.get("/health", summary="Liveness: the process answers", tags=["states"], openapi_extra=NEEDS_NOTHING)
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @http.get("/ready", summary="Readiness: store and index answer, and every server has been tried", tags=["states"])
    async def ready() -> dict[str, Any]:
        await serving.app.check_ready()
        if not serving.is_ready:
            waiting = [s.name for s in serving.app.gateway.statuses if s.state == "connecting"]
            raise Unavailable("servers are still being connected: " + ", ".join(waiting), details={"servers": waiting})
        return build_readiness_response(serving.app.gateway.statuses, serving.app.model)

    @http.get("/servers", summary="The servers behind the gateway, and how each is doing", tags=["states"])
    async def servers() -> dict[str, Any]:
        gateway = serving.app.gateway
        return build_servers_response(gateway.statuses, gateway.configuration_error)


def _add_search(http: FastAPI, serving: ServedApp) -> None:
    settings = serving.settings

    @http.get("/search/stats", summary="What is searched, with which model, and why not with another", tags=["tools"])
    async def stats() -> dict[str, Any]:
        return build_stats_response(serving.app, await serving.app.count_indexed_tools())

    @http.get(
        "/search",
        summary="Find the tools for a task",
        description="`degraded` is there when something had to be done without: `embedder` (found by words and names "
        "alone), `catalogue` (tools of some server are not indexed yet).",
        tags=["tools"],
        responses=errors(400),
    )
    async def search(
        q: Annotated[
            str,
            Query(description="What the tool should do, or its name; typos allowed.", examples=["read a text file"]),
        ] = "",
        limit: Annotated[int, Query(ge=1, le=100, description="Most results.")] = settings.search_limit,
        threshold: Annotated[float, Query(ge=0, le=1, description="Least confidence.")] = settings.search_threshold,
    ) -> dict[str, Any]:
        return build_search_response(await serving.app.tool_search.search(q, limit=limit, threshold=threshold))


def _add_tools(http: FastAPI, serving: ServedApp) -> None:
    @http.get("/tools", summary="List tools, prompts and resources", tags=["tools"])
    async def tools(filter: Filter = None) -> dict[str, Any]:  # noqa: A002
        items = await serving.app.list_tools.matching(filter)
        return await asyncio.to_thread(build_tools_response, items)

    @http.get(
        "/tools/{tool_id:path}",
        summary="Everything there is to know of a tool before calling it",
        tags=["tools"],
        responses=errors(404),
    )
    async def tool(tool_id: ToolId) -> dict[str, Any]:
        return build_tool_response(await serving.app.call_tool.describe(tool_id))

    @http.post(
        "/tools/{tool_id:path}",
        summary="Call a tool: the body is its arguments, a JSON object",
        tags=["tools"],
        responses=errors(404, 502, 504),
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}},
    )
    async def call(
        tool_id: ToolId,
        request: Request,
        timeout: Annotated[  # noqa: ASYNC109
            float | None, Query(gt=0, le=3600, description="Seconds that the call may take, instead of the usual.")
        ] = None,
    ) -> dict[str, Any]:
        return build_call_response(await serving.app.call_tool.call(tool_id, await _arguments(request), within=timeout))


class _TypeScript(PlainTextResponse):
    media_type = "application/typescript"


class _Python(PlainTextResponse):
    media_type = "text/x-python"


def _add_clients(http: FastAPI, serving: ServedApp) -> None:
    @http.get("/runtime/tools.ts", summary="A typed TypeScript client", tags=["clients"], response_class=_TypeScript)
    async def typescript(filter: Filter = None) -> _TypeScript:  # noqa: A002
        return _TypeScript(await asyncio.to_thread(generate_typescript, await serving.app.list_tools.matching(filter)))

    @http.get("/runtime/tools.py", summary="A typed Python client", tags=["clients"], response_class=_Python)
    async def python(filter: Filter = None) -> _Python:  # noqa: A002
        return _Python(await asyncio.to_thread(generate_python, await serving.app.list_tools.matching(filter)))


def _add_mcp(http: FastAPI, endpoint: McpEndpoint) -> None:
    http.router.routes.append(Route("/mcp", endpoint, include_in_schema=False))


async def _arguments(request: Request) -> Any:
    body = await whole_body(request.receive)
    if not body.strip():
        return {}
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"the body is no JSON: {error}", details={"field": ""}) from error
