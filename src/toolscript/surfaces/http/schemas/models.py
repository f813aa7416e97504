"""The two kinds of models: requests, and responses that `surfaces/json` does not build."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"


class RequestModel(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")


class StrictRequestModel(RequestModel):
    """The body of a request whose values must have the right type already: "5" is no number."""

    model_config = ConfigDict(strict=True)


class ResponseModel(BaseModel):
    """The body of a response, or a part of it."""

    model_config = ConfigDict(extra="forbid")


class CamelResponseModel(ResponseModel):
    """A response with camelCase keys."""

    model_config = ConfigDict(alias_generator=to_camel)
