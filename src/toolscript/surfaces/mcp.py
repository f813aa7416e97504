"""The MCP surface: one server that gives an agent every tool, a few at a time.

An agent that has seen nothing but the three descriptions below must be able to find, understand and call any tool
behind the gateway. Answers are kept short on purpose: every line of them is paid for in the agent's context.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from toolscript import __version__
from toolscript.app import App
from toolscript.codegen.signatures import signature
from toolscript.domain.errors import Invalid, InvalidArguments, ToolscriptError
from toolscript.domain.servers import CallResult
from toolscript.services.tool_search import ToolResults
from toolscript.surfaces.answers import tool_answer

LONGEST_DESCRIPTION = 110
LONGEST_SIGNATURE = 150
MOST_RESULTS = 20
DEFAULT_RESULTS = 5

TOOL_ID = {"type": "string", "description": "An id from search_tools: server__tool."}
INSTRUCTIONS = (
    "Many MCP servers are behind this one. Do not guess tool names. First call search_tools with what you want to "
    "do; then call_tool with the id and arguments of the best result. When a result's signature does not tell "
    "enough, describe_tool gives the whole schema."
)
TOOLS = [
    Tool(
        name="search_tools",
        description=(
            "Find the right tool for a task among all connected servers (tools, prompts and resources). Say what you "
            "want to do in plain words, for example 'read a text file' or 'create an issue on GitHub'; a tool's name, "
            "even mistyped, works too. Each result has the id to call, a confidence from 0 to 1, the signature and a "
            "short description. No result means that nothing here does that: say it in other words once, then give up."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What the tool should do, or its name."},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MOST_RESULTS,
                    "default": DEFAULT_RESULTS,
                    "description": "Most results.",
                },
            },
            "required": ["query"],
        },
        annotations=ToolAnnotations(title="Search tools", read_only_hint=True, open_world_hint=False),
    ),
    Tool(
        name="describe_tool",
        description=(
            "Everything about one tool before you call it: its full description and the JSON schemas of its arguments "
            "and its answer. Needed only when the signature in a search result leaves a question open."
        ),
        input_schema={
            "type": "object",
            "properties": {"tool_id": TOOL_ID},
            "required": ["tool_id"],
        },
        annotations=ToolAnnotations(title="Describe a tool", read_only_hint=True, open_world_hint=False),
    ),
    Tool(
        name="call_tool",
        description=(
            "Call a tool that search_tools has found. `arguments` is an object with the parameters of its signature; "
            "those with a question mark may be left out. A prompt answers its messages, a resource its contents. "
            "Wrong arguments are refused with the name of the field; the tool's own errors come back as they are."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "tool_id": TOOL_ID,
                "arguments": {"type": "object", "description": "The tool's arguments.", "additionalProperties": True},
            },
            "required": ["tool_id"],
        },
        annotations=ToolAnnotations(title="Call a tool"),
    ),
]

Opened = Callable[[], Awaitable[App]]
Answering = Callable[[CallToolRequestParams], Awaitable[CallToolResult]]


def mcp_server(answer: Answering) -> Server[Any]:
    """The MCP server, its calls answered by whoever has the application."""

    async def list_tools(_: Any, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=TOOLS)

    async def call(_: Any, params: CallToolRequestParams) -> CallToolResult:
        try:
            return await answer(params)
        except ToolscriptError as error:
            return _text(error.message, is_error=True)

    return Server(
        "toolscript",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call,
    )


async def serve_over_stdio(answer: Answering) -> None:
    """Serves on standard input and output until the input ends."""
    server = mcp_server(answer)
    async with stdio_server() as (inbox, outbox):
        await server.run(inbox, outbox, server.create_initialization_options())


class McpEndpoint:
    """The MCP server as an ASGI application. Stateless: a client notices nothing of a gateway that was restarted."""

    def __init__(self, server: Server[Any]) -> None:
        self._sessions = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves for as long as the block lasts, once."""
        async with self._sessions.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._sessions.asgi_app(scope, receive, send)


def serve_over_http(opened: Opened) -> McpEndpoint:
    """The endpoint for `/mcp`. Calls wait for the application to be ready."""

    async def answer(params: CallToolRequestParams) -> CallToolResult:
        return await answer_call(await opened(), params)

    return McpEndpoint(mcp_server(answer))


async def answer_call(app: App, params: CallToolRequestParams) -> CallToolResult:
    """What a call of one of our tools answers. Raises what the services raise."""
    arguments = params.arguments or {}
    match params.name:
        case "search_tools":
            return await _search(app, arguments)
        case "describe_tool":
            item = await app.call_tool.describe(_wanted(arguments, "tool_id"))
            told = {k: v for k, v in tool_answer(item).items() if v is not None}
            return _text(json.dumps(told, ensure_ascii=False))
        case "call_tool":
            return await _pass_on(app, _wanted(arguments, "tool_id"), arguments.get("arguments"))
        case _:
            known = ", ".join(tool.name for tool in TOOLS)
            raise Invalid(
                f"there is no tool {params.name!r} here: use {known} (other tools are called through call_tool)"
            )


async def _search(app: App, arguments: Mapping[str, Any]) -> CallToolResult:
    limit = arguments.get("limit", DEFAULT_RESULTS)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_RESULTS:
        raise InvalidArguments(f"limit: give a whole number from 1 to {MOST_RESULTS}", details={"field": "limit"})
    found = await app.tool_search.search(
        _wanted(arguments, "query"), limit=limit, threshold=app.settings.search_threshold
    )
    if not found.hits:
        return _text(f"No tools found for {found.query!r}. Try other words once; then nothing here does that.")
    return _text(await _told(app, found))


async def _told(app: App, found: ToolResults) -> str:
    """The hits, a few short lines each: id and confidence, signature, description."""
    items = await app.list_tools.by_id([hit.id for hit in found.hits])
    lines = []
    for hit in found.hits:
        lines.append(f"{hit.id}  {hit.confidence:.2f}  {hit.reason}")
        if hit.id in items:
            lines.append(f"  {_short(signature(items[hit.id]), LONGEST_SIGNATURE)}")
        if hit.description:
            lines.append(f"  {_short(hit.description, LONGEST_DESCRIPTION)}")
    return "\n".join(lines)


async def _pass_on(app: App, tool_id: str, arguments: Any) -> CallToolResult:
    if isinstance(arguments, str):  # some models write the object as a text
        with suppress(ValueError):
            arguments = json.loads(arguments)
    try:
        result = await app.call_tool.call(tool_id, {} if arguments is None else arguments)
    except InvalidArguments as error:
        item = await app.call_tool.describe(tool_id)
        raise InvalidArguments(f"{error.message}\nIt takes: {signature(item)}", details=error.details) from error
    return _shown(result)


def _shown(result: CallResult) -> CallToolResult:
    """The tool's answer as it came; blocks that the protocol does not know are told as text."""
    structured = dict(result.structured) if result.structured is not None else None
    content = list(result.content) or [{"type": "text", "text": json.dumps(structured, ensure_ascii=False)}]
    try:
        return CallToolResult.model_validate({"content": content, "structuredContent": structured}, by_name=False)
    except ValidationError:
        return _text(json.dumps({"content": content, "structuredContent": structured}, ensure_ascii=False))


def _wanted(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidArguments(f"{name}: give a text", details={"field": name})
    return value


def _short(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1].rstrip() + "…"


def _text(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)
