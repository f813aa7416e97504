"""Checks Host, Origin and the caller's key before a request reaches its route.

A browser can be made to call a server on its own machine, under a name that an attacker chose (DNS rebinding) or from a
page of theirs. So a gateway on loopback only answers to names of this machine, and a page may only call it from its own
origin: another port of this machine can be any program's.

Each route declares the scope that a key needs for it: see `dependencies.py`. Routes for documents check token or key
themselves, because they need the tenant.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from urllib.parse import urlsplit

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from toolscript.domain import access
from toolscript.domain.errors import Forbidden, Invalid, ToolscriptError, Unauthorized, Unavailable
from toolscript.domain.profiles import DEFAULT_PROFILE
from toolscript.domain.requests import NAMED_BY_SERVER_HEADER, current_request, set_request
from toolscript.services.access.keys import is_key
from toolscript.surfaces.callers import choose_profile, find_grant, identify_holder, require_scope
from toolscript.surfaces.console.static_files import is_console_request
from toolscript.surfaces.http.dependencies import get_scope
from toolscript.surfaces.http.errors import KnowledgeUnavailable, error_response
from toolscript.surfaces.http.oauth import add_challenge
from toolscript.surfaces.http.request_tracking import get_mcp_profile, is_mcp_path
from toolscript.surfaces.http.routers.discovery import is_discovery_path
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.http.valid_requests import run_while_valid
from toolscript.surfaces.owner import is_loopback, is_owner

Address = tuple[str, int | None]
"""A host name in lower case, and a port."""

OPEN_SEARCH_PATHS = frozenset({"/search_knowledge"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Guard:
    """ASGI middleware that passes allowed requests on and refuses the others."""

    def __init__(self, app: ASGIApp, served: ServedApp, routes: Sequence[APIRoute]) -> None:
        self._app = app
        self._served = served
        settings = served.settings
        self._allowed_names = {name.lower() for name in settings.allowed_hosts}
        self._allowed_origins = {parse_origin(origin) for origin in settings.allowed_origins}
        self._host = settings.host.lower()
        self._is_local = is_loopback(settings.host)
        self._routes = routes
        # Matching every route takes 50 µs; most requests are for a path without parameters, which is matched once.
        self._fixed_paths: dict[tuple[str, str], list[APIRoute] | None] = {
            (method, route.path): None
            for route in routes
            if not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = None
        if scope["type"] == "http":
            if resource := self._served.settings.oauth_resource:
                send = add_challenge(scope, send, resource)
            error = self._check_names(scope) or await self._check_key(scope)
        if error:
            await error_response(error)(scope, receive, send)
        elif check := scope.get("check_grant"):
            await run_while_valid(self._app, scope, receive, send, check)
        else:
            await self._app(scope, receive, send)
        refusal = error or scope.get("refusal")  # MCP finds out which scope a call needs
        if isinstance(refusal, Unauthorized | Forbidden) and (app := self._served.current):
            await app.access.refusals.record(f"{scope['method']} {scope['path']}", refusal)

    def _check_names(self, scope: Scope) -> ToolscriptError | None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1:
            return Invalid("the request has several Host headers: send one", details={"field": "Host"})
        own = _parse_address("//" + "".join(hosts))
        host = own[0]
        if not self._is_allowed(host):
            return Forbidden(
                f"Host {host!r} is not a name of this gateway: use its address, or add the name to "
                "TOOLSCRIPT_ALLOWED_HOSTS",
                details={"field": "Host"},
            )
        if _is_named_by_server(scope) and not is_discovery_path(scope["path"]):
            return Forbidden(
                "a gateway sends this request because an MCP server named this address, and a server may not use a "
                "gateway: check what that server is",
                details={"field": NAMED_BY_SERVER_HEADER},
            )
        if is_discovery_path(scope["path"]) and not self._is_local:
            return None  # on loopback, pages must not find out what runs on this machine
        for origin in (value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"):
            address = _parse_address(origin)
            if not address[0] or not (
                address == own or origin.lower() in self._allowed_origins or address[0] in self._allowed_names
            ):
                return Forbidden(
                    f"pages of {origin!r} may not call this gateway: add the origin to TOOLSCRIPT_ALLOWED_ORIGINS",
                    details={"field": "Origin"},
                )
        return None

    async def _check_key(self, scope: Scope) -> ToolscriptError | None:
        """Adds what the caller's key allows to the scope, unless the route needs no key: the console's files hold no
        data."""
        address = scope["client"][0] if scope.get("client") else None
        scope["is_owner"] = is_owner(self._served.settings, scope)
        if is_console_request(scope):
            return None
        routes = self._find_routes(scope)
        needed = [get_scope(route, self._served.settings) for route in routes]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        sent = {name: headers.get(name.encode(), b"").decode("latin-1") for name in ("authorization", "x-api-key")}
        if routes and {None, access.Scope.DOCUMENTS}.issuperset(needed):
            if scope["path"] in OPEN_SEARCH_PATHS:
                with suppress(ToolscriptError):  # the route checks it
                    settings, app = self._served.settings, self._served.current
                    grant = await find_grant(settings, app, sent, is_owner=scope["is_owner"])
                    set_request(replace(current_request(), share_holder=identify_holder(grant, address)))
            elif access.Scope.DOCUMENTS in needed:
                set_request(replace(current_request(), share_holder=identify_holder(access.Grant(), address)))
            return None
        waits = bool(needed) and {access.Scope.SEARCH, access.Scope.CALL}.issuperset(needed)
        try:
            find = partial(self._find_grant, scope["path"], sent, scope["is_owner"])
            grant = await find(waits=waits or is_mcp_path(scope["path"]))
            if waits:
                await self._served.wait_until_open()
            holder, limit, scopes = identify_holder(grant, address), grant.limit, grant.scopes
            request = current_request()
            set_request(replace(request, caller_name=grant.caller, limit=limit, scopes=scopes, share_holder=holder))
            scope["grant"] = grant
            if grant.caller is None or any(is_key(value.rpartition(" ")[2]) for value in sent.values()):
                scope["check_grant"] = partial(find, waits=False)
            self._apply_profile(scope["path"], grant)
            if len(needed) == 1 and needed[0]:
                require_scope(needed[0], grant)
        except ToolscriptError as error:
            if len(routes) == 1:
                scope["route"] = routes[0]  # for metrics and logs, as if it had been routed
            return _find_form(error, needed)
        return None

    def _apply_profile(self, path: str, grant: access.Grant) -> None:
        """While the application is being opened, only the operator's key is known. It may have every profile. Requests
        other than MCP's are refused then."""
        requested, is_mcp = get_mcp_profile(path), is_mcp_path(path)
        profile: str | None = requested or DEFAULT_PROFILE
        if app := self._served.current:
            profile = choose_profile(app, grant, requested, is_mcp=is_mcp)
        request = current_request()
        if profile != request.profile:
            set_request(replace(request, profile=profile))

    async def _find_grant(self, path: str, sent: Mapping[str, str], owner: bool, *, waits: bool) -> access.Grant:
        """What the key allows. MCP has one path for all scopes: without a key, public knowledge is left, unless clients
        can log in: they do so when they are refused. MCP, searches and calls wait until the application is open: agents
        begin early, and give up what fails once."""
        served, is_mcp = self._served, is_mcp_path(path)
        is_public = served.settings.knowledge_public and not served.settings.oauth_resource
        is_public = is_public and get_mcp_profile(path) is None  # who has no key learns of no profile
        try:
            try:
                return await find_grant(served.settings, served.current, sent, is_owner=owner)
            except Unavailable:
                if served.current or not waits:
                    raise
            return await find_grant(served.settings, await served.wait_until_open(), sent, is_owner=owner)
        except Unauthorized:
            if not is_mcp or any(sent.values()) or not is_public:
                raise
        return access.Grant(scopes=frozenset({access.Scope.KNOWLEDGE}))

    def _is_allowed(self, name: str) -> bool:
        """An address cannot be rebound by a name server, so off loopback every address is allowed."""
        if name in self._allowed_names or name == self._host or is_loopback(name):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return not self._is_local

    def _find_routes(self, scope: Scope) -> list[APIRoute]:
        key = scope["method"], scope["path"]
        routes = self._fixed_paths.get(key)
        if routes is None:
            routes = self._match(scope)
            if key in self._fixed_paths:
                self._fixed_paths[key] = routes
        return routes

    def _match(self, scope: Scope) -> list[APIRoute]:
        """The route that answers; if only the method is wrong, every route of the path; none for an unknown path."""
        partial = []
        for route in self._routes:
            match route.matches(scope)[0]:
                case Match.FULL:
                    return [route]
                case Match.PARTIAL:
                    partial.append(route)
        return partial


def _find_form(error: ToolscriptError, needed: list[access.Scope | None]) -> ToolscriptError:
    """Returns the error as the route would send it."""
    if needed == [access.Scope.KNOWLEDGE] and isinstance(error, Unavailable):
        return KnowledgeUnavailable(error.message, details=error.details)
    return error


def _is_named_by_server(scope: Scope) -> bool:
    header = NAMED_BY_SERVER_HEADER.encode()
    return any(name == header for name, _ in scope["headers"])


def parse_origin(text: str) -> str:
    """Returns the origin as browsers send it. Raises Invalid for a text that is not one."""
    origin = text.lower().rstrip("/")
    scheme, _, rest = origin.partition("://")
    if scheme not in _DEFAULT_PORTS or not _parse_address(origin)[0] or not re.fullmatch(r"[^/?#@*\s]+", rest):
        raise Invalid(
            f"TOOLSCRIPT_ALLOWED_ORIGINS: {text!r} is not an origin: write it like http://localhost:5173",
            details={"field": "TOOLSCRIPT_ALLOWED_ORIGINS"},
        )
    return origin


@lru_cache(maxsize=256)
def _parse_address(url: str) -> Address:
    """Returns host and port of the URL, without the port if it is the default one; an empty host if there is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", None
    return host, None if port == _DEFAULT_PORTS.get(parts.scheme) else port
