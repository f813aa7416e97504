"""Answers `tools/list`: at once, also while the application is starting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from mcp.server.lowlevel import Server
from mcp_types import INVALID_PARAMS, PaginatedRequestParams
from starlette.requests import Request

from toolscript.domain.access import Grant, Scope
from toolscript.domain.errors import ToolscriptError
from toolscript.domain.limits import current_limits
from toolscript.services.tools.native_changes import ChangeFilter, ChangeStream, ListChanged, ListKind
from toolscript.surfaces.mcp.definitions import TOOL_SCOPES, build_instructions
from toolscript.surfaces.mcp.native import AnswerRequest, Context, FindGrant, to_mcp_error
from toolscript.surfaces.mcp.subscriptions import OpenStream
from toolscript.surfaces.mcp.tool_list import list_own_tools

log = logging.getLogger(__name__)


def add_tool_list(server: Server[Any], answer: AnswerRequest, find_grant: FindGrant) -> None:
    """Registers `tools/list`. `answer` gives all tools of the profile; the key of a request decides on the tools that
    it sees."""

    async def list_tools(context: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        if params.cursor:
            raise MCPError(INVALID_PARAMS, "invalid cursor: the tools are on one page")
        try:
            result = await answer("tools/list", {}, context.request)
        except ToolscriptError as error:
            raise to_mcp_error(error) from error
        return {"resultType": "complete", **result, "tools": _select_allowed(result, find_grant(context))}

    server.add_request_handler("tools/list", PaginatedRequestParams, list_tools)


def build_explain_access(answer: AnswerRequest, find_grant: FindGrant) -> ServerMiddleware[Any]:
    """Builds the middleware that puts instructions about the tools that a client sees into its handshake."""

    async def explain_access(ctx: Context, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if not isinstance(result, dict) or "instructions" not in result:
            return result
        try:
            listed = await answer("tools/list", {}, ctx.request)
        except (ToolscriptError, MCPError):  # the list itself says why
            listed = {"tools": list_own_tools()}
        grant = find_grant(ctx)
        names = {tool["name"] for tool in _select_allowed(listed, grant)}
        return result | {"instructions": build_instructions(names, is_anonymous=grant.is_anonymous)}

    return explain_access


def _select_allowed(result: Mapping[str, Any], grant: Grant) -> list[dict[str, Any]]:
    return [tool for tool in result["tools"] if TOOL_SCOPES.get(tool["name"], Scope.CALL) in grant.scopes]


class StartingToolList:
    """Answers `tools/list` with our own tools alone while the application is not ready: clients wait for the list. They
    are notified when it has changed."""

    def __init__(self, answer: AnswerRequest, open_stream: OpenStream) -> None:
        self._answer = answer
        self._open_stream = open_stream
        self._is_plain = False
        """Whether the last answer had our own tools alone."""
        self._is_ready = False
        """Whether the application has answered: from then on, a slow list is no reason to hide its tools."""

    async def answer(self, method: str, params: dict[str, Any], request: Request | None) -> dict[str, Any]:
        """Answers a request. Raises what the application raises, but not for the list of tools."""
        if method != "tools/list":
            return await self._answer(method, params, request)
        try:
            async with asyncio.timeout(None if self._is_ready else current_limits().tool_list):
                result = await self._answer(method, params, request)
        except (TimeoutError, ToolscriptError, MCPError) as error:
            log.info("tools_listed_early", extra={"reason": f"{type(error).__name__}: {error}"})
            self._is_plain = True
            return {"tools": list_own_tools(), "ttlMs": 0}
        self._is_plain, self._is_ready = False, True
        return result

    @asynccontextmanager
    async def open_stream(self, wanted: ChangeFilter) -> AsyncIterator[ChangeStream]:
        """A stream of changes. The first change is a change of the list of tools, if the list was answered early."""
        async with self._open_stream(wanted) as stream:
            if stream.honoured.tools and self._is_plain:
                stream.deliver(ListChanged(ListKind.TOOLS))
            yield stream
