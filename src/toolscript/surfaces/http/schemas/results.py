"""Responses about large results."""

from __future__ import annotations

from pydantic import Field

from toolscript.surfaces.http.schemas.models import ResponseModel


class ResultPageResponse(ResponseModel):
    """A page of a result, or of the value at a path."""

    handle: str
    text: str = Field(description="The text of the page. All pages joined are the whole.")
    page: int
    pages: int = Field(description="Number of pages.")


class ResultHitResponse(ResponseModel):
    """A part of a result."""

    text: str
    path: str | None = Field(description="Where it is in the JSON; null in a text.")
    page: int | None = Field(description="The page that it is on, of the value at the path; null if that is short.")


class ResultHitsResponse(ResponseModel):
    """The parts of a result that fit a query, best first."""

    handle: str
    query: str
    hits: list[ResultHitResponse]
