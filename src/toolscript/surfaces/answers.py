"""Answers as they look in JSON, the same on every surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolscript.app import Model
    from toolscript.services.tool_search import ToolResults
    from toolscript.settings import Settings


def search_answer(found: ToolResults) -> dict[str, Any]:
    """The answer of `GET /search` and of `toolscript search --json`."""
    return {
        "query": found.query,
        "results": [
            {
                "toolId": hit.id,
                "serverName": hit.server,
                "toolName": hit.name,
                "confidence": hit.confidence,
                "reason": hit.reason,
                "description": hit.description,
            }
            for hit in found.hits
        ],
        "totalResults": len(found.hits),
        "threshold": found.threshold,
    }


def stats_answer(settings: Settings, model: Model, indexed: int) -> dict[str, Any]:
    """The answer of `GET /search/stats`."""
    return {
        "indexedTools": indexed,
        "model": model.embedder.model if model.embedder else None,
        "dimensions": model.embedder.dimensions if model.embedder else None,
        "requestedModel": settings.search_model,
        "fallback": model.instead_because,
        "alpha": settings.search_alpha,
        "limit": settings.search_limit,
        "threshold": settings.search_threshold,
    }
