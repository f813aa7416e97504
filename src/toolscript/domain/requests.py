"""What belongs to the current request: its id, its caller and what the caller may do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from toolscript.domain.access import NO_LIMIT, CallLimit, Scope, ShareHolder

OWNER = ShareHolder("owner")
ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who sends a request, how, and what it may do. The defaults are those of the owner at the command line."""

    request_id: str | None = None
    """None outside of requests."""
    caller_name: str | None = None
    """The name of the key that the request was sent with, never the key itself."""
    client_address: str = "owner"
    """The address that the request came from; `owner` where the caller started this process."""
    surface: str = "cli"
    """How the caller asks: http, mcp or cli."""
    profile: str | None = None
    """The profile that says what the caller may see; None for requests that see everything."""
    tenant: str | None = None
    """Whose documents the lists of the request may mention; None for callers without documents."""
    limit: CallLimit = NO_LIMIT
    """How many calls the key of the request allows."""
    scopes: frozenset[Scope] = ALL_SCOPES
    """What the key of the request allows."""
    share_holder: ShareHolder = OWNER
    """The caller whose share the request uses."""
    calling_program: str = ""
    """The program that makes the current call: `run_code`, or a workflow; empty for calls of others."""

    @property
    def caller(self) -> str:
        """Who sends the request, for logs, events and limits: the name of the key, or else the client's address."""
        return self.caller_name or self.client_address

    def get_or_create_id(self) -> str:
        """Returns the id of the request, or a new id outside of requests."""
        return self.request_id or str(uuid4())


# The only variable that belongs to a request. A task starts with the context of the task that starts it, and keeps it
# also after the request; what it sets is not seen outside. The other variables belong to one exchange with an MCP
# client or server, whose SDK has no parameter for them (adapters/mcp/dispatcher.py, surfaces/mcp), or to a running
# program (services/code/host.py).
_current_request: ContextVar[RequestContext] = ContextVar("request", default=RequestContext())  # noqa: B039  (frozen)


def current_request() -> RequestContext:
    """Returns the context of the current request; that of the owner outside of requests."""
    return _current_request.get()


def set_request(request: RequestContext) -> None:
    """Makes this the current request until the current task ends."""
    _current_request.set(request)


@contextmanager
def use_request(request: RequestContext) -> Iterator[None]:
    """Makes this the current request in the block, and then the request that was current before."""
    token = _current_request.set(request)
    try:
        yield
    finally:
        _current_request.reset(token)


COMMAND_LINE = "toolscript-command-line"
"""The user agent of commands that send requests to a gateway."""
NAMED_BY_SERVER_HEADER = "x-toolscript-named-by-server"
"""Marks requests to addresses that an MCP server named. Gateways refuse such requests: a server must not use
one gateway through another."""


def build_query_id(request: str) -> str:
    """The UUID of the search in the request with this id: the id itself where it is one, as ours are; for a caller's
    own id always the same one."""
    try:
        return str(UUID(request))
    except ValueError:
        return str(uuid5(NAMESPACE_OID, request))
