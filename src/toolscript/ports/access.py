"""Verification of bearer tokens, the store of keys, rate limits, and approvals of calls."""

from __future__ import annotations

from typing import Protocol

from toolscript.domain.access import AccessKey, Grant, PendingCall, PendingState, Principal


class RateBuckets(Protocol):
    """Token buckets by name. Buckets refill evenly.

    >>> import asyncio
    >>> from toolscript.services.access.rates import Buckets
    >>> async def take_two():
    ...     buckets = Buckets(clock=lambda: 100.0)
    ...     return [await buckets.take("acme", 1), await buckets.take("acme", 1)]
    >>> asyncio.run(take_two())
    [0.0, 60.0]
    """

    async def take(self, name: str, per_minute: int) -> float:
        """Takes one request and returns 0; from an empty bucket takes none and returns the seconds to wait."""


class ApprovalStore(Protocol):
    """The used approvals of calls, and the calls that wait for approval. Each approval counts once, at any gateway.

    >>> import asyncio
    >>> from toolscript.adapters.sql.access.approvals import SqlApprovals
    >>> from toolscript.adapters.sql.database import Database
    >>> async def use_twice():
    ...     database = Database("sqlite://")
    ...     store = SqlApprovals(database)
    ...     used = [await store.use("a1", now=1.0, expires_at=600.0) for _ in range(2)]
    ...     await database.close()
    ...     return used
    >>> asyncio.run(use_twice())
    [True, False]
    """

    async def use(self, ticket: str, *, now: float, expires_at: float) -> bool:
        """Uses a ticket; False if it was used already. Forgets expired tickets. Raises Unavailable."""

    async def submit(self, call: PendingCall, *, limit: int) -> PendingCall | None:
        """Returns the existing call with this binding, caller and profile: one that was decided is removed, so that
        only one request gets it. Otherwise adds the call and returns it; None, without adding it, where another call
        has this id. Removes what had expired when the call was made, and the caller's oldest calls above the limit.
        Raises Unavailable."""

    async def list_waiting(self, *, now: float) -> list[PendingCall]:
        """The calls that nobody has decided about, the oldest first."""

    async def find_call(self, call_id: str, *, now: float) -> PendingCall | None:
        """The call with this id, decided or not, unless it has expired."""

    async def decide(self, call_id: str, state: PendingState, *, now: float, expires_at: float) -> bool:
        """Decides about a call. The call then expires at `expires_at`. False, without a change, unless it waits."""


class TokenVerifier(Protocol):
    """Turns bearer tokens into principals.

    >>> import asyncio
    >>> from toolscript.adapters.tokens.jwt import JwtVerifier, sign_local_token
    >>> key = "a local key of at least thirty-two bytes"
    >>> verifier = JwtVerifier(None, None, local_key=key)
    >>> asyncio.run(verifier.verify(sign_local_token(key, "acme"))).tenant
    'acme'
    """

    async def verify(self, token: str) -> Principal:
        """The principal of a token. Raises Unauthorized, Forbidden for an access token without the scope `documents`,
        and Unavailable when the keys cannot be read."""

    async def authorize(self, token: str) -> Grant:
        """What an access token of the authorization server allows. Raises Unauthorized, and Unavailable when the keys
        cannot be read."""

    async def close(self) -> None: ...


class KeyStore(Protocol):
    """The named keys of a gateway. None is ever deleted, so that no later key gets the name of a revoked one.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.access.keys import SqlKeys
    >>> from toolscript.domain.access import Scope
    >>> async def add_and_revoke():
    ...     database = Database("sqlite://")
    ...     store = SqlKeys(database)
    ...     await store.add_key(AccessKey("ci", digest="a1", scopes=frozenset({Scope.SEARCH}), created_at=1.0))
    ...     await store.revoke_key("ci", at=2.0)
    ...     keys = await store.list_keys()
    ...     await database.close()
    ...     return [(key.name, key.get_state(now=3.0)) for key in keys]
    >>> asyncio.run(add_and_revoke())
    [('ci', 'revoked')]
    """

    async def add_key(self, key: AccessKey) -> None:
        """Adds a key. Raises Conflict when the name is taken, also by a revoked key."""

    async def list_keys(self) -> list[AccessKey]:
        """All keys, ordered by name."""

    async def revoke_key(self, name: str, at: float) -> AccessKey:
        """Revokes a key and returns it; one that is revoked already stays as it is. Raises NotFound."""
