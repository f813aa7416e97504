"""Subscriptions to resources of a server: by a request per resource before 2026-07-28, by streams since then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.client.session import ClientSession
from mcp.client.subscriptions import Subscription, listen

UPDATED = "notifications/resources/updated"
UNSUBSCRIBE_TIMEOUT_SECONDS = 1.0


class ResourceUpdates:
    """Brings the notifications of one connection to the followers of a resource."""

    def __init__(self) -> None:
        self._followers: dict[object, tuple[str, Callable[[str], object]]] = {}

    @contextmanager
    def follow(self, uri: str, on_update: Callable[[str], object]) -> Iterator[None]:
        """Calls `on_update` during the block with the URI of each update of the resource or of a part of it."""
        token = object()
        self._followers[token] = (uri, on_update)
        try:
            yield
        finally:
            del self._followers[token]

    def report(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Takes every notification of the server."""
        updated = (params or {}).get("uri")
        if method != UPDATED or not isinstance(updated, str):
            return
        for uri, on_update in list(self._followers.values()):
            if updated == uri or updated.startswith(f"{uri.rstrip('/')}/"):
                on_update(updated)


@asynccontextmanager
async def subscribe(session: ClientSession, uri: str, *, modern: bool) -> AsyncIterator[Subscription | None]:
    """Asks the server for notifications about a resource during the block; returns their stream, if it is one. Raises
    MCPError when the server refuses."""
    if modern:
        async with listen(session, resource_subscriptions=[uri]) as stream:
            if uri not in (stream.honored.resource_subscriptions or ()):
                raise MCPError(types.METHOD_NOT_FOUND, f"{uri} cannot be followed")
            yield stream
        return
    params = types.SubscribeRequestParams(uri=uri)
    await session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)
    try:
        yield None
    finally:
        closed = (MCPError, RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError)
        with anyio.move_on_after(UNSUBSCRIBE_TIMEOUT_SECONDS, shield=True), suppress(*closed):
            request = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
            await session.send_request(request, types.EmptyResult)
