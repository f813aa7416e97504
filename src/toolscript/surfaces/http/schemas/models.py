"""The two kinds of models, requests and responses, and the one shape of all errors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from toolscript.services.documents.request import USUAL_RELEVANCE

DEGRADED = "Parts of the search that failed."
RELEVANCE = (
    "Estimated probability that it is relevant to the query, from its similarity and the words that it shares with the "
    "query. Comparable between searches, unlike `score`. Null if it is unknown: for a model that it is not fitted "
    "with, where no words are compared either."
)
NOTHING_RELEVANT = (
    f"Whether nothing has a relevance of `min_relevance`, or without one of {USUAL_RELEVANCE}: the query is most "
    "likely about something else."
)
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"


class RequestModel(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")


class StrictRequestModel(RequestModel):
    """The body of a request whose values must have the right type already: "5" is no number."""

    model_config = ConfigDict(strict=True)


class ResponseModel(BaseModel):
    """The body of a response, or a part of it. Documents what `surfaces/json` builds."""

    model_config = ConfigDict(extra="forbid")


class CamelResponseModel(ResponseModel):
    """A response with camelCase keys."""

    model_config = ConfigDict(alias_generator=to_camel)


class ErrorBody(ResponseModel):
    """What is wrong."""

    code: str = Field(description="One word, for programs.", examples=["VALIDATION_ERROR"])
    message: str = Field(description="What is wrong, where, and what to do next.")
    details: dict[str, Any] = Field(description="The same as fields, for programs.", examples=[{"field": "query"}])


class ErrorEnvelope(ResponseModel):
    """The body of every error response."""

    error: ErrorBody
