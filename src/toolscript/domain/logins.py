"""Logins at the authorization servers of MCP servers. No secret of one is part of its repr."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass, field

from toolscript.domain.servers import ServerSpec, Transport


@dataclass(frozen=True, slots=True)
class LoginName:
    """Names a login by its server, the server's address, and the user. A server with a new address gets no token of the
    old address. The address is a SHA-256, because a URL may contain secrets."""

    server: str
    address: str
    user: str = ""
    """Empty for the login of the installation itself."""


def name_login(spec: ServerSpec) -> LoginName:
    """The login that this server uses."""
    return LoginName(spec.name, hashlib.sha256(spec.url.encode()).hexdigest(), spec.user)


def may_log_in(spec: ServerSpec) -> bool:
    """Whether a login is used for this server: not for programs, and not where the configuration has a credential."""
    is_remote = spec.transport not in {Transport.STDIO, Transport.INTERNAL}
    return is_remote and "authorization" not in {name.lower() for name in spec.headers}


def describe_command(spec: ServerSpec) -> str:
    """The command that logs in, as a user would type it."""
    user = f" --user {shlex.quote(spec.user)}" if spec.user else ""
    return f"`toolscript login {shlex.quote(spec.name)}{user}`"


@dataclass(frozen=True, slots=True)
class Login:
    """The tokens of one login, and what renews and revokes them. Times are in seconds since 1970."""

    id: str
    """Stays the same when tokens are renewed."""
    issuer: str
    resource: str
    """The server that the tokens are for (RFC 8707)."""
    client_id: str
    token_endpoint: str
    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    scope: str = ""
    client_secret: str | None = field(default=None, repr=False)
    auth_method: str = "none"
    """How the client authenticates at the token endpoint."""
    revocation_endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class LoginState:
    """Whether there is a login for a server, or why that is unknown."""

    server: str
    login: Login | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class StoredLogin:
    """A login in a store. The version changes with every write."""

    login: Login
    version: int
    wanted_scope: str = ""
    """A scope that the server asked for and the login does not have."""
