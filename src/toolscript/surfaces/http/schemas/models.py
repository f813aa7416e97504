"""What the bodies of requests have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"


class RequestModel(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")


class StrictRequestModel(RequestModel):
    """The body of a request whose values must have the right type already: "5" is no number."""

    model_config = ConfigDict(strict=True)
