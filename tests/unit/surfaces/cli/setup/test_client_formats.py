"""The file of every client: what a setup makes of it, to the byte, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from toolscript.configuration.client_entries import CLIENTS
from toolscript.configuration.client_files import ClientFile, list_client_files
from toolscript.configuration.setup_plan import assign_names, find_servers, plan_changes
from toolscript.domain.errors import Invalid
from toolscript.surfaces.cli.setup.changes import apply_changes, undo_changes

pytestmark = pytest.mark.req("G-21", "A-01")

COMMAND = ["/opt/toolscript", "mcp"]


@dataclass(frozen=True, slots=True)
class Golden:
    """The text of a client's file before and after a setup, the entries that moved, and servers that stay."""

    client: str
    file: str
    before: str
    after: str
    moved: dict[str, Any]
    staying: tuple[str, ...] = ()


TIME = {"command": "uvx", "args": ["time"], "env": {"TZ": "UTC"}}
PLAIN_BEFORE = """
    {
      // servers
      "first": 1,
      "%s": {
        "time": { "command": "uvx", "args": ["time"], "env": { "TZ": "UTC" } }, // clock
      },
      "last": [2]
    }
"""
PLAIN_AFTER = """
    {
      // servers
      "first": 1,
      "%s": {
         // clock
        "toolscript": {
          %s
        }
      },
      "last": [2]
    }
"""


def make_plain(client: str, file: str, *extras: str, key: str = "mcpServers") -> Golden:
    """A client with the entries of Claude Desktop, in JSON with comments."""
    lines = [*extras, '"command": "/opt/toolscript"', '"args": ["mcp"]']
    after = PLAIN_AFTER % (key, ",\n          ".join(lines))
    return Golden(client, file, PLAIN_BEFORE % key, after, {"time": TIME})


GOLDEN = [
    make_plain("claude-desktop", ".config/Claude/claude_desktop_config.json"),
    make_plain("claude-code", ".claude.json", '"type": "stdio"', '"alwaysLoad": true'),
    make_plain("cursor", ".cursor/mcp.json"),
    make_plain("vscode", ".config/Code/User/mcp.json", '"type": "stdio"', key="servers"),
    make_plain("windsurf", ".codeium/windsurf/mcp_config.json"),
    make_plain("gemini", ".gemini/settings.json"),
    make_plain("kiro", ".kiro/settings/mcp.json"),
    make_plain("junie", ".junie/mcp/mcp.json"),
    make_plain("cline", ".cline/data/settings/cline_mcp_settings.json", '"type": "stdio"'),
    make_plain("zed", ".config/zed/settings.json", '"source": "custom"', key="context_servers"),
    make_plain(
        "copilot",
        ".copilot/mcp-config.json",
        *('"type": "local"', '"tools": ["*"]', '"deferTools": "never"'),
    ),
    Golden(
        "opencode",
        ".config/opencode/opencode.jsonc",
        """
        {
          "theme": "dark", // at night
          "mcp": {
            "time": {"type": "local", "command": ["uvx", "time"], "environment": {"TZ": "UTC"}, "enabled": true},
            "web": {"type": "remote", "url": "https://example.com/mcp", "oauth": false, "timeout": 9000},
            "secret": {"type": "local", "command": ["x"], "environment": {"KEY": "{env:KEY}"}}
          }
        }
        """,
        """
        {
          "theme": "dark", // at night
          "mcp": {
            "secret": {"type": "local", "command": ["x"], "environment": {"KEY": "{env:KEY}"}},
            "toolscript": {
              "type": "local",
              "enabled": true,
              "timeout": 30000,
              "command": ["/opt/toolscript", "mcp"]
            }
          }
        }
        """,
        {"time": TIME | {"enabled": True}, "web": {"url": "https://example.com/mcp"}},
        ("secret",),
    ),
    Golden(
        "codex",
        ".codex/config.toml",
        '''
        # mine
        model = "gpt-5"
        notify = [
          "say", # aloud
        ]

        [mcp_servers.time]
        command = "uvx"
        args = [
          "time",  # zones
        ]
        startup_timeout_sec = 20

        [mcp_servers.time.env]
        TZ = "UTC"

        # a site
        [mcp_servers."my.web"]
        url = "https://example.com/mcp"
        http_headers = { "X-Team" = "a" }

        [mcp_servers.passed]
        command = "x"
        env_vars = ["TOKEN"]

        [profiles.fast] # quick
        prompt = """
        [mcp_servers.not_one]
        """
        ''',
        '''
        # mine
        model = "gpt-5"
        notify = [
          "say", # aloud
        ]

        # a site

        [mcp_servers.passed]
        command = "x"
        env_vars = ["TOKEN"]

        [profiles.fast] # quick
        prompt = """
        [mcp_servers.not_one]
        """

        [mcp_servers.toolscript]
        startup_timeout_sec = 30
        command = "/opt/toolscript"
        args = ["mcp"]
        ''',
        {"time": TIME, "my.web": {"url": "https://example.com/mcp", "headers": {"X-Team": "a"}}},
        ("passed",),
    ),
    Golden(
        "goose",
        ".config/goose/config.yaml",
        """
        # mine
        GOOSE_PROVIDER: openai
        extensions:
          developer:
            enabled: true
            type: builtin
            name: developer
          # clock
          time:
            type: stdio
            cmd: uvx
            args: [time]
            envs:
              TZ: UTC
            env_keys: []
            timeout: 300
            description: |
              Tells the time.

          github:
            type: stdio
            cmd: gh
            env_keys:
              - TOKEN
        # end
        GOOSE_MODE: auto
        """,
        """
        # mine
        GOOSE_PROVIDER: openai
        extensions:
          developer:
            enabled: true
            type: builtin
            name: developer
          # clock

          github:
            type: stdio
            cmd: gh
            env_keys:
              - TOKEN
          toolscript:
            name: "toolscript"
            description: "Finds and calls the tools of all connected MCP servers."
            type: "stdio"
            enabled: true
            timeout: 300
            cmd: "/opt/toolscript"
            args: ["mcp"]
        # end
        GOOSE_MODE: auto
        """,
        {"time": {"type": "stdio"} | TIME},
        ("developer", "github"),
    ),
    Golden(
        "continue",
        ".continue/config.yaml",
        """
        name: Mine
        version: 1.0.0
        mcpServers:
          # clock
          - name: time
            command: uvx
            args:
              - time
            env:
              TZ: UTC
          - name: web
            type: streamable-http
            url: https://example.com/mcp
            requestOptions: {headers: {X-Team: a}}
        models: []  # none
        """,
        """
        name: Mine
        version: 1.0.0
        mcpServers:
          - name: toolscript
            type: "stdio"
            connectionTimeout: 30000
            command: "/opt/toolscript"
            args: ["mcp"]
          # clock
        models: []  # none
        """,
        {
            "time": TIME,
            "web": {"type": "streamable-http", "url": "https://example.com/mcp", "headers": {"X-Team": "a"}},
        },
    ),
]
BY_CLIENT = pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.client)


class Home:
    """A home folder with the file of one client."""

    def __init__(self, folder: Path, golden: Golden) -> None:
        self.folder = folder
        self.file = folder / golden.file
        self.target = folder / ".toolscript.json"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        sources = list_client_files(home=folder, folder=folder / "shop", environment={}, platform="linux")
        self.source: ClientFile = next(each for each in sources if each.file == self.file)
        assert self.source.client == golden.client

    def write(self, text: str) -> None:
        self.file.write_text(text, encoding="utf-8", newline="")

    def read(self) -> str:
        return self.file.read_bytes().decode()

    def set_up(self) -> dict[str, str]:
        """Moves the servers; returns why others stay."""
        found = find_servers(self.source, home=self.folder, environment={}, own_urls=frozenset())
        assert found
        assert found.problem is None
        files = assign_names([found], None)
        apply_changes(self.folder / "data", plan_changes(files, self.target, None, COMMAND))
        return {server.name: server.reason for server in files[0].servers if server.reason}


@BY_CLIENT
def test_the_servers_of_a_client_move_and_the_rest_of_its_file_stays(tmp_path: Path, golden: Golden) -> None:
    home = Home(tmp_path, golden)
    home.write(dedent(golden.before).lstrip())
    assert tuple(home.set_up()) == golden.staying
    assert home.read() == dedent(golden.after).lstrip()
    assert json.loads(home.target.read_text())["mcpServers"] == golden.moved


@BY_CLIENT
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["unix", "windows"])
def test_an_undo_restores_every_byte(tmp_path: Path, golden: Golden, newline: str) -> None:
    home = Home(tmp_path, golden)
    before = dedent(golden.before).lstrip().replace("\n", newline)
    home.write(before)
    home.set_up()
    assert home.read() != before
    restored, _ = undo_changes(tmp_path / "data")
    assert {each.action for each in restored} == {"restored", "removed"}
    assert home.read() == before
    assert not home.target.exists()


@BY_CLIENT
def test_an_undo_keeps_what_the_client_has_changed_since(tmp_path: Path, golden: Golden) -> None:
    home = Home(tmp_path, golden)
    home.write(dedent(golden.before).lstrip())
    home.set_up()
    changes = {"first": "second", "theme": "colour", "gpt-5": "gpt-6", "openai": "ollama", "Mine": "Yours"}
    old, new = next((old, new) for old, new in changes.items() if old in home.read())
    home.write(home.read().replace(old, new))
    restored, _ = undo_changes(tmp_path / "data")
    assert "merged" in {each.action for each in restored}
    after = find_servers(home.source, home=tmp_path, environment={}, own_urls=frozenset())
    assert after
    assert {server.name for server in after.servers} == {*golden.moved, *golden.staying}
    assert new in home.read()


@BY_CLIENT
def test_a_second_setup_changes_nothing(tmp_path: Path, golden: Golden) -> None:
    home = Home(tmp_path, golden)
    home.write(dedent(golden.before).lstrip())
    home.set_up()
    found = find_servers(home.source, home=tmp_path, environment={}, own_urls=frozenset())
    assert found
    assert plan_changes(assign_names([found], None), home.target, None, COMMAND) == []
    assert [server.name for server in found.servers if server.is_toolscript] == ["toolscript"]


def test_every_client_has_a_golden_file() -> None:
    assert {golden.client for golden in GOLDEN} == set(CLIENTS)


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("codex", 'mcp_servers = { time = { command = "uvx" } }\n'),
        ("goose", "extensions: {time: {type: stdio, cmd: uvx}}\n"),
        ("goose", "base: &base\n  time: {type: stdio, cmd: uvx}\nextensions: *base\n"),
    ],
)
def test_a_file_whose_layout_cannot_be_edited_is_refused(tmp_path: Path, client: str, text: str) -> None:
    home = Home(tmp_path, next(golden for golden in GOLDEN if golden.client == client))
    home.write(text)
    with pytest.raises(Invalid, match="layout"):
        home.set_up()
    assert home.read() == text


@pytest.mark.parametrize(
    ("client", "text", "problem"),
    [
        ("codex", "a = 1\n[mcp_servers.x\n", "line 2"),
        ("goose", "extensions:\n  a: [\n", "line 3"),
        ("continue", "mcpServers:\n  - name: a\n    command: x\n  - name: a\n    command: y\n", "duplicate"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem_with_its_line(
    tmp_path: Path, client: str, text: str, problem: str
) -> None:
    home = Home(tmp_path, next(golden for golden in GOLDEN if golden.client == client))
    home.write(text)
    found = find_servers(home.source, home=tmp_path, environment={}, own_urls=frozenset())
    assert found
    assert problem in str(found.problem)
