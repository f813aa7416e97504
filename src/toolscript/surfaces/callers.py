"""Who is calling: what a key allows, the tenant that a verified token or key names, and the client that a rate limit
counts.

Both the HTTP routes and the MCP endpoint use this, with the headers of a request.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from toolscript.app.access import is_local_token, may_bypass
from toolscript.app.app import App
from toolscript.domain.access import OPERATOR, Caller, Grant, Principal, Scope, ShareHolder
from toolscript.domain.errors import Forbidden, ToolscriptError, Unauthorized, Unavailable
from toolscript.domain.requests import current_request, set_request
from toolscript.services.access.keys import is_key
from toolscript.settings import Settings

BYPASS_HEADER = "x-debug-bypass-auth"
IPV6_NETWORK_BITS = 64
UNKNOWN_CLIENT = "unknown"
KEY_REQUIRED = (
    "this gateway requires a valid key: send `Authorization: Bearer KEY` or `X-API-Key: KEY`. A key that is unknown, "
    "expired or revoked is not valid"
)
LOGIN_REQUIRED = (
    "this gateway requires an access token or a key: log in with OAuth, which MCP clients do by themselves, or send "
    "`Authorization: Bearer KEY` or `X-API-Key: KEY`"
)
STILL_STARTING = "the search engine is not ready: it is still starting, try again in a moment"
OWNER_NAME = "owner of the data folder"
# Who has started this process and uses it without HTTP: over stdio, or on the command line.
OWNER = Caller(address="owner")
_WHAT_SCOPES_ALLOW = {
    Scope.SEARCH: "search and describe tools",
    Scope.CALL: "call tools",
    Scope.DOCUMENTS: "use documents",
    Scope.KNOWLEDGE: "search knowledge",
    Scope.METRICS: "read metrics",
    Scope.ADMIN: "see and control servers, or change skills, the catalogue and knowledge",
}


async def find_grant(
    settings: Settings, app: App | None, headers: Mapping[str, str], *, is_owner: bool = False
) -> Grant:
    """Returns what the key in these headers allows; everything where no key is required, and for the machine's owner
    (surfaces/owner.py). Everyone may search public
    knowledge, and who sends a tenant's token beside the key may use that tenant's documents.

    Raises Unauthorized without a valid key where one is required: if TOOLSCRIPT_API_KEY is set, a key was ever created,
    TOOLSCRIPT_REQUIRE_KEY is on, or callers log in with OAuth: an access token is as good as a key with its scopes.
    Raises Unavailable when keys cannot be checked: also while the application is being opened, when `app` is None and
    nobody knows whether a key was ever created.
    """
    token, key = _read_bearer(headers), headers.get("x-api-key", "").strip()
    if settings.api_key and (_is_equal(token, settings.api_key) or _is_equal(key, settings.api_key)):
        return Grant(OPERATOR)
    if app is None:
        may_be_valid = is_key(token) or is_key(key) or (settings.oauth_resource and token)
        if may_be_valid or not requires_key(settings):
            raise Unavailable(STILL_STARTING)
    elif found := await app.access.keys.find(token) or await app.access.keys.find(key):
        with_token = {Scope.DOCUMENTS} if token and not is_key(token) else set()
        return Grant(found.name, found.scopes | _list_public_scopes(settings) | with_token, limit=found.limit)
    elif not requires_key(settings) and (is_owner or not await app.access.keys.exist()):
        return Grant()
    if app and token and is_local_token(app.access.local_key, token):
        return Grant(OWNER_NAME)
    if app and token and settings.oauth_resource:
        grant = await app.access.verifier.authorize(token)
        return replace(grant, scopes=grant.scopes | _list_public_scopes(settings))
    raise build_unauthorized(LOGIN_REQUIRED if settings.oauth_resource else KEY_REQUIRED)


def choose_profile(app: App, grant: Grant, requested: str | None = None, *, is_mcp: bool) -> str | None:
    """Returns the profile of the current request: from the caller's key or token, else the requested profile, else the
    default; None if there is none. Commands of the data folder's owner and requests of the operator see everything;
    their agents do not.

    Raises NotFound and Forbidden for a requested profile.
    """
    sees_everything = not is_mcp and grant.caller in {OPERATOR, OWNER_NAME}
    chosen = None if sees_everything else app.access.profiles.choose(requested, key=grant.caller, claims=grant.claims)
    return chosen if chosen and app.access.profiles.find(chosen) else None


def requires_key(settings: Settings) -> bool:
    """Whether the settings alone require a key or an access token. Otherwise one is required once a key was created."""
    return bool(settings.require_key or settings.api_key or settings.oauth_resource)


def _list_public_scopes(settings: Settings) -> set[Scope]:
    return {Scope.KNOWLEDGE} if settings.knowledge_public else set()


def require_scope(scope: Scope, grant: Grant) -> None:
    """Raises Forbidden, naming the scope, unless it is granted; Unauthorized if the caller has sent no key."""
    if scope in grant.scopes:
        return
    if grant.is_anonymous:
        raise build_unauthorized(f"without a key you may not {_WHAT_SCOPES_ALLOW[scope]}: {KEY_REQUIRED}")
    raise Forbidden(
        f"this key or token may not {_WHAT_SCOPES_ALLOW[scope]}: it lacks the scope {scope}",
        details={"scope": scope.value},
    )


async def identify_principal(app: App, headers: Mapping[str, str], *, is_owner: bool = False) -> Principal:
    """Returns the principal of the bearer token or the named key in these headers; for the machine's owner, who sends
    neither, the principal of the settings. A token is verified even if the request also asks for the bypass. Raises
    Unauthorized, Forbidden for a key without the scope `documents`, and Unavailable when the keys to verify the token
    with cannot be fetched."""
    lowered = {name.lower(): value for name, value in headers.items()}
    authorization = lowered.get("authorization")
    if authorization is None:
        if is_key(key := lowered.get("x-api-key", "").strip()):
            return await _identify_by_key(app, key)
        if is_owner or (may_bypass(app.settings) and lowered.get(BYPASS_HEADER) == "1"):
            return Principal(app.settings.tenant)
        raise build_unauthorized("document routes require a bearer token: send `Authorization: Bearer TOKEN`")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise build_unauthorized("invalid Authorization header: expected `Authorization: Bearer TOKEN`")
    if is_key(token.strip()):
        return await _identify_by_key(app, token.strip())
    if app.settings.api_key and _is_equal(token.strip(), app.settings.api_key):
        raise build_unauthorized(
            "this is the gateway's key, which belongs to no tenant: send it as `X-API-Key: KEY`, and a tenant's token "
            "as `Authorization: Bearer TOKEN`"
        )
    return await app.access.verifier.verify(token.strip())


async def find_tenant(app: App, headers: Mapping[str, str]) -> str | None:
    """Returns the tenant of the documents that a request with these headers may search; None without documents."""
    try:
        return (await identify_principal(app, headers)).tenant
    except ToolscriptError:
        return None


async def _identify_by_key(app: App, secret: str) -> Principal:
    key = await app.access.keys.find(secret)
    if key is None:
        raise build_unauthorized("this key is not valid: it is unknown, expired or revoked")
    set_request(replace(current_request(), caller_name=key.name))
    require_scope(Scope.DOCUMENTS, Grant(key.name, key.scopes))
    return Principal(key.tenant or "", key.plan, subject=key.name)


def _read_bearer(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _is_equal(given: str, key: str) -> bool:
    """Compares in constant time. Headers are decoded as Latin-1, and encoded back to what was sent."""
    return hmac.compare_digest(given.encode("latin-1", "replace"), key.encode())


def build_unauthorized(message: str) -> Unauthorized:
    """Builds the error for a missing or wrong Authorization header."""
    return Unauthorized(message, details={"field": "Authorization"})


# Searches of public knowledge are free, answers cost the owner calls of a language model.
ANSWER_REFUSED = "without a key no answer is written: search without `answer`, or send `Authorization: Bearer KEY`"


async def require_answer_caller(
    settings: Settings, app: App, headers: Mapping[str, str], *, is_owner: bool = False
) -> None:
    """Raises Unauthorized for a caller without a valid key where one is required."""
    try:
        await find_grant(settings, app, headers, is_owner=is_owner)
    except Unauthorized:
        raise build_unauthorized(ANSWER_REFUSED) from None


def is_data_owner(app: App, headers: Mapping[str, str]) -> bool:
    """Whether a command of the data folder's owner sends the request."""
    token = _read_bearer(headers)
    return bool(token) and is_local_token(app.access.local_key, token)


async def admit_client(app: App, headers: Mapping[str, str], address: str | None) -> None:
    """Counts a knowledge search of the client at this address. Commands with the token of the data folder's owner are
    not counted. Raises RateLimited."""
    if is_data_owner(app, headers):
        return
    await app.access.knowledge_rates.admit(get_client_key(address or ""))


def identify_caller(grant: Grant, address: str | None) -> Caller:
    """Returns the caller, to tell which searches and calls belong together: the same key, or without a key the same
    client address."""
    return Caller(key=grant.caller) if grant.caller else Caller(address=get_client_key(address or ""))


def identify_holder(grant: Grant, address: str | None) -> ShareHolder:
    """Returns the holder of the share that a request counts in."""
    caller = identify_caller(grant, address)
    return ShareHolder(f"key {caller.key}" if caller.key else f"address {caller.address}", grant.is_anonymous)


def find_user(grant: Grant) -> str:
    """Returns the user for logins at servers with a login per user: the named key, or the token's subject. Empty, the
    installation's own, for the operator and the owner, and where nobody needs credentials."""
    return "" if grant.caller in {None, OPERATOR, OWNER_NAME} else str(grant.caller)


@lru_cache(maxsize=1024)  # each request asks three times, at 5 µs
def get_client_key(address: str) -> str:
    """Returns the key that a client is counted by: its IPv4 address, or its IPv6 network of 64 bits, because one client
    has all of that. The address is the connection's, never a header's: the client could choose a header. All clients
    behind one proxy count as one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return UNKNOWN_CLIENT
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), IPV6_NETWORK_BITS), strict=False))
