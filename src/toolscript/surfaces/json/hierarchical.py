"""Answers of hierarchical search as they look in JSON, the same on every surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolscript.services.catalogue.resync import ResyncReport
    from toolscript.services.tools.hierarchical_search import HierarchicalHit, HierarchicalResults, SkillHit


def build_hierarchical_response(found: HierarchicalResults, *, with_schemas: bool) -> dict[str, Any]:
    """The answer of `POST /api/v1/search`."""
    return {
        "query": found.query,
        "tools": [build_tool_hit(tool, with_schemas=with_schemas) for tool in found.tools],
        "matched_skills": [build_skill_hit(hit) for hit in found.skills],
        "metadata": _metadata(found),
    }


def build_tool_hit(tool: HierarchicalHit, *, with_schemas: bool) -> dict[str, Any]:
    """A tool that was found."""
    told = tool.payload
    hit: dict[str, Any] = {
        "id": tool.id,
        "db_id": told["db_id"],
        "type": told["type"],
        "name": told["name"],
        "description": told["description"],
        "score": tool.score,
        "skill_ids": list(told.get("skill_ids") or ()),
        "primary_skill_id": told.get("primary_skill_id"),
    }
    if with_schemas:
        hit["input_schema"] = tool.input_schema
        hit["output_schema"] = tool.output_schema
        hit["annotations"] = tool.annotations
    return hit


def build_skill_hit(hit: SkillHit) -> dict[str, Any]:
    """A skill that was matched."""
    skill = hit.skill
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "score": hit.score,
        "tool_count": skill.tool_count,
    }


def build_sync_response(report: ResyncReport) -> dict[str, Any]:
    """The answer of `POST /api/v1/sync`."""
    return {
        "servers": [
            {
                "name": each.name,
                "error": each.reason,
                "added": each.report.added if each.report else 0,
                "changed": each.report.changed if each.report else 0,
                "vanished": each.report.vanished if each.report else 0,
                "embedded": each.report.embedded if each.report else 0,
            }
            for each in report.servers
        ],
        "items": report.items,
        "classified": report.classified,
        "refined": report.refined,
        "waiting": report.waiting,
    }


def _metadata(found: HierarchicalResults) -> dict[str, Any]:
    took = found.report.timings_ms
    return {
        "strategy_used": found.strategy.value,
        "skill_ids_used": None if found.skill_ids_used is None else list(found.skill_ids_used),
        "stage1_skill_count": len(found.skills),
        "stage2_candidate_count": found.candidates,
        "final_count": len(found.tools),
        "query_embedding_time_ms": round(took.get("embed", 0.0), 3),
        "skill_search_time_ms": round(took.get("skill_search", 0.0), 3),
        "tool_search_time_ms": round(took.get("tool_search", 0.0), 3),
        "schema_load_time_ms": round(took.get("schema_load", 0.0), 3),
        "total_time_ms": round(took.get("total", 0.0), 3),
        "degraded": list(found.report.degraded),
    }
