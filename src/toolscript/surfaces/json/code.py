"""Responses of code mode as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from toolscript.services.code.types import format_types

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.programs import Language, RunReport


def build_run_response(report: RunReport) -> dict[str, Any]:
    """Builds the response of `POST /api/v1/run` and `toolscript run --json`."""
    outcome = report.outcome
    return {
        "run_id": report.run_id,
        "language": report.language.value,
        "end": outcome.end.value,
        "value": outcome.value,
        "printed": report.printed,
        "message": outcome.message or None,
        "line": outcome.line,
        "problems": [
            {"line": each.line, "message": each.message, "signatures": list(each.signatures)}
            for each in report.problems
        ],
        "calls": [
            {"function": each.function, "outcome": each.outcome, "ms": round(each.ms, 1)} for each in report.calls
        ],
        "took_ms": round(report.took_ms, 1),
    }


async def cut_value(app: App, response: dict[str, Any], user: str, max_tokens: int) -> dict[str, Any]:
    """The response with a value that is larger than the budget replaced by its beginning and a handle, as that of a
    call is."""
    text = json.dumps(response["value"], ensure_ascii=False)
    cut = await app.large_results.cut({"content": [{"type": "text", "text": text}]}, user, max_tokens)
    if "_meta" not in cut:
        return response
    return response | {"value": {"content": cut["content"], "_meta": cut["_meta"]}}


async def build_types_response(app: App, query: str, language: Language, limit: int, max_tokens: int) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/run/types`: the declarations of the tools that a search finds. Raises the
    errors of the search."""
    found = await app.tool_search.search(query, limit=limit, threshold=app.settings.search_threshold)
    tools = await app.code.toolsets.choose(language, [hit.id for hit in found.hits])
    written = await asyncio.to_thread(format_types, tools, [hit.id for hit in found.hits], max_tokens)
    return {
        "query": query,
        "language": language.value,
        "types": written.text,
        "tools": list(written.tool_ids),
        "left_out": list(written.left_out),
        "tokens": written.tokens,
    }
