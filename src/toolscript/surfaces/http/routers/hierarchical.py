"""Hierarchical search over HTTP: the whole of it, each stage alone, and the sync that feeds it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from toolscript.domain.catalog import ItemType
from toolscript.services.tools.hierarchical_search import HierarchicalQuery, Strategy
from toolscript.surfaces.http.bare import BareRoute
from toolscript.surfaces.http.openapi import body_of, errors
from toolscript.surfaces.json.hierarchical import found_answer, resync_answer, skill_hit, tool_hit

if TYPE_CHECKING:
    from toolscript.surfaces.http.serving import Serving

SEARCH = "/api/v1/search"
LONGEST_LIST = 50

Text = Annotated[str, Query(description="What the tool should do, in plain words.", examples=["schedule a meeting"])]
Kind = Annotated[ItemType | None, Query(description="Tools, prompts or resources alone. Without it, all.")]
Share = Annotated[float, Query(ge=0, le=1, description="Least score.")]


class SearchRequest(BaseModel):
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


def add_hierarchical(http: FastAPI, serving: Serving) -> None:
    """Adds the routes of hierarchical search."""

    async def search(body: bytes) -> bytes:
        asked = _asked(body)
        given = vars(asked).copy()
        del given["count_tokens"]
        app = serving.app
        answer = found_answer(
            await app.hierarchical_search.search(HierarchicalQuery(**given)), with_schemas=asked.include_schemas
        )
        if asked.count_tokens:
            cost = app.token_costs.of(json.dumps(answer, ensure_ascii=False))
            answer["metadata"]["tokens"] = {"answer": cost, "all_tools": await app.token_costs.of_everything()}
        return _written(answer)

    http.router.add_api_route(
        SEARCH,
        search,
        methods=["POST"],
        summary="Find tools through skills: skill, tool, schema",
        description="`metadata.stage2_candidate_count` is the number of tools found before the limit, counted up to "
        "100; `metadata.degraded` names what had to be done without.",
        tags=["hierarchical search"],
        responses=errors(400),
        openapi_extra=body_of(SearchRequest),
        route_class_override=BareRoute,
    )
    _add_stages(http, serving)
    _add_sync(http, serving)


def _add_stages(http: FastAPI, serving: Serving) -> None:
    @http.get(f"{SEARCH}/skills", summary="Find skills alone", tags=["hierarchical search"], responses=errors(400))
    async def skills(
        query: Text,
        limit: Annotated[int, Query(ge=1, le=LONGEST_LIST, description="Most skills.")] = 5,
        threshold: Share = 0.4,
    ) -> list[dict[str, Any]]:
        hits = await serving.app.hierarchical_search.find_skills(query, limit=limit, threshold=threshold)
        return [skill_hit(hit) for hit in hits]

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
        limit: Annotated[int, Query(ge=1, le=LONGEST_LIST, description="Most tools.")] = 10,
        threshold: Share = 0.3,
    ) -> list[dict[str, Any]]:
        named = [part.strip() for part in (skill_ids or "").split(",") if part.strip()]
        ask = HierarchicalQuery(query, item_type=item_type, limit=limit, tool_threshold=threshold)
        found = await serving.app.hierarchical_search.find_tools(ask, named or None)
        return [tool_hit(tool, with_schemas=False) for tool in found]


def _add_sync(http: FastAPI, serving: Serving) -> None:
    @http.post(
        "/api/v1/sync",
        summary="Bring catalogue, skills and index up to date now",
        tags=["skills"],
        responses=errors(400),
    )
    async def sync(asked: SyncRequest | None = None) -> dict[str, Any]:
        asked = asked or SyncRequest()
        return resync_answer(await serving.app.resync.run(reclassify=asked.reclassify, force=asked.force))


def _written(answer: dict[str, Any]) -> bytes:
    """The answer as JSON, by what is quickest; it minds numbers of more than 64 bits, which a schema may have."""
    try:
        return orjson.dumps(answer)
    except TypeError:
        return to_json(answer, inf_nan_mode="null")


def _asked(body: bytes) -> SearchRequest:
    """What the framework would read, in a fraction of the time: the shortest request is mostly that."""
    try:
        return SearchRequest.model_validate_json(body)
    except ValidationError as error:
        told = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in told]) from error
