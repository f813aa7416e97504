"""Checks Host, Origin and the caller's key before a request reaches its route.

A browser can be made to call a server on its own machine, under a name that an attacker chose (DNS rebinding) or from a
page of theirs. So a gateway on loopback only answers to names of this machine.

Each route declares the scope that a key needs for it: see `dependencies.py`. Routes for documents check token or key
themselves, because they need the tenant.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from toolscript.domain import access
from toolscript.domain.errors import Forbidden, InvalidArguments, ToolscriptError
from toolscript.domain.requests import caller_name
from toolscript.surfaces.callers import find_grant, require_scope
from toolscript.surfaces.http.dependencies import scope_of
from toolscript.surfaces.http.errors import error_response
from toolscript.surfaces.http.served_app import ServedApp

MAX_BODY_BYTES = 16 * 2**20


def is_loopback(host: str) -> bool:
    """Whether a name or address can only mean this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware that passes allowed requests on and refuses the others."""

    def __init__(self, app: ASGIApp, served: ServedApp, routes: Sequence[APIRoute]) -> None:
        self._app = app
        self._served = served
        settings = served.settings
        self._allowed = {name.lower() for name in (settings.host, *settings.allowed_hosts)}
        self._is_local = is_loopback(settings.host)
        self._routes = routes
        # Matching every route takes 50 µs; most requests are for a path without parameters.
        paths = [
            (method, route.path) for route in routes if not route.param_convertors for method in route.methods or ()
        ]
        self._fixed_paths = {
            (method, path): self._match({"type": "http", "method": method, "path": path}) for method, path in paths
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = None
        if scope["type"] == "http":
            headers: dict[bytes, bytes] = dict(scope["headers"])
            error = self._check_names(headers) or await self._check_key(scope, headers) or _check_size(headers)
        if error is None:
            await self._app(scope, receive, send)
        else:
            await error_response(error)(scope, receive, send)

    def _check_names(self, headers: dict[bytes, bytes]) -> ToolscriptError | None:
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
        return None

    async def _check_key(self, scope: Scope, headers: dict[bytes, bytes]) -> ToolscriptError | None:
        """Adds what the caller's key allows to the scope, unless the route needs no key."""
        routes = self._fixed_paths.get((scope["method"], scope["path"])) or self._match(scope)
        needed = [scope_of(route, self._served.settings) for route in routes]
        if routes and {None, access.Scope.DOCUMENTS}.issuperset(needed):
            return None
        sent = {name: headers.get(name.encode(), b"").decode("latin-1") for name in ("authorization", "x-api-key")}
        try:
            grant = await find_grant(self._served.settings, self._served.current, sent)
            caller_name.set(grant.caller)
            scope["grant"] = grant
            if len(needed) == 1 and needed[0]:
                require_scope(needed[0], grant.scopes)
        except ToolscriptError as error:
            if len(routes) == 1:
                scope["route"] = routes[0]  # for metrics and logs, as if it had been routed
            return error
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

    def _match(self, scope: Scope) -> list[APIRoute]:
        """The route that answers; if only the method is wrong, every route of the path; none for an unknown path."""
        matches = [(route.matches(scope)[0], route) for route in self._routes]
        full = [route for match, route in matches if match is Match.FULL][:1]
        return full or [route for match, route in matches if match is Match.PARTIAL]


def _check_size(headers: dict[bytes, bytes]) -> ToolscriptError | None:
    size = headers.get(b"content-length", b"0")
    if size.isdigit() and int(size) > MAX_BODY_BYTES:
        return InvalidArguments(
            f"the body is larger than {MAX_BODY_BYTES // 2**20} MiB", details={"field": "Content-Length"}
        )
    return None


@lru_cache(maxsize=256)
def _parse_host(url: str) -> str:
    """Returns the host in the URL; an empty string if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
