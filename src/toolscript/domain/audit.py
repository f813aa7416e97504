"""The audit: what is kept of every call of a tool, of every search for tools, and of changes of servers, and how it is
queried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

OK = "ok"
ANY_ERROR = "error"
MAX_LIMIT = 1000
# An id is the milliseconds since 1970, followed by so many bits that make it unique: ids are in the order of time.
UNIQUE_BITS = 20
MAX_ID = 2**63 - 1
# The types of events that are in the audit.
CALL_EVENTS = frozenset({"tools.call", "prompts.get", "resources.read", "code.run"})
SEARCH_EVENTS = frozenset({"tools.search", "hierarchical.search", "skills.search", "registry.search"})
REFUSAL_EVENT = "access.refused"
SERVER_EVENT = "servers.change"


class AuditKind(StrEnum):
    """What happened."""

    CALLS = "calls"
    SEARCHES = "searches"
    REFUSALS = "refusals"
    """Requests without a valid key, or whose key lacks the scope."""
    SERVERS = "servers"
    """Servers that were added, started, stopped or restarted, and logins at them."""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """A call of a tool, a search, a refused request, or a change of a server. No secret is in it."""

    id: int
    kind: AuditKind
    tool: str
    """`server__tool`, as the caller named it if there is no such tool; `run_code` of a program that was run;
    the type of a search; the method and path of a refused request; what was done to a server."""
    server: str
    caller: str
    """The name of the key, `oauth:SUBJECT`, `owner`, or the client's address."""
    profile: str
    surface: str
    outcome: str
    """`ok`, or the error code."""
    ms: float
    bytes: int
    """The size of a call's result."""
    hits: int
    """The number of a search's results."""
    request_id: str
    details: str
    """The digest of a call's arguments, or them without their secrets; the words of a search; why a request was
    refused; the command of an added server without its secrets, or whose login it is."""
    called_by: str = ""
    """The program that called or searched: `run_code`, or a workflow; empty if there is none."""

    @property
    def at(self) -> float:
        """When it ended, in seconds since 1970."""
        return (self.id >> UNIQUE_BITS) / 1000


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """The events to list, newest first. Times are in seconds since 1970."""

    kind: AuditKind = AuditKind.CALLS
    tool: str | None = None
    server: str | None = None
    caller: str | None = None
    outcome: str | None = None
    """`ok`, `error` for every error, or an error code."""
    since: float | None = None
    until: float | None = None
    before: int | None = None
    """Only events with a smaller id: the `next_before` of the page before."""
    limit: int = 50


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Events, newest first. With `next_before` there may be more, also when the page is not full."""

    events: Sequence[AuditEvent]
    next_before: int | None = None


class CallTime(NamedTuple):
    """How long a call of a tool or server took, and how it ended."""

    name: str
    ms: float
    outcome: str


@dataclass(frozen=True, slots=True)
class AuditState:
    """Whether the audit is written: the number of lost events, and why the last attempt failed, if it did."""

    lost: int
    reason: str | None = None


def first_id(seconds: float) -> int:
    """The smallest id of an event at that time."""
    return min(max(0, int(seconds * 1000)) << UNIQUE_BITS, MAX_ID)
