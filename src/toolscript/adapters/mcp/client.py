"""Connects to MCP servers with the official SDK and reads their answers leniently.

The SDK rejects a whole answer for one flaw in it, and real servers have flaws. So each raw answer is kept, and the SDK
gets a version that it accepts: a bad tool costs that tool, never its server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp import MCPError
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolscript import __version__
from toolscript.adapters.mcp.agent_skills import AgentSkillReader, OpenSession, find_root_cause, require_listed_file
from toolscript.adapters.mcp.dispatcher import LenientDispatcher, current_relay, raw_result
from toolscript.adapters.mcp.handshake import initialize, refuse, subscribe_to_lists
from toolscript.adapters.mcp.http_client import ServerClient, describe_failure
from toolscript.adapters.mcp.item_requests import build_request
from toolscript.adapters.mcp.lenient_reader import (
    LISTS,
    MAX_ITEMS,
    clean_result,
    keep_valid_fields,
    read_items,
)
from toolscript.adapters.mcp.messages import HINT, MAX_MESSAGE_BYTES, PendingResults
from toolscript.adapters.mcp.oauth.bearer import BearerAuth
from toolscript.adapters.mcp.resource_updates import subscribe
from toolscript.adapters.mcp.server_log import LEVEL, ServerLog, request_messages
from toolscript.adapters.mcp.stdio import ServerProcess, stdio_transport
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import LoginRequired, TimedOut, ToolscriptError, Unavailable, UpstreamFailed
from toolscript.domain.limits import current_limits
from toolscript.domain.logins import describe_command, may_log_in
from toolscript.domain.servers import NO_RELAY, CallRelay, CallResult, ServerListing, ServerSpec, Transport
from toolscript.ports.logins import AccessTokens
from toolscript.ports.servers import OnLog, ignore_log

MAX_PAGES = 1000
HTTP_TIMEOUT_SECONDS = 30.0
SUBSCRIBE_TIMEOUT_SECONDS = 10.0
SHUTDOWN_TIMEOUT_SECONDS = 1.0
SESSION_HEADER = "mcp-session-id"
# The SDK's messages for an HTTP error without a JSON-RPC answer; a lost stream has the code CONNECTION_CLOSED. A server
# may answer with both itself, so they are a reason to look, never the decision.
_SDK_CONNECTION_ERRORS = frozenset({"Session terminated", "Server returned an error response"})

log = logging.getLogger(__name__)


class McpServers:
    """Connects to servers over stdio, streamable HTTP and SSE."""

    def __init__(
        self,
        max_answer_bytes: int = MAX_MESSAGE_BYTES,
        tokens: AccessTokens | None = None,
        data: Path | None = None,
    ) -> None:
        """Longer answers become errors. Servers that need a login are sent these tokens. Servers in a sandbox have
        their homes in the data folder, and see nothing else of it."""
        self._max_answer_bytes = max_answer_bytes
        self._tokens = tokens
        self._data = data

    @asynccontextmanager
    async def connect(self, spec: ServerSpec, *, within: float, on_log: OnLog = ignore_log) -> AsyncIterator[McpServer]:
        """Connects for as long as the block lasts. Raises Unavailable with the reason if that fails."""
        auth = BearerAuth(spec, self._tokens) if self._tokens and may_log_in(spec) else None
        connection = _Connection(spec, self._max_answer_bytes, auth, on_log, self._data)
        is_open = has_ended = False
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(within):
                    server = await self._open(stack, spec, connection)
                is_open = True
                yield server
                has_ended = True
        except Exception as error:
            first = find_root_cause(error)
            if has_ended and isinstance(first, anyio.ClosedResourceError | anyio.BrokenResourceError):
                log.debug("late_answer", extra={"server": spec.name})  # it came while the SDK closed its streams
                return
            if is_open or isinstance(first, ToolscriptError):
                raise first from error
            if auth and auth.problem:
                raise auth.problem from error
            if isinstance(first, TimeoutError):
                raise Unavailable(f"no answer within {within:g} s{connection.describe_silence()}") from error
            raise Unavailable(await connection.reason(first)) from error

    async def _open(self, stack: AsyncExitStack, spec: ServerSpec, connection: _Connection) -> McpServer:
        session, channel = await self._start(stack, connection)
        await initialize(session, connection.may_be_lost)
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            channel.modern = True
            await subscribe_to_lists(stack, session)
        request_messages(stack, session)
        return McpServer(spec, session, channel, connection, partial(self._open_modern, spec, connection.auth))

    @asynccontextmanager
    async def _open_modern(self, spec: ServerSpec, auth: BearerAuth | None) -> AsyncIterator[ClientSession]:
        """A second session, by the newest version of the protocol, with a server that was connected by an older one."""
        connection = _Connection(spec, self._max_answer_bytes, auth, ignore_log, self._data)
        async with AsyncExitStack() as stack:
            session, channel = await self._start(stack, connection)
            await session.discover()
            channel.modern = True
            yield session

    async def _start(self, stack: AsyncExitStack, connection: _Connection) -> tuple[ClientSession, LenientDispatcher]:
        inbox, outbox = await connection.streams(stack)
        inner: JSONRPCDispatcher[Any] = JSONRPCDispatcher(inbox, outbox, on_stream_exception=_log_transport_fault)
        channel = LenientDispatcher(inner, connection.log.add_message, connection.results.take)
        # Without a timeout of the SDK: it raises the code that a server may answer with, too.
        session = ClientSession(
            dispatcher=channel,
            client_info=types.Implementation(name="toolscript", version=__version__),
            sampling_callback=refuse,
            elicitation_callback=refuse,
            list_roots_callback=refuse,
            log_level=LEVEL,
        )
        await stack.enter_async_context(session)
        return session, channel


class McpServer:
    """A connected server."""

    def __init__(
        self,
        spec: ServerSpec,
        session: ClientSession,
        channel: LenientDispatcher,
        connection: _Connection,
        open_modern: OpenSession,
    ) -> None:
        self._spec = spec
        self._agent_skills = AgentSkillReader(spec.name, open_modern)
        self._session = session
        self._channel = channel
        self._connection = connection
        self._calls = 0
        self._sending: set[asyncio.Task[dict[str, Any]]] = set()

    async def list_items(self) -> ServerListing:
        """Lists the items that the configuration lets through. Raises Unavailable."""
        async with self._agent_skills.listing:
            return await self._list_items()

    async def _list_items(self) -> ServerListing:
        offered = self._session.server_capabilities
        limits: list[str] = []
        answers = {"tools/list": await self._pages("tools/list", MAX_ITEMS, limits)}
        methods = ["prompts/list"] if offered and offered.prompts else []
        methods += ["resources/list", "resources/templates/list"] if offered and offered.resources else []
        refused: list[str] = []
        for method in methods:
            try:
                answers[method] = await self._pages(method, MAX_ITEMS - _count_entries(answers), limits)
            except UpstreamFailed as error:
                refused.append(error.message)
        listing = await asyncio.to_thread(read_items, self._spec.name, answers)  # 40 ms for 10 000 tools
        listing = await self._agent_skills.add_to(self._session, listing)
        problems = [*dict.fromkeys(limits), *refused, *listing.problems]
        return ServerListing([item for item in listing.items if self._spec.allows_item(item)], problems)

    async def call(
        self, item: Item, arguments: Mapping[str, Any], *, within: float, relay: CallRelay = NO_RELAY
    ) -> CallResult:
        """Calls the tool; gets the messages of a prompt or the contents of a resource. The SDK tells the server when
        the task is cancelled, also by a timeout.

        Raises UpstreamFailed with the server's message, TimedOut, or Unavailable when the connection is gone.
        """
        async with self._translate_errors(item.id, None if relay.ask else within):
            return await self._call(item, dict(arguments), relay)

    async def complete(self, params: Mapping[str, Any], *, within: float) -> Mapping[str, Any]:
        """Suggests values for an argument; none if the server does not offer completions. Raises what `call` raises."""
        offered = self._session.server_capabilities
        if not offered or offered.completions is None:
            return {"completion": {"values": []}}
        request = types.CompleteRequest(params=types.CompleteRequestParams.model_validate(params, by_name=False))
        async with self._translate_errors(self._spec.name, within):
            await self._session.send_request(request, types.CompleteResult)
            return await clean_result(raw_result.get())

    async def follow_resource(
        self, uri: str, *, on_start: Callable[[], object], on_update: Callable[[str], object]
    ) -> None:
        """Reports changes of a resource until the connection or the subscription ends. Raises what `call` raises."""
        async with AsyncExitStack() as stack:
            stack.enter_context(self._channel.updates.follow(uri, on_update))
            async with self._translate_errors(self._spec.name, SUBSCRIBE_TIMEOUT_SECONDS):
                subscription = subscribe(self._session, uri, modern=self._channel.modern)
                stream = await stack.enter_async_context(subscription)
            on_start()
            if stream is None:
                await self._channel.closed.wait()
            else:
                with suppress(SubscriptionLost):
                    async for _ in stream:
                        pass  # the connection's notifications are reported already

    @asynccontextmanager
    async def _translate_errors(self, subject: str, within: float | None) -> AsyncIterator[None]:
        """Limits the time of a request, unless `within` is None, and raises its errors as ours. The subject is named in
        their messages."""
        self._calls += 1
        try:
            async with asyncio.timeout(within):
                yield
        except TimeoutError as error:
            limit = f"within {within:g} s" if within else "in time"
            raise TimedOut(f"{subject} did not answer {limit}", details={"seconds": within}) from error
        except MCPError as error:
            raise await self._translate_error(subject, error) from error
        except (RuntimeError, ValueError) as error:  # an unreadable or endlessly nested answer
            raise UpstreamFailed(
                f"{subject} sent an unreadable answer: {error}", details={"server": self._spec.name}
            ) from error
        finally:
            self._calls -= 1

    async def ping(self) -> None:
        """Raises Unavailable when the server no longer answers. An error counts as an answer. A server busy with a call
        is not pinged: it may handle one request at a time."""
        if self._is_busy():
            return
        try:
            async with asyncio.timeout(current_limits().ping):
                await self._session.send_ping()
        except TimeoutError as error:
            if not self._is_busy():
                raise Unavailable(f"no answer to a ping within {current_limits().ping:g} s") from error
        except MCPError as error:
            if not self._is_busy() and self._connection.may_be_lost(error):
                raise Unavailable(await self._connection.reason(error)) from error

    def _is_busy(self) -> bool:
        return self._calls > 0

    async def wait_for_change(self) -> None:
        """Waits until the server announces a change of its items."""
        await self._channel.changed.wait()
        self._channel.changed.clear()

    async def wait_for_disconnect(self) -> str:
        """Waits until the connection is lost; returns the reason."""
        await self._channel.closed.wait()
        return await self._connection.reason(None)

    async def _pages(self, method: str, max_items: int, limits: list[str]) -> list[dict[str, Any]]:
        """The pages of a list, with no more items than that. What is left out for a limit is added to `limits`."""
        lists = {
            "tools/list": self._session.list_tools,
            "prompts/list": self._session.list_prompts,
            "resources/list": self._session.list_resources,
            "resources/templates/list": self._session.list_resource_templates,
        }
        pages: list[dict[str, Any]] = []
        cursors: set[str | None] = set()
        cursor: str | None = None
        while True:
            cursors.add(cursor)
            try:
                await lists[method](params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND:
                    return pages
                if method == "tools/list" or await self._is_lost(error):
                    raise Unavailable(await self._connection.reason(error)) from error
                raise UpstreamFailed(f"{method} failed: {error.message}") from error
            page = raw_result.get()
            following = page.get("nextCursor")
            cursor = following if isinstance(following, str) and following else None
            entries = page.get(LISTS[method])
            if isinstance(entries, list):
                if len(entries) > max_items or (len(entries) == max_items and cursor):
                    limits.append(f"it lists more than {MAX_ITEMS} tools, prompts and resources: the rest is left out")
                    return [*pages, {**page, LISTS[method]: entries[:max_items]}]
                max_items -= len(entries)
            pages.append(page)
            if cursor is None:
                return pages
            if cursor in cursors:
                limits.append(f"{method} names a page that it has sent before: what follows is left out")
                return pages
            if len(pages) == MAX_PAGES:
                limits.append(f"{method} has more than {MAX_PAGES} pages: the rest is left out")
                return pages

    async def _call(self, item: Item, arguments: dict[str, Any], relay: CallRelay) -> CallResult:
        request, result_type = build_request(item, arguments, relay)
        if item.type is ItemType.RESOURCE:
            await self._agent_skills.refuse_file(item, request.params.uri)
        self._channel.relays.append(relay)
        try:
            raw = await clean_result(await self._send(request, result_type, relay))
        finally:
            self._channel.relays.remove(relay)
        if item.type is ItemType.AGENT_SKILL:
            require_listed_file(item, arguments, raw)
        if item.type is not ItemType.TOOL:
            return CallResult({"structuredContent": raw})
        result = CallResult(keep_valid_fields(raw))
        if result.needs_input and relay.capabilities is None:
            raise UpstreamFailed(
                f"{item.id} needs input of its caller, who cannot be asked here: call it with an MCP client that "
                "speaks 2026-07-28, or over stdio",
                details={"server": item.server},
            )
        return result

    async def _send(self, request: Any, result_type: Any, relay: CallRelay) -> dict[str, Any]:
        """The raw answer to a request. It has a task of its own: when the caller is cancelled, twice if timeouts end
        together, the SDK still needs a moment to tell the server."""

        async def send() -> dict[str, Any]:
            current_relay.set(relay)
            await self._session.send_request(request, result_type, progress_callback=relay.on_progress)
            return raw_result.get()

        sending = asyncio.create_task(send())
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        try:
            await asyncio.wait({sending})
        except asyncio.CancelledError:
            sending.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody reads it any more
            sending.cancel()
            raise
        return sending.result()

    async def _is_lost(self, error: MCPError, *, own_calls: int = 0) -> bool:
        """Whether the connection is gone, rather than the error being the server's answer. A server that does not
        answer a ping while it works on calls, besides `own_calls`, is busy."""
        was_busy = self._calls > own_calls
        if not self._connection.may_be_lost(error):
            return False
        if self._spec.transport is Transport.STDIO:
            return True
        try:
            async with asyncio.timeout(current_limits().ping):
                await self._session.send_ping()
        except TimeoutError:
            return not was_busy and self._calls <= own_calls
        except MCPError as again:
            return self._connection.may_be_lost(again)
        return False

    async def _translate_error(self, subject: str, error: MCPError) -> ToolscriptError:
        auth = self._connection.auth
        if auth and (scope := auth.take_missing_scope()) is not None:
            return UpstreamFailed(
                f"{subject} needs the scope {scope or '(unnamed)'}, which its login does not have: run "
                f"{describe_command(self._spec)}",
                details={"server": self._spec.name, "scope": scope},
            )
        if await self._is_lost(error, own_calls=1):
            if auth and isinstance(auth.problem, LoginRequired):
                return LoginRequired(f"{subject}: {auth.problem.message}", details={"server": self._spec.name})
            return Unavailable(await self._connection.reason(error), details={"server": self._spec.name})
        return UpstreamFailed(
            f"{subject} failed: {self._connection.log.redact(error.message)}",
            details={"server": self._spec.name, "upstream_code": error.code},
        )


def _count_entries(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> int:
    lists = (page.get(LISTS[method]) for method, pages in answers.items() for page in pages)
    return sum(len(entries) for entries in lists if isinstance(entries, list))


class _Connection:
    """The transport to a server; describes errors without the secrets of its configuration."""

    def __init__(
        self, spec: ServerSpec, max_bytes: int, auth: BearerAuth | None, on_log: OnLog, data: Path | None
    ) -> None:
        self._spec = spec
        self._data = data
        self._max_bytes = max_bytes
        self.auth = auth
        self.log = ServerLog(spec, on_log)
        self.results = PendingResults(max_bytes)
        self._process: ServerProcess | None = None
        self._status: int | None = None
        self._session_id: str | None = None

    async def streams(self, stack: AsyncExitStack) -> tuple[Any, Any]:
        """Opens the transport; the stack closes it."""
        match self._spec.transport:
            case Transport.STDIO:
                transport = stdio_transport(
                    self._spec, self._max_bytes, self.log.add_line, self.log.line_bytes, self._data
                )
                inbox, outbox, self._process = await stack.enter_async_context(transport)
                return inbox, outbox
            case Transport.HTTP:
                client = await stack.enter_async_context(self._create_client())
                stack.push_async_callback(self._end_session, client)
                opened = streamable_http_client(
                    self._spec.url,
                    http_client=client,
                    terminate_on_close=False,  # closing would wait minutes for an answer
                    max_sse_event_size=self._max_bytes,
                )
                return await stack.enter_async_context(opened)
            case Transport.SSE:
                events = sse_client(self._spec.url, httpx_client_factory=self._create_client)
                return await stack.enter_async_context(events)
            case Transport.OPENAPI | Transport.INTERNAL:
                raise Unavailable(f"server {self._spec.name} does not speak MCP")

    def may_be_lost(self, error: MCPError) -> bool:
        """Whether the connection may be gone: for a process that is known, over HTTP the SDK's error looks the same as
        an answer of the server."""
        if self._process:
            return self._process.is_disconnected
        return error.code == types.CONNECTION_CLOSED or error.message in _SDK_CONNECTION_ERRORS

    async def reason(self, error: BaseException | None) -> str:
        """Describes why the server cannot be used."""
        if self._process:
            if isinstance(error, MCPError) and not self._process.is_disconnected:
                return self.log.redact(str(error))
            await self._process.wait_for_exit()
            return self._process.describe_exit(self.log.redact)
        if self.auth and self.auth.problem:
            return self.auth.problem.message
        if self._status is not None and self._status >= httpx2.codes.BAD_REQUEST:
            hint = ": check its `headers`" if self._status in {401, 403} and self._spec.headers else ""
            return f"HTTP status {self._status}{hint}"
        if error is None:
            return "the connection was closed"
        text = self.log.redact(describe_failure(error))
        return f"{urlsplit(self._spec.url).netloc.rpartition('@')[2]}: {text}"

    def describe_silence(self) -> str:
        """What is known about a server that has not answered, to be added to an error; empty if nothing is."""
        about = self._process.describe_silence(self.log.redact) if self._process else ""
        return about and f": {about}"

    def _create_client(self, *_: object, **options: Any) -> httpx2.AsyncClient:
        # Calls have their own timeouts.
        timeout = options.get("timeout") or httpx2.Timeout(HTTP_TIMEOUT_SECONDS, read=None)
        return ServerClient(
            results=self.results,
            max_bytes=self._max_bytes,
            hint=HINT,
            # Over SSE, answers come on the one stream that is opened with GET.
            event_methods={"GET", "POST"} if self._spec.transport is Transport.HTTP else {"GET"},
            headers=dict(self._spec.headers),
            timeout=timeout,
            auth=self.auth,
            event_hooks={"response": [self._record_status]},
        )

    async def _record_status(self, response: httpx2.Response) -> None:
        # Only POST counts: a server may refuse the optional GET stream.
        if response.request.method == "POST":
            self._status = response.status_code
            self._session_id = response.headers.get(SESSION_HEADER) or self._session_id

    async def _end_session(self, client: httpx2.AsyncClient) -> None:
        """Ends the HTTP session, without waiting long for the answer."""
        if self._session_id:
            with suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(SHUTDOWN_TIMEOUT_SECONDS):
                    await client.delete(self._spec.url, headers={SESSION_HEADER: self._session_id})


async def _log_transport_fault(fault: Exception) -> None:
    log.debug("transport_fault", extra={"reason": str(fault)})
