"""The id, the caller and the profile of the current request."""

from __future__ import annotations

from contextvars import ContextVar
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from toolscript.domain.access import NO_LIMIT, CallLimit, Scope, ShareHolder

OWNER = ShareHolder("owner")

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
caller_name: ContextVar[str | None] = ContextVar("caller_name", default=None)
"""The name of the key that the request was sent with, never the key itself."""
client_address: ContextVar[str] = ContextVar("client_address", default="owner")
"""The address that the request came from; `owner` outside of requests, where the caller started this process."""
surface_name: ContextVar[str] = ContextVar("surface_name", default="cli")
"""How the caller asks: http, mcp or cli."""
profile_name: ContextVar[str | None] = ContextVar("profile_name", default=None)
"""The profile that says what the caller may see; None outside of requests, and for requests that see everything."""
tenant_name: ContextVar[str | None] = ContextVar("tenant_name", default=None)
"""Whose documents the lists of the request may mention; None for callers without documents."""
caller_limit: ContextVar[CallLimit] = ContextVar("caller_limit", default=NO_LIMIT)
"""How many calls the key of the request allows."""
caller_scopes: ContextVar[frozenset[Scope]] = ContextVar("caller_scopes", default=frozenset(Scope))
"""What the key of the request allows; everything outside of requests."""
share_holder: ContextVar[ShareHolder] = ContextVar("share_holder", default=OWNER)
"""The caller whose share the request uses. Outside of HTTP: the owner."""
calling_program: ContextVar[str] = ContextVar("calling_program", default="")
"""The program that makes the current call: `run_code`, or a workflow; empty for calls of others."""

COMMAND_LINE = "toolscript-command-line"
"""The user agent of commands that send requests to a gateway."""
NAMED_BY_SERVER_HEADER = "x-toolscript-named-by-server"
"""Marks requests to addresses that an MCP server named. Gateways refuse such requests: a server must not use
one gateway through another."""


def name_caller() -> str:
    """Returns who sends the current request, for logs and events: the name of the key, or else the client's address."""
    return caller_name.get() or client_address.get()


def current_request_id() -> str:
    """Returns the id of the current request, or a new id outside of requests."""
    return request_id.get() or str(uuid4())


def build_query_id(request: str) -> str:
    """The UUID of the search in the request with this id: the id itself where it is one, as ours are; for a caller's
    own id always the same one."""
    try:
        return str(UUID(request))
    except ValueError:
        return str(uuid5(NAMESPACE_OID, request))
