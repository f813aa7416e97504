"""The HTTP application: routes, and the one table that maps errors to statuses."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

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
from toolscript.services.tool_search import LONGEST_QUERY
from toolscript.surfaces.http.schemas import search_answer

STATUSES: dict[type[ToolscriptError], int] = {
    Invalid: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    RateLimited: 429,
    Unavailable: 503,
}


def create_http(app: App) -> FastAPI:
    """The HTTP application over an open App."""
    http = FastAPI(
        title="Toolscript",
        version=__version__,
        description="One search engine for everything an agent needs to find.",
    )
    http.add_exception_handler(ToolscriptError, _ours)
    http.add_exception_handler(RequestValidationError, _malformed)

    @http.get("/health", summary="Liveness: the process answers")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @http.get("/ready", summary="Readiness: store and index answer")
    async def ready() -> dict[str, Any]:
        await app.catalog.ping()
        embedder = app.model.embedder
        return {
            "status": "ready",
            "model": embedder.model if embedder else None,
            "fallback": app.model.instead_because,
        }

    @http.get("/search", summary="Find the tools for a task")
    async def search(
        q: Annotated[str, Query(description="What the tool should do, or its name; typos allowed.")] = "",
        limit: Annotated[int, Query(ge=1, le=100, description="Most results.")] = app.settings.search_limit,
        threshold: Annotated[float, Query(ge=0, le=1, description="Least confidence.")] = app.settings.search_threshold,
    ) -> dict[str, Any]:
        return search_answer(await app.tool_search.search(q[: LONGEST_QUERY + 1], limit=limit, threshold=threshold))

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
