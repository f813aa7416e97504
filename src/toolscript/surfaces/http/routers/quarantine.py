"""The quarantine over HTTP: see what is there and why, approve and reject it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field, StringConstraints

from toolscript.surfaces.http.bodies import ONE_LINE, RequestModel
from toolscript.surfaces.http.dependencies import ADMIN, CurrentApp
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import quarantine as responses
from toolscript.surfaces.json.definitions import TOOL_ID


class DecisionRequest(RequestModel):
    """The definitions that a person has decided about."""

    tool_ids: list[Annotated[str, StringConstraints(min_length=1, max_length=2000)]] = Field(
        min_length=1, max_length=10_000, description=TOOL_ID, examples=[["filesystem__read_file"]]
    )
    digest: str | None = Field(
        default=None, description="The digest of the definition that was looked at: refused if there is another by now."
    )


router = APIRouter(prefix="/api/v1/quarantine", tags=["quarantine"], dependencies=[ADMIN])

ToolId = Annotated[str, Path(description=TOOL_ID, examples=["filesystem__read_file"])]
ServerName = Annotated[str | None, Query(pattern=ONE_LINE, description="Only those of this server.")]


@router.get("", summary="List the definitions in quarantine")
async def list_quarantine(app: CurrentApp, server: ServerName = None) -> JsonResponse[responses.QuarantineListResponse]:
    return JsonResponse(responses.build_quarantine_response(await app.catalogue.quarantine.list_waiting(server)))


@router.post("/approve", summary="Approve definitions: their tools can be called", responses=errors(400, 404, 409))
async def approve_definitions(app: CurrentApp, body: DecisionRequest) -> JsonResponse[responses.DecisionResponse]:
    pins = await app.catalogue.quarantine.approve(body.tool_ids, digest=body.digest)
    return JsonResponse({"tool_ids": [pin.catalogue_id for pin in pins]})


@router.post(
    "/reject", summary="Reject definitions: they stay in quarantine under every policy", responses=errors(400, 404, 409)
)
async def reject_definitions(app: CurrentApp, body: DecisionRequest) -> JsonResponse[responses.DecisionResponse]:
    pins = await app.catalogue.quarantine.reject(body.tool_ids, digest=body.digest)
    return JsonResponse({"tool_ids": [pin.catalogue_id for pin in pins]})


@router.get(
    "/{tool_id:path}",
    summary="A definition in quarantine, and how it differs from the approved one",
    responses=errors(404),
)
async def get_quarantined(tool_id: ToolId, app: CurrentApp) -> JsonResponse[responses.QuarantineDetailResponse]:
    return JsonResponse(responses.build_quarantined_response(await app.catalogue.quarantine.get(tool_id)))
