"""Calls that wait for approval, as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolscript.domain.access import PendingCall


def build_pending_calls_response(calls: Sequence[PendingCall]) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/approvals`."""
    return {"calls": [build_pending_call_response(call) for call in calls], "total": len(calls)}


def build_pending_call_response(call: PendingCall) -> dict[str, Any]:
    """Builds the response of `POST /api/v1/approvals/{id}/approve` and `/decline`."""
    return {
        "id": call.id,
        "tool_id": call.tool_id,
        "server": call.server,
        "arguments": call.arguments,
        "caller": call.caller,
        "profile": call.profile or None,
        "state": call.state.value,
        "created_at": _format_time(call.created_at),
        "expires_at": _format_time(call.expires_at),
    }


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
