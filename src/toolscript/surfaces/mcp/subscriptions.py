"""Notifications of changes: on the streams that clients of 2026-07-28 open, and on the connection of older clients over
stdio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.session import ServerSession
from mcp.shared.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
    event_to_notification,
)
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from toolscript.domain.access import Grant, Scope
from toolscript.domain.errors import ToolscriptError
from toolscript.services.tools.native_changes import ChangeFilter, ChangeStream, ListChanged, ListKind, NativeChange
from toolscript.surfaces.mcp.native import to_mcp_error

RETRY_SECONDS = 5.0
# The notifications that clients of an older version over stdio are promised.
LIST_NOTIFICATIONS = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
LIST_EVENTS: Mapping[ListKind, ServerEvent] = {
    ListKind.TOOLS: ToolsListChanged(),
    ListKind.PROMPTS: PromptsListChanged(),
    ListKind.RESOURCES: ResourcesListChanged(),
}

Context = ServerRequestContext[Any, Any]
OpenStream = Callable[[ChangeFilter], AbstractAsyncContextManager[ChangeStream]]

log = logging.getLogger(__name__)


def add_subscriptions(server: Server[Any], open_stream: OpenStream, find_grant: Callable[[Context], Grant]) -> None:
    """Registers `subscriptions/listen`."""

    async def listen(context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        if context.request_id is None:
            raise MCPError(INVALID_REQUEST, "subscriptions/listen needs a request id")
        grant = find_grant(context)
        may_search, may_call = Scope.SEARCH in grant.scopes, Scope.CALL in grant.scopes
        wanted = ChangeFilter(
            tools=(may_search or may_call) and params.notifications.tools_list_changed is True,
            prompts=may_search and params.notifications.prompts_list_changed is True,
            resources=may_search and params.notifications.resources_list_changed is True,
            uris=tuple(dict.fromkeys(params.notifications.resource_subscriptions or ())) if may_call else (),
        )
        try:
            async with open_stream(wanted) as stream:
                return await _send_changes(context, stream)
        except ToolscriptError as error:
            raise to_mcp_error(error) from error

    server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, listen)


async def _send_changes(context: Context, stream: ChangeStream) -> SubscriptionsListenResult:
    meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}
    acknowledged = SubscriptionsAcknowledgedNotificationParams(notifications=write_filter(stream.honoured), _meta=meta)
    notification: Any = SubscriptionsAcknowledgedNotification(params=acknowledged)
    await context.session.send_notification(notification, related_request_id=context.request_id)
    async for change in stream:
        notification = event_to_notification(_to_event(change), meta)
        await context.session.send_notification(notification, related_request_id=context.request_id)
    return SubscriptionsListenResult(_meta=meta)


class ConnectionChanges:
    """Notifies the one client of a stdio connection, if its version of the protocol has no streams."""

    def __init__(self, server: Server[Any], open_stream: OpenStream) -> None:
        self._open_stream = open_stream
        self._session: asyncio.Future[ServerSession] = asyncio.get_running_loop().create_future()
        self._followed: dict[str, asyncio.Task[None]] = {}
        server.middleware.append(self._note_session)
        server.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)

    async def run(self) -> None:
        """Notifies the client of changed lists until cancelled."""
        wanted = ChangeFilter(prompts=True, resources=True, tools=True)
        try:
            session = await self._session
            while True:
                with _log_errors():
                    async with self._open_stream(wanted) as stream:
                        async for change in stream:
                            await _notify(session, change)
                await asyncio.sleep(RETRY_SECONDS)
                for kind in wanted.lists:  # they may have changed while nobody looked
                    await _notify(session, ListChanged(kind))
        finally:
            for task in self._followed.values():
                task.cancel()

    async def _note_session(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "notifications/initialized" and not self._session.done():
            self._session.set_result(ctx.session)
        return await call_next(ctx)

    async def _subscribe(self, context: Context, params: SubscribeRequestParams) -> EmptyResult:
        if params.uri in self._followed:
            return EmptyResult()
        is_followed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        following = self._follow(params.uri, context.session, is_followed)
        self._followed[params.uri] = asyncio.create_task(following)
        if not await is_followed:
            self._followed.pop(params.uri).cancel()
            raise MCPError(INVALID_PARAMS, f"{params.uri} cannot be followed: it does not exist, or its server refuses")
        return EmptyResult()

    async def _unsubscribe(self, _: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        if task := self._followed.pop(params.uri, None):
            task.cancel()
        return EmptyResult()

    async def _follow(self, uri: str, session: ServerSession, is_followed: asyncio.Future[bool]) -> None:
        while True:
            with _log_errors():
                async with self._open_stream(ChangeFilter(uris=(uri,))) as stream:
                    if not is_followed.done():
                        is_followed.set_result(uri in stream.honoured.uris)
                    async for change in stream:
                        await _notify(session, change)
            if not is_followed.done():
                is_followed.set_result(False)
            await asyncio.sleep(RETRY_SECONDS)


@contextmanager
def _log_errors() -> Iterator[None]:
    """Whatever fails is tried again: calls must not end with a stream: another process may have lost the stream."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        log.info("stream_lost", extra={"reason": f"{type(error).__name__}: {error}"})


async def _notify(session: ServerSession, change: NativeChange) -> None:
    notification: Any = event_to_notification(_to_event(change), {})
    await session.send_notification(notification)


def _to_event(change: NativeChange) -> ServerEvent:
    return LIST_EVENTS[change.kind] if isinstance(change, ListChanged) else ResourceUpdated(uri=change.uri)


def write_filter(honoured: ChangeFilter) -> SubscriptionFilter:
    """The filter in the words of the protocol. It leaves out what is not wanted."""
    return SubscriptionFilter(
        tools_list_changed=honoured.tools or None,
        prompts_list_changed=honoured.prompts or None,
        resources_list_changed=honoured.resources or None,
        resource_subscriptions=list(honoured.uris) or None,
    )
