"""Servers that are an HTTP API: the operations of its document are tools, and a call is one request.

There is no connection to lose: connected means that the document has been read. Requests go to the base address of the
configuration, or to one within the origin of the document's own URL, and redirects lead nowhere else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import urljoin

import httpx2

from toolscript.adapters.mcp.messages import HINT
from toolscript.adapters.mcp.oauth.bearer import BearerAuth
from toolscript.adapters.mcp.server_log import ServerLog
from toolscript.adapters.openapi.request import ApiRequest, BaseAddress, build_request, choose_base, find_origin
from toolscript.adapters.openapi.response import read_result
from toolscript.adapters.openapi.source import ApiDescription, find_stamp, read_description
from toolscript.adapters.outgoing.bounds import MAX_DOCUMENT_BYTES, MAX_REDIRECTS
from toolscript.adapters.outgoing.client import BoundedClient
from toolscript.adapters.outgoing.remote_services import is_http_url
from toolscript.domain.catalog import Item
from toolscript.domain.errors import Invalid, InvalidArguments, LoginRequired, TimedOut, Unavailable, UpstreamFailed
from toolscript.domain.logins import describe_command, may_log_in
from toolscript.domain.servers import NO_RELAY, CallRelay, CallResult, ServerListing, ServerSpec
from toolscript.ports.logins import AccessTokens
from toolscript.ports.servers import OnLog, ToolServer, ignore_log

CONNECT_TIMEOUT_SECONDS = 30.0
_SAFE = ("GET", "HEAD")


class OpenApiServers:
    """Opens APIs by their documents."""

    def __init__(self, max_answer_bytes: int, tokens: AccessTokens | None = None) -> None:
        """Longer answers become errors. APIs that need a login are sent these tokens."""
        self._max_answer_bytes = max_answer_bytes
        self._tokens = tokens

    @asynccontextmanager
    async def connect(
        self, spec: ServerSpec, *, within: float, on_log: OnLog = ignore_log
    ) -> AsyncIterator[OpenApiServer]:
        """Reads the document. Raises Unavailable, with the place of what is wrong with it."""
        log = ServerLog(spec, on_log)
        auth = BearerAuth(spec, self._tokens) if self._tokens and may_log_in(spec) else None
        async with AsyncExitStack() as stack:
            calls = await stack.enter_async_context(self._create_client(spec, auth, self._max_answer_bytes))
            is_same = is_http_url(spec.openapi) and find_origin(spec.openapi) == find_origin(spec.url)
            # Another origin gets no credentials of the API.
            reading = self._create_client(spec, auth, MAX_DOCUMENT_BYTES) if is_same else _create_plain_client()
            server = OpenApiServer(spec, calls, await stack.enter_async_context(reading), auth, log)
            try:
                async with asyncio.timeout(within):
                    await server.read()
            except TimeoutError:
                raise Unavailable(f"its document was not read within {within:g} s") from None
            except Unavailable as error:
                if auth and auth.problem:
                    raise auth.problem from error
                raise type(error)(log.redact(error.message)) from error
            except Invalid as error:
                raise Unavailable(log.redact(error.message)) from error
            yield server

    def _create_client(self, spec: ServerSpec, auth: BearerAuth | None, max_bytes: int) -> BoundedClient:
        timeout = httpx2.Timeout(CONNECT_TIMEOUT_SECONDS, read=None)  # calls have their own
        about: dict[str, Any] = {"headers": dict(spec.headers), "auth": auth, "timeout": timeout}
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))  # all callers share the client
        return BoundedClient(max_bytes=max_bytes, hint=HINT, cookies=no_cookies, **about)


def _create_plain_client() -> BoundedClient:
    return BoundedClient(max_bytes=MAX_DOCUMENT_BYTES, timeout=httpx2.Timeout(CONNECT_TIMEOUT_SECONDS))


class OpenApiServer(ToolServer):
    """An API whose document has been read."""

    _base: BaseAddress
    _plans: Mapping[str, Mapping[str, Any]]

    def __init__(
        self,
        spec: ServerSpec,
        client: httpx2.AsyncClient,
        reading_client: httpx2.AsyncClient,
        auth: BearerAuth | None,
        log: ServerLog,
    ) -> None:
        self._spec = spec
        self._client = client
        self._reading_client = reading_client
        self._auth = auth
        self._log = log
        self._changed = asyncio.Event()
        self._stamp: tuple[int, int] | None = None
        self._unlisted: ApiDescription | None = None
        """What was read when it was connected, until it is listed."""

    async def read(self) -> ApiDescription:
        """Reads the document. Raises Unavailable, and Invalid without a usable address of the API."""
        stamp = await asyncio.to_thread(find_stamp, self._spec)
        described = await read_description(self._spec, self._reading_client)
        base = choose_base(self._spec.url, self._spec.openapi, described.about["servers"])
        self._base, self._plans, self._stamp, self._unlisted = base, described.plans, stamp, described
        about, count = described.about, len(described.plans)
        self._log.add_line(
            f"read {about['title'] or 'the document'} ({about['version']}): {count} operations at {base}"
        )
        return described

    async def list_items(self) -> ServerListing:
        """The operations that the configuration lets through, from the document as it is now. Raises Unavailable."""
        try:
            described = self._unlisted or await self.read()
        except Invalid as error:
            raise Unavailable(error.message) from error
        self._unlisted = None
        return described.listing

    async def call(
        self,
        item: Item,
        arguments: Mapping[str, Any],
        *,
        within: float,
        relay: CallRelay = NO_RELAY,  # noqa: ARG002
    ) -> CallResult:
        """Sends the request of an operation. An error of the API is a result.

        Raises InvalidArguments for values that would lead elsewhere, UpstreamFailed when the API cannot be reached or
        its answer is too large, TimedOut, and LoginRequired.
        """
        plan = self._plans.get(item.listed_name)
        if plan is None or plan["label"] != (item.annotations or {}).get("operation"):
            raise UpstreamFailed(
                f"the document of {item.server} has changed, and {item.id} is no longer what it was: search again",
                details={"server": item.server},
            )
        request = build_request(plan, arguments, self._base, self._spec.headers)
        began, outcome = time.monotonic(), "no answer"
        try:
            async with asyncio.timeout(within):
                response = await self._send(request)
                outcome = f"HTTP status {response.status_code}"
                self._require_login(item, response)
                return await read_result(response, plan, self._log.redact)
        except TimeoutError as error:
            raise TimedOut(f"{item.id} did not answer within {within:g} s", details={"seconds": within}) from error
        except httpx2.InvalidURL as error:
            text = f"{item.id}: the arguments make an address that cannot be sent: {error}"
            raise InvalidArguments(text, details={"field": "", "tool": item.id}) from error
        except httpx2.StreamError as error:  # larger than its bound
            raise self._fail(f"{item.id} sent an unreadable answer: {error}") from error
        except httpx2.HTTPError as error:
            text = f"{self._base.origin} cannot be reached: {str(error) or type(error).__name__}"
            # The cause lets failures in a row pause the calls.
            raise self._fail(f"{item.id} failed: {text}") from Unavailable(text)
        finally:
            self._log.add_line(f"{plan['label']}: {outcome} in {1000 * (time.monotonic() - began):.0f} ms")

    def _fail(self, text: str) -> UpstreamFailed:
        return UpstreamFailed(self._log.redact(text), details={"server": self._spec.name})

    async def _send(self, request: ApiRequest) -> httpx2.Response:
        """The answer, after redirects within the base address that repeat a reading request."""
        url = request.url
        sent: dict[str, Any] = {"headers": request.headers, "content": request.content}
        sent |= {"data": request.form, "files": request.files} if request.files else {}
        for _ in range(MAX_REDIRECTS):
            response = await self._client.request(request.method, url, **sent)
            if response.next_request is None or request.method not in _SAFE:
                return response
            url = urljoin(url, str(response.next_request.url))
            if not self._base.contains(url):
                return response
        return response

    def _require_login(self, item: Item, response: httpx2.Response) -> None:
        """Raises what a person can do about a login that is missing, has ended, or lacks a scope."""
        if self._auth is None:
            return
        if (scope := self._auth.take_missing_scope()) is not None:
            raise UpstreamFailed(
                f"{item.id} needs the scope {scope or '(unnamed)'}, which its login does not have: run "
                f"{describe_command(self._spec)}",
                details={"server": item.server, "scope": scope},
            )
        challenge = response.headers.get("www-authenticate", "").lower()
        is_login = response.status_code == HTTPStatus.UNAUTHORIZED and "bearer" in challenge
        if is_login and isinstance(self._auth.problem, LoginRequired):
            raise LoginRequired(f"{item.id}: {self._auth.problem.message}", details={"server": item.server})

    async def ping(self) -> None:
        """Sends nothing. Notices that the file of the document has changed."""
        stamp = await asyncio.to_thread(find_stamp, self._spec)
        if stamp is not None and stamp != self._stamp:
            self._stamp = stamp
            self._changed.set()

    async def wait_for_change(self) -> None:
        """Waits until the file of the document has changed."""
        await self._changed.wait()
        self._changed.clear()
