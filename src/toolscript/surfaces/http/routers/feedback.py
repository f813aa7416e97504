"""Feedback over HTTP: mark the tools that served requests, see what was learnt, and forget it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field, StrictBool, StringConstraints

from toolscript.domain.errors import InvalidArguments
from toolscript.domain.feedback import MAX_REQUEST_CHARACTERS
from toolscript.surfaces.http.bodies import ONE_LINE, RequestModel
from toolscript.surfaces.http.dependencies import ADMIN, CALL, CurrentApp, get_caller
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import feedback as responses
from toolscript.surfaces.json.definitions import TOOL_ID


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


router = APIRouter(prefix="/api/v1/feedback", tags=["feedback"], dependencies=[ADMIN])

KEY = "key"
KeyName = Annotated[
    str | None,
    Query(pattern=ONE_LINE, description="Only what callers with the key of this name recorded; empty: without a key."),
]
ToolId = Annotated[str, Path(description=TOOL_ID, examples=["filesystem__read_file"])]


async def refuse_other_parameters(request: Request) -> None:
    """Raises InvalidArguments: a misspelt condition must not delete everything."""
    other = next((name for name in request.query_params if name != KEY), None)
    if other:
        raise InvalidArguments(
            f"unknown parameter: {other!r}; allowed is {KEY}", details={"field": other, "allowed": [KEY]}
        )


@router.post("", summary="Mark a tool as right or wrong for a request", responses=errors(400, 404), dependencies=[CALL])
async def mark_tool(request: Request, app: CurrentApp, body: MarkRequest) -> JsonResponse[responses.MarkResponse]:
    changed = await app.tools.feedback.mark(get_caller(request), body.tool_id, body.query, useful=body.useful)
    return JsonResponse(responses.build_mark_response(body.tool_id, body.query, useful=body.useful, changed=changed))


@router.get("", summary="List the tools with feedback")
async def list_feedback(app: CurrentApp) -> JsonResponse[responses.FeedbackListResponse]:
    return JsonResponse(
        responses.build_feedback_response(await app.tools.feedback.list(), enabled=app.settings.feedback)
    )


@router.delete("", summary="Forget everything that was learnt", dependencies=[Depends(refuse_other_parameters)])
async def reset_feedback(app: CurrentApp, key: KeyName = None) -> JsonResponse[responses.FeedbackResetResponse]:
    return JsonResponse({"removed": await app.tools.feedback.reset(key=key)})


@router.get("/{tool_id:path}", summary="The requests that a tool has learnt from", responses=errors(404))
async def get_tool_feedback(tool_id: ToolId, app: CurrentApp) -> JsonResponse[responses.ToolFeedbackResponse]:
    return JsonResponse(responses.build_tool_feedback_response(await app.tools.feedback.get(tool_id)))


@router.delete(
    "/{tool_id:path}", summary="Forget what was learnt about a tool", dependencies=[Depends(refuse_other_parameters)]
)
async def reset_tool_feedback(
    tool_id: ToolId, app: CurrentApp, key: KeyName = None
) -> JsonResponse[responses.FeedbackResetResponse]:
    return JsonResponse({"removed": await app.tools.feedback.reset(tool_id, key=key)})
