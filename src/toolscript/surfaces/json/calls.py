"""Responses about the audit as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toolscript.domain.audit import AuditKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolscript.domain.audit import AuditEvent, AuditPage, AuditState
    from toolscript.domain.programs import Language
    from toolscript.services.support.call_log import Summary


def build_calls_response(page: AuditPage) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/calls`."""
    token = None if page.next_before is None else str(page.next_before)
    return {"events": [_build_event(event) for event in page.events], "next_page_token": token}


def build_summary_response(summary: Summary) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/calls/summary`."""
    rows = [
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


def build_health_response(problem: AuditState | None, code: Mapping[Language, str]) -> dict[str, Any]:
    """Builds the response of `GET /health`, with the states of the languages of code mode. Everyone may read it, so it
    does not say why the audit fails."""
    health: dict[str, Any] = {"status": "ok", "code": {language.value: state for language, state in code.items()}}
    if problem is None:
        return health
    return health | {"audit": {"lost": problem.lost, "failing": problem.reason is not None}}


def _build_event(event: AuditEvent) -> dict[str, Any]:
    about = {
        "id": str(event.id),
        "time": datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds"),
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
            return about | {"bytes": event.bytes, "arguments": event.details}
        case AuditKind.SEARCHES:
            return about | {"hits": event.hits, "query": event.details}
        case AuditKind.REFUSALS:
            return about | {"reason": event.details}
        case AuditKind.SERVERS:
            return about | {"about": event.details}
