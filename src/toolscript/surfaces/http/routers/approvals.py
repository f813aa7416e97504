"""Calls that wait for a person's approval: list them, and decide."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from toolscript.app.app import App
from toolscript.domain.access import PendingState
from toolscript.domain.requests import current_request
from toolscript.surfaces.callers import is_data_owner
from toolscript.surfaces.http.dependencies import ADMIN, CurrentApp, require_administrator
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import access as responses

router = APIRouter(prefix="/api/v1/approvals", tags=["access"], dependencies=[ADMIN, Depends(require_administrator)])

CallId = Annotated[
    str, Path(max_length=64, description="The id that the answer to the call names.", examples=["k7m2xq"])
]


@router.get(
    "",
    summary="List the calls that wait for a person's approval",
    description="Of callers whose clients cannot ask: each waits for 15 minutes. The owner's token is needed "
    "(`toolscript open`), or a key with the scope `admin`, also where other requests need none.",
)
async def list_pending_calls(app: CurrentApp) -> JsonResponse[responses.PendingCallsResponse]:
    return JsonResponse(responses.build_pending_calls_response(await app.tools.approvals.pending.list_waiting()))


@router.post(
    "/{call_id}/approve",
    summary="Approve a call: its caller can repeat it once, within ten minutes",
    description="A key cannot decide about the calls that were made with it.",
    responses=errors(404, 409),
)
async def approve_call(
    call_id: CallId, request: Request, app: CurrentApp
) -> JsonResponse[responses.PendingCallResponse]:
    call = await app.tools.approvals.pending.decide(call_id, PendingState.APPROVED, decider=_find_decider(app, request))
    return JsonResponse(responses.build_pending_call_response(call))


@router.post(
    "/{call_id}/decline",
    summary="Decline a call: its caller learns that when it repeats the call",
    description="A key cannot decide about the calls that were made with it.",
    responses=errors(404, 409),
)
async def decline_call(
    call_id: CallId, request: Request, app: CurrentApp
) -> JsonResponse[responses.PendingCallResponse]:
    call = await app.tools.approvals.pending.decide(call_id, PendingState.DECLINED, decider=_find_decider(app, request))
    return JsonResponse(responses.build_pending_call_response(call))


def _find_decider(app: App, request: Request) -> str | None:
    return None if is_data_owner(app, request.headers) else current_request().share_holder.name
