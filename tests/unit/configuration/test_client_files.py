"""Where clients keep their servers on each system."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolscript.configuration.client_files import ClientFile, find_server_lists, list_client_files
from toolscript.configuration.jsonc import parse_jsonc

HOME, FOLDER = Path("/home/ann"), Path("/home/ann/code/shop")


def list_files(platform: str, folder: Path = FOLDER, **environment: str) -> dict[Path, ClientFile]:
    files = list_client_files(home=HOME, folder=folder, environment=environment, platform=platform)
    return {each.file: each for each in files}


@pytest.mark.req("G-21")
@pytest.mark.parametrize(
    ("platform", "applications"),
    [
        ("linux", HOME / ".config"),
        ("darwin", HOME / "Library" / "Application Support"),
        ("win32", HOME / "AppData" / "Roaming"),
    ],
)
def test_each_system_has_its_places(platform: str, applications: Path) -> None:
    files = list_files(platform)
    user = {str(f.file): (f.client, f.servers) for f in files.values() if not f.project}
    editor = applications / "Code" / "User"
    expected = {
        str(applications / "Claude" / "claude_desktop_config.json"): ("claude-desktop", ("mcpServers",)),
        str(HOME / ".claude.json"): ("claude-code", ("mcpServers",)),
        str(HOME / ".cursor" / "mcp.json"): ("cursor", ("mcpServers",)),
        str(editor / "mcp.json"): ("vscode", ("servers",)),
        str(editor / "settings.json"): ("vscode", ("mcp", "servers")),
        str(HOME / ".codeium" / "windsurf" / "mcp_config.json"): ("windsurf", ("mcpServers",)),
    }
    assert expected.items() <= user.items()


def test_variables_move_the_places() -> None:
    linux = list_files("linux", XDG_CONFIG_HOME="/x", CLAUDE_CONFIG_DIR="/claude")
    assert {Path("/x/Claude/claude_desktop_config.json"), Path("/claude/.claude.json")} <= linux.keys()
    assert Path("/a/Claude/claude_desktop_config.json") in list_files("win32", APPDATA="/a")


def test_files_of_a_project_belong_to_it() -> None:
    project = {f.file: f.client for f in list_files("linux").values() if f.project == FOLDER}
    assert project == {
        FOLDER / ".mcp.json": "claude-code",
        FOLDER / ".cursor" / "mcp.json": "cursor",
        FOLDER / ".vscode" / "mcp.json": "vscode",
        FOLDER / ".codex" / "config.toml": "codex",
        FOLDER / ".gemini" / "settings.json": "gemini",
        FOLDER / ".github" / "mcp.json": "copilot",
        FOLDER / "opencode.json": "opencode",
        FOLDER / "opencode.jsonc": "opencode",
        FOLDER / ".zed" / "settings.json": "zed",
        FOLDER / ".kiro" / "settings" / "mcp.json": "kiro",
        FOLDER / ".junie" / "mcp" / "mcp.json": "junie",
    }


def test_in_the_home_folder_the_file_of_the_user_is_not_one_of_a_project() -> None:
    assert list_files("linux", HOME)[HOME / ".cursor" / "mcp.json"].project is None


def test_claude_code_has_servers_for_all_projects_and_for_each() -> None:
    text = '{"mcpServers": {"a": {}}, "projects": {"/p": {"mcpServers": {"b": {}}}, "/q": {"mcpServers": {}}, "/r": 1}}'
    source = ClientFile("claude-code", HOME / ".claude.json")
    found = find_server_lists(source, parse_jsonc(text).root)
    assert [(each.path, each.project) for each in found] == [
        (("mcpServers",), None),
        (("projects", "/p", "mcpServers"), Path("/p")),
    ]
