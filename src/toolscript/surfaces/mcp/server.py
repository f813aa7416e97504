"""The MCP surface: one server that gives an agent every tool, a few at a time, over stdio and HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from toolscript import __version__
from toolscript.app.app import App
from toolscript.codegen.signatures import format_signature
from toolscript.domain.errors import Invalid, InvalidArguments, ToolscriptError, Unavailable
from toolscript.domain.servers import CallResult
from toolscript.surfaces.callers import admit_client, identify_principal
from toolscript.surfaces.json.knowledge import public_error_message
from toolscript.surfaces.json.tools import build_tool_response
from toolscript.surfaces.mcp.definitions import INSTRUCTIONS, TOOLS
from toolscript.surfaces.mcp.document_tools import Caller, search_documents
from toolscript.surfaces.mcp.knowledge_tools import search_knowledge
from toolscript.surfaces.mcp.search_tools import search_skills, search_tools, wanted

Opened = Callable[[], Awaitable[App]]
Answering = Callable[[CallToolRequestParams, Request | None], Awaitable[CallToolResult]]


def mcp_server(answer: Answering) -> Server[Any]:
    """The MCP server, its calls answered by whoever has the application; they are given the request that a call came
    with, where it came over HTTP."""

    async def list_tools(_: Any, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=TOOLS)

    async def call(context: ServerRequestContext[Any, Request], params: CallToolRequestParams) -> CallToolResult:
        try:
            return await answer(params, context.request)
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

    async def answer(params: CallToolRequestParams, request: Request | None) -> CallToolResult:
        app = await opened()
        headers, client = (request.headers, request.client) if request else ({}, None)
        if params.name == "search_knowledge":
            admit_client(app, headers, client.host if client else None)
        try:
            return await answer_call(app, params, lambda: identify_principal(app, headers))
        except Unavailable as error:
            if params.name == "search_knowledge":
                raise Unavailable(public_error_message(error), details=error.details) from error
            raise

    return McpEndpoint(mcp_server(answer))


async def answer_call(app: App, params: CallToolRequestParams, caller: Caller) -> CallToolResult:
    """What a call of one of our tools answers; who is calling is asked only where it matters. Raises what the services
    raise."""
    arguments = params.arguments or {}
    match params.name:
        case "search_tools":
            return _text(await search_tools(app, arguments))
        case "search_skills":
            return _text(await search_skills(app, arguments))
        case "describe_tool":
            item = await app.call_tool.describe(wanted(arguments, "tool_id"))
            told = {k: v for k, v in build_tool_response(item).items() if v is not None}
            return _text(json.dumps(told, ensure_ascii=False))
        case "call_tool":
            return await _pass_on(app, wanted(arguments, "tool_id"), arguments.get("arguments"))
        case "search_documents":
            return _text(await search_documents(app, arguments, caller))
        case "search_knowledge":
            return _both(await search_knowledge(app, arguments))
        case _:
            known = ", ".join(tool.name for tool in TOOLS)
            raise Invalid(
                f"there is no tool {params.name!r} here: use {known} (other tools are called through call_tool)"
            )


async def _pass_on(app: App, tool_id: str, arguments: Any) -> CallToolResult:
    if isinstance(arguments, str):  # some models write the object as a text
        with suppress(ValueError):
            arguments = json.loads(arguments)
    try:
        result = await app.call_tool.call(tool_id, {} if arguments is None else arguments)
    except InvalidArguments as error:
        item = await app.call_tool.describe(tool_id)
        raise InvalidArguments(f"{error.message}\nIt takes: {format_signature(item)}", details=error.details) from error
    return _shown(result)


def _shown(result: CallResult) -> CallToolResult:
    """The tool's answer as it came; blocks that the protocol does not know are told as text."""
    structured = dict(result.structured) if result.structured is not None else None
    content = list(result.content) or [{"type": "text", "text": json.dumps(structured, ensure_ascii=False)}]
    try:
        return CallToolResult.model_validate({"content": content, "structuredContent": structured}, by_name=False)
    except ValidationError:
        return _text(json.dumps({"content": content, "structuredContent": structured}, ensure_ascii=False))


def _both(answer: dict[str, Any]) -> CallToolResult:
    """An answer for programs, and for those who read texts alone."""
    text = TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))
    return CallToolResult(content=[text], structured_content=answer)


def _text(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)
