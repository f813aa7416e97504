"""Answers as they look in JSON, the same on every surface."""

from __future__ import annotations

from typing import Any

from toolscript.services.tool_search import ToolResults


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
