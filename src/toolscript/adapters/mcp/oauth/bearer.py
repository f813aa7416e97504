"""Sends the access token of a server's login with the requests to that server, and to no other."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth

from toolscript.domain.errors import LoginRequired, ToolscriptError, Unavailable
from toolscript.domain.logins import describe_command
from toolscript.domain.servers import ServerSpec
from toolscript.ports.logins import AccessTokens

UNAUTHORIZED, FORBIDDEN = 401, 403

log = logging.getLogger(__name__)


class BearerAuth(httpx2.Auth):
    """The authentication of one connection. It never raises: what is wrong with the login is in `problem`, and the
    request gets the server's answer."""

    def __init__(self, spec: ServerSpec, tokens: AccessTokens) -> None:
        self._spec = spec
        self._tokens = tokens
        self._missing_scope: str | None = None
        self.problem: Unavailable | None = None
        """Why the server refused the last request, if it did for want of a valid login."""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if _find_origin(str(request.url)) != _find_origin(self._spec.url):
            yield request
            return
        fault: ToolscriptError | None = None
        token: str | None = None
        try:
            token = await self._tokens.get_token(self._spec)
        except ToolscriptError as error:
            fault = error
        response = yield _sign(request, token)
        if response.status_code == UNAUTHORIZED and fault is None:
            renewed = None
            try:
                renewed = await self._tokens.renew_token(self._spec, token)
            except ToolscriptError as error:
                fault = error
            if renewed and renewed != token:
                token = renewed
                response = yield _sign(request, token)
        await self._record(response, fault, has_token=token is not None)

    def take_missing_scope(self) -> str | None:
        """The scope that the server last refused a request for, once."""
        scope, self._missing_scope = self._missing_scope, None
        return scope

    async def _record(self, response: httpx2.Response, fault: ToolscriptError | None, *, has_token: bool) -> None:
        command = describe_command(self._spec)
        if response.status_code == FORBIDDEN and _is_scope_missing(response):
            scope = self._missing_scope = extract_scope_from_www_auth(response) or ""
            self.problem = LoginRequired(f"its login lacks the scope {scope or '(unnamed)'}: run {command}")
            try:
                await self._tokens.want_scope(self._spec, scope)
            except ToolscriptError as error:
                log.warning("scope_not_recorded", extra={"server": self._spec.name, "reason": error.message})
        elif response.status_code != UNAUTHORIZED:
            self.problem = None
        elif fault:
            self.problem = Unavailable(fault.message)
        elif has_token:
            self.problem = LoginRequired(f"it refuses its login: run {command}")
        else:
            checks = "check its `headers`, or " if self._spec.headers else ""
            self.problem = LoginRequired(f"it needs a login: {checks}run {command}")


def _is_scope_missing(response: httpx2.Response) -> bool:
    return extract_field_from_www_auth(response, "error") == "insufficient_scope"


def _sign(request: httpx2.Request, token: str | None) -> httpx2.Request:
    if token:
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _find_origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
