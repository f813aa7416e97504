"""Responses about skills as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict, cast

from toolscript.domain.catalog import ItemType, Origin, Skill, StoredItem, Suggestion, SuggestionStatus

if TYPE_CHECKING:
    from toolscript.services.skills.proposals import Proposal
    from toolscript.services.skills.skills import CountedSkill, DescribedSkill


class _SkillFields(TypedDict):
    id: str
    name: str
    description: str
    parent_domain: str | None
    keywords: list[str]
    examples: list[str]


class SkillResponse(_SkillFields):
    """A skill."""

    is_active: bool
    tool_count: int


class DescribedSkillResponse(SkillResponse):
    """A skill with its tools."""

    tool_ids: Annotated[list[str], "Its tools, the surest first. Only with `details`."]
    updated_at: Annotated[str | None, "When the skill was last changed. Only with `details`."]


class SkillListResponse(TypedDict):
    """All skills."""

    skills: list[SkillResponse]
    total: int


class _SkillToolFields(TypedDict):
    id: str
    server: str
    name: str
    type: ItemType
    description: str
    is_active: bool


class SkillToolResponse(_SkillToolFields):
    """A tool in a skill, and how it was assigned. The last three fields are left out if the assignment is gone."""

    confidence: NotRequired[float]
    origin: NotRequired[Origin]
    is_primary: NotRequired[bool]


class SkillToolsResponse(TypedDict):
    """The tools in a skill."""

    skill_id: str
    tools: list[SkillToolResponse]
    total: int


class AssignmentResponse(TypedDict):
    """A skill of a tool."""

    skill_id: str
    confidence: float
    origin: Origin
    is_primary: bool


class ToolSkillsResponse(_SkillToolFields):
    """A tool and its skills."""

    skills: list[AssignmentResponse]


class SuggestionResponse(TypedDict):
    """A suggested skill."""

    id: int
    name: str
    description: str
    keywords: list[str]
    examples: list[str]
    source_tool_id: str | None
    tool_ids: Annotated[list[str], "The tools that were chosen for it, which an approval puts into the skill."]
    status: SuggestionStatus
    reviewed_by: str | None


class SuggestionListResponse(TypedDict):
    """Suggested skills."""

    suggestions: list[SuggestionResponse]
    total: int


class ProposalResponse(_SkillFields):
    """A proposed skill."""

    tools: list[str]
    tool_count: int
    cohesion: Annotated[float, "How similar its tools are to each other."]
    nearest_skill: str | None
    nearness: Annotated[float, "How similar it is to the nearest skill."]


class ProposalListResponse(TypedDict):
    """Proposed skills."""

    proposals: list[ProposalResponse]
    total: int


def build_skill_response(counted: CountedSkill) -> SkillResponse:
    """Builds the response of `GET /api/v1/skills/{id}`."""
    return {**_build_skill(counted.skill), "is_active": counted.skill.is_active, "tool_count": counted.tool_count}


def build_described_skill_response(described: DescribedSkill) -> DescribedSkillResponse:
    """Builds the response of `GET /api/v1/skills/{id}?details=true`."""
    time = described.updated_at.isoformat() if described.updated_at else None
    return {**build_skill_response(described.counted), "tool_ids": list(described.item_ids), "updated_at": time}


def build_skills_response(skills: Sequence[CountedSkill]) -> SkillListResponse:
    """Builds the response of `GET /api/v1/skills`."""
    return {"skills": [build_skill_response(each) for each in skills], "total": len(skills)}


def build_skill_tools_response(skill_id: str, items: Sequence[StoredItem]) -> SkillToolsResponse:
    """Builds the response of `GET /api/v1/skills/{id}/tools`: each tool, and how it was assigned."""
    tools: list[SkillToolResponse] = []
    for stored in items:
        tool = cast("SkillToolResponse", _build_summary(stored))
        for assignment in (each for each in stored.assignments if each.skill_id == skill_id):
            tool["confidence"] = round(assignment.confidence, 4)
            tool["origin"] = assignment.origin
            tool["is_primary"] = assignment.is_primary
        tools.append(tool)
    return {"skill_id": skill_id, "tools": tools, "total": len(tools)}


def build_tool_skills_response(stored: StoredItem) -> ToolSkillsResponse:
    """Builds the response of `PUT` and `DELETE /api/v1/tools/{id}/skills`."""
    skills: list[AssignmentResponse] = [
        {
            "skill_id": each.skill_id,
            "confidence": round(each.confidence, 4),
            "origin": each.origin,
            "is_primary": each.is_primary,
        }
        for each in stored.assignments
    ]
    return {**_build_summary(stored), "skills": skills}


def build_suggestion_response(suggestion: Suggestion) -> SuggestionResponse:
    return {
        "id": suggestion.number or 0,
        "name": suggestion.name,
        "description": suggestion.description,
        "keywords": list(suggestion.keywords),
        "examples": list(suggestion.examples),
        "source_tool_id": suggestion.source_item_id,
        "tool_ids": list(suggestion.item_ids),
        "status": suggestion.status,
        "reviewed_by": suggestion.reviewed_by,
    }


def build_suggestions_response(suggestions: Sequence[Suggestion]) -> SuggestionListResponse:
    """Builds the response of `GET /api/v1/skills/suggestions`."""
    return {"suggestions": [build_suggestion_response(each) for each in suggestions], "total": len(suggestions)}


def build_proposals_response(proposals: Sequence[Proposal]) -> ProposalListResponse:
    """Builds the response of `POST /api/v1/skills/propose`."""
    built: list[ProposalResponse] = [
        {
            **_build_skill(proposal.skill),
            "tools": list(proposal.items),
            "tool_count": len(proposal.items),
            "cohesion": round(proposal.cohesion, 4),
            "nearest_skill": proposal.nearest_skill,
            "nearness": round(proposal.nearness, 4),
        }
        for proposal in proposals
    ]
    return {"proposals": built, "total": len(built)}


def _build_skill(skill: Skill) -> _SkillFields:
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "parent_domain": skill.parent_domain,
        "keywords": list(skill.keywords),
        "examples": list(skill.examples),
    }


def _build_summary(stored: StoredItem) -> _SkillToolFields:
    item = stored.item
    return {
        "id": item.id,
        "server": item.server,
        "name": item.name,
        "type": item.type,
        "description": item.description,
        "is_active": stored.is_active,
    }
