"""The audit over HTTP: who called a tool and how that went, who searched for what, and who changed servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query

from toolscript.domain.audit import MAX_LIMIT, AuditKind, AuditQuery
from toolscript.services.support.call_log import parse_page_token
from toolscript.surfaces.http.bodies import ONE_LINE
from toolscript.surfaces.http.dependencies import ADMIN, CurrentApp
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import calls as responses

router = APIRouter(prefix="/api/v1/calls", tags=["calls"], dependencies=[ADMIN])

Tool = Annotated[str | None, Query(pattern=ONE_LINE, max_length=256, description="A tool's id, `server__tool`.")]
Server = Annotated[str | None, Query(pattern=ONE_LINE, max_length=256, description="A server's name.")]
Time = Annotated[
    str | None,
    Query(max_length=64, description="A time such as `2026-07-28T12:00` (UTC), or how long ago: `30m`, `12h`, `7d`."),
]


async def read_filters(
    app: CurrentApp,
    kind: Annotated[
        AuditKind,
        Query(description="Calls of tools, searches for tools and skills, refused requests, or changes of servers."),
    ] = AuditKind.CALLS,
    tool: Tool = None,
    server: Server = None,
    caller: Annotated[
        str | None,
        Query(pattern=ONE_LINE, max_length=256, description="A key's name, `oauth:SUBJECT`, `owner`, or an address."),
    ] = None,
    outcome: Annotated[
        str | None,
        Query(pattern=ONE_LINE, max_length=64, description="`ok`, `error` for every error, or an error code."),
    ] = None,
    since: Time = None,
    until: Time = None,
) -> AuditQuery:
    """Returns what to look for. Raises InvalidArguments."""
    return AuditQuery(
        kind,
        tool,
        server,
        caller,
        outcome,
        app.tools.call_log.parse_time(since, "since"),
        app.tools.call_log.parse_time(until, "until"),
    )


Filters = Annotated[AuditQuery, Depends(read_filters)]


@router.get(
    "",
    summary="List the calls of tools, searches, refused requests, or changes of servers, newest first",
    responses=errors(404),
)
async def list_calls(
    app: CurrentApp,
    filters: Filters,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of events.")] = 50,
    page_token: Annotated[str | None, Query(description="The `next_page_token` of the page before.")] = None,
) -> JsonResponse[responses.CallListResponse]:
    query = replace(filters, limit=limit, before=parse_page_token(page_token))
    return JsonResponse(responses.build_calls_response(await app.tools.call_log.list_events(query)))


@router.get("/summary", summary="Number, errors and times of calls by tool or server", responses=errors(404))
async def summarize_calls(
    app: CurrentApp,
    filters: Filters,
    by: Annotated[Literal["tool", "server"], Query(description="What to group by.")] = "tool",
) -> JsonResponse[responses.CallSummaryListResponse]:
    summary = await app.tools.call_log.summarize(filters, by_server=by == "server")
    return JsonResponse(responses.build_summary_response(summary))
