"""`toolscript setup`: the plan, the question, the flags, and what is never printed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.fixtures.http_services import HttpDouble
from tests.fixtures.terminal import open_terminal
from tests.servers import make_scripted_spec
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.announcement import announce_gateway
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("G-21")

SECRET = "tsk-never-shown"


class Home:
    """A home folder with Cursor's file, and a project folder to run commands in."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self._monkeypatch = home, monkeypatch
        self.cursor = home / ".cursor" / "mcp.json"
        self.config = home / ".toolscript.json"

    def write(self, servers: Mapping[str, Any], file: Path | None = None, key: str = "mcpServers") -> str:
        text = json.dumps({key: servers}, indent=2) + "\n"
        path = file or self.cursor
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return text

    def run(self, *arguments: str, answer: str | None = None) -> Result:
        command = ["setup", *arguments]
        self._monkeypatch.setattr("sys.argv", ["toolscript", *command])
        return CliRunner().invoke(run, command, input=answer)

    def plan(self, *arguments: str) -> dict[str, Any]:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        report: dict[str, Any] = json.loads(result.stdout)
        return report


@pytest.fixture
def home(tmp_path: Path, small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "TOOLSCRIPT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return Home(tmp_path, monkeypatch)


def make_entry(**more: Any) -> dict[str, Any]:
    return make_scripted_spec(tools=["echo", "pid"], env={"TOKEN": SECRET}) | more


def test_the_plan_shows_tools_and_tokens_and_changes_nothing(home: Home) -> None:
    before = home.write({"good": make_entry(), "bad": {"command": "no-such-command"}})
    result = home.run("--dry-run")
    assert result.exit_code == 0
    assert "Cursor" in result.stdout
    assert "2 tools of about" in result.stdout
    assert "become at most 7 tools of about" in result.stdout
    assert "not counted: command not found: no-such-command" in result.stdout
    assert home.cursor.read_text() == before
    assert not home.config.exists()


def test_what_was_not_measured_is_not_called_uncountable(home: Home) -> None:
    home.write({"good": make_entry()})
    result = home.run("--dry-run", "--no-measure")
    assert "good    ?      ?       moves" in result.stdout
    assert "counted" not in result.stdout
    assert json.loads(home.run("--json", "--no-measure").stdout)["measured"] is False


def test_without_a_terminal_nothing_changes_unless_yes_is_given(home: Home) -> None:
    before = home.write({"good": make_entry()})
    result = home.run("--no-measure")
    assert result.exit_code == 2
    assert "nothing was changed: use --yes" in result.stderr
    assert home.cursor.read_text() == before
    assert home.run("--no-measure", answer="y\n").exit_code == 0
    assert list(json.loads(home.cursor.read_text())["mcpServers"]) == ["toolscript"]


def test_a_terminal_gets_the_question(home: Home) -> None:
    before = home.write({"good": make_entry()})
    with open_terminal("setup", "--no-measure") as terminal:
        terminal.wait_for("Move 1 server behind Toolscript?")
        terminal.type("n\n")
        assert terminal.wait_for_end() == 2
    assert home.cursor.read_text() == before


def test_no_secret_is_printed(home: Home) -> None:
    odd = make_entry() | {"comand": "x"}
    home.write({"good": make_entry(), "odd": odd, "web": {"url": f"http://u:{SECRET}@127.0.0.1:9/mcp"}})
    for arguments in (["--dry-run"], ["--json"], ["--yes"], ["--undo"]):
        result = home.run(*arguments)
        assert result.exit_code == 0, result.stderr
        assert SECRET not in result.output


def test_the_plan_as_json_needs_yes_to_be_applied(home: Home) -> None:
    home.write({"good": make_entry()})
    planned = home.plan()
    assert (planned["applied"], planned["config"]) == (False, str(home.config))
    (client,) = planned["clients"]
    (server,) = client["servers"]
    assert {k: client[k] for k in ("client", "file", "scope", "problem", "backup")} == {
        "client": "cursor",
        "file": str(home.cursor),
        "scope": "user",
        "problem": None,
        "backup": None,
    }
    assert {k: server[k] for k in ("name", "action", "target", "reason", "tools", "problem")} == {
        "name": "good",
        "action": "move",
        "target": "good",
        "reason": None,
        "tools": 2,
        "problem": None,
    }
    assert client["before"] == {"tools": 2, "tokens": server["tokens"], "uncounted": 0}
    assert planned["toolscript"]["tools"] == 7
    assert not home.config.exists()
    applied = home.plan("--yes")
    assert applied["applied"]
    assert Path(applied["clients"][0]["backup"]).parent == home.cursor.parent


def test_a_second_setup_has_nothing_to_do(home: Home) -> None:
    home.write({"good": make_entry()})
    home.run("--yes")
    texts = [home.cursor.read_text(), home.config.read_text()]
    again = home.run("--yes")
    assert again.exit_code == 0
    assert "Nothing to move" in again.stdout
    assert [home.cursor.read_text(), home.config.read_text()] == texts


def test_only_the_chosen_client_changes(home: Home) -> None:
    home.write({"good": make_entry()})
    windsurf = home.home / ".codeium" / "windsurf" / "mcp_config.json"
    before = home.write({"good": make_entry()}, windsurf)
    home.run("--client", "cursor", "--no-measure", "--yes")
    assert windsurf.read_text() == before
    assert "toolscript" in home.cursor.read_text()


def test_files_of_a_project_need_a_flag_and_its_servers_are_not_started_without(home: Home) -> None:
    started = home.home / "started"
    touch = {"command": "/bin/sh", "args": ["-c", f"touch {started}"]}
    file = Path.cwd() / ".mcp.json"
    before = home.write({"theirs": touch}, file)
    result = home.run("--yes")
    assert result.exit_code == 0
    assert "~/here/.mcp.json belongs to the project here" in result.stderr
    assert not started.exists()
    assert file.read_text() == before
    home.run("--project", "--yes")
    assert json.loads(home.config.read_text())["mcpServers"]["theirs"] == {**touch, "cwd": str(Path.cwd())}


def test_a_server_that_needs_the_login_of_its_client_stays(home: Home) -> None:
    class Protected(HttpDouble):
        def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
            self.send(request, 401, b"")

    with Protected() as web:
        home.write({"web": {"type": "http", "url": f"{web.root}/mcp"}, "good": make_entry()})
        (client,) = home.plan("--yes")["clients"]
    reasons = {server["name"]: server["reason"] for server in client["servers"]}
    assert reasons["web"] == "needs a login, which Cursor has (HTTP status 401)"
    assert list(json.loads(home.cursor.read_text())["mcpServers"]) == ["web", "toolscript"]
    assert list(json.loads(home.config.read_text())["mcpServers"]) == ["good"]


def test_a_broken_file_is_named_and_others_are_set_up(home: Home) -> None:
    home.cursor.parent.mkdir()
    home.cursor.write_text('{"mcpServers": {')
    alone = home.run("--yes")
    assert alone.exit_code == 2
    assert f"{home.cursor}: expected" in alone.stderr
    home.write({"good": make_entry()}, home.home / ".claude.json")
    both = home.run("--no-measure", "--yes")
    assert both.exit_code == 0
    assert "stays as it is: expected" in both.stdout
    assert home.config.exists()


def test_a_broken_configuration_of_toolscript_stops_the_setup(home: Home) -> None:
    before = home.write({"good": make_entry()})
    home.config.write_text("{,}")
    result = home.run("--yes")
    assert result.exit_code == 2
    assert str(home.config) in result.stderr
    assert home.cursor.read_text() == before


def test_another_configuration_and_data_folder_become_part_of_the_command(home: Home) -> None:
    home.write({"good": make_entry()})
    config = home.home / "own.json"
    home.run("--no-measure", "--yes", "--config", str(config))
    command = json.loads(home.cursor.read_text())["mcpServers"]["toolscript"]
    assert os.path.isabs(command["command"])  # noqa: PTH117
    data = os.environ["TOOLSCRIPT_DATA_DIR"]
    assert command["args"][-5:] == ["mcp", "--config", str(config), "--data-dir", data]
    assert not home.config.exists()


def test_the_file_of_a_client_cannot_receive_its_own_servers(home: Home) -> None:
    home.write({"good": make_entry()})
    result = home.run("--yes", "--config", str(home.cursor))
    assert result.exit_code == 2
    assert "is the file of a client" in result.stderr


def test_a_gateway_that_reads_another_file_is_named(home: Home) -> None:
    home.write({"good": make_entry()})
    other = home.home / "other.json"
    with announce_gateway(load_settings(config=other), "http://127.0.0.1:1"):
        named = home.run("--no-measure", "--yes")
    assert f"reads {other}, and agents use it" in named.stderr
    home.run("--undo")
    with announce_gateway(load_settings(), "http://127.0.0.1:1"):
        assert home.run("--no-measure", "--yes").stderr == ""


def test_undo_without_a_setup_says_so_and_force_needs_undo(home: Home) -> None:
    assert home.run("--undo").exit_code == 4
    assert home.run("--force").exit_code == 2


def test_undo_refuses_when_servers_have_changed_since(home: Home) -> None:
    before = home.write({"good": make_entry()})
    home.run("--no-measure", "--yes")
    home.write({"other": {"command": "x"}})
    refused = home.run("--undo")
    assert refused.exit_code == 7
    assert "--force" in refused.stderr
    assert home.run("--undo", "--force").exit_code == 0
    assert home.cursor.read_text() == before


@pytest.mark.parametrize("settings", [None, '{\n  // mine\n  "model": "opus"\n}\n'])
def test_hooks_are_added_on_request_and_removed_by_an_undo(home: Home, settings: str | None) -> None:
    file = home.home / ".claude" / "settings.json"
    file.parent.mkdir()
    if settings is not None:
        file.write_text(settings)
    home.write({"good": make_entry()})
    assert home.plan("--no-measure")["hooks"] == []
    assert home.plan("--no-measure", "--hooks", "--client", "cursor")["hooks"] == []
    result = home.run("--no-measure", "--hooks", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "hook added to ~/.claude/settings.json" in result.stdout
    assert " suggest" in file.read_text()
    assert home.plan("--no-measure", "--hooks")["hooks"] == []
    assert home.run("--undo").exit_code == 0
    assert (file.read_text() if file.exists() else None) == settings


def test_a_hook_alone_can_be_added(home: Home) -> None:
    (home.home / ".claude").mkdir()
    result = home.run("--hooks", "--yes")
    assert result.exit_code == 0, result.stderr
    assert (home.home / ".claude" / "settings.json").exists()
    assert not home.config.exists()
