"""The one shape of all errors."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from toolscript.surfaces.http.schemas.models import ResponseModel


class ErrorBody(ResponseModel):
    """What is wrong."""

    code: str = Field(description="One word, for programs.", examples=["VALIDATION_ERROR"])
    message: str = Field(description="What is wrong, where, and what to do next.")
    details: dict[str, Any] = Field(description="The same as fields, for programs.", examples=[{"field": "query"}])


class ErrorEnvelope(ResponseModel):
    """The body of every error response."""

    error: ErrorBody
