"""Responses of hierarchical search and sync as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from toolscript.domain.catalog import ItemType, Schema, get_server
from toolscript.domain.servers import CallState
from toolscript.services.tools.hierarchical_search import Strategy
from toolscript.surfaces.json.definitions import omit_empty
from toolscript.surfaces.json.searches import Degraded
from toolscript.surfaces.json.tools import (
    CLOSEST,
    MAX_LINE,
    QUARANTINED,
    SERVER_ARGUMENTS,
    SERVER_STATE,
    SERVERS_STARTING,
    VARIANTS,
    FindState,
    find_no_state,
    shorten,
)

if TYPE_CHECKING:
    from toolscript.services.servers.gateway import ResyncReport
    from toolscript.services.tools.hierarchical_search import HierarchicalHit, HierarchicalResults
    from toolscript.services.tools.topics import SkillHit


class SkillHitResponse(TypedDict):
    """A skill that matches the query."""

    id: str
    name: str
    description: str
    score: float
    tool_count: int


class FoundToolResponse(TypedDict):
    """A tool that matches the query. Schemas and annotations are left out unless requested."""

    id: str
    db_id: int
    type: ItemType
    name: str
    description: str
    score: float
    skill_ids: list[str]
    skill_confidence: Annotated[dict[str, float], "How sure it is that the tool belongs to each of them, from 0 to 1."]
    primary_skill_id: str | None
    variants: NotRequired[Annotated[list[str], VARIANTS]]
    server_arguments: NotRequired[Annotated[str, SERVER_ARGUMENTS]]
    server_state: NotRequired[Annotated[CallState | None, SERVER_STATE]]
    quarantined: NotRequired[Annotated[str | None, QUARANTINED]]
    input_schema: NotRequired[Schema | None]
    output_schema: NotRequired[Schema | None]
    annotations: NotRequired[Schema | None]


class CloseHierarchicalToolResponse(TypedDict):
    """A tool that is near, but not as sure as the threshold."""

    id: str
    score: float
    description: Annotated[str, "One line."]
    variants: NotRequired[Annotated[list[str], VARIANTS]]
    server_arguments: NotRequired[Annotated[str, SERVER_ARGUMENTS]]


class TokenCountResponse(TypedDict):
    """Context tokens."""

    answer: Annotated[int, "Tokens of this response."]
    all_tools: Annotated[int, "Tokens of all tools together."]


class HierarchicalMetadataResponse(TypedDict):
    """How the search ran."""

    strategy_used: Strategy
    skill_ids_used: Annotated[
        list[str] | None, "The matched skills, to which the tools belong; null when all tools were searched."
    ]
    stage1_skill_count: int
    stage2_candidate_count: Annotated[
        int, "Number of tools that were compared with the query: those of the used skills, or all."
    ]
    final_count: int
    query_embedding_time_ms: float
    skill_search_time_ms: float
    tool_search_time_ms: float
    schema_load_time_ms: float
    total_time_ms: float
    degraded: Degraded
    servers_starting: NotRequired[Annotated[list[str], SERVERS_STARTING]]
    tokens: NotRequired[Annotated[TokenCountResponse, "Left out unless requested."]]


class HierarchicalSearchResponse(TypedDict):
    """Matching tools and skills, best first."""

    query: str
    tools: list[FoundToolResponse]
    closest: NotRequired[Annotated[list[CloseHierarchicalToolResponse], CLOSEST]]
    matched_skills: list[SkillHitResponse]
    metadata: HierarchicalMetadataResponse


class ServerSyncResponse(TypedDict):
    """What a sync changed for one server."""

    name: str
    error: str | None
    added: int
    changed: int
    vanished: int
    embedded: int


class SyncResponse(TypedDict):
    """What a sync changed."""

    servers: list[ServerSyncResponse]
    items: Annotated[int, "Number of items in the catalogue."]
    classified: int
    refined: int
    waiting: Annotated[int, "Number of items that still wait for a skill."]


def build_hierarchical_response(
    results: HierarchicalResults, *, with_schemas: bool, find_state: FindState = find_no_state
) -> HierarchicalSearchResponse:
    """Builds the response of `POST /api/v1/search`."""
    took = results.report.timings_ms
    metadata: HierarchicalMetadataResponse = {
        "strategy_used": results.strategy,
        "skill_ids_used": None if results.skill_ids_used is None else list(results.skill_ids_used),
        "stage1_skill_count": len(results.skills),
        "stage2_candidate_count": results.candidates,
        "final_count": len(results.tools),
        "query_embedding_time_ms": round(took.get("embed", 0.0), 3),
        "skill_search_time_ms": round(took.get("skill_search", 0.0), 3),
        "tool_search_time_ms": round(took.get("tool_search", 0.0), 3),
        "schema_load_time_ms": round(took.get("schema_load", 0.0), 3),
        "total_time_ms": round(took.get("total", 0.0), 3),
        "degraded": list(results.report.degraded),
        "servers_starting": results.report.servers_starting,
    }
    response: HierarchicalSearchResponse = {
        "query": results.query,
        "tools": [build_tool_hit(tool, with_schemas=with_schemas, find_state=find_state) for tool in results.tools],
        "closest": [_build_close(tool) for tool in results.closest],
        "matched_skills": [build_skill_hit(hit) for hit in results.skills],
        "metadata": omit_empty(metadata, "servers_starting"),
    }
    return omit_empty(response, "closest")


def build_tool_hit(
    tool: HierarchicalHit, *, with_schemas: bool, find_state: FindState = find_no_state
) -> FoundToolResponse:
    """Builds one tool of the response."""
    payload = tool.payload
    hit: FoundToolResponse = {
        "id": tool.id,
        "db_id": payload["db_id"],
        "type": payload["type"],
        "name": payload["name"],
        "description": payload["description"],
        "score": tool.score,
        "skill_ids": list(payload.get("skill_ids") or ()),
        "skill_confidence": dict(payload.get("skill_confidence") or {}),
        "primary_skill_id": payload.get("primary_skill_id"),
        "variants": list(tool.variants),
        "server_arguments": tool.server_arguments,
        "server_state": find_state(get_server(tool.id)),
        "quarantined": payload.get("quarantine"),
    }
    omit_empty(hit, "variants", "server_arguments", "server_state", "quarantined")
    if with_schemas:
        hit["input_schema"] = tool.input_schema
        hit["output_schema"] = tool.output_schema
        hit["annotations"] = tool.annotations
    return hit


def _build_close(tool: HierarchicalHit) -> CloseHierarchicalToolResponse:
    close: CloseHierarchicalToolResponse = {
        "id": tool.id,
        "score": tool.score,
        "description": shorten(str(tool.payload["description"]), MAX_LINE),
        "variants": list(tool.variants),
        "server_arguments": tool.server_arguments,
    }
    return omit_empty(close, "variants", "server_arguments")


def build_skill_hit(hit: SkillHit) -> SkillHitResponse:
    """Builds one skill of the response."""
    skill = hit.skill
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "score": hit.score,
        "tool_count": skill.tool_count,
    }


def build_sync_response(report: ResyncReport) -> SyncResponse:
    """Builds the response of `POST /api/v1/sync`."""
    return {
        "servers": [
            {
                "name": each.name,
                "error": each.reason,
                "added": getattr(each.report, "added", 0),
                "changed": getattr(each.report, "changed", 0),
                "vanished": getattr(each.report, "vanished", 0),
                "embedded": getattr(each.report, "embedded", 0),
            }
            for each in report.servers
        ],
        "items": report.items,
        "classified": report.classified,
        "refined": report.refined,
        "waiting": report.waiting,
    }
