"""MCP servers, reached with the official SDK and read leniently.

The SDK refuses a whole answer for one flaw in it, and real servers have flaws. So every answer is kept as it came,
and the SDK is shown a version of it that it cannot object to: one bad tool costs that tool, never its server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.abc
import httpx2
from mcp import MCPError
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import listen
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    PaginatedRequestParams,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from toolscript import __version__
from toolscript.adapters.mcp_reading import acceptable, expanded, read_items
from toolscript.adapters.mcp_stdio import Child, stdio_transport
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import TimedOut, ToolscriptError, Unavailable, UpstreamFailed
from toolscript.domain.servers import CallResult, Listing, ServerSpec, Transport

MOST_PAGES = 1000
_CHANGES = ("tools/list_changed", "prompts/list_changed", "resources/list_changed")

# The answer of the request that the current task made last, as it came.
_answer: ContextVar[dict[str, Any]] = ContextVar("answer")

log = logging.getLogger(__name__)


class McpServers:
    """Connects to servers over stdio, streamable HTTP and SSE."""

    @asynccontextmanager
    async def connect(self, spec: ServerSpec, *, within: float) -> AsyncIterator[McpServer]:
        """A connection for as long as the block lasts. Raises Unavailable, saying why, when there is none to be had."""
        reach = _Reach(spec)
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(within):
                    server = await self._open(stack, spec, reach, within)
                yield server
        except Exception as error:
            first = _first(error)
            if isinstance(first, ToolscriptError):
                raise first from error
            if isinstance(first, TimeoutError):
                raise Unavailable(f"it did not answer within {within:g} s") from error
            raise Unavailable(await reach.reason(first)) from error

    async def _open(self, stack: AsyncExitStack, spec: ServerSpec, reach: _Reach, within: float) -> McpServer:
        inbox, outbox = await reach.streams(stack)
        channel = _LenientDispatcher(JSONRPCDispatcher(inbox, outbox, on_stream_exception=_note_fault))
        session = ClientSession(
            dispatcher=channel,
            read_timeout_seconds=within,
            client_info=Implementation(name="toolscript", version=__version__),
        )
        await stack.enter_async_context(session)
        await _shake_hands(session)
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            channel.modern = True
            await _subscribe(stack, session)
        return McpServer(spec, session, channel, reach)


class McpServer:
    """One server, connected."""

    def __init__(self, spec: ServerSpec, session: ClientSession, channel: _LenientDispatcher, reach: _Reach) -> None:
        self._spec = spec
        self._session = session
        self._channel = channel
        self._reach = reach

    async def listing(self) -> Listing:
        """Everything it offers that the configuration lets through. Raises Unavailable."""
        offered = self._session.server_capabilities
        answers: dict[str, list[dict[str, Any]]] = {"tools/list": await self._pages("tools/list")}
        if offered and offered.prompts:
            answers["prompts/list"] = await self._pages("prompts/list")
        if offered and offered.resources:
            answers["resources/list"] = await self._pages("resources/list")
            answers["resources/templates/list"] = await self._pages("resources/templates/list")
        listing = read_items(self._spec.name, answers)
        return Listing([i for i in listing.items if self._spec.offers(i.name)], listing.problems)

    async def call(self, item: Item, arguments: Mapping[str, Any], *, within: float) -> CallResult:
        """What the tool answers; for a prompt its messages, for a resource its contents.

        Raises UpstreamFailed with the server's message, TimedOut, or Unavailable when the connection is gone.
        """
        try:
            async with asyncio.timeout(within):
                return await self._call(item, dict(arguments), within)
        except TimeoutError as error:
            raise TimedOut(f"{item.id} did not answer within {within:g} s", details={"seconds": within}) from error
        except MCPError as error:
            raise await self._told(item, error, within) from error
        except (RuntimeError, ValueError) as error:  # it answered what nobody can read
            raise UpstreamFailed(f"{item.id}: {error}", details={"server": item.server}) from error

    async def ping(self) -> None:
        """Raises Unavailable when the server no longer answers. One that knows no pings answers all the same."""
        try:
            await self._session.send_ping()
        except MCPError as error:
            if error.code in {CONNECTION_CLOSED, REQUEST_TIMEOUT} or self._reach.failing:
                raise Unavailable(await self._reach.reason(error)) from error

    async def changed(self) -> None:
        """Waits until the server says that what it offers has changed."""
        await self._channel.changed.wait()
        self._channel.changed.clear()

    async def lost(self) -> str:
        """Waits until the connection is gone; says why."""
        await self._channel.closed.wait()
        return await self._reach.reason(None)

    async def _pages(self, method: str) -> list[dict[str, Any]]:
        lists = {
            "tools/list": self._session.list_tools,
            "prompts/list": self._session.list_prompts,
            "resources/list": self._session.list_resources,
            "resources/templates/list": self._session.list_resource_templates,
        }
        pages: list[dict[str, Any]] = []
        cursors: set[str | None] = set()
        cursor: str | None = None
        while cursor not in cursors and len(pages) < MOST_PAGES:
            cursors.add(cursor)
            try:
                await lists[method](params=PaginatedRequestParams(cursor=cursor) if cursor else None)
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    return pages
                raise Unavailable(await self._reach.reason(error)) from error
            pages.append(_answer.get())
            following = pages[-1].get("nextCursor")
            cursor = following if isinstance(following, str) and following else None
            if cursor is None:
                break
        return pages

    async def _call(self, item: Item, arguments: dict[str, Any], within: float) -> CallResult:
        match item.type:
            case ItemType.TOOL:
                asked = CallToolRequest(params=CallToolRequestParams(name=item.name, arguments=arguments))
                await self._session.send_request(asked, CallToolResult, request_read_timeout_seconds=within)
                raw = _answer.get()
                if raw.get("resultType") == "input_required":
                    raise UpstreamFailed(f"{item.id} asks for input that only a person can give")
                structured = raw.get("structuredContent")
                content = [b for b in raw.get("content") or [] if isinstance(b, dict)]
                return CallResult(
                    content, structured if isinstance(structured, dict) else None, raw.get("isError") is True
                )
            case ItemType.PROMPT:
                await self._session.get_prompt(item.name, {k: str(v) for k, v in arguments.items()})
                return CallResult([], _answer.get())
            case ItemType.RESOURCE:
                about = item.annotations or {}
                uri = about.get("uri") or expanded(about.get("uriTemplate", ""), arguments)
                await self._session.read_resource(uri)
                return CallResult([], _answer.get())

    async def _told(self, item: Item, error: MCPError, within: float) -> ToolscriptError:
        if error.code == REQUEST_TIMEOUT:
            return TimedOut(f"{item.id} did not answer within {within:g} s", details={"seconds": within})
        if error.code == CONNECTION_CLOSED or self._reach.failing:
            return Unavailable(await self._reach.reason(error), details={"server": item.server})
        return UpstreamFailed(
            f"{item.id} failed: {error.message}", details={"server": item.server, "upstream_code": error.code}
        )


class _Reach:
    """How a server is reached, and why it cannot be, in words that hold no secret of its configuration."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec
        self._child: Child | None = None
        self._status: int | None = None

    @property
    def failing(self) -> bool:
        """Whether the last thing heard over HTTP was a refusal."""
        return self._status is not None and self._status >= httpx2.codes.BAD_REQUEST

    async def streams(self, stack: AsyncExitStack) -> tuple[Any, Any]:
        """Opens the transport; the stack closes it."""
        match self._spec.transport:
            case Transport.STDIO:
                inbox, outbox, self._child = await stack.enter_async_context(stdio_transport(self._spec))
                return inbox, outbox
            case Transport.HTTP:
                client = await stack.enter_async_context(self._client())
                return await stack.enter_async_context(streamable_http_client(self._spec.url, http_client=client))
            case Transport.SSE:
                opened = sse_client(self._spec.url, httpx_client_factory=self._client)
                return await stack.enter_async_context(opened)

    async def reason(self, error: BaseException | None) -> str:
        """Why the server cannot be used."""
        if self._child:
            await self._child.settle()
            return self._without_secrets(self._child.fate)
        if self.failing:
            hint = ": check its `headers`" if self._status in {401, 403} else ""
            return f"it answered with HTTP status {self._status}{hint}"
        return self._without_secrets(str(error) or type(error).__name__) if error else "the connection was closed"

    def _client(self, *_: object, **how: Any) -> httpx2.AsyncClient:
        client = create_mcp_http_client(headers=dict(self._spec.headers), timeout=how.get("timeout"))
        client.event_hooks = {"response": [self._note_status]}
        return client

    async def _note_status(self, response: httpx2.Response) -> None:
        # A server may do without the stream for its own messages: it refuses GET, and is well.
        if response.request.method == "POST":
            self._status = response.status_code

    def _without_secrets(self, text: str) -> str:
        for secret in [*self._spec.env.values(), *self._spec.headers.values()]:
            if len(secret) > 3:  # noqa: PLR2004
                text = text.replace(secret, "***")
        return text


class _LenientDispatcher:
    """Passes requests on and keeps their answers; tells of changes, and of the end."""

    def __init__(self, inner: JSONRPCDispatcher[Any]) -> None:
        self._inner = inner
        self.modern = False
        self.changed = asyncio.Event()
        self.closed = asyncio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raw = await self._inner.send_raw_request(method, params, opts)
        _answer.set(raw)
        return acceptable(method, raw, HANDSHAKE_PROTOCOL_VERSIONS, modern=self.modern)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        await self._inner.notify(method, params, opts)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            if method.removeprefix("notifications/") in _CHANGES:
                self.changed.set()
            return on_notify_intercept(method, params) if on_notify_intercept else False

        try:
            await self._inner.run(on_request, on_notify, intercept, task_status=task_status)
        finally:
            self.closed.set()


async def _shake_hands(session: ClientSession) -> None:
    """The handshake that every server knows; those that know only its successor say so."""
    try:
        await session.initialize()
    except MCPError as refused:
        if refused.code in {CONNECTION_CLOSED, REQUEST_TIMEOUT}:
            raise
        try:
            await session.discover()
        except (MCPError, RuntimeError):
            raise refused from None


async def _subscribe(stack: AsyncExitStack, session: ClientSession) -> None:
    try:
        await stack.enter_async_context(
            listen(session, tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
        )
    except (MCPError, RuntimeError) as error:
        log.info("no_change_notices", extra={"reason": str(error)})


async def _note_fault(fault: Exception) -> None:
    log.debug("transport_fault", extra={"reason": str(fault)})


def _first(error: Exception) -> Exception:
    """The first real cause in a group of errors."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
