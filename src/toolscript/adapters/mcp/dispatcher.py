"""The messages between the SDK's session and a server: keeps raw answers, and passes requests of the server on to the
caller of the tool that asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.abc
from mcp import MCPError
from mcp.shared.dispatcher import CallOptions, DispatchContext, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import CLIENT_CAPABILITIES_META_KEY, INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from toolscript.adapters.mcp.lenient_reader import make_acceptable
from toolscript.adapters.mcp.resource_updates import ResourceUpdates
from toolscript.domain.servers import CallRelay

_CHANGES = ("tools/list_changed", "prompts/list_changed", "resources/list_changed")
_FOR_CALLERS = ("elicitation/create", "sampling/createMessage", "roots/list")

# The raw answer to the last request of the current task.
raw_result: ContextVar[dict[str, Any]] = ContextVar("answer")
# The relay of the call that the current task sends.
current_relay: ContextVar[CallRelay | None] = ContextVar("relay", default=None)


class LenientDispatcher:
    """Forwards requests, keeps their raw answers, and signals changes and the end of the connection."""

    def __init__(
        self,
        inner: JSONRPCDispatcher[Any],
        on_message: Callable[[Mapping[str, Any] | None], object],
        take_result: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        """`on_message` gets the log messages of the server, as they are; `take_result` what the SDK has read, and
        returns what the server has sent."""
        self._inner = inner
        self._take_result = take_result
        self._on_message = on_message
        self.modern = False
        self.changed = asyncio.Event()
        self.updates = ResourceUpdates()
        self.closed = asyncio.Event()
        self.relays: list[CallRelay] = []
        """Those of the calls in progress."""

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        relay = current_relay.get()
        if self.modern and relay is not None:
            params = _add_caller(params or {}, relay)
        raw = self._take_result(await self._inner.send_raw_request(method, params, opts))
        raw_result.set(raw)
        return make_acceptable(method, raw, HANDSHAKE_PROTOCOL_VERSIONS, modern=self.modern)

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
            if method == "notifications/message":
                self._on_message(params)
            self.updates.report(method, params)
            return on_notify_intercept(method, params) if on_notify_intercept else False

        async def answer(
            context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            if method in _FOR_CALLERS:
                return await self._ask_caller(method, params or {})
            return await on_request(context, method, params)

        try:
            await self._inner.run(answer, on_notify, intercept, task_status=task_status)
        finally:
            self.closed.set()

    async def _ask_caller(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The caller's answer to a request of the server. A server that speaks a version before 2026-07-28 does not
        name the call of a request, so nobody is asked while several calls run. Raises MCPError."""
        if len(self.relays) == 1 and (ask := self.relays[0].ask):
            return dict(await ask(method, params))
        if method == "roots/list":
            return {"roots": []}
        why = "this caller cannot be asked, because it has no open connection or does not support it"
        if len(self.relays) > 1:
            why = "several calls of this server are in progress, and it does not say which one asks"
        raise MCPError(INVALID_REQUEST, f"{method} did not reach the caller of the tool: {why}")


def _add_caller(params: Mapping[str, Any], relay: CallRelay) -> dict[str, Any]:
    """The parameters of a call with the capabilities of the caller instead of ours, and its answers to questions."""
    meta = {**params.get("_meta", {}), CLIENT_CAPABILITIES_META_KEY: dict(relay.capabilities or {})}
    return {**params, **relay.answers, "_meta": meta}
