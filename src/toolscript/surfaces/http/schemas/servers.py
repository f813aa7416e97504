"""Requests about servers."""

from __future__ import annotations

from pydantic import Field

from toolscript.surfaces.http.schemas.models import RequestModel

MAX_SNIPPET = 65_536


class SnippetRequest(RequestModel):
    """A snippet of a server's documentation."""

    snippet: str = Field(
        max_length=MAX_SNIPPET,
        description="JSON: an object with `mcpServers` (or `servers`), entries by name, or a single entry.",
        examples=['{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}}'],
    )
    name: str | None = Field(default=None, max_length=200, description="The name of a server that is a single entry.")
