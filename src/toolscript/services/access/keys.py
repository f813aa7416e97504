"""Named keys: creates them, and recognizes them in requests.

A gateway reads all keys at once and keeps them for a second. So a request costs no query, and a key that is revoked
anywhere stops working everywhere within two seconds, for requests in progress too; a key that is not among them is
looked for again, so that new keys work at once. While the store does not answer, the last keys that were read stay
valid for five minutes, counted from the first reading that failed: a store that is down must not stop calls to tools
that are up.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress

from toolscript.domain.access import (
    DEFAULT_PLAN,
    NO_LIMIT,
    OPERATOR,
    TENANT_RULE,
    AccessKey,
    CallLimit,
    Scope,
    is_tenant_name,
)
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.ports.access import KeyStore

PREFIX = "tsk_"
SECRET_BYTES = 32
# A secret that is not found may be that of a key which was created a moment ago, so the keys are read again, but not
# more often than this: anyone can send wrong secrets.
MIN_PAUSE_SECONDS = 0.1
MAX_AGE_WITHOUT_STORE_SECONDS = 300.0
# How long requests wait for the first reading of the keys.
FIRST_READ_SECONDS = 10.0
NAME_RULE = "1 to 64 letters, digits, dots, hyphens and underscores"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = logging.getLogger(__name__)


def is_key(secret: str) -> bool:
    """Whether this looks like the secret of a named key."""
    return secret.startswith(PREFIX)


def compute_digest(secret: str) -> str:
    """What is stored instead of a secret. SHA-256 is enough, without salt and without a slow function as for passwords:
    a secret is 256 random bits. Nobody can guess them from a table or by trying."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Keys:
    """The keys of a store."""

    def __init__(
        self,
        store: KeyStore,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._by_digest: Mapping[str, AccessKey] | None = None
        self._tried_at = self._wait_until = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._reading_count = 0
        self._unanswered_since: float | None = None
        """When the first reading after the last successful one began. Without requests there are no readings."""
        self._is_failing = False

    async def create(
        self,
        name: str,
        scopes: Collection[Scope],
        *,
        tenant: str | None = None,
        plan: str = DEFAULT_PLAN,
        expires_in: float | None = None,
        limit: CallLimit = NO_LIMIT,
    ) -> tuple[AccessKey, str]:
        """Adds a key that expires after that many seconds, and returns it with its secret. The secret cannot be read
        again. `tenant` owns the documents of a key with the scope `documents`.

        Raises Invalid, and Conflict when the name is taken.
        """
        if not _NAME.fullmatch(name):
            raise Invalid(f"invalid name of a key: {name!r}: use {NAME_RULE}", details={"field": "name"})
        if name == OPERATOR:
            raise Invalid(f"{OPERATOR} is the name of the operator's key: use another", details={"field": "name"})
        if not scopes:
            raise Invalid(
                f"a key needs a scope: {', '.join(Scope)}", details={"field": "scopes", "allowed": list(Scope)}
            )
        is_for_documents = Scope.DOCUMENTS in scopes
        if is_for_documents and not is_tenant_name(tenant):
            raise Invalid(
                f"a key with the scope documents needs a tenant: give {TENANT_RULE}", details={"field": "tenant"}
            )
        now, secret = self._clock(), PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        key = AccessKey(
            name,
            compute_digest(secret),
            frozenset(scopes),
            created_at=now,
            expires_at=None if expires_in is None else now + expires_in,
            tenant=tenant if is_for_documents else None,
            plan=plan,
            calls_per_minute=limit.per_minute,
            concurrent_calls=limit.concurrent,
        )
        await self._store.add_key(key)
        return key, secret

    async def list_all(self) -> list[AccessKey]:
        """All keys by name, expired and revoked keys, too."""
        return await self._store.list_keys()

    async def revoke(self, name: str) -> AccessKey:
        """Makes a key invalid for good. Raises NotFound."""
        return await self._store.revoke_key(name, self._clock())

    async def find(self, secret: str) -> AccessKey | None:
        """The active key with this secret. Raises Unavailable when the keys could not be read for too long.

        Looking up the digest takes the same time for every wrong secret: callers cannot choose digests."""
        if not is_key(secret):
            return None
        digest, readings_before = compute_digest(secret), self._reading_count
        key = (await self._get_current()).get(digest)
        key = key or (await self._get_newer(readings_before)).get(digest)
        since = self._unanswered_since
        if since is not None and self._monotonic() - since > MAX_AGE_WITHOUT_STORE_SECONDS:
            raise Unavailable("keys cannot be checked right now: try again in a moment")
        return key if key and key.get_state(self._clock()) == "active" else None

    async def exist(self) -> bool:
        """Whether a key was ever created, even if it is revoked by now. Raises Unavailable when the keys could never be
        read."""
        return bool(await self._get_current())

    async def load(self) -> None:
        """Reads the keys before the first request, so that a store that fails afterwards stops nobody. Errors are
        logged and ignored: the first request reads them again."""
        with suppress(Unavailable):
            await self._get_current()

    async def close(self) -> None:
        if self._reading:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _get_newer(self, readings_before: int) -> Mapping[str, AccessKey]:
        """The keys as a reading after `readings_before` others found them, or the last known keys while the store does
        not answer."""
        keys = await self._get_current(MIN_PAUSE_SECONDS)
        if self._reading_count == readings_before:  # it may have missed a key that was created during the last one
            await self._sleep(max(0.0, self._tried_at + MIN_PAUSE_SECONDS - self._monotonic()))
            # Of all who have waited, the first one reads.
            keys = await self._get_current(0.0 if self._reading_count == readings_before else MIN_PAUSE_SECONDS)
        return keys

    async def _get_current(self, max_age: float | None = None) -> Mapping[str, AccessKey]:
        """The keys by digest: at most `keys_max_age` seconds old, or the last known while the store does not answer."""
        now = self._monotonic()
        max_age = current_limits().keys_max_age if max_age is None else max_age
        if self._reading is None and now - self._tried_at >= max_age:
            self._reading_count += 1
            self._reading = asyncio.create_task(self._read())
            self._unanswered_since = now if self._unanswered_since is None else self._unanswered_since
            self._wait_until = now + (FIRST_READ_SECONDS if self._by_digest is None else current_limits().keys_read)
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=max(0.0, self._wait_until - now))
        if self._by_digest is None:
            raise Unavailable("keys cannot be checked right now: try again in a moment")
        return self._by_digest

    async def _read(self) -> None:
        try:
            keys = await self._store.list_keys()
        except Exception as error:  # noqa: BLE001  (requests go on with the keys that were read before)
            if not self._is_failing:
                log.warning("keys_not_read", extra={"reason": str(error)})
            self._is_failing = True
        else:
            self._by_digest, self._unanswered_since = {key.digest: key for key in keys}, None
            self._is_failing = False
        finally:
            self._tried_at = self._monotonic()
            self._reading = None
