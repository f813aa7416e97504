"""Search quality over HTTP: measures judged queries on the catalogue of this gateway."""

from __future__ import annotations

from fastapi import APIRouter, Request

from toolscript.evaluation.datasets import JudgedQuery
from toolscript.evaluation.live import measure_queries
from toolscript.surfaces.http.bodies import read_json, run_while_connected
from toolscript.surfaces.http.dependencies import SEARCH, CurrentApp, Served
from toolscript.surfaces.http.openapi import errors, request_body
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.http.schemas import evaluation as schemas
from toolscript.surfaces.json import evaluation as responses

router = APIRouter(prefix="/api/v1", tags=["quality"], dependencies=[SEARCH])


@router.post(
    "/evaluate",
    summary="Measure how well searches find the right tools for queries",
    description="Searches as `GET /search` does, without a threshold, and scores what is found. Each query is "
    "a search in the audit. `toolscript eval --live` and the console's page Quality use it.",
    responses=errors(400),
    openapi_extra=request_body(schemas.EvaluationRequest),
)
async def evaluate_queries(
    request: Request, app: CurrentApp, served: Served
) -> JsonResponse[responses.EvaluationResponse]:
    def convert(body: schemas.EvaluationRequest) -> list[JudgedQuery]:
        return [each.to_judged() for each in body.queries]

    queries = await read_json(request, schemas.EvaluationRequest, convert)
    measuring = measure_queries(app.tool_search, queries, served.evaluation_slots)
    return JsonResponse(responses.build_evaluation_response(await run_while_connected(request, measuring)))
