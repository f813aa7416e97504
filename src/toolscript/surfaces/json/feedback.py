"""Responses about feedback as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from toolscript.services.tools.feedback import ToolFeedback


class MarkResponse(TypedDict):
    """What was recorded."""

    tool_id: str
    query: str
    useful: bool | None
    changed: Annotated[bool, "Whether there was something to record, or to take back."]


class ToolFeedbackResponse(TypedDict):
    """What a tool has learnt from."""

    tool_id: str
    successes: Annotated[int, "Number of recorded requests that it served."]
    wrong: Annotated[int, "Number of recorded requests that it is wrong for."]
    keys: Annotated[
        dict[str, int],
        "The number of requests by the name of the callers' key; the empty name is for callers without one.",
    ]
    state: Annotated[
        Literal["moved", "refused", "waiting"],
        "`moved`: its vector has moved toward those that it served and away from the others. "
        "`refused`: that would make past requests rank lower. "
        "`waiting`: not computed yet, or the tool is not offered now.",
    ]
    cosine: Annotated[float | None, "Between the vector of its text and the moved one; null while waiting."]
    reason: Annotated[str, "Why the step was refused."]
    requests: NotRequired[Annotated[list[str], "The requests that it served, of a single tool only."]]
    wrong_requests: NotRequired[Annotated[list[str], "Those that it is wrong for, likewise."]]


class FeedbackListResponse(TypedDict):
    """The tools with feedback."""

    enabled: Annotated[bool, "Whether TOOLSCRIPT_FEEDBACK is on."]
    tools: list[ToolFeedbackResponse]
    total: int


class FeedbackResetResponse(TypedDict):
    """What was forgotten."""

    removed: Annotated[int, "Number of deleted requests."]


def build_feedback_response(tools: Sequence[ToolFeedback], *, enabled: bool) -> FeedbackListResponse:
    """Builds the response of `GET /api/v1/feedback`."""
    return {"enabled": enabled, "tools": [_build_tool(each) for each in tools], "total": len(tools)}


def build_tool_feedback_response(tool: ToolFeedback) -> ToolFeedbackResponse:
    """Builds the response of `GET /api/v1/feedback/{id}`: also the requests, newest first."""
    return {**_build_tool(tool), "requests": tool.requests, "wrong_requests": tool.wrong_requests}


def build_mark_response(tool_id: str, query: str, *, useful: bool | None, changed: bool) -> MarkResponse:
    """Builds the response of `POST /api/v1/feedback`."""
    return {"tool_id": tool_id, "query": query, "useful": useful, "changed": changed}


def _build_tool(tool: ToolFeedback) -> ToolFeedbackResponse:
    step = tool.step
    return {
        "tool_id": tool.item_id,
        "successes": len(tool.requests),
        "wrong": len(tool.wrong_requests),
        "keys": tool.keys,
        "state": "waiting" if step is None else "refused" if step.refusal else "moved",
        "cosine": step.cosine if step else None,
        "reason": step.refusal if step else "",
    }
