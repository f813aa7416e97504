"""How often a client may ask where nobody is asked who they are.

A client is the address that the connection comes from, never what a header says of it: a header is the client's own
choice. All who come through one proxy are one client, for the gateway cannot tell them apart; the proxy can.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from starlette.datastructures import Address

from toolscript.app.access import is_local_token
from toolscript.app.app import App

NETWORK_BITS = 64
UNKNOWN = "unknown"


def admit_client(app: App, headers: Mapping[str, str], client: Address | None) -> None:
    """Counts a search in knowledge. Commands of whoever owns the data folder are not counted. Raises RateLimited."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and is_local_token(app.local_key, token.strip()):
        return
    app.knowledge_rates.admit(client_at(client.host if client else ""))


def client_at(address: str) -> str:
    """The client at that address. Of IPv6 it is the network, because one client has all of that."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return UNKNOWN
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    if known.ipv4_mapped:
        return str(known.ipv4_mapped)
    return str(ipaddress.ip_network((int(known), NETWORK_BITS), strict=False))
