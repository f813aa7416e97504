"""Responses about feedback as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolscript.services.tools.feedback import ToolFeedback


def build_feedback_response(tools: Sequence[ToolFeedback], *, enabled: bool) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/feedback`."""
    return {"enabled": enabled, "tools": [_build_tool(each) for each in tools], "total": len(tools)}


def build_tool_feedback_response(tool: ToolFeedback) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/feedback/{id}`: also the requests, newest first."""
    return {**_build_tool(tool), "requests": tool.requests, "wrong_requests": tool.wrong_requests}


def build_mark_response(tool_id: str, query: str, *, useful: bool | None, changed: bool) -> dict[str, Any]:
    """Builds the response of `POST /api/v1/feedback`."""
    return {"tool_id": tool_id, "query": query, "useful": useful, "changed": changed}


def _build_tool(tool: ToolFeedback) -> dict[str, Any]:
    step = tool.step
    state = "waiting" if step is None else "refused" if step.refusal else "moved"
    return {
        "tool_id": tool.item_id,
        "successes": len(tool.requests),
        "wrong": len(tool.wrong_requests),
        "keys": tool.keys,
        "state": state,
        "cosine": step.cosine if step else None,
        "reason": step.refusal if step else "",
    }
