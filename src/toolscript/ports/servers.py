"""Connections to MCP servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from toolscript.domain.catalog import Item
from toolscript.domain.errors import UpstreamFailed
from toolscript.domain.servers import NO_RELAY, CallRelay, CallResult, ServerListing, ServerSpec

OnLog = Callable[[str], object]
"""Takes a line that a server wrote to its standard error."""


def ignore_log(_: str) -> None:
    """Drops a line of a server's log."""


class ToolServer(Protocol):
    """An open connection to one server. A class that inherits from this has no completions, reports no changes of
    single resources, and is never disconnected, unless it says otherwise.

    >>> import asyncio
    >>> class EmptyServer:
    ...     async def list_items(self):
    ...         return ServerListing(items=())
    >>> asyncio.run(EmptyServer().list_items()).items
    ()
    """

    async def list_items(self) -> ServerListing:
        """All tools, prompts and resources of the server that the configuration allows. Raises Unavailable."""

    async def call(
        self, item: Item, arguments: Mapping[str, Any], *, within: float, relay: CallRelay = NO_RELAY
    ) -> CallResult:
        """The result of a tool; the messages of a prompt; the contents of a resource. The server is told when the call
        is cancelled, or takes longer than `within` seconds. A caller who can be asked (`relay.ask`) limits the time
        itself, because the time of answers does not count. Raises UpstreamFailed with the server's message, TimedOut,
        or Unavailable when the connection is lost."""

    async def complete(self, params: Mapping[str, Any], *, within: float) -> Mapping[str, Any]:  # noqa: ARG002
        """The result of MCP's `completion/complete` with these parameters; without values if the server offers no
        completions. Raises what `call` raises."""
        return {"completion": {"values": []}}

    async def follow_resource(
        self,
        uri: str,  # noqa: ARG002
        *,
        on_start: Callable[[], object],  # noqa: ARG002
        on_update: Callable[[str], object],  # noqa: ARG002
    ) -> None:
        """Calls `on_start` once the server has agreed to report changes of the resource, and `on_update` with the URI
        of each changed one, it or a part of it. Ends with the connection or the subscription. Raises what `call`
        raises, UpstreamFailed for a server that reports no changes."""
        raise UpstreamFailed("the server reports no changes of single resources")

    async def ping(self) -> None:
        """Raises Unavailable when the server no longer answers."""
        return

    async def wait_for_change(self) -> None:
        """Waits until the server announces a change of its items."""

    async def wait_for_disconnect(self) -> str:
        """Waits until the connection is lost; returns the reason."""
        await asyncio.Event().wait()
        return "disconnected"


class ToolServers(Protocol):
    """Opens connections to servers.

    >>> import asyncio
    >>> from toolscript.adapters.mcp.client import McpServers
    >>> from toolscript.domain.errors import Unavailable
    >>> from toolscript.domain.servers import Transport
    >>> async def connect(spec):
    ...     try:
    ...         async with McpServers().connect(spec, within=5.0) as server:
    ...             return await server.list_items()
    ...     except Unavailable as error:
    ...         return type(error).__name__
    >>> asyncio.run(connect(ServerSpec("files", Transport.STDIO, command="no-such-command")))
    'Unavailable'
    """

    def connect(
        self, spec: ServerSpec, *, within: float, on_log: OnLog = ignore_log
    ) -> AbstractAsyncContextManager[ToolServer]:
        """A connection for the duration of the block. `on_log` gets the lines that the server's program writes to its
        standard error, and the lines of the log messages that it sends, cut when they are long, and without secrets.
        Raises Unavailable with the reason when there is no connection within that many seconds."""
