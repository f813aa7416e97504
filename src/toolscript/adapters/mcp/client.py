"""MCP servers, reached with the official SDK and read leniently.

The SDK refuses a whole answer for one flaw in it, and real servers have flaws. So every answer is kept as it came,
and the SDK is shown a version of it that it cannot object to: one bad tool costs that tool, never its server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

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
    GetPromptRequest,
    GetPromptRequestParams,
    GetPromptResult,
    Implementation,
    PaginatedRequestParams,
    ReadResourceRequest,
    ReadResourceRequestParams,
    ReadResourceResult,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from toolscript import __version__
from toolscript.adapters.mcp.reading import acceptable, clean, expanded, read_items, secrets_of
from toolscript.adapters.mcp.stdio import LONGEST_MESSAGE, Child, stdio_transport
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import TimedOut, ToolscriptError, Unavailable, UpstreamFailed
from toolscript.domain.servers import CallResult, ServerListing, ServerSpec, Transport

MOST_PAGES = 1000
PATIENCE_SECONDS = 30.0
FAREWELL_SECONDS = 1.0
SESSION_HEADER = "mcp-session-id"
# What the SDK says for a refusal over HTTP that holds no answer of the server's own.
_SDK_SAYS_LOST = frozenset({"Session terminated", "Server returned an error response"})
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
        is_open = False
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(within):
                    server = await self._open(stack, spec, reach, within)
                is_open = True
                yield server
        except Exception as error:
            first = _first(error)
            if is_open or isinstance(first, ToolscriptError):
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
        self._calls = 0

    async def list_items(self) -> ServerListing:
        """Everything it offers that the configuration lets through. Raises Unavailable."""
        offered = self._session.server_capabilities
        answers: dict[str, list[dict[str, Any]]] = {"tools/list": await self._pages("tools/list")}
        methods = ["prompts/list"] if offered and offered.prompts else []
        methods += ["resources/list", "resources/templates/list"] if offered and offered.resources else []
        refused: list[str] = []
        for method in methods:
            try:
                answers[method] = await self._pages(method)
            except UpstreamFailed as error:
                refused.append(error.message)
        listing = read_items(self._spec.name, answers)
        return ServerListing(
            [i for i in listing.items if self._spec.allows_tool(i.name)], [*refused, *listing.problems]
        )

    async def call(self, item: Item, arguments: Mapping[str, Any], *, within: float) -> CallResult:
        """What the tool answers; for a prompt its messages, for a resource its contents.

        Raises UpstreamFailed with the server's message, TimedOut, or Unavailable when the connection is gone.
        """
        self._calls += 1
        try:
            async with asyncio.timeout(within):
                return await self._call(item, dict(arguments), within)
        except TimeoutError as error:
            raise TimedOut(f"{item.id} did not answer within {within:g} s", details={"seconds": within}) from error
        except MCPError as error:
            raise await self._told(item, error, within) from error
        except (RuntimeError, ValueError) as error:  # it answered what nobody can read, or nested without end
            raise UpstreamFailed(
                f"{item.id} gave an answer that cannot be read: {error}", details={"server": item.server}
            ) from error
        finally:
            self._calls -= 1

    async def ping(self) -> None:
        """Raises Unavailable when the server no longer answers. One that knows no pings answers all the same; one that
        is busy with a call may answer one thing at a time, and is not asked."""
        if self._is_busy():
            return
        try:
            await self._session.send_ping()
        except MCPError as error:
            if not self._is_busy() and (_is_lost(error) or error.code == REQUEST_TIMEOUT):
                raise Unavailable(await self._reach.reason(error)) from error

    def _is_busy(self) -> bool:
        return self._calls > 0

    async def wait_for_change(self) -> None:
        """Waits until the server says that what it offers has changed."""
        await self._channel.changed.wait()
        self._channel.changed.clear()

    async def wait_for_disconnect(self) -> str:
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
                if method == "tools/list" or _is_lost(error):
                    raise Unavailable(await self._reach.reason(error)) from error
                raise UpstreamFailed(f"it refused {method}: {error.message}") from error
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
                raw = clean(_answer.get())
                if raw.get("resultType") == "input_required":
                    raise UpstreamFailed(f"{item.id} asks for input that only a person can give")
                structured = raw.get("structuredContent")
                content = [b for b in raw.get("content") or [] if isinstance(b, dict)]
                return CallResult(
                    content, structured if isinstance(structured, dict) else None, raw.get("isError") is True
                )
            case ItemType.PROMPT:
                texts = {k: str(v) for k, v in arguments.items()}
                prompt = GetPromptRequest(params=GetPromptRequestParams(name=item.name, arguments=texts))
                await self._session.send_request(prompt, GetPromptResult, request_read_timeout_seconds=within)
                return CallResult([], clean(_answer.get()))
            case ItemType.RESOURCE:
                about = item.annotations or {}
                uri = about.get("uri") or expanded(about.get("uriTemplate", ""), arguments)
                resource = ReadResourceRequest(params=ReadResourceRequestParams(uri=uri))
                await self._session.send_request(resource, ReadResourceResult, request_read_timeout_seconds=within)
                return CallResult([], clean(_answer.get()))

    async def _told(self, item: Item, error: MCPError, within: float) -> ToolscriptError:
        if error.code == REQUEST_TIMEOUT:
            return TimedOut(f"{item.id} did not answer within {within:g} s", details={"seconds": within})
        if _is_lost(error):
            return Unavailable(await self._reach.reason(error), details={"server": item.server})
        return UpstreamFailed(
            f"{item.id} failed: {self._reach.redact_secrets(error.message)}",
            details={"server": item.server, "upstream_code": error.code},
        )


class _Reach:
    """How a server is reached, and why it cannot be, in words that hold no secret of its configuration."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec
        self._child: Child | None = None
        self._status: int | None = None
        self._session_id: str | None = None

    async def streams(self, stack: AsyncExitStack) -> tuple[Any, Any]:
        """Opens the transport; the stack closes it."""
        match self._spec.transport:
            case Transport.STDIO:
                inbox, outbox, self._child = await stack.enter_async_context(stdio_transport(self._spec))
                return inbox, outbox
            case Transport.HTTP:
                client = await stack.enter_async_context(self._client())
                stack.push_async_callback(self._say_goodbye, client)
                transport = streamable_http_client(
                    self._spec.url,
                    http_client=client,
                    terminate_on_close=False,  # it would wait for an answer for minutes
                    max_sse_event_size=LONGEST_MESSAGE,
                )
                return await stack.enter_async_context(transport)
            case Transport.SSE:
                opened = sse_client(self._spec.url, httpx_client_factory=self._client)
                return await stack.enter_async_context(opened)

    async def reason(self, error: BaseException | None) -> str:
        """Why the server cannot be used."""
        if self._child:
            await self._child.settle()
            told = str(error) if isinstance(error, MCPError) and not _is_lost(error) else self._child.fate
            return self.redact_secrets(told)
        if self._status is not None and self._status >= httpx2.codes.BAD_REQUEST:
            hint = ": check its `headers`" if self._status in {401, 403} else ""
            return f"it answered with HTTP status {self._status}{hint}"
        if error is None:
            return "the connection was closed"
        told = self.redact_secrets(str(error) or type(error).__name__)
        return f"{urlsplit(self._spec.url).netloc.rpartition('@')[2]}: {told}"

    def _client(self, *_: object, **how: Any) -> httpx2.AsyncClient:
        timeout = how.get("timeout") or httpx2.Timeout(PATIENCE_SECONDS, read=None)  # calls have limits of their own
        client = create_mcp_http_client(headers=dict(self._spec.headers), timeout=timeout)
        client.event_hooks = {"response": [self._note]}
        return client

    async def _note(self, response: httpx2.Response) -> None:
        # A server may do without the stream for its own messages: it refuses GET, and is well.
        if response.request.method == "POST":
            self._status = response.status_code
            self._session_id = response.headers.get(SESSION_HEADER) or self._session_id

    async def _say_goodbye(self, client: httpx2.AsyncClient) -> None:
        """Ends the server's session; one that does not listen is not waited for."""
        if self._session_id:
            with suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await client.delete(self._spec.url, headers={SESSION_HEADER: self._session_id})

    def redact_secrets(self, text: str) -> str:
        """The text, with whatever the configuration holds in confidence made unreadable."""
        for secret in sorted(secrets_of(self._spec), key=len, reverse=True):
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


def _is_lost(error: MCPError) -> bool:
    """Whether an error tells that the connection is gone, rather than what the server answered."""
    return error.code == CONNECTION_CLOSED or error.message in _SDK_SAYS_LOST


def _first(error: Exception) -> Exception:
    """The first real cause in a group of errors."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
