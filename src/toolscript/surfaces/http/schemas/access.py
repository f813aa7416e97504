"""Who may use the gateway: requests and responses."""

from __future__ import annotations

from pydantic import Field

from toolscript.domain.access import PendingState
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
