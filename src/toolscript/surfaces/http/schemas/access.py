"""Who may use the gateway: requests and responses."""

from __future__ import annotations

from pydantic import Field

from toolscript.surfaces.http.schemas.models import RequestModel, ResponseModel


class SignInRequest(RequestModel):
    """The code of a link of `toolscript open`."""

    code: str = Field(min_length=1, max_length=4096, description="The code in the link; it counts once.")


class SignInResponse(ResponseModel):
    """What the page sends from now on."""

    token: str = Field(description="The owner's token, for `Authorization: Bearer TOKEN`.")
    seconds: int = Field(description="How long the token is valid.")
