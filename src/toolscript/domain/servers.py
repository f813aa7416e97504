"""The servers behind the gateway: their configuration, status, items and results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import PureWindowsPath
from typing import Any

from toolscript.domain.access import NO_LIMIT, ApprovalPolicy, CallLimit
from toolscript.domain.catalog import Item
from toolscript.domain.tool_overrides import Overrides


class Transport(StrEnum):
    """The transports of MCP, an API with an OpenAPI document, and none for a server that is part of this process."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"
    OPENAPI = "openapi"
    INTERNAL = "internal"


class TrustPolicy(StrEnum):
    """The definitions of a server that are put in quarantine."""

    OPEN = "open"
    """None."""
    CHANGED = "changed"
    """Those that changed since they were approved, and those whose text addresses the model."""
    ALL = "all"
    """The same, and every new one of a server that is known already."""
    REVIEW = "review"
    """The same, and also the first ones of a new server."""

    @property
    def is_strict(self) -> bool:
        """Whether new definitions wait for a person, too."""
        return self in {TrustPolicy.ALL, TrustPolicy.REVIEW}


class ServerStart(StrEnum):
    """When a server is started."""

    EAGER = "eager"
    """With the gateway."""
    LAZY = "lazy"
    """With the first call, or to be listed if the catalogue does not have its tools."""


LAZY_IDLE_MINUTES = 10.0
MAX_IDLE_MINUTES = 10_080.0


@dataclass(frozen=True, slots=True)
class OAuthSpec:
    """How Toolscript logs in at the authorization server of a server. Everything else is discovered."""

    client_id: str = ""
    """Empty: Toolscript registers itself. An https URL: a client id metadata document."""
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    """Empty: those that the server asks for."""
    redirect_port: int = 0
    """The loopback port that the browser is sent back to; 0 picks a free one."""
    per_user: bool = False
    """Whether calls of a named caller use the login of that caller, never that of the installation."""


class SandboxKind(StrEnum):
    """The programs that can run a server apart from the machine."""

    BWRAP = "bwrap"
    """Bubblewrap: namespaces of this Linux, without an image."""
    DOCKER = "docker"
    PODMAN = "podman"


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """How the program of a server is kept apart from the machine."""

    kind: SandboxKind
    network: bool = False
    """Whether it has a network. Bubblewrap then gives the network of the machine with its loopback."""
    folders: tuple[tuple[str, bool], ...] = ()
    """Absolute paths that the server sees, and whether it may write there."""
    image: str = ""
    """The image of docker and podman."""
    protected: tuple[str, ...] = ()
    """Absolute paths that Toolscript obeys, whether they exist or not: the server may not write there."""

    @property
    def summary(self) -> str:
        """For people: `bwrap, no network`."""
        return f"{self.kind}, {'with' if self.network else 'no'} network"


# Options of runners such as npx that change nothing of what runs.
_WITHOUT_ASKING = ("-y", "--yes")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server of the configuration. Equal specs need no restart. The repr contains no secrets."""

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    """Of an API, its base address; where the entry has none, the URL of its document."""
    openapi: str = field(default="", repr=False)
    """The file or the URL of an API's document."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    include_tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] = ()
    trust: TrustPolicy | None = None
    """Which of its definitions go into quarantine; None if the entry does not say."""
    start: ServerStart | None = None
    """None if the entry does not say: eager."""
    idle_minutes: float | None = None
    """Minutes without a call after which it is stopped, 0: never. None if the entry does not say."""
    oauth: OAuthSpec = OAuthSpec()
    limit: CallLimit = NO_LIMIT
    tool_limits: tuple[tuple[str, CallLimit], ...] = ()
    """For tools whose names match; the first pattern that matches counts."""
    approval: ApprovalPolicy = ApprovalPolicy.NEVER
    sandbox: SandboxSpec | None = None
    """What keeps its program apart from the machine."""
    tools: Overrides = field(default_factory=dict)
    """What callers see of its tools instead of what it lists."""
    user: str = ""
    """Whose login the connection uses; empty for that of the installation."""

    def find_tool_limit(self, name: str) -> CallLimit:
        """The limit of a tool's own calls."""
        return next((limit for pattern, limit in self.tool_limits if fnmatchcase(name, pattern)), NO_LIMIT)

    @property
    def is_lazy(self) -> bool:
        return self.start is ServerStart.LAZY

    @property
    def idle_seconds(self) -> float | None:
        """Seconds without a call before the server is stopped; None: it is never stopped."""
        minutes = LAZY_IDLE_MINUTES if self.idle_minutes is None and self.is_lazy else self.idle_minutes
        return 60 * minutes if minutes else None

    @property
    def digest(self) -> str:
        """A hash that changes when the server might offer other tools. Does not depend on its environment or headers,
        nor on when it is started and stopped."""
        parts: list[object] = [self.transport, self.command, self.args, self.cwd, self.url]
        parts += [self.include_tools, self.exclude_tools]
        parts += [self.openapi] if self.openapi else []
        parts += [s.kind, s.network, s.folders, s.image] if (s := self.sandbox) else []
        parts += [] if self.trust is None else [self.trust]  # the listing decides what goes into quarantine
        parts += [json.dumps({name: each.describe() for name, each in self.tools.items()})] if self.tools else []
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    @property
    def origin(self) -> tuple[str, ...]:
        """The package and its arguments, or the address: the same for the entries of several clients for one server."""
        args = (arg.removesuffix("@latest") for arg in self.args if arg not in _WITHOUT_ASKING)
        return PureWindowsPath(self.command).stem, *args, self.url, *([self.openapi] if self.openapi else [])

    @property
    def is_toolscript(self) -> bool:
        """Whether it starts Toolscript: by its path, as a module, or with a runner such as `uvx toolscript mcp`."""
        names = [PureWindowsPath(word).stem for word in (self.command, *self.args)]  # takes both slashes
        return names[0] == "toolscript" or any(
            pair in {("-m", "toolscript"), ("toolscript", "mcp")} for pair in pairwise(names)
        )

    def allows_item(self, item: Item) -> bool:
        """Whether the configuration allows the item, by the name that its server gave it. Patterns work as in file
        names: `read_*`; an operation of an API can also be named by its path (`/pets/*`), method and path
        (`DELETE /pets/*`), or a tag (`tag:store`)."""
        included = self.include_tools is None or any(self._matches(item, each) for each in self.include_tools)
        return included and not any(self._matches(item, each) for each in self.exclude_tools)

    def _matches(self, item: Item, pattern: str) -> bool:
        if self.transport is Transport.OPENAPI:
            about = item.annotations or {}
            operation = str(about.get("operation", ""))
            if pattern.startswith("tag:"):
                return any(fnmatchcase(str(tag), pattern[4:]) for tag in about.get("tags", ()))
            if pattern.startswith("/"):
                return fnmatchcase(operation.partition(" ")[2], pattern)
            if " " in pattern:
                return fnmatchcase(operation, pattern)
        return fnmatchcase(item.listed_name, pattern)

    @property
    def allows_everything(self) -> bool:
        """Whether the configuration neither includes nor excludes tools by name."""
        return self.include_tools is None and not self.exclude_tools


class ServerState(StrEnum):
    """The state of the connection to a server."""

    CONNECTING = "connecting"
    """Still starting: no attempt has failed since it was last connected."""
    READY = "ready"
    FAILED = "failed"
    """The last attempt failed; the next one is being made, or will be."""
    ASLEEP = "asleep"
    """Not running, and its tools are in the catalogue: the next call starts it."""
    STOPPED = "stopped"
    """Somebody stopped it: calls are refused until somebody starts it."""


class CallState(StrEnum):
    """What to know before a call of a server's tools."""

    ASLEEP = ServerState.ASLEEP.value
    STOPPED = ServerState.STOPPED.value
    DEMO = "demo: cannot be called"


@dataclass(frozen=True, slots=True)
class RecentCall:
    """How long a server took to answer a call, and whether it succeeded."""

    ms: float
    is_ok: bool


class LogSource(StrEnum):
    """Who wrote a line of a server's log."""

    SERVER = "server"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class LogLine:
    """What a server wrote to its standard error or sent as a log message, or what the gateway noted about it. No secret
    of its configuration is part of it."""

    time: float
    """Seconds since 1970."""
    text: str
    source: LogSource


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The status of a server. `reason` says why it is not ready, or why the last start of a sleeping server failed;
    `problems` lists its unusable items. `retry_in_seconds` is the time until a failed server is tried again, 0 while it
    is being tried. `restarts` counts how often it was connected again after it was lost, or on request, the last time
    because of `restart_reason`."""

    name: str
    transport: Transport
    state: ServerState
    reason: str | None = None
    items: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    attempts: int = 0
    retry_in_seconds: float | None = None
    calls_paused_seconds: float | None = None
    """The time until a call is tried, while calls are refused because the server kept failing."""
    needs_login: bool = False
    """Whether `toolscript login` makes it usable."""
    login_per_user: bool = False
    """Whether calls of a named caller use that caller's own login."""
    sandbox: str | None = None
    """What keeps its program apart from the machine: `bwrap, no network`."""
    restarts: int = 0
    restart_reason: str | None = None
    recent_calls: tuple[RecentCall, ...] = ()
    """Its last calls, the oldest first."""
    log_lines: int = 0
    """The number of lines in its log since the gateway started, also of those that are no longer kept."""


@dataclass(frozen=True, slots=True)
class ServerListing:
    """The items of a server, and the problems with items that cannot be used."""

    items: Sequence[Item]
    problems: Sequence[str] = ()
    approved: Collection[str] = ()
    """The ids of items that were written here: who writes an item approves it."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call as the server sent it, in the names of the protocol. Prompts and resources have no content:
    their whole answer is the structured content.

    >>> CallResult({"content": [{"type": "text", "text": "done"}], "structuredContent": 7}).structured
    7
    """

    raw: Mapping[str, Any]

    @property
    def content(self) -> Sequence[Mapping[str, Any]]:
        """The content blocks."""
        blocks: Sequence[Mapping[str, Any]] = self.raw.get("content", ())
        return blocks

    @property
    def structured(self) -> Any:
        """The structured content, of any JSON type."""
        return self.raw.get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Whether the tool says that it failed."""
        return self.raw.get("isError") is True

    @property
    def needs_input(self) -> bool:
        """Whether the tool asks for input (2026-07-28), to be called again with it."""
        return self.raw.get("resultType") == "input_required"

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")


Progress = Callable[..., Coroutine[Any, Any, None]]
"""Takes the `progress` of a call, its `total` and a `message`; the last two may be None."""

Ask = Callable[[str, Mapping[str, Any]], Coroutine[Any, Any, Mapping[str, Any]]]
"""Sends a request of a server, its method and parameters, to the caller; returns the result."""


@dataclass(frozen=True, slots=True, eq=False)
class CallRelay:
    """What passes between the caller and the server during a call, beside the arguments and the result."""

    on_progress: Progress | None = None
    trace: Mapping[str, str] = field(default_factory=dict)
    """The caller's trace context: the fields of TRACE_FIELDS that it sent."""
    user: str | None = None
    """Whose login a server with a login per user is used with: a caller's name, or empty for the installation itself.
    None where the caller is not known: such servers are not used then."""
    capabilities: Mapping[str, Any] | None = None
    """What the caller's client can be asked for; None if it cannot even learn that a tool needs input."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """`inputResponses` and `requestState` of a caller that calls a tool again, with the input that it needed. The
    state is one that this gateway gave to that caller for this call: the surface has verified that."""
    ask: Ask | None = None
    """Asks the caller while the tool waits; None if that is not possible."""


META_KEY = "toolscript/result"
"""In the `_meta` of a result that was cut: the handle, tokens and bytes of the whole."""
TRACE_FIELDS = ("traceparent", "tracestate", "baggage")
NO_RELAY = CallRelay()
