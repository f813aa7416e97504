"""How clients find the MCP server before they connect: its card, and the catalogue of the host that names the card.

The formats are those of MCP's extension for server cards (SEP-2127, final; fields and places are maintained in
https://github.com/modelcontextprotocol/experimental-ext-server-card, `schema.json` and `docs/discovery.md`) and of the
AI Catalog (https://github.com/Agent-Card/ai-catalog). A card names no tools: clients list them once they are connected.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any
from urllib.parse import urlsplit

from toolscript import __version__

CARD_TYPE = "application/mcp-server-card+json"
CATALOG_TYPE = "application/ai-catalog+json"
CARD_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
CATALOG_VERSION = "1.0"
NAME, TITLE = "toolscript", "Toolscript"
DESCRIPTION = "Finds and calls the right one of many tools, and searches documents and knowledge."


def build_server_card(url: str) -> dict[str, Any]:
    """The card of the MCP server at that URL."""
    from mcp_types.version import KNOWN_PROTOCOL_VERSIONS  # a gateway must not wait for it when it starts

    domain = _find_domain(url)
    namespace = domain if _parse_address(domain) else ".".join(reversed(domain.split(".")))
    key = {"name": "Authorization", "description": "Bearer KEY, if the gateway requires a key.", "isSecret": True}
    return {
        "$schema": CARD_SCHEMA,
        "name": f"{namespace}/{NAME}",
        "title": TITLE,
        "description": DESCRIPTION,
        "version": __version__,
        "remotes": [
            {
                "type": "streamable-http",
                "url": url,
                "headers": [key],
                "supportedProtocolVersions": list(KNOWN_PROTOCOL_VERSIONS),
            }
        ],
    }


def build_ai_catalog(url: str, card_url: str) -> dict[str, Any]:
    """The catalogue of a host whose only entry is the MCP server at that URL."""
    entry = {"identifier": f"urn:air:{_find_domain(url)}:{NAME}", "type": CARD_TYPE, "url": card_url}
    return {"specVersion": CATALOG_VERSION, "entries": [entry | {"displayName": TITLE, "description": DESCRIPTION}]}


def _find_domain(url: str) -> str:
    """The host of a URL, of characters that names of servers may have."""
    host = urlsplit(url).hostname or "localhost"
    address = _parse_address(host)
    return "localhost" if address and address.is_loopback else re.sub(r"[^a-z0-9.-]", "-", host)


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
