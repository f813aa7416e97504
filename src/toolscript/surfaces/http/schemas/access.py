"""Who may use the gateway: requests and responses."""

from __future__ import annotations

from pydantic import Field

from toolscript.domain.access import PendingState, Scope
from toolscript.surfaces.http.schemas.models import RequestModel, ResponseModel


class SignInRequest(RequestModel):
    """The code of a link of `toolscript open`."""

    code: str = Field(min_length=1, max_length=4096, description="The code in the link; it counts once.")


class SignInResponse(ResponseModel):
    """What the page sends from now on."""

    token: str = Field(description="The owner's token, for `Authorization: Bearer TOKEN`.")
    seconds: int = Field(description="How long the token is valid.")


class PendingCallResponse(ResponseModel):
    """A call that a person approves or declines."""

    id: str
    tool_id: str
    server: str
    arguments: str = Field(
        description="JSON for people: without what looks like a secret, with invisible characters written as "
        "`\\u200b`, and with its first 8000 characters only. An agent wrote it: show it as text."
    )
    caller: str = Field(
        description="Who made the call, and can repeat it.", examples=["key ci", "address 127.0.0.1", "owner"]
    )
    profile: str | None = Field(description="The caller's profile.")
    state: PendingState
    created_at: str
    expires_at: str = Field(description="Until when the call waits or, once it is decided, can be repeated.")


class PendingCallsResponse(ResponseModel):
    """The calls that wait for a person's approval, the oldest first."""

    calls: list[PendingCallResponse]
    total: int


class CreateKeyRequest(RequestModel):
    """A key to create."""

    name: str = Field(min_length=1, max_length=64, description="Logs show it.", examples=["ci"])
    scopes: list[Scope] = Field(min_length=1, max_length=len(Scope), description="What the key allows.")
    expires_in_seconds: float | None = Field(
        default=None, ge=60, le=3650 * 86_400, description="When the key expires, from now on. Default: never."
    )
    tenant: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="Whose documents the key is for, with the scope `documents`. Default: TOOLSCRIPT_TENANT.",
    )


class KeyResponse(ResponseModel):
    """A key, without its secret."""

    name: str
    scopes: list[Scope]
    tenant: str | None = Field(description="Whose documents the key is for; null without the scope `documents`.")
    plan: str
    calls_per_minute: int | None
    concurrent_calls: int | None
    state: str = Field(description="`active`, `expired` or `revoked`.")
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class KeysResponse(ResponseModel):
    """All keys by name, also those that are expired or revoked."""

    keys: list[KeyResponse]


class CreatedKeyResponse(KeyResponse):
    """A new key."""

    key: str = Field(description="The secret, which is stored nowhere and never shown again.")
