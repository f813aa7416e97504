"""The MCP servers behind the gateway: how each is reached, how it is doing, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from toolscript.domain.catalog import Item


class Transport(StrEnum):
    """How a server is spoken to."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server of the configuration. Equal specs need no restart. Secrets stay out of its repr."""

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    include_tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] = ()

    def allows_tool(self, name: str) -> bool:
        """Whether the configuration lets a tool of that name through. Patterns as in file names: `read_*`."""
        included = self.include_tools is None or any(fnmatchcase(name, p) for p in self.include_tools)
        return included and not any(fnmatchcase(name, p) for p in self.exclude_tools)


class ServerState(StrEnum):
    """Where a server stands."""

    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A server as people are told of it. `reason` says why it is not ready; `problems` what of it could not be used."""

    name: str
    transport: Transport
    state: ServerState
    reason: str | None = None
    items: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    attempts: int = 0
    retry_in_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ServerListing:
    """What a server offers, and what of it could not be understood."""

    items: Sequence[Item]
    problems: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a tool answered: content blocks as the server sent them, and the structured form when there is one."""

    content: Sequence[Mapping[str, Any]]
    structured: Mapping[str, Any] | None = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text blocks, one after the other."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")
