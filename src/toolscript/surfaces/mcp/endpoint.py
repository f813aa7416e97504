"""MCP over HTTP. A response is JSON where one message is all there is to send, and a stream where progress comes first.
A caller that disconnects cancels its call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HttpEndpoint:
    """An ASGI application that serves MCP while its `run` lasts. It is stateless, so that clients do not notice when a
    gateway restarts."""

    def __init__(self, server: Server[Any], max_body_bytes: int) -> None:
        self._json, self._streams = (
            StreamableHTTPSessionManager(
                server, json_response=is_json, stateless=True, max_request_body_size=max_body_bytes
            )
            for is_json in (True, False)
        )
        self._serve_older = RequestBodyLimitMiddleware(self._serve_until_disconnect, max_body_bytes)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Accepts requests for as long as the block lasts."""
        async with self._json.run(), self._streams.run():
            yield

    async def asgi_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request. Since 2026-07-28 the SDK itself chooses between JSON and a stream, and cancels calls of
        clients that disconnect."""
        request = Request(scope)
        version = request.headers.get("mcp-protocol-version", HANDSHAKE_PROTOCOL_VERSIONS[0])
        if version not in HANDSHAKE_PROTOCOL_VERSIONS and check_accept_headers(request)[1]:
            await self._streams.asgi_app(scope, receive, send)
        else:
            await self._serve_older(scope, receive, send)

    async def _serve_until_disconnect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Older clients get a stream only when they ask for progress: the SDK streams all responses or none."""
        first = await receive()
        wants_stream = b'"progressToken"' in first.get("body", b"") and check_accept_headers(Request(scope))[1]
        app: ASGIApp = self._streams.asgi_app if wants_stream else self._json.asgi_app
        unread = [first]

        async def receive_once() -> Message:
            if not unread:
                await anyio.sleep_forever()
            return unread.pop()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
            await app(scope, receive_once, send)
            tasks.cancel_scope.cancel()


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
