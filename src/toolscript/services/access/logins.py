"""Logins at the authorization servers of MCP servers: logs in and out, and keeps their tokens fresh.

Several gateways may share a store, and a refresh token may be usable once. So whoever renews a login claims it in the
store first; the others wait for the result. A gateway looks every second whether somebody has logged in or out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from toolscript.domain.errors import Invalid, ToolscriptError, Unauthorized, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.logins import Login, LoginName, LoginState, StoredLogin, may_log_in, name_login
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.ports.logins import AuthorizationServers, Browser, LoginStore

# A token is renewed this long before it expires: the request has to arrive with it.
LEEWAY_SECONDS = 5.0
# Longer than a request to an authorization server may take: only a gateway that has died is overtaken.
CLAIM_SECONDS = 60.0
WAIT_SECONDS = 0.1
# How long requests do not ask a store again that did not answer.
STORE_PAUSE_SECONDS = 10.0
# How long the end of the gateway waits for the store to release its claims.
RELEASE_SECONDS = 1.0
# A server that refuses a new token refuses the next one, too.
RENEWAL_PAUSE_SECONDS = 300.0

log = logging.getLogger(__name__)


class Logins:
    """The logins of one store."""

    def __init__(
        self, store: LoginStore, servers: AuthorizationServers, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._servers = servers
        self._clock = clock
        self._known: dict[LoginName, Login | None] = {}
        self._locks: defaultdict[LoginName, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._renewed_at: dict[LoginName, float] = {}
        self._renewals: set[asyncio.Task[str | None]] = set()
        self._ask_again_at = 0.0
        self._on_change: Callable[[LoginName], None] = lambda _: None
        self._following: asyncio.Task[None] | None = None

    async def log_in(self, spec: ServerSpec, browser: Browser, scopes: Sequence[str] = ()) -> Login:
        """Lets the user log in, with these scopes too, and stores the tokens. Raises Invalid for a server that has no
        login, and what `AuthorizationServers.authorize` raises."""
        require_login(spec)
        name = name_login(spec)
        try:
            stored = await self._store.read(name)
        except ToolscriptError:
            stored = None  # of another key: it is replaced
        before = [*stored.login.scope.split(), *stored.wanted_scope.split()] if stored and stored.wanted_scope else []
        login = await self._servers.authorize(spec, browser, [*before, *scopes])
        await self._store.save(name, login)
        return login

    async def log_out(self, spec: ServerSpec) -> bool:
        """Forgets the login and revokes its tokens; returns whether the authorization server did. Raises Unauthorized
        when there is no login."""
        require_login(spec)
        name = name_login(spec)
        try:
            stored = await self._store.read(name)
        except ToolscriptError:
            stored = None
        if not await self._store.forget(name):
            raise Unauthorized(f"there is no login for server {spec.name}", details={"server": spec.name})
        self._known[name] = None
        self._on_change(name)
        try:
            return stored is not None and await self._servers.revoke(stored.login)
        except ToolscriptError as error:
            log.warning("login_not_revoked", extra={"server": spec.name, "reason": error.message})
            return False

    async def find(self, spec: ServerSpec) -> LoginState:
        """Whether there is a login for this server and its user."""
        if not may_log_in(spec):
            return LoginState(spec.name)
        try:
            stored = await self._store.read(name_login(spec))
        except ToolscriptError as error:
            return LoginState(spec.name, problem=error.message)
        return LoginState(spec.name, stored.login if stored else None)

    async def get_token(self, spec: ServerSpec) -> str | None:
        """A token that has not expired, or None without a login. Raises Unavailable."""
        name = name_login(spec)
        login = self._known[name] if name in self._known else await self._load(name)
        if login is None or not self._is_old(login):
            return login.access_token if login else None
        try:
            return await self._renew(name, login.access_token)
        except ToolscriptError:
            if login.expires_at is not None and self._clock() < login.expires_at:
                return login.access_token
            raise

    async def renew_token(self, spec: ServerSpec, refused: str | None) -> str | None:
        """Another token than the one that the server refused, or None: the user has to log in. Raises Unavailable."""
        return await self._renew(name_login(spec), refused, is_refused=True)

    async def want_scope(self, spec: ServerSpec, scope: str) -> None:
        """Records that the server needs this scope."""
        await self._store.want_scope(name_login(spec), scope)

    def start_following(self, on_change: Callable[[LoginName], None]) -> None:
        """Calls `on_change` whenever somebody logs in or out, until closed."""
        self._on_change = on_change
        self._following = asyncio.create_task(self._follow(), name="logins")

    async def close(self) -> None:
        """Finishes renewals, so that no token is lost, and ends renewals that take long."""
        if self._following:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        if self._renewals:
            _, late = await asyncio.wait(self._renewals, timeout=current_limits().login_close)
            for renewal in late:
                renewal.cancel()
            if late:
                await asyncio.wait(late, timeout=RELEASE_SECONDS)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(current_limits().login_poll)
            if not self._known:
                continue
            try:
                ids = await self._store.list_ids()
            except ToolscriptError as error:
                log.debug("logins_not_read", extra={"reason": error.message})
                continue
            for name, login in [*self._known.items()]:
                if ids.get(name) != (login.id if login else None):
                    del self._known[name]
                    self._on_change(name)

    async def _load(self, name: LoginName) -> Login | None:
        silence = Unavailable("its login cannot be read: the store does not answer")
        if time.monotonic() < self._ask_again_at:
            raise silence
        try:
            async with asyncio.timeout(current_limits().login_read):
                stored = await self._store.read(name)
        except TimeoutError:
            self._ask_again_at = time.monotonic() + STORE_PAUSE_SECONDS
            raise silence from None
        self._known[name] = stored.login if stored else None
        return self._known[name]

    async def _renew(self, name: LoginName, token: str | None, *, is_refused: bool = False) -> str | None:
        # A caller that goes away must not end the renewal: the old refresh token is used up by then.
        renewal = asyncio.create_task(self._renew_once(name, token, is_refused=is_refused))
        self._renewals.add(renewal)
        renewal.add_done_callback(self._renewals.discard)
        return await asyncio.shield(renewal)

    async def _renew_once(self, name: LoginName, token: str | None, *, is_refused: bool) -> str | None:
        async with self._locks[name]:
            while True:
                stored = await self._store.read(name)
                self._known[name] = login = stored.login if stored else None
                if stored is None or login is None:
                    return None
                if login.access_token != token and not self._is_old(login):
                    return login.access_token
                now = self._clock()
                is_new = now - self._renewed_at.get(name, float("-inf")) < RENEWAL_PAUSE_SECONDS
                if login.refresh_token is None or (is_refused and is_new and not self._is_old(login)):
                    return None
                if await self._store.claim(name, stored.version, now=now, until=now + CLAIM_SECONDS):
                    return await self._refresh(name, stored)
                await asyncio.sleep(WAIT_SECONDS)

    async def _refresh(self, name: LoginName, stored: StoredLogin) -> str | None:
        """Renews a login that this process has claimed."""
        try:
            login = await self._servers.refresh(stored.login)
        except Unauthorized as error:
            log.warning("login_ended", extra={"server": name.server, "reason": error.message})
            await self._store.forget(name, version=stored.version)
            self._known[name] = None
            return None
        except (Exception, asyncio.CancelledError):  # of the end of the gateway: another one may go on
            await self._store.release(name, stored.version)
            raise
        self._renewed_at[name] = self._clock()
        if await self._store.save(name, login, replacing=stored.version):
            self._known[name] = login
        else:
            await self._load(name)  # somebody has logged in or out meanwhile
        current = self._known[name]
        return current.access_token if current else None

    def _is_old(self, login: Login) -> bool:
        return login.expires_at is not None and self._clock() >= login.expires_at - LEEWAY_SECONDS


def require_login(spec: ServerSpec) -> None:
    """Raises Invalid for a server that a login cannot be used for."""
    if may_log_in(spec):
        return
    reason = (
        "it is a program on this machine: give it credentials in `env`"
        if spec.transport in {Transport.STDIO, Transport.INTERNAL}
        else "its `headers` have an Authorization already: remove that first"
    )
    raise Invalid(f"server {spec.name} needs no login: {reason}", details={"server": spec.name})
