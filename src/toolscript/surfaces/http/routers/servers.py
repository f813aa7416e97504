"""Servers over HTTP: start, stop and restart them, and read their logs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from toolscript.domain.requests import caller_name
from toolscript.surfaces.http.dependencies import ADMIN, CurrentApp
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.http.schemas import servers as schemas
from toolscript.surfaces.json import servers as responses

router = APIRouter(prefix="/api/v1/servers", tags=["servers"], dependencies=[ADMIN])

ServerName = Annotated[str, Path(description="The server's name in the configuration.", examples=["filesystem"])]


@router.post(
    "/{name}/stop",
    summary="Stop a server until somebody starts it",
    description="Its program is ended, or its connection closed. Calls to its tools are refused; they stay in the "
    "catalogue, marked with `stopped`. It stays stopped when the gateway is restarted, and when its entry in the "
    "configuration changes.",
    response_model=schemas.ServerResponse,
    responses=errors(404),
)
async def stop_server(name: ServerName, app: CurrentApp) -> JsonResponse:
    status = await app.gateway.stop_server(name, f"stopped {_describe_caller()}")
    return JsonResponse(responses.build_server_response(status))


@router.post(
    "/{name}/start",
    summary="Start a server that is stopped, asleep, or has failed",
    description="Returns at once: `GET /servers` says when it is ready. A server that runs already is left alone. One "
    "that may sleep runs until it has not been used for its idle time.",
    response_model=schemas.ServerResponse,
    responses=errors(404),
)
async def start_server(name: ServerName, app: CurrentApp) -> JsonResponse:
    return JsonResponse(responses.build_server_response(await app.gateway.start_server(name)))


@router.post(
    "/{name}/restart",
    summary="Stop a server and start it",
    description="Running calls fail; calls that come meanwhile wait. Returns when it is stopped and starts again.",
    response_model=schemas.ServerResponse,
    responses=errors(404),
)
async def restart_server(name: ServerName, app: CurrentApp) -> JsonResponse:
    status = await app.gateway.restart_server(name, f"restarted {_describe_caller()}")
    return JsonResponse(responses.build_server_response(status))


@router.get(
    "/{name}/log",
    summary="The latest lines of a server's log",
    description="What its program wrote to its standard error, without secrets, and what the gateway noted about it. "
    "Servers over HTTP write their log elsewhere.",
    response_model=schemas.ServerLogResponse,
    responses=errors(404),
)
async def get_server_log(name: ServerName, app: CurrentApp) -> JsonResponse:
    return JsonResponse(responses.build_log_response(name, app.gateway.get_log(name)))


def _describe_caller() -> str:
    caller = caller_name.get()
    return f"by {caller}" if caller else "on request"
