"""Hierarchical search over HTTP: all stages together, and each stage alone."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field, StrictBool

from toolscript.domain.catalog import ItemType
from toolscript.domain.search import MAX_CLOSEST
from toolscript.services.tools.hierarchical_search import HierarchicalQuery, Strategy
from toolscript.surfaces.http.bodies import ONE_LINE, RequestModel, read_json
from toolscript.surfaces.http.dependencies import SEARCH, CurrentApp, get_caller
from toolscript.surfaces.http.openapi import errors, request_body
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import hierarchical as responses
from toolscript.surfaces.json.tools import MapResponse, build_map_response

QUERY = "What the tool should do, in plain words."
ITEM_TYPE = "Only tools, prompts or resources. Default: all."


class HierarchicalSearchRequest(RequestModel):
    """A hierarchical search."""

    query: str = Field(description=QUERY, examples=["schedule a meeting"])
    item_type: ItemType | None = Field(default=None, description=ITEM_TYPE)
    limit: int = Field(default=5, ge=1, le=50, strict=True, description="Maximum number of tools.")
    skill_limit: int = Field(
        default=3, ge=1, le=10, strict=True, description="Maximum number of skills that the tools may belong to."
    )
    skill_threshold: float = Field(default=0.4, ge=0, le=1, description="Minimum score of a skill.")
    tool_threshold: float = Field(default=0.3, ge=0, le=1, description="Minimum score of a tool.")
    closest: int | None = Field(
        default=None,
        ge=0,
        le=MAX_CLOSEST,
        strict=True,
        description="Maximum number of tools below the threshold that follow where fewer than the limit are above it. "
        f"Default: {MAX_CLOSEST}, and 0 with a `tool_threshold`.",
    )
    include_schemas: StrictBool = Field(default=True, description="Include the schemas of the tools.")
    strategy: Strategy = Field(
        Strategy.HIERARCHICAL, description="Search inside matching skills, everywhere, or both and merge."
    )
    count_tokens: StrictBool = Field(
        default=False, description="Count the context tokens of the response, and of all tools together."
    )


MAX_HITS = 50

router = APIRouter(prefix="/api/v1", tags=["hierarchical search"], dependencies=[SEARCH], responses=errors(400))

Text = Annotated[str, Query(description=QUERY, examples=["schedule a meeting"])]
Threshold = Annotated[float, Query(ge=0, le=1, description="Minimum score.")]


@router.post(
    "/search",
    summary="Find tools through skills: skill, tool, schema",
    openapi_extra=request_body(HierarchicalSearchRequest),
)
async def search(request: Request, app: CurrentApp) -> JsonResponse[responses.HierarchicalSearchResponse]:
    body = await read_json(request, HierarchicalSearchRequest, lambda body: body)
    fields = body.model_dump(exclude={"count_tokens"})
    if body.closest is None:
        fields["closest"] = 0 if "tool_threshold" in body.model_fields_set else MAX_CLOSEST
    results = await app.tools.hierarchical_search.search(HierarchicalQuery(**fields))
    app.tools.feedback.note_search(get_caller(request), results.query, results.ids)
    response = responses.build_hierarchical_response(
        results, with_schemas=body.include_schemas, find_state=app.servers.gateway.find_call_state
    )
    if body.count_tokens:
        tokens = app.tools.token_costs.of(json.dumps(response, ensure_ascii=False))
        response["metadata"]["tokens"] = {"answer": tokens, "all_tools": await app.tools.token_costs.of_everything()}
    return JsonResponse(response)


@router.get("/map", summary="Every tool as a point in two dimensions, near to those that do similar things")
async def draw_map(app: CurrentApp) -> JsonResponse[MapResponse]:
    return JsonResponse(build_map_response(await app.tools.tool_map.draw()))


@router.get("/search/skills", summary="Find skills only")
async def search_skills(
    app: CurrentApp,
    query: Text,
    limit: Annotated[int, Query(ge=1, le=MAX_HITS, description="Maximum number of skills.")] = 5,
    threshold: Threshold = 0.4,
) -> JsonResponse[list[responses.SkillHitResponse]]:
    hits = await app.tools.hierarchical_search.find_skills(query, limit=limit, threshold=threshold)
    return JsonResponse([responses.build_skill_hit(hit) for hit in hits])


@router.get("/search/tools", summary="Find tools, everywhere or in the given skills")
async def search_tools(
    request: Request,
    app: CurrentApp,
    query: Text,
    skill_ids: Annotated[str | None, Query(pattern=ONE_LINE, description="Ids of skills, comma-separated.")] = None,
    item_type: Annotated[ItemType | None, Query(description=ITEM_TYPE)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_HITS, description="Maximum number of tools.")] = 10,
    threshold: Threshold = 0.3,
) -> JsonResponse[list[responses.FoundToolResponse]]:
    skills = [part.strip() for part in (skill_ids or "").split(",") if part.strip()]
    text = HierarchicalQuery(query, item_type=item_type, limit=limit, tool_threshold=threshold)
    tools = await app.tools.hierarchical_search.find_tools(text, skills or None)
    app.tools.feedback.note_search(get_caller(request), query, (each for tool in tools for each in tool.ids))
    find_state = app.servers.gateway.find_call_state
    return JsonResponse([responses.build_tool_hit(tool, with_schemas=False, find_state=find_state) for tool in tools])
