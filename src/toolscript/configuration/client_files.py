"""Where the MCP clients of a user keep their servers, on Linux, macOS and Windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolscript.configuration.client_entries import CLIENTS
from toolscript.configuration.formats.file_format import KeyPath
from toolscript.configuration.jsonc import JsoncNode

OPENCODE_FILES = ("opencode.json", "opencode.jsonc")
ZED = ("context_servers",)


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
        return CLIENTS[self.client].title


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
    cline = Path("globalStorage", "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json")
    files = [
        ClientFile("claude-desktop", applications / "Claude" / "claude_desktop_config.json"),
        ClientFile("claude-code", claude_code / ".claude.json"),
        ClientFile("cursor", home / ".cursor" / "mcp.json"),
        *(ClientFile("vscode", editor / "mcp.json", ("servers",)) for editor in editors),
        *(ClientFile("vscode", editor / "settings.json", ("mcp", "servers")) for editor in editors),
        ClientFile("windsurf", home / ".codeium" / "windsurf" / "mcp_config.json"),
        *(ClientFile("cline", editor / cline) for editor in editors),
        ClientFile("kiro", home / ".kiro" / "settings" / "mcp.json"),
        ClientFile("junie", home / ".junie" / "mcp" / "mcp.json"),
        *_list_terminal_files(home, environment, platform, applications),
        ClientFile("claude-code", folder / ".mcp.json", project=folder),
        ClientFile("cursor", folder / ".cursor" / "mcp.json", project=folder),
        ClientFile("vscode", folder / ".vscode" / "mcp.json", ("servers",), project=folder),
        ClientFile("codex", folder / ".codex" / "config.toml", ("mcp_servers",), project=folder),
        ClientFile("gemini", folder / ".gemini" / "settings.json", project=folder),
        ClientFile("copilot", folder / ".github" / "mcp.json", project=folder),
        *(ClientFile("opencode", folder / name, ("mcp",), project=folder) for name in OPENCODE_FILES),
        ClientFile("zed", folder / ".zed" / "settings.json", ZED, project=folder),
        ClientFile("kiro", folder / ".kiro" / "settings" / "mcp.json", project=folder),
        ClientFile("junie", folder / ".junie" / "mcp" / "mcp.json", project=folder),
    ]
    first = {each.file: each for each in reversed(files)}  # in the home folder, Cursor's file is both
    return tuple(each for each in files if first[each.file] is each)


def _list_terminal_files(
    home: Path, environment: Mapping[str, str], platform: str, applications: Path
) -> list[ClientFile]:
    """The files of clients that began in a terminal: they have the same places on Linux and macOS."""
    dotted = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    is_windows = platform == "win32"
    codex = Path(environment.get("CODEX_HOME") or home / ".codex")
    copilot = Path(environment.get("COPILOT_HOME") or home / ".copilot")
    cline = Path(environment.get("CLINE_DIR") or home / ".cline")
    goose = applications / "Block" / "goose" / "config" if is_windows else dotted / "goose"
    return [
        ClientFile("codex", codex / "config.toml", ("mcp_servers",)),
        ClientFile("gemini", home / ".gemini" / "settings.json"),
        ClientFile("copilot", copilot / "mcp-config.json"),
        *(ClientFile("opencode", dotted / "opencode" / name, ("mcp",)) for name in OPENCODE_FILES),
        ClientFile("zed", (applications / "Zed" if is_windows else dotted / "zed") / "settings.json", ZED),
        ClientFile("cline", cline / "data" / "settings" / "cline_mcp_settings.json"),
        ClientFile("goose", goose / "config.yaml", ("extensions",)),
        ClientFile("continue", Path(environment.get("CONTINUE_GLOBAL_DIR") or home / ".continue") / "config.yaml"),
    ]


def find_server_lists(source: ClientFile, root: JsoncNode) -> list[ServerList]:
    """The places of a file that have servers. Claude Code keeps the servers of single projects in its own file, too."""
    lists = [(source.servers, source.project)]
    projects = root.find("projects")
    if source.client == "claude-code" and source.project is None and projects and isinstance(projects.value, dict):
        lists += [(("projects", path, "mcpServers"), Path(path)) for path in projects.value]
    found = ((path, root.find(*path), project) for path, project in lists)
    return [ServerList(path, node, project) for path, node, project in found if node and node.value]
