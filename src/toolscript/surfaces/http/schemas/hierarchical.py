"""Requests and responses of hierarchical search."""

from __future__ import annotations

from typing import Any

from pydantic import Field, StrictBool

from toolscript.domain.catalog import ItemType
from toolscript.domain.search import MAX_CLOSEST, SearchPart
from toolscript.domain.servers import CallState
from toolscript.services.tools.hierarchical_search import Strategy
from toolscript.surfaces.http.schemas.models import DEGRADED, RequestModel, ResponseModel
from toolscript.surfaces.http.schemas.tools import (
    CLOSEST,
    QUARANTINED,
    SERVER_ARGUMENTS,
    SERVER_STATE,
    SERVERS_STARTING,
    VARIANTS,
)

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


class SkillHitResponse(ResponseModel):
    """A skill that matches the query."""

    id: str
    name: str
    description: str
    score: float
    tool_count: int


class FoundToolResponse(ResponseModel):
    """A tool that matches the query. Schemas and annotations are left out unless requested."""

    id: str
    db_id: int
    type: ItemType
    name: str
    description: str
    score: float
    skill_ids: list[str]
    skill_confidence: dict[str, float] = Field(
        description="How sure it is that the tool belongs to each of them, from 0 to 1."
    )
    primary_skill_id: str | None
    variants: list[str] = Field(default_factory=list, description=VARIANTS)
    server_arguments: str | None = Field(default=None, description=SERVER_ARGUMENTS)
    server_state: CallState | None = Field(default=None, description=SERVER_STATE)
    quarantined: str | None = Field(default=None, description=QUARANTINED)
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None


class CloseHierarchicalToolResponse(ResponseModel):
    """A tool that is near, but not as sure as the threshold."""

    id: str
    score: float
    description: str = Field(description="One line.")
    variants: list[str] = Field(default_factory=list, description=VARIANTS)
    server_arguments: str | None = Field(default=None, description=SERVER_ARGUMENTS)


class TokenCountResponse(ResponseModel):
    """Context tokens."""

    answer: int = Field(description="Tokens of this response.")
    all_tools: int = Field(description="Tokens of all tools together.")


class HierarchicalMetadataResponse(ResponseModel):
    """How the search ran."""

    strategy_used: Strategy
    skill_ids_used: list[str] | None = Field(
        description="The matched skills, to which the tools belong; null when all tools were searched."
    )
    stage1_skill_count: int
    stage2_candidate_count: int = Field(
        description="Number of tools that were compared with the query: those of the used skills, or all."
    )
    final_count: int
    query_embedding_time_ms: float
    skill_search_time_ms: float
    tool_search_time_ms: float
    schema_load_time_ms: float
    total_time_ms: float
    degraded: list[SearchPart] = Field(description=DEGRADED)
    servers_starting: list[str] = Field(default_factory=list, description=SERVERS_STARTING)
    tokens: TokenCountResponse | None = Field(default=None, description="Left out unless requested.")


class HierarchicalSearchResponse(ResponseModel):
    """Matching tools and skills, best first."""

    query: str
    tools: list[FoundToolResponse]
    closest: list[CloseHierarchicalToolResponse] = Field(default_factory=list, description=CLOSEST)
    matched_skills: list[SkillHitResponse]
    metadata: HierarchicalMetadataResponse


class PlacedToolResponse(ResponseModel):
    """A tool on the map."""

    id: str
    x: float = Field(ge=-1, le=1)
    y: float = Field(ge=-1, le=1)
    skill_id: str | None


class DuplicateResponse(ResponseModel):
    """Two tools that are nearly the same."""

    tool_ids: list[str]
    similarity: float = Field(description="Cosine similarity.")


class MapResponse(ResponseModel):
    """The map of the catalogue. Tools without a vector are left out."""

    tools: list[PlacedToolResponse]
    duplicates: list[DuplicateResponse] = Field(description="Pairs, the most similar first.")
