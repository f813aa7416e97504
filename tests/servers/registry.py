"""A registry of MCP servers, written from the OpenAPI description of the official registry (2025-12-01): lists with
cursors, `updated_since` and statuses; the flat form of the API before it; and registries that misbehave.

No implementation of a registry installs from a package: npm has none, and `mcp-registry` of PyPI is another program.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fixtures.http_services import HttpDouble

OFFICIAL = "io.modelcontextprotocol.registry/official"
START = "2026-01-01T00:00:00Z"


def describe_server(name: str, description: str = "", version: str = "1.0.0", **members: Any) -> dict[str, Any]:
    """A `server.json` with one package."""
    package = {"registryType": "pypi", "identifier": name.rpartition("/")[2], "transport": {"type": "stdio"}}
    given = {"packages": [package | {"version": version}]} | members
    return {"name": name, "description": description or f"The server {name}", "version": version, **given}


class RegistryDouble(HttpDouble):
    """Serves what `publish` was given. `flat` has it answer in the form of 2025-07; `mode` has it misbehave."""

    def __init__(self, page_size: int = 2, prefix: str = "/v0") -> None:
        super().__init__()
        self.entries: list[dict[str, Any]] = []
        self.page_size = page_size
        self.prefix = prefix
        self.flat = False
        self.mode = ""

    def publish(self, server: dict[str, Any], *, at: str = START, status: str = "active", message: str = "") -> None:
        """Adds a version; the same version again replaces it."""
        key = server.get("name"), server.get("version")
        self.entries = [e for e in self.entries if (e["server"].get("name"), e["server"].get("version")) != key]
        for entry in self.entries:
            if entry["server"].get("name") == server.get("name"):
                entry["_meta"][OFFICIAL]["isLatest"] = False
        about = {"status": status, "publishedAt": at, "updatedAt": at, "isLatest": True}
        about |= {"statusMessage": message} if message else {}
        self.entries.append({"server": server, "_meta": {OFFICIAL: about}})

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        parts = urlsplit(request.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        match self.mode:
            case "redirect":
                self.send(request, 302, b"", {"Location": "http://127.0.0.1:9/v0/servers"})
            case "busy":
                self.send(request, 429, b"", {"Retry-After": "7"})
            case "not json":
                self.send(request, 200, b"<html>")
            case "other json":
                self.send(request, 200, b'{"servers": 5}')
            case "huge":
                self.send(request, 200, b'{"servers": [' + b"[]," * 2_000_000 + b"[]]}")
            case _ if parts.path != f"{self.prefix}/servers":
                self.send(request, 404, b"{}")
            case _:
                self.send(request, 200, json.dumps(self._list(query)).encode())

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        since = query.get("updated_since", "")
        found = [entry for entry in self.entries if entry["_meta"][OFFICIAL]["updatedAt"] >= since]
        if not since:
            found = [entry for entry in found if entry["_meta"][OFFICIAL]["status"] != "deleted"]
        start = int(query.get("cursor", "0"))
        page, after = found[start : start + self.page_size], start + self.page_size
        cursor = str(after) if after < len(found) else ""
        if self.mode == "same cursor":
            cursor = "1"
        elif self.mode == "endless":
            cursor = str(after)
        elif self.mode == "breaks off" and start:
            return {"servers": "gone"}
        if self.flat:
            return {"servers": list(map(_flatten, page)), "metadata": {"next_cursor": cursor or None}}
        return {"servers": page, "metadata": {"nextCursor": cursor, "count": len(page)}}


def _flatten(entry: dict[str, Any]) -> dict[str, Any]:
    server, about = entry["server"], entry["_meta"][OFFICIAL]
    packages = [
        {
            "registry_name": package["registryType"],
            "name": package["identifier"],
            "version": package["version"],
            "environment_variables": [
                {"name": each["name"], "is_required": each.get("isRequired"), "is_secret": each.get("isSecret")}
                for each in package.get("environmentVariables", ())
            ],
        }
        for package in server.get("packages", ())
    ]
    return {
        "id": "7f1e",
        "name": server["name"],
        "description": server["description"],
        "version_detail": {"version": server["version"], "release_date": about["updatedAt"], "is_latest": True},
        "packages": packages,
    }
