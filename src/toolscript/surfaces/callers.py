"""Who is calling: the tenant that a verified token names, and the client that a rate limit counts.

Both the HTTP routes and the MCP endpoint use this, with the headers of a request.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping

from toolscript.app.access import is_local_token, may_bypass
from toolscript.app.app import App
from toolscript.domain.access import Principal
from toolscript.domain.errors import Unauthorized

BYPASS_HEADER = "x-debug-bypass-auth"
IPV6_NETWORK_BITS = 64
UNKNOWN_CLIENT = "unknown"


async def identify_principal(app: App, headers: Mapping[str, str]) -> Principal:
    """Returns the principal of the bearer token in these headers. A token is verified even if the request also asks for
    the bypass. Raises Unauthorized, and Unavailable when the keys to verify the token with cannot be fetched."""
    lowered = {name.lower(): value for name, value in headers.items()}
    authorization = lowered.get("authorization")
    if authorization is None:
        if may_bypass(app.settings) and lowered.get(BYPASS_HEADER) == "1":
            return Principal(app.settings.tenant)
        raise build_unauthorized("document routes require a bearer token: send `Authorization: Bearer TOKEN`")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise build_unauthorized("invalid Authorization header: expected `Authorization: Bearer TOKEN`")
    if app.settings.api_key and hmac.compare_digest(token.strip().encode(), app.settings.api_key.encode()):
        raise build_unauthorized(
            "this is the gateway's key, which belongs to no tenant: send it as `X-API-Key: KEY`, and a tenant's token "
            "as `Authorization: Bearer TOKEN`"
        )
    return await app.verifier.verify(token.strip())


def build_unauthorized(message: str) -> Unauthorized:
    """Builds the error for a missing or wrong Authorization header."""
    return Unauthorized(message, details={"field": "Authorization"})


def admit_client(app: App, headers: Mapping[str, str], address: str | None) -> None:
    """Counts a knowledge search of the client at this address. Commands with the token of the data folder's owner are
    not counted. Raises RateLimited."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and is_local_token(app.local_key, token.strip()):
        return
    app.knowledge_rates.admit(client_key(address or ""))


def client_key(address: str) -> str:
    """Returns the key under which a client is counted: its IPv4 address, or its IPv6 network of 64 bits, because one
    client has all of that. The address is the connection's, never a header's, which the client could choose. All
    clients behind one proxy count as one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return UNKNOWN_CLIENT
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), IPV6_NETWORK_BITS), strict=False))
