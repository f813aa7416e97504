"""Responses about skills as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolscript.domain.catalog import Skill, StoredItem, Suggestion
    from toolscript.services.catalogue.skill_proposals import Proposal
    from toolscript.services.catalogue.skills import CountedSkill, DescribedSkill


def build_skill_response(counted: CountedSkill) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/skills/{id}`."""
    return {**_build_skill(counted.skill), "is_active": counted.skill.is_active, "tool_count": counted.tool_count}


def build_described_skill_response(described: DescribedSkill) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/skills/{id}?details=true`."""
    time = described.updated_at
    details = {"tool_ids": list(described.item_ids), "updated_at": time.isoformat() if time else None}
    return build_skill_response(described.counted) | details


def build_skills_response(skills: Sequence[CountedSkill]) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/skills`."""
    return {"skills": [build_skill_response(each) for each in skills], "total": len(skills)}


def build_skill_tools_response(skill_id: str, items: Sequence[StoredItem]) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/skills/{id}/tools`: each tool, and how it was assigned."""
    tools = []
    for stored in items:
        here = next((a for a in _build_assignments(stored) if a["skill_id"] == skill_id), {})
        tools.append({**_build_summary(stored), **{k: v for k, v in here.items() if k != "skill_id"}})
    return {"skill_id": skill_id, "tools": tools, "total": len(tools)}


def build_tool_skills_response(stored: StoredItem) -> dict[str, Any]:
    """Builds the response of `PUT` and `DELETE /api/v1/tools/{id}/skills`."""
    return {**_build_summary(stored), "skills": _build_assignments(stored)}


def build_suggestion_response(suggestion: Suggestion) -> dict[str, Any]:
    """Builds one suggestion."""
    return {
        "id": suggestion.number,
        "name": suggestion.name,
        "description": suggestion.description,
        "keywords": list(suggestion.keywords),
        "examples": list(suggestion.examples),
        "source_tool_id": suggestion.source_item_id,
        "tool_ids": list(suggestion.item_ids),
        "status": suggestion.status.value,
        "reviewed_by": suggestion.reviewed_by,
    }


def build_suggestions_response(suggestions: Sequence[Suggestion]) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/skills/suggestions`."""
    return {"suggestions": [build_suggestion_response(each) for each in suggestions], "total": len(suggestions)}


def build_proposals_response(proposals: Sequence[Proposal]) -> dict[str, Any]:
    """Builds the response of `POST /api/v1/skills/propose`."""
    built = [
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


def _build_skill(skill: Skill) -> dict[str, Any]:
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "parent_domain": skill.parent_domain,
        "keywords": list(skill.keywords),
        "examples": list(skill.examples),
    }


def _build_summary(stored: StoredItem) -> dict[str, Any]:
    item = stored.item
    return {
        "id": item.id,
        "server": item.server,
        "name": item.name,
        "type": item.type.value,
        "description": item.description,
        "is_active": stored.is_active,
    }


def _build_assignments(stored: StoredItem) -> list[dict[str, Any]]:
    return [
        {
            "skill_id": a.skill_id,
            "confidence": round(a.confidence, 4),
            "origin": a.origin.value,
            "is_primary": a.is_primary,
        }
        for a in stored.assignments
    ]
