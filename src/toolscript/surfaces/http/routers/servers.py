"""Servers over HTTP: add them, start, stop and restart them, and read their logs."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, Depends, Path
from pydantic import Field

from toolscript.configuration.snippets import PlannedAddition, plan_addition, write_addition
from toolscript.domain.errors import Unavailable
from toolscript.domain.requests import current_request
from toolscript.domain.servers import Transport
from toolscript.services.support.server_changes import describe_program
from toolscript.surfaces.http.bodies import RequestModel
from toolscript.surfaces.http.dependencies import ADMIN, CurrentApp, Served, require_known_caller
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.json import servers as responses

MAX_SNIPPET = 65_536


class SnippetRequest(RequestModel):
    """A snippet of a server's documentation."""

    snippet: str = Field(
        max_length=MAX_SNIPPET,
        description="JSON: an object with `mcpServers` (or `servers`), entries by name, or a single entry.",
        examples=['{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}}'],
    )
    name: str | None = Field(default=None, max_length=200, description="The name of a server that is a single entry.")


log = logging.getLogger(__name__)

router = APIRouter(prefix="/api/v1/servers", tags=["servers"], dependencies=[ADMIN])

KNOWN_CALLER = Depends(require_known_caller)
ServerName = Annotated[str, Path(description="The server's name in the configuration.", examples=["filesystem"])]


@router.post(
    "/check",
    summary="What a snippet would add to the configuration",
    description="Writes nothing. The same callers may ask that may add servers.",
    responses=errors(400),
    dependencies=[KNOWN_CALLER],
)
async def check_snippet(served: Served, body: SnippetRequest) -> JsonResponse[responses.SnippetResponse]:
    return JsonResponse(responses.build_snippet_response(await _plan(served, body), added=False))


@router.post(
    "",
    summary="Add servers from a snippet to the gateway's configuration file",
    description="The gateway runs the commands of the snippet, so this needs the scope `admin`; where nobody needs a "
    "key, only programs and pages of the gateway's own machine may do it. Nothing is written if one of the servers has "
    "a problem. What the file has stays as it is. The gateway notices the change within a second.",
    status_code=201,
    responses=errors(400, 409),
    dependencies=[KNOWN_CALLER],
)
async def add_servers(served: Served, body: SnippetRequest) -> JsonResponse[responses.SnippetResponse]:
    addition, app = await _plan(served, body), served.app
    with ExitStack() as recorded:
        for server in addition.servers:
            is_command = server.transport is Transport.STDIO
            about = describe_program(server.runs, server.variables, is_command=is_command)
            recorded.enter_context(app.servers.changes.record("add", server.name, about))
        await asyncio.to_thread(write_addition, addition)
    names = [server.name for server in addition.servers]
    log.info("servers_added", extra={"servers": names, "caller": current_request().caller})
    return JsonResponse(responses.build_snippet_response(addition, added=True), status_code=201)


@router.post(
    "/{name}/stop",
    summary="Stop a server until somebody starts it",
    description="Its program is ended, or its connection closed. Calls to its tools are refused; they stay in the "
    "catalogue, marked with `stopped`. It stays stopped when the gateway is restarted, and when its entry in the "
    "configuration changes.",
    responses=errors(404),
)
async def stop_server(name: ServerName, app: CurrentApp) -> JsonResponse[responses.ServerResponse]:
    with app.servers.changes.record("stop", name):
        status = await app.servers.gateway.stop_server(name, f"stopped {_describe_caller()}")
    return JsonResponse(responses.build_server_response(status))


@router.post(
    "/{name}/start",
    summary="Start a server that is stopped, asleep, or has failed",
    description="Returns at once: `GET /servers` says when it is ready. A server that runs already is left alone. One "
    "that may sleep runs until it has not been used for its idle time.",
    responses=errors(404),
)
async def start_server(name: ServerName, app: CurrentApp) -> JsonResponse[responses.ServerResponse]:
    with app.servers.changes.record("start", name):
        status = await app.servers.gateway.start_server(name)
    return JsonResponse(responses.build_server_response(status))


@router.post(
    "/{name}/restart",
    summary="Stop a server and start it",
    description="Running calls fail; calls that come meanwhile wait. Returns when it is stopped and starts again.",
    responses=errors(404),
)
async def restart_server(name: ServerName, app: CurrentApp) -> JsonResponse[responses.ServerResponse]:
    with app.servers.changes.record("restart", name):
        status = await app.servers.gateway.restart_server(name, f"restarted {_describe_caller()}")
    return JsonResponse(responses.build_server_response(status))


@router.get(
    "/{name}/log",
    summary="The latest lines of a server's log",
    description="What its program wrote to its standard error and the log messages that it sent (level `info` and "
    "above), without secrets, and what the gateway noted about it.",
    responses=errors(404),
)
async def get_server_log(name: ServerName, app: CurrentApp) -> JsonResponse[responses.ServerLogResponse]:
    return JsonResponse(responses.build_log_response(name, app.servers.gateway.get_log(name)))


async def _plan(served: ServedApp, body: SnippetRequest) -> PlannedAddition:
    if served.place is None:
        raise Unavailable("this gateway has no configuration file that servers could be added to")
    return await asyncio.to_thread(plan_addition, body.snippet, served.place, body.name)


def _describe_caller() -> str:
    caller = current_request().caller_name
    return f"by {caller}" if caller else "on request"
