"""Responses about the audit as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict

from toolscript.domain.audit import AuditEvent, AuditKind, AuditPage, AuditState
from toolscript.domain.programs import Language
from toolscript.surfaces.json.definitions import More, format_time

if TYPE_CHECKING:
    from toolscript.services.support.call_log import Summary


class AuditEventResponse(TypedDict):
    """A call of a tool, a search for tools, a refused request, or a change of a server."""

    id: str
    time: Annotated[str, "When it ended, in UTC."]
    tool: Annotated[
        str,
        "`server__tool`; of a program that was run `run_code` or `workflows__NAME`; of a search "
        "its type, such as `tools.search`; of a refusal method and path; of a change of a server `add`, `start`, "
        "`stop`, `restart`, `log in` or `log out`.",
    ]
    server: Annotated[str, "Empty for a search, a program, and a tool that does not exist."]
    caller: Annotated[str, "The name of the key, `oauth:SUBJECT`, `owner`, or the client's address."]
    profile: str
    surface: Annotated[str, "`http`, `mcp` or `cli`."]
    outcome: Annotated[str, "`ok`, or the error code."]
    ms: float
    request_id: Annotated[str, "That of the request: a program and all that it calls have the same."]
    called_by: Annotated[
        str | None, "The program that called: `run_code`, or `workflows__NAME`; null if there is none."
    ]
    bytes: NotRequired[Annotated[int, "Size of the result of a call."]]
    arguments: NotRequired[
        Annotated[str, "A digest of the arguments of a call, or them without secrets: see the settings."]
    ]
    hits: NotRequired[Annotated[int, "Number of results of a search."]]
    query: NotRequired[Annotated[str, "The words of a search, without secrets."]]
    reason: NotRequired[Annotated[str, "Why a request was refused."]]
    about: NotRequired[
        Annotated[str, "Of a server that was added, the command or address without secrets; of a login, whose it is."]
    ]


class CallListResponse(TypedDict):
    """Calls, searches, refused requests or changes of servers, newest first."""

    events: list[AuditEventResponse]
    next_page_token: Annotated[
        str | None, "For the next page, with the same filters; null at the end. A page can be short and not the last."
    ]


class CallSummaryResponse(TypedDict):
    """The calls of a tool or a server."""

    name: str
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float


class CallSummaryListResponse(TypedDict):
    """Calls by tool or server, the most used first: those of the newest 10 000 events that match."""

    rows: list[CallSummaryResponse]


class AuditProblemResponse(TypedDict):
    """Events that are not in the audit."""

    lost: Annotated[int, "Number of lost events since the start."]
    failing: Annotated[bool, "Whether the last attempt to write failed."]


class HealthResponse(TypedDict):
    """The process, or a part of it, works."""

    status: Literal["ok"]
    audit: NotRequired[
        Annotated[
            AuditProblemResponse, "What is wrong with the audit. Left out if nothing is, and calls go on in any case."
        ]
    ]
    code: NotRequired[
        Annotated[
            dict[str, str],
            "For each language of `POST /api/v1/run`: `ready`, or how to get it.",
            More(examples=[{"python": "ready"}]),
        ]
    ]


def build_calls_response(page: AuditPage) -> CallListResponse:
    """Builds the response of `GET /api/v1/calls`."""
    token = None if page.next_before is None else str(page.next_before)
    return {"events": [_build_event(event) for event in page.events], "next_page_token": token}


def build_summary_response(summary: Summary) -> CallSummaryListResponse:
    """Builds the response of `GET /api/v1/calls/summary`."""
    rows: list[CallSummaryResponse] = [
        {
            "name": row.name,
            "calls": row.calls,
            "errors": row.errors,
            "p50_ms": round(row.p50_ms, 1),
            "p95_ms": round(row.p95_ms, 1),
        }
        for row in summary.rows
    ]
    return {"rows": rows}


def build_health_response(problem: AuditState | None, code: Mapping[Language, str]) -> HealthResponse:
    """Builds the response of `GET /health`, with the states of the languages of code mode. Everyone may read it, so it
    does not say why the audit fails."""
    health: HealthResponse = {"status": "ok", "code": {language.value: state for language, state in code.items()}}
    if problem is not None:
        health["audit"] = {"lost": problem.lost, "failing": problem.reason is not None}
    return health


def _build_event(event: AuditEvent) -> AuditEventResponse:
    built: AuditEventResponse = {
        "id": str(event.id),
        "time": format_time(event.at, "milliseconds"),
        "tool": event.tool,
        "server": event.server,
        "caller": event.caller,
        "profile": event.profile,
        "surface": event.surface,
        "outcome": event.outcome,
        "ms": round(event.ms, 1),
        "request_id": event.request_id,
        "called_by": event.called_by or None,
    }
    match event.kind:
        case AuditKind.CALLS:
            return {**built, "bytes": event.bytes, "arguments": event.details}
        case AuditKind.SEARCHES:
            return {**built, "hits": event.hits, "query": event.details}
        case AuditKind.REFUSALS:
            return {**built, "reason": event.details}
        case AuditKind.SERVERS:
            return {**built, "about": event.details}
