"""Requests of hierarchical search."""

from __future__ import annotations

from pydantic import Field, StrictBool

from toolscript.domain.catalog import ItemType
from toolscript.domain.search import MAX_CLOSEST
from toolscript.services.tools.hierarchical_search import Strategy
from toolscript.surfaces.http.schemas.models import RequestModel

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
