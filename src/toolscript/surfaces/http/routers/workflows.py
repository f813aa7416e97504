"""Workflows over HTTP: save programs as tools, see and restore their versions, test them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from toolscript.domain.access import Scope
from toolscript.domain.programs import MAX_VERSION
from toolscript.domain.servers import CallRelay
from toolscript.services.code.host import RunCaller
from toolscript.surfaces.callers import find_user, require_scope
from toolscript.surfaces.http.bodies import run_while_connected
from toolscript.surfaces.http.dependencies import ADMIN, CurrentApp, get_caller
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.http.schemas import workflows as schemas
from toolscript.surfaces.json import workflows as responses

router = APIRouter(prefix="/api/v1/workflows", tags=["workflows"], dependencies=[ADMIN])

Name = Annotated[str, Path(description="The workflow's name.", examples=["open_issues"])]
Version = Annotated[int | None, Query(ge=1, le=MAX_VERSION, description="An older version; by default the newest one.")]


@router.get("", summary="List the workflows", response_model=schemas.WorkflowListResponse)
async def list_workflows(app: CurrentApp) -> JsonResponse:
    return JsonResponse(responses.build_workflows_response(await app.code.workflows.list_all()))


@router.get(
    "/{name}",
    summary="A workflow with its program and tests",
    response_model=schemas.WorkflowResponse,
    responses=errors(404),
)
async def get_workflow(name: Name, app: CurrentApp, version: Version = None) -> JsonResponse:
    return JsonResponse(responses.build_workflow_response(await app.code.workflows.get(name, version)))


@router.put(
    "/{name}",
    summary="Save a program as a workflow, or as its next version",
    description="The program is checked against the types of its parameters and of the tools that it names. The "
    "workflow is a tool of the server `workflows` at once.",
    response_model=schemas.SavedWorkflowResponse,
    responses=errors(400, 404, 409, 429),
)
async def save_workflow(name: Name, request: Request, app: CurrentApp, body: schemas.WorkflowRequest) -> JsonResponse:
    workflow = responses.parse_workflow(name, body.model_dump())
    saved = await app.code.workflows.save(workflow, _build_caller(request))
    return JsonResponse(responses.build_saved_response(saved))


@router.get(
    "/{name}/versions",
    summary="List the versions of a workflow, the newest first",
    response_model=schemas.WorkflowListResponse,
    responses=errors(404),
)
async def list_workflow_versions(name: Name, app: CurrentApp) -> JsonResponse:
    return JsonResponse(responses.build_workflows_response(await app.code.workflows.list_versions(name)))


@router.post(
    "/{name}/restore",
    summary="Save an older version of a workflow as the newest one",
    response_model=schemas.SavedWorkflowResponse,
    responses=errors(400, 404, 409, 429),
)
async def restore_workflow(name: Name, request: Request, app: CurrentApp, body: schemas.RestoreRequest) -> JsonResponse:
    saved = await app.code.workflows.restore(name, body.version, _build_caller(request))
    return JsonResponse(responses.build_saved_response(saved))


@router.post(
    "/{name}/test",
    summary="Run the tests of a workflow",
    description="They call real tools, so the key needs the scope `call`, too.",
    response_model=schemas.WorkflowTestResponse,
    responses=errors(400, 404, 429),
)
async def run_workflow_tests(name: Name, request: Request, app: CurrentApp, version: Version = None) -> JsonResponse:
    workflow = await app.code.workflows.get(name, version)
    require_scope(Scope.CALL, request.scope["grant"])
    results = await run_while_connected(request, app.code.workflows.test(workflow, _build_caller(request)))
    return JsonResponse(responses.build_test_response(workflow, results))


@router.delete(
    "/{name}",
    summary="Remove a workflow with all its versions",
    response_model=schemas.WorkflowListResponse,
    responses=errors(404, 409),
)
async def remove_workflow(name: Name, app: CurrentApp) -> JsonResponse:
    await app.code.workflows.remove(name)
    return JsonResponse(responses.build_workflows_response(await app.code.workflows.list_all()))


def _build_caller(request: Request) -> RunCaller:
    grant = request.scope["grant"]
    return RunCaller(get_caller(request), CallRelay(user=find_user(grant)), Scope.SEARCH in grant.scopes)
