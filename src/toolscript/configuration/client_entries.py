"""The clients that `toolscript setup` knows: what each calls the parts of a server's entry, and the entry it gets.

docs/guide/clients.md says what of this was tried with the client and what was only read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolscript.domain.errors import Invalid

Entry = dict[str, Any]

# How long a client waits for our first answer, where it would give up sooner by itself: `toolscript mcp` answers at
# once, but not on a machine that has just started.
STARTUP_SECONDS = 30
STARTUP_MS = STARTUP_SECONDS * 1000
ABOUT = "Finds and calls the tools of all connected MCP servers."


@dataclass(frozen=True, slots=True)
class Client:
    """A client that has servers in a file."""

    title: str
    """Its name, for people."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """What the entry for Toolscript has beside its command: its type, what shows its tools in the first turn, and what
    the client waits for them."""
    read: Callable[[Entry], Entry] | None = None
    """Turns an entry into one of Toolscript's configuration; None if they are alike. Raises Invalid if only the client
    can use the entry."""
    names: tuple[str, str] = ("command", "args")
    """Its words for the program and its arguments; twice the same for a list of both."""

    def build_entry(self, name: str, command: Sequence[str]) -> Entry:
        """The entry that starts Toolscript."""
        program, arguments = self.names
        given = {"name": name} if "name" in self.extras else {}
        if program == arguments:
            return {**self.extras, **given, program: list(command)}
        return {**self.extras, **given, program: command[0], arguments: list(command[1:])}


def _read_codex(entry: Entry) -> Entry:
    _refuse(entry, "env_vars", "env_http_headers", "bearer_token_env_var", reason="only Codex has its variables")
    names = {"http_headers": "headers", "enabled_tools": "includeTools", "disabled_tools": "excludeTools"}
    dropped = (
        "startup_timeout_sec",
        "startup_timeout_ms",
        "tool_timeout_sec",
        "required",
        "default_tools_approval_mode",
    )
    return _rename(entry, names, dropped)


def _read_copilot(entry: Entry) -> Entry:
    tools = entry.get("tools")
    chosen = {} if tools in (None, ["*"], "*") else {"includeTools": tools}
    kind = {"type": "stdio"} if entry.get("type") == "local" else {}
    return _rename(entry, {}, ("tools", "deferTools", "timeout")) | kind | chosen


def _read_opencode(entry: Entry) -> Entry:
    if "{env:" in str(entry) or "{file:" in str(entry):
        raise Invalid("only opencode can resolve {env:…} and {file:…}")
    command = entry.get("command")
    words = command if isinstance(command, list) else [command]
    started = {"command": words[0], "args": words[1:]} if command else {}
    dropped = ("type", "command", "timeout", *(("oauth",) if entry.get("oauth") is False else ()))
    return started | _rename(entry, {"environment": "env"}, dropped)


def _read_zed(entry: Entry) -> Entry:
    if not entry.get("command") and not entry.get("url"):
        raise Invalid("an extension of Zed runs it")
    command = entry.get("command")  # an object in older settings
    started = {"command": command.get("path")} | _rename(command, {}, ("path",)) if isinstance(command, dict) else {}
    return _rename(entry, {}, ("source", "settings", "timeout", "remote")) | started


def _read_goose(entry: Entry) -> Entry:
    if entry.get("type") not in {"stdio", "sse", "streamable_http"}:
        raise Invalid("it is part of Goose")
    _refuse(entry, "env_keys", reason="Goose's keyring has its secrets")
    names = {"cmd": "command", "uri": "url", "envs": "env", "available_tools": "includeTools"}
    dropped = ["name", "display_name", "description", "timeout", "bundled", "env_keys", "socket"]
    if not entry.get("available_tools"):
        dropped.append("available_tools")
    return _rename(entry, names, dropped)


def _read_continue(entry: Entry) -> Entry:
    if "${{" in str(entry):
        raise Invalid("only Continue can resolve ${{ … }}")
    _refuse(entry, "apiKey", reason="only Continue sends its apiKey")
    options = entry.get("requestOptions") or {}
    headers = {"headers": options["headers"]} if isinstance(options, dict) and options.get("headers") else {}
    return _rename(entry, {}, ("name", "connectionTimeout", "requestOptions", "faviconUrl")) | headers


def _rename(entry: Mapping[str, Any], names: Mapping[str, str], dropped: Sequence[str]) -> Entry:
    return {names.get(key, key): value for key, value in entry.items() if key not in dropped}


def _refuse(entry: Entry, *keys: str, reason: str) -> None:
    if used := [key for key in keys if entry.get(key)]:
        raise Invalid(f"{reason} ({', '.join(used)})")


# By the names on the command line. Claude Code offers the tools of a server with `alwaysLoad` in the first turn: it
# waits up to 5 s for them, and about 2 s, then goes on without them, otherwise.
CLIENTS: Mapping[str, Client] = {
    "claude-desktop": Client("Claude Desktop"),
    "claude-code": Client("Claude Code", {"type": "stdio", "alwaysLoad": True}),
    "cursor": Client("Cursor"),
    "vscode": Client("VS Code", {"type": "stdio"}),
    "windsurf": Client("Windsurf"),
    "codex": Client("Codex", {"startup_timeout_sec": STARTUP_SECONDS}, _read_codex),
    "gemini": Client("Gemini CLI"),
    "copilot": Client("Copilot CLI", {"type": "local", "tools": ["*"], "deferTools": "never"}, _read_copilot),
    "opencode": Client(
        "opencode",
        {"type": "local", "enabled": True, "timeout": STARTUP_MS},
        _read_opencode,
        ("command", "command"),
    ),
    "zed": Client("Zed", {"source": "custom"}, _read_zed),
    "cline": Client("Cline", {"type": "stdio"}),
    "goose": Client(
        "Goose",
        {"name": "", "description": ABOUT, "type": "stdio", "enabled": True, "timeout": 300},
        _read_goose,
        ("cmd", "args"),
    ),
    "continue": Client("Continue", {"name": "", "type": "stdio", "connectionTimeout": STARTUP_MS}, _read_continue),
    "kiro": Client("Kiro"),
    "junie": Client("Junie of JetBrains"),
}


def convert_entry(client: str, source: str, value: Any) -> str:
    """The source of an entry, in JSON and with the words of Toolscript's configuration. Raises Invalid if only its
    client can use it."""
    read = CLIENTS[client].read
    if read is None or not isinstance(value, dict):
        return source
    entry = read(value)
    # Most of these clients take `${NAME}` as it is written.
    if "${" in str(entry) and client != "copilot":
        raise Invalid("its ${…} means something else to Toolscript")
    return json.dumps(entry, ensure_ascii=False)
