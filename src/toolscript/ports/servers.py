"""MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from toolscript.domain.catalog import Item
from toolscript.domain.servers import CallResult, ServerListing, ServerSpec


class ToolServer(Protocol):
    """A connection to one server, for as long as it lasts."""

    async def list_items(self) -> ServerListing:
        """Everything it offers that the configuration lets through. Raises Unavailable."""

    async def call(self, item: Item, arguments: Mapping[str, Any], *, within: float) -> CallResult:
        """What the tool answers; for a prompt its messages, for a resource its contents. Raises UpstreamFailed with the
        server's message, TimedOut, or Unavailable when the connection is gone."""

    async def ping(self) -> None:
        """Raises Unavailable when the server no longer answers."""

    async def wait_for_change(self) -> None:
        """Waits until the server announces a change of its items."""

    async def wait_for_disconnect(self) -> str:
        """Waits until the connection is lost; returns the reason."""


class ToolServers(Protocol):
    """The way to servers."""

    def connect(self, spec: ServerSpec, *, within: float) -> AbstractAsyncContextManager[ToolServer]:
        """A connection for as long as the block lasts. Entering raises Unavailable, saying why there is none."""
