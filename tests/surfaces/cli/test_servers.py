"""`toolscript servers`: a running gateway starts and stops its servers, and remembers which are stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.servers import make_scripted_spec
from tests.servers.gateway import run_gateway
from toolscript.surfaces.cli.main import run


def toolscript(folder: Path, *words: str, code: int | None = 0) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TOOLSCRIPT_SEARCH_MODEL", "hashed-64")  # the model of run_gateway
        done = CliRunner().invoke(run, [*words, "--data-dir", str(folder / "data")])
    assert code is None or done.exit_code == code, done.output
    return done


def read_state(folder: Path) -> dict[str, Any]:
    (server,) = json.loads(toolscript(folder, "list-servers", "--json", code=None).stdout)["servers"]
    return dict(server)


@pytest.mark.req("G-02", "G-09")
def test_a_server_is_stopped_stays_so_in_the_next_run_and_is_started(tmp_path: Path) -> None:
    entry = make_scripted_spec(tools=["echo"], log=["hello"])
    (tmp_path / ".toolscript.json").write_text(json.dumps({"mcpServers": {"own": entry}}), encoding="utf-8")
    with run_gateway(tmp_path, "--data-dir", str(tmp_path / "data")):
        assert toolscript(tmp_path, "servers", "stop", "own").stdout == "own: stopped\n"
        assert read_state(tmp_path)["state"] == "stopped"
        refused = toolscript(tmp_path, "call", "own__echo", "--arg", "text=x", code=3)
        assert "toolscript servers start own" in refused.stderr
        assert "own__echo" in (found := toolscript(tmp_path, "search", "echo").stdout)
        assert "stopped" in found
        log = toolscript(tmp_path, "servers", "log", "own").stdout
        assert "hello" in log
        assert "* stopped" in log
    assert read_state(tmp_path)["state"] == "stopped"
    assert "stopped" in toolscript(tmp_path, "call", "own__echo", "--arg", "text=x", code=3).stderr
    with run_gateway(tmp_path, "--data-dir", str(tmp_path / "data")) as again:
        assert "0 of 1 server ready, 1 stopped" in again.output
        assert (state := read_state(tmp_path))["reason"].startswith("stopped")
        assert state["tools"] == 1
        assert toolscript(tmp_path, "servers", "start", "own").stdout in {"own: starting\n", "own: ready\n"}
        assert "x" in toolscript(tmp_path, "call", "own__echo", "--arg", "text=x").stdout
        toolscript(tmp_path, "servers", "restart", "own")
        assert "no such server" in toolscript(tmp_path, "servers", "stop", "other", code=4).stderr
    assert read_state(tmp_path)["state"] in {"connecting", "ready"}


@pytest.mark.req("G-09")
def test_without_a_gateway_the_commands_say_what_to_start(tmp_path: Path) -> None:
    refused = toolscript(tmp_path, "servers", "stop", "own", code=3)
    assert "`toolscript gateway start`" in refused.stderr


@pytest.mark.req("G-01", "G-09")
def test_servers_are_added_with_and_without_a_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    snippet = tmp_path / "snippet.json"
    snippet.write_text(json.dumps({"mcpServers": {"own": make_scripted_spec(tools=["echo"])}}), encoding="utf-8")
    checked = toolscript(tmp_path, "servers", "add", str(snippet), "--dry-run").stdout
    assert "own: " in checked
    assert "Nothing was written" in checked
    assert not (tmp_path / ".toolscript.json").exists()
    assert f"Added to {tmp_path / '.toolscript.json'}." in toolscript(tmp_path, "servers", "add", str(snippet)).stdout
    with run_gateway(tmp_path, "--data-dir", str(tmp_path / "data")):
        again = toolscript(tmp_path, "servers", "add", str(snippet), code=2)
        assert "of this name already" in again.stderr
        entry = tmp_path / "entry.json"
        entry.write_text(json.dumps(make_scripted_spec(tools=["pid"])), encoding="utf-8")
        assert "give the server a name" in toolscript(tmp_path, "servers", "add", str(entry), code=2).stderr
        added = toolscript(tmp_path, "servers", "add", str(entry), "--name", "second", "--json")
        assert json.loads(added.stdout)["added"] is True
    assert [*json.loads((tmp_path / ".toolscript.json").read_text())["mcpServers"]] == ["own", "second"]
