"""MCP's own requests for prompts, resources and agent skills: the keys that may send them, their pages, and their
errors."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    SERVER_INFO_META_KEY,
    CompleteRequestParams,
    CompleteResult,
    GetPromptRequestParams,
    GetPromptResult,
    PaginatedRequestParams,
    Prompt,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    Resource,
    ResourceTemplate,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from toolscript.app.app import App
from toolscript.domain.access import Grant, Scope
from toolscript.domain.agent_skills import EXTENSION
from toolscript.domain.errors import Forbidden, Invalid, NotFound, ToolscriptError, Unauthorized, UpstreamFailed
from toolscript.domain.native_names import split_name, wrap_block
from toolscript.services.tools.native import NativeList
from toolscript.surfaces.callers import require_scope
from toolscript.surfaces.mcp.tool_list import list_tools

# The code for an unknown resource before 2026-07-28; since then it is that of invalid parameters.
RESOURCE_NOT_FOUND = -32002

Context = ServerRequestContext[Any, Request]
AnswerRequest = Callable[[str, dict[str, Any], Request | None], Awaitable[dict[str, Any]]]
FindGrant = Callable[[Context], Grant]
NoteRefusal = Callable[[Context, ToolscriptError], None]

_LISTS: Mapping[str, tuple[NativeList, type[BaseModel]]] = {
    "prompts/list": (NativeList.PROMPTS, Prompt),
    "resources/list": (NativeList.RESOURCES, Resource),
    "resources/templates/list": (NativeList.TEMPLATES, ResourceTemplate),
    "skills/list": (NativeList.AGENT_SKILLS, RequestParams),
}


class GetAgentSkillParams(RequestParams):
    """The parameters of `skills/get` (SEP-2640)."""

    uri: str


_REQUESTS: Mapping[str, type[RequestParams]] = {
    "prompts/get": GetPromptRequestParams,
    "resources/read": ReadResourceRequestParams,
    "completion/complete": CompleteRequestParams,
    "skills/get": GetAgentSkillParams,
}
# The SDK adds it to what it knows only.
_CACHE_HINT = {"ttlMs": 0, "cacheScope": "private"}


def add_native_requests(
    server: Server[Any], answer: AnswerRequest, find_grant: FindGrant, note_refusal: NoteRefusal
) -> None:
    """Registers the requests. `answer` gets the method and parameters of each that its key allows, and its HTTP request
    if it has one. A key that may not search tools gets empty lists, as it does of tools; `note_refusal` gets the errors
    of others that a key does not allow."""

    async def list_entries(context: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        if Scope.SEARCH not in find_grant(context).scopes:
            return {"resultType": "complete", _LISTS[context.method][0].value: []}
        return await _pass_on(answer, context, params)

    async def answer_allowed(context: Context, params: RequestParams) -> dict[str, Any]:
        try:
            require_scope(Scope.CALL, find_grant(context))
        except ToolscriptError as error:
            note_refusal(context, error)
            raise to_mcp_error(error) from error
        return await _pass_on(answer, context, params)

    server.extensions[EXTENSION] = {}
    for method in _LISTS:
        server.add_request_handler(method, PaginatedRequestParams, list_entries)
    for method, params_type in _REQUESTS.items():
        server.add_request_handler(method, params_type, answer_allowed)


async def _pass_on(answer: AnswerRequest, context: Context, params: RequestParams) -> dict[str, Any]:
    given = params.model_dump(by_alias=True, exclude_none=True)
    try:
        return {"resultType": "complete", **await answer(context.method, given, context.request)}
    except ToolscriptError as error:
        raise to_mcp_error(error) from error
    except MCPError as error:
        if error.code == RESOURCE_NOT_FOUND and context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(INVALID_PARAMS, error.message, error.data) from error
        raise


async def answer_request(app: App, method: str, params: Mapping[str, Any], user: str = "") -> dict[str, Any]:
    """Answers one of the requests. Raises MCPError, and the errors of the services."""
    if method == "tools/list":
        return await list_tools(app)
    if method in _LISTS:
        return await _list(app, method, params.get("cursor"))
    try:
        match method:
            case "prompts/get":
                result = await app.tools.native.get_prompt(params["name"], params.get("arguments") or {}, user)
                return _check_result(GetPromptResult, result)
            case "skills/get":
                return {**await app.tools.native.get_agent_skill(params["uri"]), **_CACHE_HINT}
            case "completion/complete":
                return _check_result(CompleteResult, await _complete(app, params, user))
            case _:
                return _check_result(ReadResourceResult, await app.tools.native.read_resource(params["uri"], user))
    except NotFound as error:
        code = RESOURCE_NOT_FOUND if method == "resources/read" else INVALID_PARAMS
        raise MCPError(code, error.message, error.details) from error


async def _complete(app: App, params: Mapping[str, Any], user: str) -> dict[str, Any]:
    reference = params["ref"]
    passed_on = {key: params[key] for key in ("argument", "context") if key in params}
    if reference["type"] == "ref/prompt":
        return await app.tools.native.complete_prompt(reference["name"], passed_on, user)
    return await app.tools.native.complete_resource(reference["uri"], passed_on, user)


def wrap_result(tool_id: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool's result with URIs that clients can read here, in its links and embedded resources."""
    server, _ = split_name(tool_id)
    blocks = result.get("content")
    return {**result, "content": [wrap_block(server, block) for block in blocks]} if blocks else result


def to_mcp_error(error: ToolscriptError) -> MCPError:
    """The error as MCP clients get it: a server's own with its code, others with the code that fits best."""
    if isinstance(error, UpstreamFailed) and isinstance(error.details.get("upstream_code"), int):
        return MCPError(error.details["upstream_code"], error.message)
    code = INTERNAL_ERROR
    if isinstance(error, Invalid | NotFound):
        code = INVALID_PARAMS
    elif isinstance(error, Forbidden | Unauthorized):
        code = INVALID_REQUEST
    return MCPError(code, error.message, error.details)


async def _list(app: App, method: str, cursor: str | None) -> dict[str, Any]:
    kind, model = _LISTS[method]
    page = await app.tools.native.list_page(kind, _read_cursor(cursor) if cursor else "")
    entries = [_keep_valid(model, entry) for entry in page.entries]
    following = {"nextCursor": _write_cursor(page.last_id)} if page.last_id else {}
    is_stale_soon = {"ttlMs": 0} if app.servers.gateway.is_incomplete else {}
    hint = _CACHE_HINT if kind is NativeList.AGENT_SKILLS else {}
    return {kind.value: entries, **hint, **following, **is_stale_soon}


def _keep_valid(model: type[BaseModel], entry: dict[str, Any]) -> dict[str, Any]:
    """The entry without the fields that the protocol does not allow: one would cost the client the whole list. Names
    and URIs, the only fields that are required, are always valid."""
    try:
        model.model_validate(entry, by_name=False)
    except ValidationError as error:
        wrong = {each["loc"][0] for each in error.errors(include_url=False)}
        return {key: value for key, value in entry.items() if key not in wrong}
    return entry


def _check_result(model: type[BaseModel], result: dict[str, Any]) -> dict[str, Any]:
    """The result, in our name. Raises MCPError for one that the protocol does not allow."""
    try:
        model.model_validate(result, by_name=False)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise MCPError(INTERNAL_ERROR, f"the server sent an invalid result: {place}: {problem['msg']}") from error
    # Whether clients of ours may share a result depends on our keys, whatever the server says about its own.
    kept = {key: value for key, value in result.items() if key != "cacheScope"}
    meta = result.get("_meta")
    return kept | {"_meta": {k: v for k, v in meta.items() if k != SERVER_INFO_META_KEY}} if meta else kept


def _write_cursor(last_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps({"after": last_id}).encode()).decode()


def _read_cursor(cursor: str) -> str:
    try:
        after = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))["after"]
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        after = None
    if not isinstance(after, str):
        raise MCPError(INVALID_PARAMS, "invalid cursor: send the nextCursor of the previous page, or none")
    return after
