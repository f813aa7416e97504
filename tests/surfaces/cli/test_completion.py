"""Completion of names in a shell."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from tests.fixtures.limits import set_limits
from tests.servers import make_scripted_spec
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("G-09")

PROGRAM = Path(sys.executable).with_name("toolscript")


def complete(*words: str) -> list[str]:
    """What a shell would offer for the last of these words."""
    *before, incomplete = words
    return [item.value for item in ShellComplete(run, {}, "toolscript", "_X").get_completions(before, incomplete)]


@pytest.fixture
def synced(small_folder: Path) -> Path:
    """A data folder with the tools of two servers, one with names that a shell would execute."""
    names = ["plain", "a;rm -rf x", "$(reboot)", "two words", "line\nbreak", "`id`"]
    tools = [{"name": name, "description": "First line.\nSecond line.\x1b[2J"} for name in names]
    Path("lists.json").write_text(json.dumps({"tools": tools}))
    bad = make_scripted_spec(watch=str(Path("lists.json").absolute())) | {"trust": "open"}
    good = make_scripted_spec(tools=["echo", "pid"], prompts=True)
    Path(".toolscript.json").write_text(json.dumps({"mcpServers": {"good": good, "bad": bad}}))
    assert CliRunner().invoke(run, ["sync"]).exit_code == 0
    return small_folder


def test_tools_servers_and_skills_are_completed_from_the_store(
    synced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complete("call", "good") == ["good__echo", "good__pid"]
    assert complete("skills", "release", "good__p") == ["good__pid"]
    assert complete("list-tools", "go") == ["good", "good__echo", "good__pid"]
    assert complete("get-types", "bad,good__e") == ["bad,good__echo"]
    assert complete("skills", "show", "file_op") == ["file_operations"]
    assert complete("skills", "assign", "good__pid", "file_op") == ["file_operations"]
    assert complete("skills", "merge", "1", "file_op") == ["file_operations"]
    assert complete("call", "--data-dir", str(tmp_path / "nothing"), "good") == []
    monkeypatch.delenv("TOOLSCRIPT_DATA_DIR")
    assert complete("call", "good") == []
    assert complete("call", "--data-dir", str(synced), "good__e") == ["good__echo"]
    assert not (tmp_path / "nothing").exists()


def test_only_names_that_a_shell_does_not_execute_are_offered(synced: Path) -> None:
    assert complete("call", "bad") == ["bad__plain"]
    found = ShellComplete(run, {}, "toolscript", "_X").get_completions(["call"], "bad")
    assert [item.help for item in found] == ["First line."]


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(100)])
def test_a_broken_store_completes_nothing_and_says_nothing(
    small_folder: Path, content: bytes, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_folder.mkdir()
    (small_folder / "toolscript.db").write_bytes(content)
    assert complete("call", "x") == []
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_LIMIT", "not a number")
    assert complete("call", "x") == []
    monkeypatch.delenv("TOOLSCRIPT_SEARCH_LIMIT")
    monkeypatch.setenv("TOOLSCRIPT_STORE", "postgresql://nobody@127.0.0.1:9/nothing")
    assert complete("call", "x") == []
    monkeypatch.setenv("TOOLSCRIPT_GATEWAY_URL", "http://127.0.0.1:9")
    assert complete("skills", "show", "x") == []
    assert capfd.readouterr() == ("", "")


def test_a_gateway_on_another_store_is_used(
    small_folder: Path, start_gateway: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, completion=60.0)
    monkeypatch.setenv("TOOLSCRIPT_STORE", "sqlite://")
    start_gateway()
    assert "filesystem__read_file" in complete("call", "filesystem__r")
    assert complete("skills", "show", "file_op") == ["file_operations"]


@pytest.mark.skipif(not PROGRAM.exists() or not shutil.which("bash"), reason="needs bash, and the command installed")
def test_bash_completes_with_the_printed_script(synced: Path) -> None:
    script = f"""
        eval "$({PROGRAM} completion bash)"
        COMP_WORDS=({PROGRAM} call good__e) COMP_CWORD=2
        _toolscript_completion {PROGRAM} good__e call
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["good__echo"]
