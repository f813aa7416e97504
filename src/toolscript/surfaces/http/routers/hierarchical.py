"""Hierarchical search over HTTP: the whole of it, each stage alone, and the sync that feeds it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json
from starlette.responses import Response

from toolscript.domain.catalog import ItemType
from toolscript.services.tools.hierarchical_search import HierarchicalQuery, Strategy
from toolscript.surfaces.http.bodies import read_body
from toolscript.surfaces.http.openapi import body_of, errors
from toolscript.surfaces.json.hierarchical import (
    build_hierarchical_response,
    build_skill_hit,
    build_sync_response,
    build_tool_hit,
)

if TYPE_CHECKING:
    from toolscript.surfaces.http.served_app import ServedApp

SEARCH = "/api/v1/search"
MAX_VALUES = 50

Text = Annotated[str, Query(description="What the tool should do, in plain words.", examples=["schedule a meeting"])]
Kind = Annotated[ItemType | None, Query(description="Tools, prompts or resources alone. Without it, all.")]
Share = Annotated[float, Query(ge=0, le=1, description="Least score.")]


class HierarchicalSearchRequest(BaseModel):
    """A hierarchical search."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(description="What the tool should do, in plain words.", examples=["schedule a meeting"])
    item_type: ItemType | None = Field(default=None, description="Tools, prompts or resources alone. Without it, all.")
    limit: int = Field(default=5, ge=1, le=50, strict=True, description="Most tools.")
    skill_limit: int = Field(
        default=3, ge=1, le=10, strict=True, description="Most skills that narrow the search down."
    )
    skill_threshold: float = Field(default=0.4, ge=0, le=1, description="Least score of a skill.")
    tool_threshold: float = Field(default=0.3, ge=0, le=1, description="Least score of a tool.")
    include_schemas: bool = Field(default=True, description="Read the schemas of the tools that are returned.")
    strategy: Strategy = Field(
        Strategy.HIERARCHICAL, description="Through skills, past them, or both and the best of both."
    )
    count_tokens: bool = Field(
        default=False, description="Say what the answer costs in context tokens, and what all would."
    )


class SyncRequest(BaseModel):
    """A sync on request."""

    model_config = ConfigDict(extra="forbid")

    reclassify: bool = Field(default=False, description="Sort every item into skills anew.")
    force: bool = Field(default=False, description="Also those that a person has sorted.")


def add_hierarchical(http: FastAPI, serving: ServedApp) -> None:
    """Adds the routes of hierarchical search."""

    @http.post(
        SEARCH,
        summary="Find tools through skills: skill, tool, schema",
        description="`metadata.stage2_candidate_count` is the number of tools found before the limit, counted up to "
        "100; `metadata.degraded` names what had to be done without.",
        tags=["hierarchical search"],
        responses=errors(400),
        openapi_extra=body_of(HierarchicalSearchRequest),
    )
    async def search(request: Request) -> Response:
        body = await read_body(request, HierarchicalSearchRequest, lambda body: body)
        fields = vars(body).copy()
        del fields["count_tokens"]
        app = serving.app
        found = await app.hierarchical_search.search(HierarchicalQuery(**fields))
        response = build_hierarchical_response(found, with_schemas=body.include_schemas)
        if body.count_tokens:
            cost = app.token_costs.of(json.dumps(response, ensure_ascii=False))
            response["metadata"]["tokens"] = {"answer": cost, "all_tools": await app.token_costs.of_everything()}
        return Response(to_json(response, inf_nan_mode="null"), media_type="application/json")

    _add_stages(http, serving)
    _add_sync(http, serving)


def _add_stages(http: FastAPI, serving: ServedApp) -> None:
    @http.get(f"{SEARCH}/skills", summary="Find skills alone", tags=["hierarchical search"], responses=errors(400))
    async def skills(
        query: Text,
        limit: Annotated[int, Query(ge=1, le=MAX_VALUES, description="Most skills.")] = 5,
        threshold: Share = 0.4,
    ) -> list[dict[str, Any]]:
        hits = await serving.app.hierarchical_search.find_skills(query, limit=limit, threshold=threshold)
        return [build_skill_hit(hit) for hit in hits]

    @http.get(
        f"{SEARCH}/tools",
        summary="Find tools, within skills when some are named",
        tags=["hierarchical search"],
        responses=errors(400),
    )
    async def tools(
        query: Text,
        skill_ids: Annotated[str | None, Query(description="Ids of skills, separated by commas.")] = None,
        item_type: Kind = None,
        limit: Annotated[int, Query(ge=1, le=MAX_VALUES, description="Most tools.")] = 10,
        threshold: Share = 0.3,
    ) -> list[dict[str, Any]]:
        named = [part.strip() for part in (skill_ids or "").split(",") if part.strip()]
        ask = HierarchicalQuery(query, item_type=item_type, limit=limit, tool_threshold=threshold)
        found = await serving.app.hierarchical_search.find_tools(ask, named or None)
        return [build_tool_hit(tool, with_schemas=False) for tool in found]


def _add_sync(http: FastAPI, serving: ServedApp) -> None:
    @http.post(
        "/api/v1/sync",
        summary="Bring catalogue, skills and index up to date now",
        tags=["skills"],
        responses=errors(400),
    )
    async def sync(asked: SyncRequest | None = None) -> dict[str, Any]:
        asked = asked or SyncRequest()
        return build_sync_response(await serving.app.resync.run(reclassify=asked.reclassify, force=asked.force))
