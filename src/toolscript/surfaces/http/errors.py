"""Errors over HTTP: one table from their classes to statuses, one envelope for all."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from toolscript.domain.errors import (
    Conflict,
    Forbidden,
    Invalid,
    InvalidArguments,
    NotFound,
    RateLimited,
    TimedOut,
    ToolscriptError,
    Unauthorized,
    Unavailable,
    UpstreamFailed,
)

# The first class that fits counts: a special case stands before the general one.
STATUSES: dict[type[ToolscriptError], int] = {
    InvalidArguments: 422,
    Invalid: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    RateLimited: 429,
    UpstreamFailed: 502,
    Unavailable: 503,
    TimedOut: 504,
}

WRONG = 400
LEFT = 499

log = logging.getLogger(__name__)


def answer_errors(http: FastAPI) -> None:
    """Has the application answer every error with the envelope."""
    for kind, answer in _ANSWERS.items():
        http.add_exception_handler(kind, answer)
    http.add_exception_handler(Exception, _unexpected)


def error_response(error: ToolscriptError) -> JSONResponse:
    """The envelope, with the status of its class."""
    status = next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 500)
    return JSONResponse(error.to_envelope(), status_code=status, headers=_headers(error))


def _headers(error: ToolscriptError) -> dict[str, str] | None:
    if isinstance(error, Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    wait = error.details.get("retry_after_seconds")
    if isinstance(error, RateLimited) and isinstance(wait, int | float):
        return {"Retry-After": str(max(1, math.ceil(wait)))}
    return None


async def _ours(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, ToolscriptError):
        raise error
    return error_response(error)


async def _malformed(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    field = str(first["loc"][-1])
    told = Invalid(f"{field}: {first['msg']}", details={"field": field, "problem": first["msg"]})
    return JSONResponse(told.to_envelope(), status_code=422)


async def _not_there(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if isinstance(error, HTTPException) and status == WRONG:
        return JSONResponse(Invalid(f"the request cannot be read: {error.detail}").to_envelope(), status_code=status)
    told = NotFound(f"{request.method} {request.url.path} is not there: GET /openapi.json lists what is")
    headers = error.headers if isinstance(error, HTTPException) else None  # `Allow`, where the method is the wrong one
    return JSONResponse(told.to_envelope(), status_code=status, headers=headers)


async def _left(_: Request, __: Exception) -> Response:
    """Nobody reads it; it is what the metrics and the log tell of a caller who went away while sending."""
    return Response(status_code=LEFT)


_ANSWERS: Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    ToolscriptError: _ours,
    RequestValidationError: _malformed,
    HTTPException: _not_there,
    ClientDisconnect: _left,
}


async def _unexpected(_: Request, error: Exception) -> JSONResponse:
    log.error("unexpected", exc_info=error)
    return JSONResponse(ToolscriptError("something went wrong on our side").to_envelope(), status_code=500)
