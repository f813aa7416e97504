"""Responses of code mode as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from toolscript.domain.catalog import ItemType
from toolscript.domain.programs import Language, RunEnd
from toolscript.domain.search import MAX_CLOSEST
from toolscript.services.code.types import format_types
from toolscript.surfaces.json.definitions import omit_empty

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.access import Caller
    from toolscript.domain.programs import RunReport

DEFAULT_TYPE_TOKENS = 2000


class RunProblemResponse(TypedDict):
    """What the check found in a line."""

    line: int
    message: str
    signatures: Annotated[list[str], "Those of the tools that the line calls."]


class RunCallResponse(TypedDict):
    """A call that the program has made."""

    function: Annotated[str, "The tool's id; or search_tools, describe_tool, save_result or load_result."]
    outcome: Annotated[str, "`ok`, or an error code."]
    ms: float


class RunResponse(TypedDict):
    """How a run ended."""

    run_id: Annotated[str, "The request id of all its calls in the audit."]
    language: Language
    end: Annotated[
        RunEnd,
        "`done`; `rejected`: the check found problems, and nothing was run; `failed`: the program raised "
        "an error; otherwise the limit that ended it.",
    ]
    value: Annotated[Any, "What the program returned; null unless it is done."]
    printed: Annotated[str, "What it printed, also if it is not done."]
    message: Annotated[str | None, "Why it is not done, in one sentence."]
    line: Annotated[int | None, "Where it failed, if that is known."]
    problems: Annotated[list[RunProblemResponse], "What the check found."]
    calls: Annotated[list[RunCallResponse], "The calls that it made, in the order in which they ended."]
    took_ms: float


class DeclarationsResponse(TypedDict):
    """The declarations of tools."""

    types: Annotated[str, "Source text in the language; empty if no tool was found."]
    tools: Annotated[list[str], "The ids of the tools in it, best first."]
    left_out: Annotated[list[str], "The ids of those that the budget had no room for."]
    quarantined: Annotated[list[str], "The ids of those that a person has to approve first."]
    tokens: Annotated[int, "Its size, at four characters a token."]


class ProgramTypesResponse(DeclarationsResponse):
    """The declarations of the tools that a search found, as a program is checked against them."""

    query: str
    language: Language
    closest: NotRequired[
        Annotated[
            list[str],
            "The ids of those below the threshold, where fewer than the limit are above it. Left out if there "
            "are none.",
        ]
    ]


@dataclass(frozen=True, slots=True)
class TypesQuery:
    """Which types are wanted."""

    query: str
    language: Language | None = None
    limit: int = 5
    max_tokens: int = DEFAULT_TYPE_TOKENS
    threshold: float | None = None


def build_run_response(report: RunReport) -> RunResponse:
    """Builds the response of `POST /api/v1/run` and `toolscript run --json`."""
    outcome = report.outcome
    return {
        "run_id": report.run_id,
        "language": report.language,
        "end": outcome.end,
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


async def cut_value(app: App, response: RunResponse, user: str, max_tokens: int) -> RunResponse:
    """The response with a value that is larger than the budget replaced by its beginning and a handle, as that of a
    call is."""
    text = json.dumps(response["value"], ensure_ascii=False)
    cut = await app.texts.large_results.cut({"content": [{"type": "text", "text": text}]}, user, max_tokens)
    if "_meta" in cut:
        response["value"] = {"content": cut["content"], "_meta": cut["_meta"]}
    return response


async def build_types_response(app: App, query: TypesQuery, caller: Caller) -> ProgramTypesResponse:
    """Builds the response of `GET /api/v1/run/types`: the declarations of the tools that a search finds. Notes the
    search for feedback. Raises its errors."""
    threshold = app.settings.search_threshold if query.threshold is None else query.threshold
    found = await app.tools.search.search(
        query.query,
        limit=query.limit,
        threshold=threshold,
        item_type=ItemType.TOOL,
        closest=MAX_CLOSEST if query.threshold is None else 0,
    )
    app.tools.feedback.note_search(caller, found.query, found.ids)
    language = query.language or app.code.default_language
    hits = [hit.id for hit in (*found.hits, *found.closest)]
    written = await build_declarations(app, hits, language, query.max_tokens)
    closest = [hit.id for hit in found.closest]
    response: ProgramTypesResponse = {"query": found.query, "language": language, **written, "closest": closest}
    return omit_empty(response, "closest")


async def build_declarations(
    app: App, tool_ids: Sequence[str], language: Language, max_tokens: int
) -> DeclarationsResponse:
    """The declarations of as many of these tools as fit, which of them they are, and which are not there, and why."""
    tools = await app.code.toolsets.choose(language, tool_ids)
    written = await asyncio.to_thread(format_types, tools, tool_ids, max_tokens)
    items = await app.tools.listing.by_id(list(tool_ids))
    return {
        "types": written.text,
        "tools": list(written.tool_ids),
        "left_out": list(written.left_out),
        "quarantined": [each for each in tool_ids if each in items and items[each].quarantine],
        "tokens": written.tokens,
    }
