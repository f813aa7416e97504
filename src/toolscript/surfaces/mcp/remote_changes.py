"""Changes that another process's gateway reports, for a process that forwards requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, Subscription, SubscriptionLost
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged

from toolscript.domain.errors import Unavailable
from toolscript.services.tools.native_changes import ChangeFilter, ChangeStream, ListChanged, ListKind, ResourceChanged

CONNECT_TIMEOUT_SECONDS = 30.0


@asynccontextmanager
async def open_remote_stream(
    url: str, headers: Mapping[str, str], wanted: ChangeFilter, *, trust_env: bool
) -> AsyncIterator[ChangeStream]:
    """A stream of the MCP endpoint at that URL. It ends when the gateway ends it or is lost. Raises Unavailable when it
    cannot be opened."""
    async with AsyncExitStack() as stack:
        timeout = httpx2.Timeout(CONNECT_TIMEOUT_SECONDS, read=None)
        http = httpx2.AsyncClient(headers=dict(headers), timeout=timeout, trust_env=trust_env)
        await stack.enter_async_context(http)
        try:
            client = await stack.enter_async_context(Client(streamable_http_client(url, http_client=http)))
            subscription = await stack.enter_async_context(
                client.listen(
                    tools_list_changed=wanted.tools,
                    prompts_list_changed=wanted.prompts,
                    resources_list_changed=wanted.resources,
                    resource_subscriptions=wanted.uris,
                )
            )
        except (MCPError, ListenNotSupportedError, SubscriptionLost, httpx2.HTTPError, OSError) as error:
            raise Unavailable(f"the gateway at {url} reports no changes: {error}") from error
        honoured = subscription.honored
        stream = ChangeStream(
            ChangeFilter(
                tools=honoured.tools_list_changed is True,
                prompts=honoured.prompts_list_changed is True,
                resources=honoured.resources_list_changed is True,
                uris=tuple(honoured.resource_subscriptions or ()),
            )
        )
        relaying = asyncio.create_task(_relay(subscription, stream))
        try:
            yield stream
        finally:
            relaying.cancel()
            await asyncio.gather(relaying, return_exceptions=True)


async def _relay(subscription: Subscription, stream: ChangeStream) -> None:
    try:
        async for event in subscription:
            match event:
                case ToolsListChanged():
                    stream.deliver(ListChanged(ListKind.TOOLS))
                case PromptsListChanged():
                    stream.deliver(ListChanged(ListKind.PROMPTS))
                case ResourcesListChanged():
                    stream.deliver(ListChanged(ListKind.RESOURCES))
                case ResourceUpdated():
                    stream.deliver(ResourceChanged(event.uri))
    except SubscriptionLost:
        pass  # as after its end, the client opens the next one
    finally:
        stream.close()
