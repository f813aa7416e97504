"""Responses of code mode as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolscript.domain.catalog import ItemType
from toolscript.domain.search import MAX_CLOSEST
from toolscript.services.code.types import format_types

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.access import Caller
    from toolscript.domain.programs import Language, RunReport

DEFAULT_TYPE_TOKENS = 2000


@dataclass(frozen=True, slots=True)
class TypesQuery:
    """Which types are wanted."""

    query: str
    language: Language | None = None
    limit: int = 5
    max_tokens: int = DEFAULT_TYPE_TOKENS
    threshold: float | None = None


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


async def build_types_response(app: App, query: TypesQuery, caller: Caller) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/run/types`: the declarations of the tools that a search finds. Notes the
    search for feedback. Raises its errors."""
    threshold = app.settings.search_threshold if query.threshold is None else query.threshold
    found = await app.tool_search.search(
        query.query,
        limit=query.limit,
        threshold=threshold,
        item_type=ItemType.TOOL,
        closest=MAX_CLOSEST if query.threshold is None else 0,
    )
    app.feedback.note_search(caller, found.query, found.ids)
    language = query.language or app.code.default_language
    hits = [hit.id for hit in (*found.hits, *found.closest)]
    written = await build_declarations(app, hits, language, query.max_tokens)
    closest = [hit.id for hit in found.closest]
    return {"query": found.query, "language": language.value, **written, **({"closest": closest} if closest else {})}


async def build_declarations(app: App, tool_ids: Sequence[str], language: Language, max_tokens: int) -> dict[str, Any]:
    """The declarations of as many of these tools as fit, which of them they are, and which are not there, and why."""
    tools = await app.code.toolsets.choose(language, tool_ids)
    written = await asyncio.to_thread(format_types, tools, tool_ids, max_tokens)
    items = await app.list_tools.by_id(list(tool_ids))
    return {
        "types": written.text,
        "tools": list(written.tool_ids),
        "left_out": list(written.left_out),
        "quarantined": [each for each in tool_ids if each in items and items[each].quarantine],
        "tokens": written.tokens,
    }
