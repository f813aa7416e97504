"""Where the MCP clients of a user keep their servers, on Linux, macOS and Windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolscript.configuration.jsonc import JsoncNode

# The names of clients on the command line, and those that people know.
CLIENTS = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "windsurf": "Windsurf",
}
# What an entry that `toolscript setup` writes has beside its command. Claude Code offers the tools of a server with
# `alwaysLoad` in the first turn: it waits up to 5 s for them, and about 2 s, then goes on without them, otherwise.
ENTRY_KEYS: Mapping[str, Mapping[str, str | bool]] = {
    "claude-code": {"type": "stdio", "alwaysLoad": True},
    "vscode": {"type": "stdio"},
}
KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientFile:
    """A file that a client reads, whether it exists or not."""

    client: str
    file: Path
    servers: KeyPath = ("mcpServers",)
    """The path of keys to the servers of the whole file."""
    project: Path | None = None
    """The project that the file belongs to; None for the user's own file."""

    @property
    def title(self) -> str:
        """The client's name, for people."""
        return CLIENTS[self.client]


@dataclass(frozen=True, slots=True)
class ServerList:
    """The servers in one place of a file."""

    path: KeyPath
    node: JsoncNode
    project: Path | None
    """The project that these servers are for; None if they are for all."""


def list_client_files(
    *, home: Path, folder: Path, environment: Mapping[str, str], platform: str
) -> tuple[ClientFile, ...]:
    """The files of all clients: the user's files, then the files of the project in `folder`. `platform` is a value of
    `sys.platform`."""
    if platform == "darwin":
        applications = home / "Library" / "Application Support"
    elif platform == "win32":
        applications = Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        applications = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    claude_code = Path(environment.get("CLAUDE_CONFIG_DIR") or home)
    editors = [applications / name / "User" for name in ("Code", "Code - Insiders")]
    files = [
        ClientFile("claude-desktop", applications / "Claude" / "claude_desktop_config.json"),
        ClientFile("claude-code", claude_code / ".claude.json"),
        ClientFile("cursor", home / ".cursor" / "mcp.json"),
        *(ClientFile("vscode", editor / "mcp.json", ("servers",)) for editor in editors),
        *(ClientFile("vscode", editor / "settings.json", ("mcp", "servers")) for editor in editors),
        ClientFile("windsurf", home / ".codeium" / "windsurf" / "mcp_config.json"),
        ClientFile("claude-code", folder / ".mcp.json", project=folder),
        ClientFile("cursor", folder / ".cursor" / "mcp.json", project=folder),
        ClientFile("vscode", folder / ".vscode" / "mcp.json", ("servers",), project=folder),
    ]
    first = {each.file: each for each in reversed(files)}  # in the home folder, Cursor's file is both
    return tuple(each for each in files if first[each.file] is each)


def find_server_lists(source: ClientFile, root: JsoncNode) -> list[ServerList]:
    """The places of a file that have servers. Claude Code keeps the servers of single projects in its own file, too."""
    lists = [(source.servers, source.project)]
    projects = root.find("projects")
    if source.client == "claude-code" and source.project is None and projects and isinstance(projects.value, dict):
        lists += [(("projects", path, "mcpServers"), Path(path)) for path in projects.value]
    found = ((path, root.find(*path), project) for path, project in lists)
    return [ServerList(path, node, project) for path, node, project in found if node and node.value]
