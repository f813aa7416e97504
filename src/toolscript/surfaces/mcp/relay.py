"""Between the caller and the server that it calls: progress, trace context, and input that a tool needs meanwhile.

A tool that needs input answers with its questions, and is called again with the answers (2026-07-28). Its own state
travels through the caller in between, sealed, so that the gateway keeps nothing. Older clients are asked while the call
waits: that needs an open connection.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.session import ServerSession
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolRequestParams,
    Request,
    Result,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request as HttpRequest

from toolscript.domain.access import Grant
from toolscript.domain.errors import UpstreamFailed
from toolscript.domain.servers import TRACE_FIELDS, CallRelay
from toolscript.surfaces.callers import OWNER, find_user, identify_caller

MAX_ROUNDS = 20
STATE_SECONDS = 3600.0
REFUSED_STATE = (
    "the requestState is not one that this gateway gave to you for this call: it was changed, it belongs to another "
    "call or caller, or it is older than an hour; call the tool again without it"
)
Context = ServerRequestContext[Any, HttpRequest]
AnswerCall = Callable[[CallToolRequestParams, Context], Awaitable[Mapping[str, Any]]]

_CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class _AnyResult(Result, extra="allow"):
    """A result as the client sent it."""


def get_grant(context: Context) -> Grant:
    """What the key of the HTTP request allows, as the guard found it. On stdio the caller owns the process."""
    if context.request is None:
        return Grant()
    grant: Grant = context.request.scope["grant"]
    return grant


def build_relay(context: Context) -> CallRelay:
    """What a call passes on from its server to the caller, and back."""
    meta: Mapping[str, Any] = context.meta or {}
    params = context.params or {}
    capabilities = read_capabilities(context)
    is_reachable = context.session.can_send_request and capabilities is not None
    return CallRelay(
        on_progress=context.session.report_progress if "progress_token" in meta else None,
        trace={name: meta[name] for name in TRACE_FIELDS if isinstance(meta.get(name), str)},
        user=find_user(get_grant(context)),
        capabilities=capabilities,
        answers={name: params[name] for name in ("inputResponses", "requestState") if params.get(name) is not None},
        ask=partial(_ask, context.session, capabilities or {}) if is_reachable else None,
    )


def read_capabilities(context: Context) -> Mapping[str, Any] | None:
    """What the caller's client can be asked for; None for an older client without an open connection."""
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        declared: Any = (context.meta or {}).get(CLIENT_CAPABILITIES_META_KEY)
        return declared if isinstance(declared, dict) else {}
    known = context.session.client_capabilities
    if known is None or not context.session.can_send_request:
        return None
    return known.model_dump(by_alias=True, exclude_none=True)


async def _ask(
    session: ServerSession, capabilities: Mapping[str, Any], method: str, params: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Sends a server's request to an older client, unchanged. Raises MCPError with the client's error."""
    if _CAPABILITIES.get(method) not in capabilities:
        if method == "roots/list":
            return {"roots": []}
        raise MCPError(
            INVALID_REQUEST, f"{method} did not reach the caller of the tool: its client does not support it"
        )
    request: Any = Request[dict[str, Any], str](method=method, params=dict(params))
    result = await session.send_request(request, _AnyResult)
    return result.model_dump(by_alias=True, exclude_unset=True)


async def answer_with_input(answer: AnswerCall, params: CallToolRequestParams, context: Context) -> Mapping[str, Any]:
    """The result of a call. Clients of 2026-07-28 get the questions of a tool that needs input; older clients are asked
    here, and the tool is called again with their answers. Raises what `answer` raises, and UpstreamFailed for a tool
    that does not stop asking, and for a caller that cannot be asked."""
    result = await answer(params, context)
    for _ in range(MAX_ROUNDS):
        if result.get("resultType") != "input_required" or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return result
        relay = build_relay(context)
        if relay.ask is None:
            break
        questions = result.get("inputRequests") or {}
        answers = {key: await relay.ask(each["method"], each.get("params") or {}) for key, each in questions.items()}
        again = {"inputResponses": answers, "requestState": result.get("requestState")}
        context = replace(context, params={**(context.params or {}), **again})
        result = await answer(params, context)
    raise UpstreamFailed(f"the tool needs input, and its caller cannot be asked, or was asked {MAX_ROUNDS} times")


def build_state_seal(secret: str | None) -> ServerMiddleware[Any]:
    """Seals the state of tools that need input, for one call of one caller. Gateways with the same secret accept each
    other's; without one, only this process does."""
    key = hashlib.sha256(f"requestState {secret}".encode()).digest() if secret else secrets.token_bytes(32)
    security = RequestStateSecurity(keys=[key], ttl=STATE_SECONDS, bind_principal=_name_caller)
    boundary = RequestStateBoundary(security, default_audience="toolscript")

    async def seal_state(ctx: Context, call_next: CallNext) -> HandlerResult:
        try:
            return await boundary(ctx, call_next)
        except MCPError as error:
            if error.data == {"reason": "invalid_request_state"}:
                raise MCPError(INVALID_PARAMS, REFUSED_STATE, error.data) from error
            raise

    return seal_state


def _name_caller(context: Context) -> str:
    if context.request is None:
        return str(OWNER)
    client = context.request.client
    return str(identify_caller(get_grant(context), client.host if client else None))
