"""Who may use the gateway: requests."""

from __future__ import annotations

from pydantic import Field

from toolscript.domain.access import Scope
from toolscript.surfaces.http.schemas.models import RequestModel


class SignInRequest(RequestModel):
    """The code of a link of `toolscript open`."""

    code: str = Field(min_length=1, max_length=4096, description="The code in the link; it counts once.")


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
