"""The HTTP application: routes, and the one table that maps errors to statuses."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from toolscript import __version__
from toolscript.app import App
from toolscript.domain.errors import (
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    ToolscriptError,
    Unauthorized,
    Unavailable,
)
from toolscript.services.sync import TOOLS
from toolscript.surfaces.answers import search_answer, stats_answer

STATUSES: dict[type[ToolscriptError], int] = {
    Invalid: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    RateLimited: 429,
    Unavailable: 503,
}


log = logging.getLogger(__name__)


def create_http(app: App) -> FastAPI:
    """The HTTP application over an open App."""
    http = FastAPI(
        title="Toolscript",
        version=__version__,
        description="One search engine for everything an agent needs to find.",
        docs_url=None,  # the page would load its scripts from the network
        redoc_url=None,
    )
    http.add_exception_handler(ToolscriptError, _ours)
    http.add_exception_handler(RequestValidationError, _malformed)
    http.add_exception_handler(HTTPException, _not_there)
    http.add_exception_handler(Exception, _unexpected)

    @http.get("/health", summary="Liveness: the process answers")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @http.get("/ready", summary="Readiness: store and index answer")
    async def ready() -> dict[str, Any]:
        await app.ready()
        embedder = app.model.embedder
        return {
            "status": "ready",
            "model": embedder.model if embedder else None,
            "fallback": app.model.instead_because,
        }

    @http.get("/search/stats", summary="What is searched, with which model, and why not with another")
    async def stats() -> dict[str, Any]:
        return stats_answer(app.settings, app.model, await app.index.count(TOOLS))

    @http.get("/search", summary="Find the tools for a task")
    async def search(
        q: Annotated[str, Query(description="What the tool should do, or its name; typos allowed.")] = "",
        limit: Annotated[int, Query(ge=1, le=100, description="Most results.")] = app.settings.search_limit,
        threshold: Annotated[float, Query(ge=0, le=1, description="Least confidence.")] = app.settings.search_threshold,
    ) -> dict[str, Any]:
        return search_answer(await app.tool_search.search(q, limit=limit, threshold=threshold))

    return http


async def _ours(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, ToolscriptError):
        raise error
    status = next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 500)
    return JSONResponse(error.envelope(), status_code=status)


async def _malformed(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    field = str(first["loc"][-1])
    told = Invalid(f"{field}: {first['msg']}", details={"field": field, "problem": first["msg"]})
    return JSONResponse(told.envelope(), status_code=422)


async def _not_there(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    told = NotFound(f"{request.method} {request.url.path} is not there: GET /openapi.json lists what is")
    return JSONResponse(told.envelope(), status_code=status)


async def _unexpected(_: Request, error: Exception) -> JSONResponse:
    log.error("unexpected", exc_info=error)
    return JSONResponse(ToolscriptError("something went wrong on our side").envelope(), status_code=500)
