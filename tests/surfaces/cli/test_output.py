"""What commands print in a terminal and in a pipe: text of servers cannot control the terminal, and a pipe gets exactly
what there is, until its reader has enough."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.fixtures.examples import choose
from tests.fixtures.terminal import SETTINGS, TIMEOUT_SECONDS, open_terminal
from tests.servers import make_scripted_spec
from tests.servers.gateway import run_gateway
from tests.servers.preloaded import toolscript_command
from toolscript import __version__
from toolscript.surfaces.cli.main import run
from toolscript.surfaces.cli.terminal.text import format_json

pytestmark = [
    pytest.mark.req("X-04", "G-09"),
    pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals on Windows"),
]

# The title of the window, CSI as one character, right-to-left override, a table's border, line ends.
HOSTILE = "Reads \x1b]0;gotcha\x07 \x9b31m red \u202e txt.exe | one\r\ntwo \u2028 \U000e0001 end"
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e\U000e0001]|\x1b(?!\[[0-9;]*m)")


@pytest.fixture
def hostile_server(small_folder: Path) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": HOSTILE}}}
    tool = {"name": "read", "description": HOSTILE, "inputSchema": schema}
    Path("lists.json").write_text(json.dumps({"tools": [tool]}))
    entry = make_scripted_spec(watch=str(Path("lists.json").absolute())) | {"trust": "open"}
    Path(".toolscript.json").write_text(json.dumps({"mcpServers": {"bad": entry}}))
    assert CliRunner().invoke(run, ["sync"]).exit_code == 0


def in_terminal(*arguments: str, columns: int = 100) -> str:
    with open_terminal(*arguments, columns=columns) as terminal:
        assert terminal.wait_for_end() == 0
    return terminal.shown.replace("\r\n", "\n")


def in_pipe(*arguments: str) -> str:
    return subprocess.run(
        [*toolscript_command(), *arguments], capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS
    ).stdout


@pytest.mark.extended
@pytest.mark.usefixtures("hostile_server")
def test_json_in_a_terminal_is_the_same_json_without_control_characters() -> None:
    piped = in_pipe("search", "read", "--json")
    exact = json.loads(piped)
    assert exact["results"][0]["description"] == HOSTILE
    assert "\u202e" in piped
    for arguments in (["--json"], ["--output", "json"]):
        shown = in_terminal("search", "read", *arguments)
        assert not CONTROL.search(shown)
        assert json.loads(shown) == exact


@pytest.mark.usefixtures("hostile_server")
@pytest.mark.parametrize("columns", choose([80, 120], 80))
def test_types_in_a_terminal_have_no_control_characters(columns: int) -> None:
    piped = in_pipe("search", "read", "--output", "types")
    table = [line for line in piped.splitlines() if line.startswith("| bad__read |")]
    assert len(table) == 1
    shown = in_terminal("search", "read", "--output", "types", columns=columns)
    assert not CONTROL.search(shown)
    assert [line for line in shown.splitlines() if line.startswith("| bad__read |")] == table
    assert "export" in shown
    assert not CONTROL.search(in_terminal("get-types", columns=columns))
    assert not CONTROL.search(in_terminal("list-tools", columns=columns))


@pytest.mark.parametrize("value", ["\x9b2J", "\u202e", "\U000e0001", "\ud800", {"a": ["\x1b", "Grüße 世界 👍"]}])
def test_every_value_is_the_same_json_in_a_terminal(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for indent in (None, 2):
        text = format_json(value, indent=indent)
        assert text.replace("\n", "").isprintable()
        assert json.loads(text) == value
    assert "Grüße 世界 👍" in format_json("Grüße 世界 👍")


# --- a reader that has enough ---


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (["list-tools", "--json"], ""),
        (["list-tools"], "1"),
        pytest.param(["skills", "list"], "", marks=pytest.mark.extended),
    ],
)
def test_a_closed_pipe_ends_a_command_with_success(arguments: list[str], unbuffered: str, demo_folder: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)  # the reader is gone before the first line
    environment = {**os.environ, **SETTINGS, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(
        [*toolscript_command(), *arguments], stdout=theirs, stderr=subprocess.PIPE, env=environment
    ) as process:
        os.close(theirs)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(timeout=TIMEOUT_SECONDS) == 0


def test_another_broken_pipe_is_not_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fail() -> None:
        raise BrokenPipeError

    monkeypatch.setitem(run.commands, "fail", fail)
    assert CliRunner().invoke(run, ["fail"]).exit_code == 1


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version_is_printed(flag: str) -> None:
    assert CliRunner().invoke(run, [flag]).output == f"{__version__}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("arguments", [["-V"], ["list-tools"]])
def test_output_that_cannot_be_written_is_one_sentence(arguments: list[str], demo_folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*toolscript_command(), *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **SETTINGS},
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
    assert ended.returncode == 3
    assert ended.stderr.startswith("error: cannot write: No space left on device.")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serch", "read a file"], "No such command 'serch'. Did you mean 'search'?"),
        (["servrs"], "No such command 'servrs'. Did you mean 'servers' or 'list-servers'?"),
        (["keys", "creat"], "No such command 'creat'. Did you mean 'create'?"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(words: list[str], message: str) -> None:
    result = CliRunner().invoke(run, words)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.req("G-02")
def test_the_failure_of_a_server_is_shown_once(small_folder: Path) -> None:
    entries = {"bad": {"command": "no-such-command"}, "good": make_scripted_spec(tools=["echo"])}
    Path(".toolscript.json").write_text(json.dumps({"mcpServers": entries}))
    with run_gateway(Path.cwd(), "--data-dir", str(small_folder)) as gateway:
        assert "no-such-command" not in gateway.output
    assert gateway.log.read_text().count("no-such-command") == 1
    with open_terminal("gateway", "start", "--port", "0", "--data-dir", str(small_folder)) as terminal:
        terminal.wait_for("Serving")
        assert "command not found: no-such-command" in terminal.shown
        assert "server failed" not in terminal.shown
        terminal.process.terminate()
        assert terminal.wait_for_end() == 0
