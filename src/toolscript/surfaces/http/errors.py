"""Errors over HTTP: one table from classes to statuses, one JSON envelope."""

from __future__ import annotations

import logging
import math
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from toolscript.domain import errors
from toolscript.domain.errors import ToolscriptError
from toolscript.surfaces.http.oauth import describe_missing_scope

# The first matching class counts: a subclass stands before its parent.
STATUSES: dict[type[ToolscriptError], int] = {
    errors.TooLarge: 413,
    errors.InvalidArguments: 422,
    errors.Invalid: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.ApprovalRequired: 403,
    errors.ApprovalDeclined: 403,
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.Conflict: 409,
    errors.Quarantined: 409,
    errors.RateLimited: 429,
    errors.UpstreamFailed: 502,
    errors.Unavailable: 503,
    errors.TimedOut: 504,
}
INTERNAL_ERROR = ToolscriptError("internal error of the gateway: its log has the details")
BAD_REQUEST = 400
METHOD_NOT_ALLOWED = 405
CLIENT_CLOSED_REQUEST = 499

log = logging.getLogger(__name__)


class KnowledgeUnavailable(errors.Unavailable):
    """Unavailable with the code INTERNAL_ERROR, because the knowledge interface defines four codes only."""

    code = ToolscriptError.code


def add_error_handlers(http: FastAPI) -> None:
    """Makes the application answer every error with the envelope."""
    http.add_exception_handler(ToolscriptError, _handle_toolscript_error)
    http.add_exception_handler(RequestValidationError, _handle_invalid_request)
    http.add_exception_handler(HTTPException, _handle_http_exception)
    http.add_exception_handler(ClientDisconnect, _handle_disconnect)
    http.add_exception_handler(Exception, _handle_unexpected)


def get_status(error: ToolscriptError) -> int:
    """The status of the error's class."""
    return next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 500)


def error_response(error: ToolscriptError) -> JSONResponse:
    """The envelope with the status of the error's class."""
    return JSONResponse(error.to_envelope(), status_code=get_status(error), headers=_headers_of(error))


def _headers_of(error: ToolscriptError) -> dict[str, str] | None:
    if isinstance(error, errors.Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, errors.Forbidden) and (scope := error.details.get("scope")):
        return {"WWW-Authenticate": describe_missing_scope(scope)}
    wait = error.details.get("retry_after_seconds")
    if isinstance(error, errors.RateLimited | errors.Unavailable) and isinstance(wait, int | float):
        return {"Retry-After": str(max(1, math.ceil(wait)))}
    return None


async def _handle_toolscript_error(_: Request, error: Any) -> JSONResponse:
    return error_response(error)


async def _handle_invalid_request(_: Request, error: Any) -> JSONResponse:
    first = error.errors()[0]
    field = str(first["loc"][-1])
    return error_response(
        errors.InvalidArguments(f"{field}: {first['msg']}", details={"field": field, "problem": first["msg"]})
    )


async def _handle_http_exception(request: Request, error: Any) -> JSONResponse:
    if error.status_code == BAD_REQUEST:
        message = f"the request could not be parsed: {error.detail}"
        return JSONResponse(errors.Invalid(message).to_envelope(), status_code=BAD_REQUEST)
    if error.status_code == METHOD_NOT_ALLOWED:
        # The error has the methods of one route only.
        matching = [route for route in request.app.state.routes if route.matches(request.scope)[0] is not Match.NONE]
        methods = {method for route in matching for method in route.methods or ()}
        allowed = sorted(methods | {*(error.headers or {}).get("Allow", "").split(", ")} - {""})
        message = f"{request.method} is not allowed for {request.url.path}: use {' or '.join(allowed)}"
        response = error_response(errors.MethodNotAllowed(message, details={"allowed": allowed}))
        response.headers["Allow"] = ", ".join(allowed)
        return response
    message = f"No such route: {request.method} {request.url.path}. GET /openapi.json lists all routes."
    return JSONResponse(errors.NotFound(message).to_envelope(), status_code=error.status_code)


async def _handle_disconnect(_: Request, __: Exception) -> Response:
    """The client is gone; the status is for the metrics and the log."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _handle_unexpected(_: Request, error: Exception) -> JSONResponse:
    log.error("unexpected", exc_info=error)
    is_disk_full = errors.is_disk_full(error)
    return error_response(errors.Unavailable("disk full: nothing can be written") if is_disk_full else INTERNAL_ERROR)
