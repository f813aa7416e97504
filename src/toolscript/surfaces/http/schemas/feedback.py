"""Requests and responses about feedback."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StringConstraints

from toolscript.domain.feedback import MAX_REQUEST_CHARACTERS
from toolscript.surfaces.http.schemas.models import ONE_LINE, RequestModel, ResponseModel

TOOL_ID = "`server__tool`, as searches return it."


class MarkRequest(RequestModel):
    """A tool, and a request that it serves or is wrong for."""

    tool_id: Annotated[str, StringConstraints(pattern=ONE_LINE)] = Field(
        min_length=1, description=TOOL_ID, examples=["filesystem__read_file"]
    )
    query: str = Field(
        min_length=1,
        max_length=MAX_REQUEST_CHARACTERS,
        description="The request, in the words of the search.",
        examples=["show me what is in notes.txt"],
    )
    useful: StrictBool | None = Field(
        default=True,
        description="False: the tool is wrong for the request. Null takes back what the same caller has recorded for "
        "this tool and request.",
    )


class MarkResponse(ResponseModel):
    """What was recorded."""

    tool_id: str
    query: str
    useful: bool | None
    changed: bool = Field(description="Whether there was something to record, or to take back.")


class ToolFeedbackResponse(ResponseModel):
    """What a tool has learnt from."""

    tool_id: str
    successes: int = Field(description="Number of recorded requests that it served.")
    wrong: int = Field(description="Number of recorded requests that it is wrong for.")
    keys: dict[str, int] = Field(
        description="The number of requests by the name of the callers' key; the empty name is for callers without one."
    )
    state: Literal["moved", "refused", "waiting"] = Field(
        description="`moved`: its vector has moved toward those that it served and away from the others. "
        "`refused`: that would make past requests rank lower. "
        "`waiting`: not computed yet, or the tool is not offered now."
    )
    cosine: float | None = Field(description="Between the vector of its text and the moved one; null while waiting.")
    reason: str = Field(description="Why the step was refused.")
    requests: list[str] | None = Field(default=None, description="The requests that it served, of a single tool only.")
    wrong_requests: list[str] | None = Field(default=None, description="Those that it is wrong for, likewise.")


class FeedbackListResponse(ResponseModel):
    """The tools with feedback."""

    enabled: bool = Field(description="Whether TOOLSCRIPT_FEEDBACK is on.")
    tools: list[ToolFeedbackResponse]
    total: int


class FeedbackResetResponse(ResponseModel):
    """What was forgotten."""

    removed: int = Field(description="Number of deleted requests.")
