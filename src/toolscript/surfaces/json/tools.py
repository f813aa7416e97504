"""Responses about tools, servers and readiness as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from toolscript.codegen.signatures import format_signature
from toolscript.domain.servers import META_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolscript.app.app import App, Model
    from toolscript.domain.catalog import Item
    from toolscript.domain.servers import CallResult, CallState, ServerStatus
    from toolscript.services.tools.hybrid_search import ToolHit, ToolResults
    from toolscript.services.tools.tool_map import ToolMap


MAX_LINE = 110

FindState = Callable[[str], "CallState | None"]
"""Finds the state of a server that is asleep, stopped, or of the demo."""


def find_no_state(_: str) -> None:
    """Of no server it is known that it is asleep or stopped."""


def build_search_response(results: ToolResults, find_state: FindState = find_no_state) -> dict[str, Any]:
    """Builds the response of `GET /search` and `toolscript search --json`. It has `degraded` if a part failed,
    `serversStarting` if servers are still starting that the catalogue has nothing of, `for` in each result if the
    request has several needs, `variants` in those that other servers have too, `serverArguments` in those
    whose servers differ from others only in arguments, `serverState` in those of servers that
    are asleep or stopped, and `quarantined` with the reason in those that cannot be called; `closest` if there are
    tools that are not as sure as the threshold, but near."""
    degraded = {"degraded": list(results.report.degraded)} if results.report.degraded else {}
    starting = results.report.servers_starting
    return {
        "query": results.query,
        "results": [
            {
                "toolId": hit.id,
                "serverName": hit.server,
                "toolName": hit.name,
                "confidence": hit.confidence,
                "reason": hit.reason,
                "description": hit.description,
                **({"for": hit.need} if hit.need else {}),
                **({"variants": list(hit.variants)} if hit.variants else {}),
                **({"serverArguments": hit.server_arguments} if hit.server_arguments else {}),
                **({"serverState": state.value} if (state := find_state(hit.server)) else {}),
                **({"quarantined": hit.quarantine} if hit.quarantine else {}),
            }
            for hit in results.hits
        ],
        "totalResults": len(results.hits),
        **({"closest": [_build_close(hit) for hit in results.closest]} if results.closest else {}),
        "threshold": results.threshold,
        **degraded,
        **({"serversStarting": starting} if starting else {}),
    }


def _build_close(hit: ToolHit) -> dict[str, Any]:
    return {
        "toolId": hit.id,
        "confidence": hit.confidence,
        "description": shorten(hit.description, MAX_LINE),
        **({"variants": list(hit.variants)} if hit.variants else {}),
        **({"serverArguments": hit.server_arguments} if hit.server_arguments else {}),
    }


def shorten(text: str, length: int) -> str:
    """Returns the text in one line, cut to the length."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"


def add_explanation(response: dict[str, Any], results: ToolResults) -> None:
    """Adds to a response of `GET /search` what the confidences are made of, and how the search ran."""
    for shown, hit in zip(response["results"], results.hits, strict=True):
        shown["parts"] = _build_parts(hit)
    response["timingsMs"] = {stage: round(took, 3) for stage, took in results.report.timings_ms.items()}
    response["candidates"] = results.report.counts["candidates"]


def _build_parts(hit: ToolHit) -> dict[str, float]:
    """The shares of a confidence, which they add up to: the share of the domain is what no other part explains."""
    evidence, confidence = hit.evidence, hit.confidence
    if evidence.exact:
        return {"meaning": 0.0, "words": 0.0, "name": confidence, "domain": 0.0, "capability": 0.0}
    parts = {
        "meaning": evidence.semantic,
        "words": evidence.keyword,
        "name": evidence.fuzzy,
        "domain": max(0.0, confidence - evidence.semantic - evidence.keyword - evidence.fuzzy - evidence.inferred),
        "capability": evidence.inferred,
    }
    if not evidence.domain:
        parts["domain"] = 0.0
    scale = confidence / max(sum(parts.values()), 1e-9)
    return {name: round(scale * part, 4) for name, part in parts.items()}


def build_stats_response(app: App, indexed: int) -> dict[str, Any]:
    """Builds the response of `GET /search/stats`."""
    settings, model = app.settings, app.model
    return {
        "indexedTools": indexed,
        "embeddedSinceStart": app.sync.embedded,
        "model": model.embedder.model if model.embedder else None,
        "dimensions": model.embedder.dimensions if model.embedder else None,
        "requestedModel": settings.search_model,
        "fallback": model.fallback_reason,
        "alpha": settings.search_alpha,
        "learned": asdict(app.tool_ranking.learned),
        "limit": settings.search_limit,
        "threshold": settings.search_threshold,
    }


def build_map_response(drawn: ToolMap) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/map`: coordinates with three digits, more than a screen has."""
    return {
        "tools": [
            {"id": each.id, "x": round(each.x, 3), "y": round(each.y, 3), "skill_id": each.skill}
            for each in drawn.tools
        ],
        "duplicates": [
            {"tool_ids": [first, second], "similarity": round(similarity, 4)}
            for first, second, similarity in drawn.duplicates
        ],
    }


def build_readiness_response(statuses: Sequence[ServerStatus], model: Model) -> dict[str, Any]:
    """Builds the response of `GET /ready`: the model, and the number of servers in each state; those that somebody has
    to log in at count as `needs_login`."""
    return {
        "status": "ready",
        "model": model.embedder.model if model.embedder else None,
        "fallback": model.fallback_reason,
        "servers": dict(Counter("needs_login" if s.needs_login else s.state.value for s in statuses)),
    }


def build_tools_response(items: Sequence[Item]) -> dict[str, Any]:
    """Builds the response of `GET /tools` and `toolscript list-tools --json`."""
    return {"tools": [_build_summary(item) for item in items], "totalTools": len(items)}


def build_tool_response(
    item: Item, find_state: FindState = find_no_state, *, needs_approval: bool = False
) -> dict[str, Any]:
    """Builds the response of `GET /tools/{id}`: everything that a call needs, `needsApproval` if a person has to
    approve each call, and `serverState` if its server is asleep or stopped."""
    return {
        **_build_summary(item),
        "title": item.title,
        "inputSchema": item.input_schema,
        "outputSchema": item.output_schema,
        "annotations": item.annotations,
        **({"needsApproval": True} if needs_approval else {}),
        **({"serverState": state.value} if (state := find_state(item.server)) else {}),
    }


def build_call_response(result: CallResult) -> Any:
    """Builds the response of `POST /tools/{id}`: the structured result if there is one, else the content; beside it
    the handle of a result that was cut."""
    if result.structured is not None:
        return result.structured
    cut = (result.raw.get("_meta") or {}).get(META_KEY)
    return {"content": list(result.content), **({"_meta": {META_KEY: cut}} if cut else {})}


def _build_summary(item: Item) -> dict[str, Any]:
    return {
        "toolId": item.id,
        "serverName": item.server,
        "toolName": item.name,
        "type": item.type.value,
        "description": item.description,
        "signature": format_signature(item),
        **({"quarantined": item.quarantine} if item.quarantine else {}),
    }
