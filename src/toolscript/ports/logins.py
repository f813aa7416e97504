"""Logins at the authorization servers of MCP servers: their store, the protocol, and the user's browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from toolscript.domain.logins import Login, LoginName, StoredLogin
from toolscript.domain.servers import ServerSpec


class LoginStore(Protocol):
    """Logins by name, encrypted. Several gateways may use one store.

    >>> import asyncio
    >>> from toolscript.adapters.storage.sealing import InstallationKey
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.logins import SqlLogins
    >>> async def save_and_claim():
    ...     database = Database("sqlite://")
    ...     store = SqlLogins(database, InstallationKey("a key of at least thirty-two characters"))
    ...     name = LoginName("github", "a1")
    ...     await store.save(name, Login("1", "https://a.example", "", "me", "https://a.example/token", "secret"))
    ...     stored = await store.read(name)
    ...     claims = [await store.claim(name, stored.version, now=0.0, until=9.0) for _ in range(2)]
    ...     await database.close()
    ...     return claims
    >>> asyncio.run(save_and_claim())
    [True, False]
    """

    async def read(self, name: LoginName) -> StoredLogin | None:
        """The login of this name. Raises Unavailable when it was encrypted with another key."""

    async def list_ids(self) -> Mapping[LoginName, str]:
        """The ids of all logins."""

    async def save(self, name: LoginName, login: Login, *, replacing: int | None = None) -> bool:
        """Saves a login and ends its claim; with `replacing` only if that is still its version. Returns whether."""

    async def claim(self, name: LoginName, version: int, *, now: float, until: float) -> bool:
        """Claims the right to use the refresh token of this version until then: a refresh token may be usable once.
        Returns False when another gateway has it, or when the version has changed."""

    async def release(self, name: LoginName, version: int) -> None:
        """Ends the claim, without a change."""

    async def want_scope(self, name: LoginName, scope: str) -> None:
        """Records the scope that the server asked for; the next login has it too."""

    async def forget(self, name: LoginName, *, version: int | None = None) -> bool:
        """Deletes a login, with `version` only if that is still its version. Returns whether there was one."""


class Browser(Protocol):
    """The browser of the user who logs in.

    >>> import asyncio
    >>> class ScriptedBrowser:
    ...     redirect_uri = "http://127.0.0.1:7777/callback"
    ...     async def visit(self, url):
    ...         return f"{self.redirect_uri}?code=1"
    >>> asyncio.run(ScriptedBrowser().visit("https://login.example/authorize"))
    'http://127.0.0.1:7777/callback?code=1'
    """

    @property
    def redirect_uri(self) -> str:
        """The address that the authorization server sends the browser back to: of this machine, or https."""

    async def visit(self, url: str) -> str:
        """Lets the user open the URL; returns the address that the browser was sent back to, with its query."""


class AuthorizationServers(Protocol):
    """Speaks OAuth 2.1 as the MCP specification requires it of clients.

    >>> import asyncio
    >>> from toolscript.adapters.mcp.oauth.servers import OAuthServers
    >>> login = Login("1", "https://a.example", "", "me", "https://a.example/token", "secret")
    >>> asyncio.run(OAuthServers().revoke(login))  # this server has no revocation endpoint
    False
    """

    async def authorize(self, spec: ServerSpec, browser: Browser, scopes: Sequence[str]) -> Login:
        """A new login, with these scopes beside the scopes that the server asks for. Raises Invalid, UpstreamFailed,
        Unauthorized or Unavailable with the reason."""

    async def refresh(self, login: Login) -> Login:
        """The login with new tokens. Raises Unauthorized when the login has ended, Unavailable when it is unknown."""

    async def revoke(self, login: Login) -> bool:
        """Revokes the tokens; returns whether the authorization server did."""


class AccessTokens(Protocol):
    """The tokens that requests to servers are sent with.

    >>> import asyncio
    >>> class NoTokens:
    ...     async def get_token(self, spec):
    ...         return None
    >>> asyncio.run(NoTokens().get_token(None))
    """

    async def get_token(self, spec: ServerSpec) -> str | None:
        """A token that has not expired, or None without a login. Raises Unavailable."""

    async def renew_token(self, spec: ServerSpec, refused: str | None) -> str | None:
        """Another token than the one that the server refused, or None: the user has to log in. Raises Unavailable."""

    async def want_scope(self, spec: ServerSpec, scope: str) -> None:
        """Records that the server needs this scope."""
