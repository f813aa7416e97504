"""The list of tools that an agent sees: our own tools (the description of the search says what lies behind it), and the
tools that its profile pins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mcp.shared.inbound import X_MCP_HEADER_KEY
from mcp_types import CallToolRequestParams
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from toolscript.app.app import App
from toolscript.domain.catalog import Item
from toolscript.domain.programs import Language
from toolscript.domain.requests import current_request
from toolscript.services.tools.overview import ToolOverview
from toolscript.services.tools.token_costs import CHARACTERS_PER_TOKEN
from toolscript.surfaces.mcp.definitions import (
    MAY_BE_EMPTY,
    OUTPUT_SCHEMA,
    OVERVIEW_TOKENS,
    READ_SKILL,
    RUN_CODE,
    TOOL_SCOPES,
    TOOLS,
)

SERVERS_TOKENS = 100


async def list_tools(app: App) -> dict[str, Any]:
    """The result of `tools/list` for the profile of the current request. Raises the errors of the stores."""
    overview = await app.tools.overviews.read()
    contents = await app.texts.contents.read(current_request().tenant)
    has_contents = (bool(overview.skills), contents.has_documents, contents.has_knowledge)
    own = list_own_tools(name for name, has_some in zip(MAY_BE_EMPTY, has_contents, strict=True) if has_some)
    if overview.has_agent_skills:
        own.append(READ_SKILL.model_dump(by_alias=True, exclude_none=True))
    if app.code.languages:
        _add_code_mode(own, app.code.languages)
    if described := describe_overview(overview):
        search = next(tool for tool in own if tool["name"] == "search_tools")
        search["description"] += f" {described}"
    is_stale_soon = {"ttlMs": 0} if app.servers.gateway.is_incomplete else {}
    return {"tools": [*own, *map(_build_entry, overview.pinned)], **is_stale_soon}


def list_own_tools(searches: Iterable[str] = MAY_BE_EMPTY) -> list[dict[str, Any]]:
    """Our own tools, as the list has them; of the searches that may have nothing to find, these."""
    listed = {tool.name for tool in TOOLS}.difference(MAY_BE_EMPTY).union(searches)
    return [tool.model_dump(by_alias=True, exclude_none=True) for tool in TOOLS if tool.name in listed]


async def resolve_pinned(app: App, params: CallToolRequestParams) -> CallToolRequestParams:
    """The call of a pinned tool as one of `call_tool`, so that it takes the same way; others as they are."""
    if params.name in TOOL_SCOPES or not await app.tools.overviews.is_pinned(params.name):
        return params
    arguments = {"tool_id": params.name, "arguments": params.arguments}
    return params.model_copy(update={"name": "call_tool", "arguments": arguments})


def _add_code_mode(own: list[dict[str, Any]], languages: Sequence[Language]) -> None:
    """Adds `run_code` after `call_tool`, and types to what `search_tools` can print."""
    tool = RUN_CODE.model_dump(by_alias=True, exclude_none=True)
    tool["inputSchema"]["properties"]["language"] |= {"enum": list(languages), "default": languages[0]}
    names = [each["name"] for each in own]
    own.insert(names.index("call_tool") + 1, tool)
    own[names.index("search_tools")]["inputSchema"]["properties"]["output"] = OUTPUT_SCHEMA


def describe_overview(overview: ToolOverview) -> str:
    """One or two sentences on what can be searched, of OVERVIEW_TOKENS at most; empty if there is nothing."""
    named = [f"{server} ({count})" if count else server for server, count in overview.servers]
    if not named:
        return ""
    servers = _join_within("Connected servers, with their number of tools: ", named, SERVERS_TOKENS)
    left = OVERVIEW_TOKENS - _count_tokens(f"{servers} ")
    skills = _join_within("Largest skills: ", overview.skills, left) if overview.skills else ""
    return f"{servers} {skills}".strip()


def _join_within(head: str, names: Sequence[str], max_tokens: int) -> str:
    """A sentence with as many of the names as fit, and the number of the others."""
    sentence = ""
    for count in range(len(names) + 1):
        more = len(names) - count
        rest = [f"{more} more" if count else str(more)] if more else []
        longer = f"{head}{', '.join([*names[:count], *rest])}."
        if sentence and _count_tokens(longer) > max_tokens:
            break
        sentence = longer
    return sentence


def _count_tokens(text: str) -> int:
    """An upper estimate, by bytes: letters that are not Latin take more tokens than others."""
    return -(-len(text.encode()) // CHARACTERS_PER_TOKEN)


def _build_entry(item: Item) -> dict[str, Any]:
    """The tool as the list has it, without its output schema: a result may be cut."""
    about = {"title": item.title, "description": item.description, "annotations": item.annotations}
    schema = _remove_headers(item.input_schema or {}) | {"type": "object"}
    entry = {"name": item.id, "inputSchema": schema} | {key: value for key, value in about.items() if value}
    try:
        validate_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": [entry]})
    except ValidationError as error:  # one field that the protocol does not allow would cost clients the whole list
        wrong = {each["loc"][2] for each in error.errors(include_url=False)}
        return {key: value for key, value in entry.items() if key not in wrong} | (
            {"inputSchema": {"type": "object"}} if "inputSchema" in wrong else {}
        )
    return entry


def _remove_headers(schema: Any) -> Any:
    """The schema without what asks clients to copy arguments into HTTP headers: its own server wants them, not we."""
    if isinstance(schema, list):
        return [_remove_headers(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: value for key, value in schema.items() if key != X_MCP_HEADER_KEY or isinstance(value, Mapping)}
    return {key: _remove_headers(value) for key, value in kept.items()}
