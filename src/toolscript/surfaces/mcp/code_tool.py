"""The `run_code` tool, and the types that its programs need. Texts are short: they are part of the agent's context."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolscript.app.app import App
from toolscript.domain.access import Caller
from toolscript.domain.catalog import ItemType
from toolscript.domain.errors import InvalidArguments
from toolscript.domain.programs import RunEnd, RunReport
from toolscript.services.code.host import CANCELLED, RunCaller
from toolscript.services.code.run import RunRequest, parse_limits
from toolscript.surfaces.json.code import DEFAULT_TYPE_TOKENS, build_declarations
from toolscript.surfaces.mcp.definitions import RunCodeArguments, SearchToolsArguments
from toolscript.surfaces.mcp.search_tools import describe_closest, describe_starting, find_tools

_NOTHING = "null (the program printed nothing; `return VALUE` at its end gives its value)"


async def run_code(app: App, arguments: RunCodeArguments, caller: RunCaller) -> Mapping[str, Any]:
    """Runs a program. Raises InvalidArguments, and the errors of the service."""
    limits = arguments.limits
    if limits is not None and not isinstance(limits, Mapping):
        raise InvalidArguments("limits: must be an object, or left out", details={"field": "limits"})
    language = arguments.language or app.code.default_language
    request = RunRequest(arguments.code, language, parse_limits(limits, app.code.max_limits), arguments.session)
    return build_run_result(await app.code.run_code.run(request, caller))


async def search_types(app: App, arguments: SearchToolsArguments, caller: Caller) -> str:
    """The declarations of the tools that the same search finds, for a program that calls them. Raises what the search
    raises, and InvalidArguments for prompts and resources."""
    if arguments.type not in {None, ItemType.TOOL}:
        raise InvalidArguments(
            f"type: programs call tools, and no {arguments.type}s: leave it out, or leave out output=types",
            details={"field": "type"},
        )
    found = await find_tools(app, arguments.model_copy(update={"type": ItemType.TOOL}), caller)
    hits = [*found.hits, *found.closest]
    if not hits:
        return "\n".join([*found.notes, *describe_starting(app)])
    language = arguments.language or app.code.default_language
    written = await build_declarations(app, [hit.id for hit in hits], language, DEFAULT_TYPE_TOKENS)
    lines = [written["types"].rstrip()] if written["tools"] else []
    if written["left_out"]:
        lines.append(f"Left out, search for them alone: {', '.join(written['left_out'])}")
    if written["quarantined"]:
        lines.append(f"Quarantined, a person has to approve them first: {', '.join(written['quarantined'])}")
    closest = describe_closest(arguments.query, found)
    return "\n".join([*lines, *found.notes, *closest, *describe_starting(app)])


def build_run_result(report: RunReport) -> dict[str, Any]:
    """The result on the wire: the value as JSON, then what was printed. Of a failed run: why it failed,
    what was printed, and the calls that it made."""
    if report.outcome.end is RunEnd.DONE:
        value = json.dumps(report.outcome.value, ensure_ascii=False)
        printed = report.printed.rstrip("\n")
        lost = [each.function for each in report.calls if each.outcome == CANCELLED]
        notes = [f"Not awaited, so ended with the program: {', '.join(lost)}"] if lost else []
        if report.outcome.value is None:
            return _build_texts([printed or _NOTHING, *notes])
        return _build_texts([value, *([f"Printed:\n{printed}"] if printed else []), *notes])
    texts = [_describe_end(report)]
    if report.printed:
        texts.append(f"Printed:\n{report.printed.rstrip()}")
    if report.calls:
        made = ", ".join(f"{each.function} ({each.outcome})" for each in report.calls)
        texts.append(f"Calls made: {made}")
    return _build_texts(texts, is_error=True)


def _describe_end(report: RunReport) -> str:
    outcome = report.outcome
    if outcome.end is RunEnd.REJECTED:
        lines = ["The program was not run:"]
        for problem in report.problems:
            lines.append(f"line {problem.line}: {problem.message}")
            lines += [f"  expected: {signature}" for signature in problem.signatures]
        return "\n".join(lines)
    return f"The run ended ({outcome.end}): {outcome.sentence}"


def _build_texts(texts: list[str], *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts], "isError": is_error}
