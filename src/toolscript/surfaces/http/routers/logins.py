"""Logins at servers, from a page of the gateway: one request begins a login, and the redirect finishes it.

The redirect is a request without a key, as a browser cannot send one with it. It counts only in the browser that began
the login and got a cookie for it: nobody can make somebody else's account the gateway's account."""

from __future__ import annotations

import hashlib
import html
from string import Template
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Path, Request
from starlette.responses import HTMLResponse

from toolscript.app.app import App
from toolscript.domain.errors import (
    Conflict,
    Forbidden,
    Invalid,
    LoginDeclined,
    NotFound,
    TimedOut,
    ToolscriptError,
    Unauthorized,
)
from toolscript.domain.limits import current_limits
from toolscript.domain.servers import ServerSpec
from toolscript.services.support.server_changes import describe_login
from toolscript.surfaces.callers import find_user
from toolscript.surfaces.console.static_files import HEADERS
from toolscript.surfaces.http.dependencies import ADMIN, CALL, PUBLIC, CurrentApp, Served
from toolscript.surfaces.http.errors import get_status
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import servers as responses
from toolscript.surfaces.owner import is_loopback

# The path of `toolscript login`: authorization servers that know its address take any port of this machine with it.
CALLBACK_PATH = "/callback"
HTTPS = "https"
PAGE = Template(
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<meta name="color-scheme" content="light dark"><title>$title · Toolscript</title>'
    '<link rel="icon" href="/console/icon.svg"><script src="/console/theme.js"></script>'
    '<link rel="stylesheet" href="/console/style/base.css"><link rel="stylesheet" href="/console/style/parts.css">'
    '</head><body><main class="notice"><h1>$title</h1><p>$text</p><p><a href="/#/servers">Servers</a></p></main>'
    "</body></html>"
)

# What a page says first about a login that did not succeed; the first matching class counts.
TITLES: dict[type[ToolscriptError], str] = {
    LoginDeclined: "Login cancelled",
    NotFound: "This login has ended",
    Conflict: "This login was replaced",
    Forbidden: "Another browser began this login",
    TimedOut: "The login took too long",
}

router = APIRouter(tags=["servers"])

ServerName = Annotated[str, Path(description="The server's name in the configuration.")]
ABOUT_BEGINNING = (
    "For pages of the gateway itself: the response sets a cookie, and the login is finished in the same browser, which "
    "the authorization server sends back to `/callback` of the gateway. Within 10 minutes; a new one ends the one "
    "before. Elsewhere use `toolscript login`."
)


@router.get(
    "/api/v1/servers/{name}/login",
    summary="Whether the installation is logged in at a server",
    responses=errors(404),
    dependencies=[ADMIN],
)
async def get_login(name: ServerName, app: CurrentApp) -> JsonResponse[responses.LoginStateResponse]:
    return JsonResponse(responses.build_login_response(await app.logins.find(app.servers.gateway.get_spec(name))))


@router.post(
    "/api/v1/servers/{name}/login",
    summary="Begin the installation's login at a server that requires it (OAuth)",
    description=ABOUT_BEGINNING,
    responses=errors(400, 404, 502),
    dependencies=[ADMIN],
)
async def begin_login(name: ServerName, request: Request, app: CurrentApp) -> JsonResponse[responses.LoginResponse]:
    return await _begin(app, app.servers.gateway.get_spec(name), request)


@router.delete(
    "/api/v1/servers/{name}/login",
    summary="Log the installation out at a server",
    description="Revokes the tokens, where the authorization server offers that, and forgets them.",
    responses=errors(400, 404),
    dependencies=[ADMIN],
)
async def log_out(name: ServerName, app: CurrentApp) -> JsonResponse[responses.LogoutResponse]:
    return await _log_out(app, app.servers.gateway.get_spec(name))


@router.get("/api/v1/own-logins", summary="Your own logins, at servers with a login per user", dependencies=[CALL])
async def list_own_logins(request: Request, app: CurrentApp) -> JsonResponse[responses.OwnLoginsResponse]:
    user = find_user(request.scope["grant"])
    states = await app.servers.own_logins.list_states(user)
    return JsonResponse({"user": user or None, "servers": [responses.build_login_response(state) for state in states]})


@router.post(
    "/api/v1/own-logins/{name}",
    summary="Begin a login for your own calls, at a server with a login per user",
    description=ABOUT_BEGINNING,
    responses=errors(400, 404, 502),
    dependencies=[CALL],
)
async def begin_own_login(name: ServerName, request: Request, app: CurrentApp) -> JsonResponse[responses.LoginResponse]:
    return await _begin(app, await _get_own_spec(name, request, app), request)


@router.delete(
    "/api/v1/own-logins/{name}",
    summary="Log out at a server with a login per user",
    description="Revokes your tokens, where the authorization server offers that, and forgets them.",
    responses=errors(400, 404),
    dependencies=[CALL],
)
async def remove_own_login(
    name: ServerName, request: Request, app: CurrentApp
) -> JsonResponse[responses.LogoutResponse]:
    return await _log_out(app, await _get_own_spec(name, request, app))


# Not described: an authorization server sends the browser here, and it is answered with pages.
@router.get(CALLBACK_PATH, response_class=HTMLResponse, include_in_schema=False, dependencies=[PUBLIC])
async def finish_login(request: Request, served: Served) -> HTMLResponse:
    cookie = _name_cookie(request.query_params.get("state", ""))
    try:
        server, _ = await served.app.servers.login_flows.finish(str(request.url), request.cookies.get(cookie, ""))
    except ToolscriptError as error:
        title = next((title for kind, title in TITLES.items() if isinstance(error, kind)), "Not logged in")
        return _build_page(title, f"{error.message[:1].upper()}{error.message[1:]}.", get_status(error))
    response = _build_page("Logged in", f"Toolscript is logged in at {server}. Close this page.", 200)
    response.delete_cookie(cookie, path=CALLBACK_PATH)
    return response


async def _get_own_spec(name: str, request: Request, app: App) -> ServerSpec:
    return await app.servers.own_logins.get_spec(name, find_user(request.scope["grant"]))


async def _begin(app: App, spec: ServerSpec, request: Request) -> JsonResponse[responses.LoginResponse]:
    origin = _find_origin(request)
    port, parts = spec.oauth.redirect_port, urlsplit(origin)
    if spec.oauth.client_id and port and (port != parts.port or not is_loopback(parts.hostname or "")):
        raise Invalid(
            f"the client of server {spec.name} is registered for http://127.0.0.1:{port}{CALLBACK_PATH} "
            f"(oauth.redirectPort), and this page is {origin}: run `toolscript login`, or register "
            f"{origin}{CALLBACK_PATH} and remove redirectPort",
            details={"server": spec.name, "field": "oauth.redirectPort"},
        )
    begun = await app.servers.login_flows.begin(spec, origin + CALLBACK_PATH)
    response = JsonResponse[responses.LoginResponse](
        {"server": spec.name, "url": begun.url, "host": urlsplit(begun.url).netloc.rpartition("@")[2]}
    )
    response.set_cookie(
        _name_cookie(begun.state),
        begun.secret,
        max_age=int(current_limits().login),
        path=CALLBACK_PATH,
        secure=origin.startswith(HTTPS),
        httponly=True,
        samesite="lax",
    )
    return response


async def _log_out(app: App, spec: ServerSpec) -> JsonResponse[responses.LogoutResponse]:
    with app.servers.changes.record("log out", spec.name, describe_login(spec.user)):
        try:
            revoked = await app.logins.log_out(spec)
        except Unauthorized as error:  # the caller is known, and the login is not there
            raise NotFound(error.message, details=error.details) from None
    return JsonResponse({"server": spec.name, "revoked": revoked})


def _find_origin(request: Request) -> str:
    """The origin of the gateway's own page. The browser comes back to it. Raises Forbidden for other pages and
    programs, and Invalid for a page without encryption on another machine: the code would travel over the network."""
    origin, own = request.headers.get("origin", ""), request.headers.get("host", "")
    parts = urlsplit(origin)
    if not origin or parts.netloc != own:
        raise Forbidden(
            "a login is begun on the page of this gateway, because it ends in the same browser: open the console, or "
            "run `toolscript login`",
            details={"field": "Origin"},
        )
    if parts.scheme != HTTPS and not is_loopback(parts.hostname or ""):
        raise Invalid(
            f"the console is open at {origin}, without encryption, and the answer of the login would come that way: "
            "open it over https or on the gateway's machine, or run `toolscript login` there",
            details={"field": "Origin"},
        )
    return f"{parts.scheme}://{parts.netloc}"


def _name_cookie(state: str) -> str:
    return f"toolscript-login-{hashlib.sha256(state.encode()).hexdigest()[:16]}"


def _build_page(title: str, text: str, status: int) -> HTMLResponse:
    page = PAGE.substitute(title=html.escape(title), text=html.escape(text))
    return HTMLResponse(page, status, headers=HEADERS | {"Cache-Control": "no-store"})
