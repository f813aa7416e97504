"""Keys, and calls that wait for approval, as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, TypedDict

from toolscript.domain.access import AccessKey, PendingCall, PendingState, Scope
from toolscript.surfaces.json.definitions import More, format_time


class SignInResponse(TypedDict):
    """What the page sends from now on."""

    token: Annotated[str, "The owner's token, for `Authorization: Bearer TOKEN`."]
    seconds: Annotated[int, "How long the token is valid."]


class PendingCallResponse(TypedDict):
    """A call that a person approves or declines."""

    id: str
    tool_id: str
    server: str
    arguments: Annotated[
        str,
        "JSON for people: without what looks like a secret, with invisible characters written as "
        "`\\u200b`, and with its first 8000 characters only. An agent wrote it: show it as text.",
    ]
    caller: Annotated[
        str,
        "Who made the call, and can repeat it.",
        More(examples=["key ci", "address 127.0.0.1", "owner"]),
    ]
    profile: Annotated[str | None, "The caller's profile."]
    state: PendingState
    created_at: str
    expires_at: Annotated[str, "Until when the call waits or, once it is decided, can be repeated."]


class PendingCallsResponse(TypedDict):
    """The calls that wait for a person's approval, the oldest first."""

    calls: list[PendingCallResponse]
    total: int


class KeyResponse(TypedDict):
    """A key, without its secret."""

    name: str
    scopes: list[Scope]
    tenant: Annotated[str | None, "Whose documents the key is for; null without the scope `documents`."]
    plan: str
    calls_per_minute: int | None
    concurrent_calls: int | None
    state: Annotated[str, "`active`, `expired` or `revoked`."]
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class KeysResponse(TypedDict):
    """All keys by name, also those that are expired or revoked."""

    keys: list[KeyResponse]


class CreatedKeyResponse(KeyResponse):
    """A new key."""

    key: Annotated[str, "The secret, which is stored nowhere and never shown again."]


def build_pending_calls_response(calls: Sequence[PendingCall]) -> PendingCallsResponse:
    """Builds the response of `GET /api/v1/approvals`."""
    return {"calls": [build_pending_call_response(call) for call in calls], "total": len(calls)}


def build_pending_call_response(call: PendingCall) -> PendingCallResponse:
    """Builds the response of `POST /api/v1/approvals/{id}/approve` and `/decline`."""
    return {
        "id": call.id,
        "tool_id": call.tool_id,
        "server": call.server,
        "arguments": call.arguments,
        "caller": call.caller,
        "profile": call.profile or None,
        "state": call.state,
        "created_at": format_time(call.created_at),
        "expires_at": format_time(call.expires_at),
    }


def build_keys_response(keys: Sequence[AccessKey]) -> KeysResponse:
    """Builds the response of `GET /api/v1/keys`."""
    return {"keys": [build_key_response(key) for key in keys]}


def build_key_response(key: AccessKey) -> KeyResponse:
    """Builds the response of `POST /api/v1/keys/{name}/revoke`: the key without its secret."""
    return {
        "name": key.name,
        "scopes": sorted(key.scopes),
        "tenant": key.tenant,
        "plan": key.plan,
        "calls_per_minute": key.calls_per_minute,
        "concurrent_calls": key.concurrent_calls,
        "state": key.get_state(time.time()),
        "created_at": format_time(key.created_at),
        "expires_at": None if key.expires_at is None else format_time(key.expires_at),
        "revoked_at": None if key.revoked_at is None else format_time(key.revoked_at),
    }
