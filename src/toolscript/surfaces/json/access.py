"""Keys, and calls that wait for approval, as JSON."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolscript.domain.access import AccessKey, PendingCall


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


def build_keys_response(keys: Sequence[AccessKey]) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/keys`."""
    return {"keys": [build_key_response(key) for key in keys]}


def build_key_response(key: AccessKey) -> dict[str, Any]:
    """Builds the response of `POST /api/v1/keys/{name}/revoke`: the key without its secret."""
    return {
        "name": key.name,
        "scopes": sorted(key.scopes),
        "tenant": key.tenant,
        "plan": key.plan,
        "calls_per_minute": key.calls_per_minute,
        "concurrent_calls": key.concurrent_calls,
        "state": key.get_state(time.time()),
        "created_at": _format_time(key.created_at),
        "expires_at": _format_time(key.expires_at),
        "revoked_at": _format_time(key.revoked_at),
    }


def _format_time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
