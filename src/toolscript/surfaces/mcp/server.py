"""The MCP server that agents connect to, over stdio and HTTP: a few tools that find and call all others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    JSONRPCError,
)
from pydantic import ValidationError
from starlette.requests import Request

from toolscript import __version__
from toolscript.app.app import App
from toolscript.codegen.signatures import format_signature
from toolscript.domain.access import Caller, Principal, Scope
from toolscript.domain.errors import (
    ApprovalRequired,
    Forbidden,
    Invalid,
    InvalidArguments,
    ToolFailed,
    ToolscriptError,
    Unauthorized,
    Unavailable,
)
from toolscript.domain.requests import current_request, set_request
from toolscript.domain.servers import NO_RELAY, CallRelay
from toolscript.services.code.host import RunCaller
from toolscript.services.knowledge.context import PassageContext
from toolscript.services.knowledge.search import KnowledgeQuery
from toolscript.services.tools.native_changes import ChangeFilter, ChangeStream
from toolscript.surfaces.callers import (
    ANSWER_REFUSED,
    OWNER,
    admit_client,
    build_unauthorized,
    find_tenant,
    find_user,
    identify_caller,
    identify_principal,
    require_scope,
)
from toolscript.surfaces.json.knowledge import build_knowledge_response, public_error_message
from toolscript.surfaces.json.tools import build_tool_response
from toolscript.surfaces.mcp.code_tool import run_code, search_types
from toolscript.surfaces.mcp.definitions import (
    CACHE_HINTS,
    CODE_ARGUMENTS,
    RUN_CODE,
    TOOL_SCOPES,
    TOOLS,
    CallToolArguments,
    DescribeToolArguments,
    ReadResultArguments,
    ReadSkillArguments,
    RunCodeArguments,
    SearchDocumentsArguments,
    SearchKnowledgeArguments,
    SearchSkillsArguments,
    SearchToolsArguments,
    build_instructions,
)
from toolscript.surfaces.mcp.document_tools import search_documents
from toolscript.surfaces.mcp.endpoint import HttpEndpoint
from toolscript.surfaces.mcp.filters import parse_filters
from toolscript.surfaces.mcp.native import AnswerRequest, add_native_requests, answer_request, wrap_result
from toolscript.surfaces.mcp.read_skill import read_skill
from toolscript.surfaces.mcp.relay import (
    AnswerCall,
    Context,
    answer_with_input,
    build_relay,
    build_state_seal,
    get_grant,
)
from toolscript.surfaces.mcp.result_tool import read_result
from toolscript.surfaces.mcp.results import build_text_result, keep_result, restore_result
from toolscript.surfaces.mcp.search_tools import search_skills, search_tools
from toolscript.surfaces.mcp.subscriptions import (
    LIST_NOTIFICATIONS,
    ConnectionChanges,
    OpenStream,
    add_subscriptions,
)
from toolscript.surfaces.mcp.tool_list import resolve_pinned
from toolscript.surfaces.mcp.tool_list_requests import StartingToolList, add_tool_list, build_explain_access

OTHER_METHOD = "other"

current_headers: ContextVar[Mapping[str, str]] = ContextVar("current_headers", default=MappingProxyType({}))
"""The headers of the current HTTP request, for lists that depend on its tenant."""


def build_server(
    answer: AnswerCall, answer_native: AnswerRequest, open_stream: OpenStream, state_secret: str | None = None
) -> Server[Any]:
    """Builds the MCP server. `answer` gets each call of a tool, and its context; `answer_native` the requests for
    prompts and resources; `open_stream` opens what a client listens to. A ToolscriptError becomes a result with
    `isError`. The key of a request decides on the tools that it sees and may call. Servers with the same `state_secret`
    continue each other's calls that need input."""

    async def call(context: Context, params: CallToolRequestParams) -> CallToolResult:
        try:
            require_scope(TOOL_SCOPES.get(params.name, Scope.CALL), get_grant(context))
            return keep_result(await answer_with_input(answer, params, context))
        except ToolscriptError as error:
            _note_missing_scope(context, error)
            return keep_result(build_text_result(error.message, is_error=True))

    async def name_method(ctx: Context, call_next: CallNext) -> HandlerResult:
        """Adds the method to the HTTP request, for metrics and logs; only known methods, because clients choose
        them."""
        set_request(replace(current_request(), surface="mcp"))
        if ctx.request is not None:
            is_known = ctx.method == "initialize" or server.get_request_handler(ctx.method)
            ctx.request.scope["mcp_method"] = ctx.method if is_known else OTHER_METHOD
            current_headers.set(ctx.request.headers)
        return await call_next(ctx)

    server: Server[Any] = Server(
        "toolscript",
        version=__version__,
        instructions=build_instructions(TOOL_SCOPES),
        cache_hints=CACHE_HINTS,
        on_call_tool=call,
        get_tool_input_schema=lambda _: None,  # no tool in our list asks for arguments in HTTP headers
    )
    add_tool_list(server, answer_native, get_grant)
    add_native_requests(server, answer_native, get_grant, _note_missing_scope)
    add_subscriptions(server, open_stream, get_grant)
    explain_access = build_explain_access(answer_native, get_grant)
    server.middleware += [name_method, build_state_seal(state_secret), explain_access, restore_result]
    return server


def _note_missing_scope(context: Context, error: ToolscriptError) -> None:
    """Adds the scope that a caller lacks to the HTTP request: clients that log in ask for it after status 403, and the
    guard records the refusal."""
    if context.request is not None and isinstance(error, Forbidden | Unauthorized):
        context.request.scope["missing_scope"] = error.details.get("scope")
        if isinstance(error, Unauthorized) or "scope" in error.details:
            context.request.scope["refusal"] = error


async def serve_lines(
    answer: AnswerCall,
    answer_native: AnswerRequest,
    open_stream: OpenStream,
    state_secret: str | None,
    lines: AsyncIterator[str],
    writer: asyncio.StreamWriter,
) -> None:
    """Serves one client, who sends a message per line and gets one per line, until the lines end."""
    server = build_server(answer, answer_native, open_stream, state_secret)
    changes = ConnectionChanges(server, open_stream)
    valid, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
    output: Any = _Output(writer)
    async with (
        stdio_server(cast(Any, lines), output) as (inbox, outbox),
        inbox,
        valid,
        messages,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_refuse_invalid, inbox, outbox, valid)
        tasks.start_soon(changes.run)
        await server.run(messages, outbox, server.create_initialization_options(LIST_NOTIFICATIONS))
        tasks.cancel_scope.cancel()


class _Output:
    """A stream as a file, for the SDK."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> None:
        self._writer.write(text.encode())

    async def flush(self) -> None:
        await self._writer.drain()


async def _refuse_invalid(inbox: Any, outbox: Any, valid: MemoryObjectSendStream[Any]) -> None:
    """Passes messages on. Lines that are no messages (broken JSON, half a surrogate pair) get an error: the SDK would
    ignore them, and the client would wait for a response."""
    async with valid:
        async for message in inbox:
            if not isinstance(message, Exception):
                await valid.send(message)
            elif error := _build_message_error(message):
                await outbox.send(SessionMessage(error))


def _build_message_error(error: Exception) -> JSONRPCError | None:
    """The response to a line that is no message; None for a blank line."""
    problem: Mapping[str, Any] = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else {}
    if problem.get("type") != "json_invalid":
        details = ErrorData(code=INVALID_REQUEST, message="the message is not valid JSON-RPC 2.0")
        return JSONRPCError(jsonrpc="2.0", id=None, error=details)
    line = str(problem["input"])
    if not line.strip():
        return None
    message = f"the message is not valid JSON: {problem['msg'].removeprefix('Invalid JSON: ')}"
    return JSONRPCError(jsonrpc="2.0", id=_find_request_id(line), error=ErrorData(code=PARSE_ERROR, message=message))


def _find_request_id(line: str) -> int | str | None:
    """The id of a request that only Python's own parser can read: it accepts half a surrogate pair."""
    with suppress(ValueError, RecursionError, AttributeError):
        found = json.loads(line).get("id")
        if type(found) is int or (type(found) is str and found.encode()):
            return found
    return None


def build_endpoint(
    wait_for_app: Callable[[], Awaitable[App]], max_body_bytes: int, state_secret: str | None
) -> HttpEndpoint:
    """Builds the endpoint for `/mcp`. Calls wait until the application is open."""

    async def answer(params: CallToolRequestParams, context: Context) -> Mapping[str, Any]:
        app = await wait_for_app()
        request = context.request
        headers, client = (request.headers, request.client) if request else ({}, None)
        caller = identify_caller(request.scope["grant"], client.host if client else None) if request else OWNER
        if params.name == "search_knowledge":
            await admit_client(app, headers, client.host if client else None)
            if get_grant(context).is_anonymous and (params.arguments or {}).get("answer"):
                raise build_unauthorized(ANSWER_REFUSED)
        try:
            return await answer_call(
                app,
                params,
                lambda: identify_principal(app, headers, is_owner=request is not None and request.scope["is_owner"]),
                caller,
                build_relay(context),
                may_search=Scope.SEARCH in get_grant(context).scopes,
            )
        except Unavailable as error:
            if params.name == "search_knowledge":
                raise Unavailable(public_error_message(error), details=error.details) from error
            raise

    async def answer_native(method: str, params: dict[str, Any], request: Request | None) -> dict[str, Any]:
        app = await wait_for_app()
        user = find_user(request.scope["grant"]) if request else ""
        if method == "tools/list":
            await _set_tenant(app)
        return await answer_request(app, method, params, user)

    @asynccontextmanager
    async def open_stream(wanted: ChangeFilter) -> AsyncIterator[ChangeStream]:
        app = await wait_for_app()
        if wanted.tools:
            await _set_tenant(app)
        async with app.tools.native_changes.open(wanted) as stream:
            yield stream

    starting = StartingToolList(answer_native, open_stream)
    return HttpEndpoint(build_server(answer, starting.answer, starting.open_stream, state_secret), max_body_bytes)


async def _set_tenant(app: App) -> None:
    tenant = await find_tenant(app, current_headers.get())
    set_request(replace(current_request(), tenant=tenant))


async def answer_call(
    app: App,
    params: CallToolRequestParams,
    identify_tenant: Callable[[], Awaitable[Principal]],
    caller: Caller = OWNER,
    relay: CallRelay = NO_RELAY,
    *,
    may_search: bool = True,
) -> Mapping[str, Any]:
    """Answers a call of one of the tools with its result on the wire; identifies the tenant only for documents. Unless
    `may_search`, programs cannot search. Raises InvalidArguments and the errors of the services."""
    params = await resolve_pinned(app, params)
    arguments = params.arguments or {}
    match params.name:
        case "search_tools" | "search_skills" | "search_documents" | "search_knowledge":
            with app.access.search_shares.hold(current_request().share_holder):
                return await _search(app, params.name, arguments, caller, identify_tenant)
        case "describe_tool":
            item = await app.tools.call.describe(DescribeToolArguments.parse(arguments).tool_id)
            needs_approval = app.tools.approvals.are_needed(item)
            response = build_tool_response(item, app.servers.gateway.find_call_state, needs_approval=needs_approval)
            description = {k: v for k, v in response.items() if v is not None}
            return build_text_result(json.dumps(description, ensure_ascii=False))
        case "call_tool":
            call = CallToolArguments.parse(arguments)
            result = wrap_result(call.tool_id, await _call_tool(app, call, caller, relay))
            return await app.texts.large_results.cut(result, relay.user or "")
        case "run_code" if app.code.languages:
            code = RunCodeArguments.parse(arguments)
            result = await run_code(app, code, RunCaller(caller, relay, may_search))
            return await app.texts.large_results.cut(result, relay.user or "")
        case "read_skill":
            wanted = ReadSkillArguments.parse(arguments)
            return await app.texts.large_results.cut(await read_skill(app, wanted, relay), relay.user or "")
        case "read_result":
            return await read_result(app, ReadResultArguments.parse(arguments), relay.user or "")
        case _:
            names = ", ".join(tool.name for tool in ([*TOOLS, RUN_CODE] if app.code.languages else TOOLS))
            raise Invalid(f"no such tool: {params.name!r}: use {names} (call_tool calls all other tools)")


async def _search(
    app: App,
    name: str,
    arguments: Mapping[str, Any],
    caller: Caller,
    identify_tenant: Callable[[], Awaitable[Principal]],
) -> Mapping[str, Any]:
    match name:
        case "search_tools":
            return build_text_result(await _search_tools(app, arguments, caller))
        case "search_skills":
            return build_text_result(await search_skills(app, SearchSkillsArguments.parse(arguments)))
        case "search_documents":
            principal = await identify_tenant()
            return build_text_result(await search_documents(app, principal, SearchDocumentsArguments.parse(arguments)))
        case _:
            return await _search_knowledge(app, SearchKnowledgeArguments.parse(arguments))


async def _search_tools(app: App, arguments: Mapping[str, Any], caller: Caller) -> str:
    if not app.code.languages:
        arguments = {name: value for name, value in arguments.items() if name not in CODE_ARGUMENTS}
    wanted = SearchToolsArguments.parse(arguments)
    return await (search_types(app, wanted, caller) if wanted.output == "types" else search_tools(app, wanted, caller))


async def _call_tool(app: App, call: CallToolArguments, caller: Caller, relay: CallRelay) -> Mapping[str, Any]:
    try:
        result = await app.tools.call.call(call.tool_id, {} if call.arguments is None else call.arguments, relay=relay)
    except ToolFailed as failed:
        return failed.result.raw
    except ApprovalRequired as error:
        if error.question is None:
            raise
        return error.question.raw
    except InvalidArguments as error:
        item = await app.tools.call.describe(call.tool_id)
        raise InvalidArguments(
            f"{error.message}\nSignature: {format_signature(item)}", details=error.details
        ) from error
    if not result.needs_input:
        app.tools.feedback.note_call(caller, call.tool_id, call.query)
    return result.raw


async def _search_knowledge(app: App, arguments: SearchKnowledgeArguments) -> Mapping[str, Any]:
    """Returns the response of `POST /search_knowledge`, as an object and as text for clients that read only text."""
    query = KnowledgeQuery(
        arguments.query,
        arguments.limit,
        arguments.type,
        arguments.topics,
        arguments.answer,
        PassageContext(arguments.context),
        parse_filters(arguments.filters),
        arguments.min_relevance,
    )
    response = build_knowledge_response(query.query, await app.texts.knowledge_search.search(query))
    return {**build_text_result(json.dumps(response, ensure_ascii=False)), "structuredContent": response}
