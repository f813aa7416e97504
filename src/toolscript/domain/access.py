"""Principals, tenants, plans and keys: who calls, what callers may do, and when a person must approve a call."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeGuard

DEFAULT_PLAN = "default"
MAX_TENANT_LENGTH = 256
TENANT_RULE = (
    f"a string of 1 to {MAX_TENANT_LENGTH} characters, not only spaces, without line breaks or control characters"
)

# Unicode categories: control characters, surrogates, line and paragraph separators.
_UNUSABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller that a verified token identifies. The tenant comes only from the token."""

    tenant: str
    plan: str = DEFAULT_PLAN
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The limits of a plan's tenants. None means no limit beyond the general limits."""

    name: str = DEFAULT_PLAN
    max_top_k: int | None = None
    fields: frozenset[str] | None = None
    """The metadata fields that responses contain and filters may use."""
    requests_per_minute: int | None = None


class Scope(StrEnum):
    """What a key allows. No scope includes another."""

    SEARCH = "search"
    CALL = "call"
    DOCUMENTS = "documents"
    KNOWLEDGE = "knowledge"
    METRICS = "metrics"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class CallLimit:
    """How many calls of tools are allowed a minute, and at a time. None means no limit."""

    per_minute: int | None = None
    concurrent: int | None = None


class ApprovalPolicy(StrEnum):
    """The tools that a person has to approve before each call, from the mildest policy to the strictest."""

    NEVER = "never"
    DESTRUCTIVE = "destructive"
    """Those that may change something, unless their server says that they destroy nothing."""
    WRITES = "writes"
    """Those that may change something: that their server does not declare read-only."""


class PendingState(StrEnum):
    """What a person has decided about a call that waits for approval."""

    WAITING = "waiting"
    APPROVED = "approved"
    DECLINED = "declined"


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that waits for a person's approval, because its caller's client cannot ask. Times are in seconds since
    1970."""

    id: str
    """Short, for people to type. It is no secret: who decides needs credentials."""
    binding: str
    """A hash of the tool's definition and the arguments."""
    caller: str
    """The name of the caller's share (`ShareHolder`)."""
    profile: str
    tool_id: str
    server: str
    arguments: str
    """As a person reads them: without secrets, with invisible characters made visible, and not longer than a bound."""
    created_at: float
    expires_at: float
    state: PendingState = PendingState.WAITING


NO_LIMIT = CallLimit()
OPERATOR = "TOOLSCRIPT_API_KEY"
"""The name of who has the key of that setting, which no other key may have."""
MAX_CALLS = 1_000_000


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A named key of the store. The secret itself is stored nowhere, only its digest. Times are in seconds since
    1970."""

    name: str
    digest: str = field(repr=False)
    scopes: frozenset[Scope]
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    tenant: str | None = None
    """Whose documents the key is for; None without the scope `documents`."""
    plan: str = DEFAULT_PLAN
    calls_per_minute: int | None = None
    concurrent_calls: int | None = None

    @property
    def limit(self) -> CallLimit:
        """How many calls of tools the key allows."""
        return CallLimit(self.calls_per_minute, self.concurrent_calls)

    def get_state(self, now: float) -> str:
        """`active`, `expired` or `revoked`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


@dataclass(frozen=True, slots=True)
class Grant:
    """What the credentials of a request allow."""

    caller: str | None = None
    """The name for logs and events; None where no credentials are required."""
    scopes: frozenset[Scope] = frozenset(Scope)
    claims: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What the access token says about its user."""
    limit: CallLimit = NO_LIMIT

    @property
    def is_anonymous(self) -> bool:
        """Whether the caller has sent no key and would need one for more."""
        return self.caller is None and self.scopes != frozenset(Scope)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends requests: the name of the key, or without one the address. Two requests with equal values are of the
    same caller."""

    key: str | None = None
    address: str = ""


@dataclass(frozen=True, slots=True)
class ShareHolder:
    """Who has a share of what the gateway can do at a time: a key, a user, or an address."""

    name: str
    is_anonymous: bool = False
    """Whether the caller has sent no key where one is needed for more."""


def is_tenant_name(name: object) -> TypeGuard[str]:
    """Whether this is a valid tenant name. Names are compared exactly, without trimming or case folding."""
    return (
        isinstance(name, str)
        and len(name) <= MAX_TENANT_LENGTH
        and bool(name.strip())
        and not any(unicodedata.category(letter) in _UNUSABLE for letter in name)
    )
