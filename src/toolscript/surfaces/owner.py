"""Recognises requests without credentials as requests of the machine's owner.

On loopback the owner stays in after keys were created: a key adds callers. What may come from elsewhere is not taken
for the owner's: what a proxy passes on, pages of other origins, and everything where settings ask callers who they are.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from toolscript.app.access import PRODUCTION
from toolscript.settings import Settings
from toolscript.surfaces.callers import requires_key

# What proxies add to the requests that they pass on, beside headers that begin with `X-Forwarded-`.
PROXY_HEADERS = frozenset(
    {
        "cf-connecting-ip",
        "fastly-client-ip",
        "forwarded",
        "proxy-client-ip",
        "true-client-ip",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-original-forwarded-for",
        "x-original-host",
        "x-real-ip",
    }
)
# Browsers say from where a page calls: `none` is an address that somebody typed.
OWN_SITES = frozenset({"", "none", "same-origin"})
CREDENTIAL_HEADERS = frozenset({"authorization", "x-api-key"})


@lru_cache(maxsize=64)  # each request asks four times, at 5 µs
def is_loopback(host: str) -> bool:
    """Whether a name or address can only mean this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def admits_owner(settings: Settings) -> bool:
    """Whether the settings let the owner use the gateway without credentials: on loopback, unless they ask for keys,
    logins or tokens, name hosts that others use, or are meant for production."""
    asks = requires_key(settings) or settings.jwt_secret or settings.jwt_jwks or settings.allowed_hosts
    return is_loopback(settings.host) and not asks and settings.environment != PRODUCTION


def is_owner(settings: Settings, scope: Mapping[str, Any]) -> bool:
    """Whether a request without credentials is the owner's: of a program or a page of this machine."""
    if not admits_owner(settings):
        return False
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    # nginx passes requests on with HTTP/1.0 and without a header that names it, unless it is told otherwise.
    is_direct = scope.get("http_version") != "1.0" and not CREDENTIAL_HEADERS & headers.keys()
    return is_direct and is_of_this_machine(settings, headers, scope.get("client"))


def is_of_this_machine(settings: Settings, headers: Mapping[str, str], client: Any) -> bool:
    """Whether a program of this machine, or a page of the gateway itself, sends a request that no proxy passed on."""
    own = headers.get("host", "")
    is_forwarded = any(name in PROXY_HEADERS or name.startswith("x-forwarded-") for name in headers)
    is_foreign = urlsplit(headers.get("origin", f"//{own}")).netloc != own
    is_foreign = is_foreign or headers.get("sec-fetch-site", "").lower() not in OWN_SITES
    addresses = settings.host, client[0] if client else "", urlsplit(f"//{own}").hostname or ""
    return not is_forwarded and not is_foreign and all(map(is_loopback, addresses))
