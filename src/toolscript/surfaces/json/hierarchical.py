"""Responses of hierarchical search and sync as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolscript.domain.catalog import get_server
from toolscript.surfaces.json.tools import MAX_LINE, FindState, find_no_state, shorten

if TYPE_CHECKING:
    from toolscript.services.catalogue.gateway import ResyncReport
    from toolscript.services.tools.hierarchical_search import HierarchicalHit, HierarchicalResults
    from toolscript.services.tools.topics import SkillHit


def build_hierarchical_response(
    results: HierarchicalResults, *, with_schemas: bool, find_state: FindState = find_no_state
) -> dict[str, Any]:
    """Builds the response of `POST /api/v1/search`. It has `closest` if there are tools that are not as sure as the
    threshold, but near."""
    return {
        "query": results.query,
        "tools": [build_tool_hit(tool, with_schemas=with_schemas, find_state=find_state) for tool in results.tools],
        **({"closest": [_build_close(tool) for tool in results.closest]} if results.closest else {}),
        "matched_skills": [build_skill_hit(hit) for hit in results.skills],
        "metadata": _build_metadata(results),
    }


def build_tool_hit(
    tool: HierarchicalHit, *, with_schemas: bool, find_state: FindState = find_no_state
) -> dict[str, Any]:
    """Builds one tool of the response. It has `variants` if other servers have it too, `server_state` if its server is
    asleep or stopped, and `quarantined` if it cannot be called."""
    payload = tool.payload
    hit: dict[str, Any] = {
        "id": tool.id,
        "db_id": payload["db_id"],
        "type": payload["type"],
        "name": payload["name"],
        "description": payload["description"],
        "score": tool.score,
        "skill_ids": list(payload.get("skill_ids") or ()),
        "skill_confidence": dict(payload.get("skill_confidence") or {}),
        "primary_skill_id": payload.get("primary_skill_id"),
    }
    if tool.variants:
        hit["variants"] = list(tool.variants)
    if tool.server_arguments:
        hit["server_arguments"] = tool.server_arguments
    if state := find_state(get_server(tool.id)):
        hit["server_state"] = state.value
    if payload.get("quarantine"):
        hit["quarantined"] = payload["quarantine"]
    if with_schemas:
        hit["input_schema"] = tool.input_schema
        hit["output_schema"] = tool.output_schema
        hit["annotations"] = tool.annotations
    return hit


def _build_close(tool: HierarchicalHit) -> dict[str, Any]:
    return {
        "id": tool.id,
        "score": tool.score,
        "description": shorten(str(tool.payload["description"]), MAX_LINE),
        **({"variants": list(tool.variants)} if tool.variants else {}),
        **({"server_arguments": tool.server_arguments} if tool.server_arguments else {}),
    }


def build_skill_hit(hit: SkillHit) -> dict[str, Any]:
    """Builds one skill of the response."""
    skill = hit.skill
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "score": hit.score,
        "tool_count": skill.tool_count,
    }


def build_sync_response(report: ResyncReport) -> dict[str, Any]:
    """Builds the response of `POST /api/v1/sync`."""
    return {
        "servers": [
            {
                "name": each.name,
                "error": each.reason,
                **{name: getattr(each.report, name, 0) for name in ("added", "changed", "vanished", "embedded")},
            }
            for each in report.servers
        ],
        "items": report.items,
        "classified": report.classified,
        "refined": report.refined,
        "waiting": report.waiting,
    }


def _build_metadata(results: HierarchicalResults) -> dict[str, Any]:
    took, starting = results.report.timings_ms, results.report.servers_starting
    return {
        "strategy_used": results.strategy.value,
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
        **({"servers_starting": starting} if starting else {}),
    }
