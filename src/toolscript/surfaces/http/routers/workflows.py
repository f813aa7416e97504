"""Workflows over HTTP: save programs as tools, see and remove them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import Field

from toolscript.domain.access import Scope
from toolscript.domain.programs import Language
from toolscript.domain.servers import CallRelay
from toolscript.services.code.host import RunCaller
from toolscript.surfaces.callers import find_user
from toolscript.surfaces.http.bodies import RequestModel
from toolscript.surfaces.http.dependencies import ADMIN, CurrentApp, get_caller
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import workflows as responses
from toolscript.surfaces.json.workflows import PARAMETERS, RESULT


class WorkflowRequest(RequestModel):
    """A program to save as a workflow."""

    description: str = Field(description="What the workflow does: searches find it by this.")
    language: Language = Field(description="The language of the program.")
    source: str = Field(description="The program, as `POST /api/v1/run` takes it.")
    parameters: dict[str, Any] | None = Field(default=None, description=PARAMETERS)
    result: dict[str, Any] | None = Field(default=None, description=RESULT)


router = APIRouter(prefix="/api/v1/workflows", tags=["workflows"], dependencies=[ADMIN])

Name = Annotated[str, Path(description="The workflow's name.", examples=["open_issues"])]


@router.get("", summary="List the workflows")
async def list_workflows(app: CurrentApp) -> JsonResponse[responses.WorkflowListResponse]:
    return JsonResponse(responses.build_workflows_response(await app.code.workflows.list_all()))


@router.get("/{name}", summary="A workflow with its program", responses=errors(404))
async def get_workflow(name: Name, app: CurrentApp) -> JsonResponse[responses.WorkflowResponse]:
    return JsonResponse(responses.build_workflow_response(await app.code.workflows.get(name)))


@router.put(
    "/{name}",
    summary="Save a program as a workflow, or replace one",
    description="The program is checked against the types of its parameters and of the tools that it names. The "
    "workflow is a tool of the server `workflows` at once.",
    responses=errors(400, 404, 409, 429),
)
async def save_workflow(
    name: Name, request: Request, app: CurrentApp, body: WorkflowRequest
) -> JsonResponse[responses.SavedWorkflowResponse]:
    workflow = responses.parse_workflow(name, body.model_dump())
    grant = request.scope["grant"]
    saved = await app.code.workflows.save(
        workflow, RunCaller(get_caller(request), CallRelay(user=find_user(grant)), Scope.SEARCH in grant.scopes)
    )
    return JsonResponse(responses.build_saved_response(saved))


@router.delete("/{name}", summary="Remove a workflow", responses=errors(404, 409))
async def remove_workflow(name: Name, app: CurrentApp) -> JsonResponse[responses.WorkflowListResponse]:
    await app.code.workflows.remove(name)
    return JsonResponse(responses.build_workflows_response(await app.code.workflows.list_all()))
