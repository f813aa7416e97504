"""Checks Host, Origin and the gateway's key before a request reaches its route.

A browser can be made to call a server on its own machine, under a name that an attacker chose (DNS rebinding) or from a
page of theirs. So a gateway on loopback only answers to names of this machine.

The key is the operator's. Routes that require a tenant's token, or nothing, do not require the key: see
`dependencies.py`.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from toolscript.domain.errors import Forbidden, InvalidArguments, ToolscriptError, Unauthorized
from toolscript.settings import Settings
from toolscript.surfaces.http.dependencies import Access, access_of
from toolscript.surfaces.http.errors import error_response

MAX_BODY_BYTES = 16 * 2**20


def is_loopback(host: str) -> bool:
    """Whether a name or address can only mean this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware that passes allowed requests on and refuses the others."""

    def __init__(self, app: ASGIApp, settings: Settings, routes: Sequence[APIRoute]) -> None:
        self._app = app
        self._allowed = {name.lower() for name in (settings.host, *settings.allowed_hosts)}
        self._is_local = is_loopback(settings.host)
        self._key = (settings.api_key or "").encode()
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._check(scope) if scope["type"] == "http" else None
        if error is None:
            await self._app(scope, receive, send)
        else:
            await error_response(error)(scope, receive, send)

    def _check(self, scope: Scope) -> ToolscriptError | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = _parse_host("//" + headers.get(b"host", b"").decode("latin-1"))
        if not self._is_allowed(host):
            return Forbidden(
                f"Host {host!r} is not a name of this gateway: use its address, or add the name to "
                "TOOLSCRIPT_ALLOWED_HOSTS",
                details={"field": "Host"},
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._is_allowed(_parse_host(origin.decode("latin-1"))):
            return Forbidden(
                f"pages of {origin.decode('latin-1')!r} may not call this gateway: add the name to "
                "TOOLSCRIPT_ALLOWED_HOSTS",
                details={"field": "Origin"},
            )
        if self._key and not self._has_key(headers) and self._requires_key(scope):
            return Unauthorized(
                "this gateway requires a key: send `Authorization: Bearer KEY` or `X-API-Key: KEY`",
                details={"field": "Authorization"},
            )
        size = headers.get(b"content-length", b"0")
        if size.isdigit() and int(size) > MAX_BODY_BYTES:
            return InvalidArguments(
                f"the body is larger than {MAX_BODY_BYTES // 2**20} MiB", details={"field": "Content-Length"}
            )
        return None

    def _is_allowed(self, name: str) -> bool:
        """An address cannot be rebound by a name server, so off loopback every address is allowed."""
        if name.lower() in self._allowed or is_loopback(name):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return not self._is_local

    def _has_key(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._key):
            return True
        return hmac.compare_digest(headers.get(b"x-api-key", b"").strip(), self._key)

    def _requires_key(self, scope: Scope) -> bool:
        """Whether the matching route requires the key; if only the method is wrong, any route of the path. An unknown
        path requires it."""
        matches = [(route.matches(scope)[0], route) for route in self._routes]
        full = [route for match, route in matches if match is Match.FULL][:1]
        candidates = full or [route for match, route in matches if match is Match.PARTIAL]
        return not candidates or any(access_of(route) is Access.KEY for route in candidates)


@lru_cache(maxsize=256)
def _parse_host(url: str) -> str:
    """Returns the host in the URL; an empty string if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
