"""Search quality over HTTP: measures judged queries on the catalogue of this gateway."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from toolscript.domain.search import MAX_TASK_CHARACTERS
from toolscript.evaluation.datasets import JudgedQuery, judge_query
from toolscript.evaluation.live import MAX_QUERIES, measure_queries
from toolscript.surfaces.http.bodies import RequestModel, read_json, run_while_connected
from toolscript.surfaces.http.dependencies import SEARCH, CurrentApp, Served
from toolscript.surfaces.http.openapi import errors, request_body
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import evaluation as responses

MAX_RELEVANT = 100

ToolIds = Annotated[list[str], Field(max_length=MAX_RELEVANT)]


class JudgedQueryRequest(RequestModel):
    """A request and the tools that serve it."""

    query: str = Field(max_length=MAX_TASK_CHARACTERS, examples=["what changed in the repository"])
    relevant: ToolIds = Field(
        description="The tools that serve it. None: no tool does.", examples=[["git__git_diff", "git__git_log"]]
    )
    groups: Annotated[list[ToolIds], Field(max_length=MAX_RELEVANT)] | None = Field(
        default=None, description="Groups of tools, one of each of which must be found. Default: every tool must be."
    )

    def to_judged(self) -> JudgedQuery:
        """Converts it to the query that is measured."""
        return judge_query(self.query, dict.fromkeys(self.relevant, 1.0), self.groups)


class EvaluationRequest(RequestModel):
    """Queries to measure."""

    queries: list[JudgedQueryRequest] = Field(min_length=1, max_length=MAX_QUERIES)


router = APIRouter(prefix="/api/v1", tags=["quality"], dependencies=[SEARCH])


@router.post(
    "/evaluate",
    summary="Measure how well searches find the right tools for queries",
    description="Searches as `GET /search` does, without a threshold, and scores what is found. Each query is "
    "a search in the audit. `toolscript eval --live` and the console's page Quality use it.",
    responses=errors(400),
    openapi_extra=request_body(EvaluationRequest),
)
async def evaluate_queries(
    request: Request, app: CurrentApp, served: Served
) -> JsonResponse[responses.EvaluationResponse]:
    def convert(body: EvaluationRequest) -> list[JudgedQuery]:
        return [each.to_judged() for each in body.queries]

    queries = await read_json(request, EvaluationRequest, convert)
    measuring = measure_queries(app.tools.search, queries, served.evaluation_slots)
    return JsonResponse(responses.build_evaluation_response(await run_while_connected(request, measuring)))
