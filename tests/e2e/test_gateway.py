"""The real command in a real process: a first result in the terminal, HTTP, and a clean shutdown."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.servers import make_scripted_spec
from tests.servers.gateway import RunningGateway, run_gateway
from tests.servers.preloaded import toolscript_command
from toolscript.settings import DEFAULT_MODEL
from toolscript.surfaces.cli.client.announcement import Announcement


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of the gateway."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def started(folder: Path) -> Iterator[RunningGateway]:
    """A gateway with the default model and no hub. Tests only read from it."""
    unreachable = "http://127.0.0.1:9"
    with run_gateway(folder, DATA_DIR=str(folder), SEARCH_MODEL="", HUB_URL=unreachable) as gateway:
        yield gateway


@pytest.mark.req("X-01", "S-08")
def test_the_main_job_runs_on_an_empty_folder_with_no_network(started: RunningGateway) -> None:
    url = started.url
    assert "git__git_commit" in started.output
    with urllib.request.urlopen(f"{url}/search?q=read_fil") as response:
        answer = json.loads(response.read())
    assert answer["results"][0]["toolId"] == "filesystem__read_file"
    with urllib.request.urlopen(f"{url}/search/stats") as response:
        stats = json.loads(response.read())
    assert (stats["model"], stats["requestedModel"], stats["fallback"]) == (DEFAULT_MODEL, DEFAULT_MODEL, None)
    assert "model" not in started.output


def toolscript(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command, with these variables, which are named without `TOOLSCRIPT_`."""
    environment = os.environ | {f"TOOLSCRIPT_{name}": value for name, value in variables.items()}
    command = [*toolscript_command(), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.req("X-05", "S-05")
def test_a_search_on_the_same_folder_uses_the_gateway(started: RunningGateway, folder: Path) -> None:
    second = toolscript("search", "read_fil", "--data-dir", str(folder), "--json", "--limit", "1")
    assert second.stderr == ""
    assert [hit["toolId"] for hit in json.loads(second.stdout)["results"]] == ["filesystem__read_file"]
    refused = toolscript("search", " ", "--data-dir", str(folder))
    assert (refused.returncode, "blank" in refused.stderr) == (2, True)


@pytest.mark.req("X-05")
def test_a_second_process_that_needs_the_folder_itself_gets_a_clear_message(
    started: RunningGateway, folder: Path
) -> None:
    second = toolscript("index", "rebuild", "--data-dir", str(folder))
    assert second.returncode == 3
    assert f"the gateway {started.url}" in second.stderr
    assert "`toolscript gateway stop`" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.req("S-05")
def test_the_note_of_a_killed_gateway_is_ignored(tmp_path: Path) -> None:
    killed = Announcement("http://127.0.0.1:9", 1, None, None, "2026-11-19T08:00:00+00:00", {}, None)
    (tmp_path / "gateway.json").write_text(json.dumps(asdict(killed)), encoding="utf-8")
    found = toolscript("search", "read_file", "--data-dir", str(tmp_path), "--limit", "1", SEARCH_MODEL="hashed-64")
    assert "filesystem__read_file" in found.stdout
    assert found.returncode == 0


def test_a_port_in_use_is_reported_with_a_solution(started: RunningGateway, tmp_path: Path) -> None:
    port = started.url.rpartition(":")[2]
    second = toolscript("gateway", "start", "--port", port, "--data-dir", str(tmp_path))
    assert second.returncode == 3
    assert f"port {port}" in second.stderr
    assert "--port" in second.stderr


@pytest.mark.req("G-09")
def test_a_gateway_without_servers_lists_none(started: RunningGateway, folder: Path) -> None:
    listed = toolscript("list-servers", "--data-dir", str(folder))
    assert listed.stdout.startswith("No servers are configured")
    assert (listed.returncode, "Reason" in listed.stdout) == (0, False)


@pytest.mark.extended
@pytest.mark.req("G-02", "G-05", "G-09")
def test_a_gateway_that_is_started_again_lets_lazy_servers_sleep_until_a_call(tmp_path: Path) -> None:
    starts, server = tmp_path / "starts", make_scripted_spec(tools=["echo"])
    script = 'echo started >> "$1"; shift; exec "$@"'
    arguments = ["-c", script, "sh", str(starts), server["command"], *server["args"]]
    entry = {"command": "/bin/sh", "args": arguments, "start": "lazy"}
    (tmp_path / ".toolscript.json").write_text(json.dumps({"mcpServers": {"rare": entry}}))
    data = tmp_path / "data"

    def run_command(*words: str) -> Any:
        return json.loads(toolscript(*words, "--data-dir", str(data), "--json").stdout)

    with run_gateway(tmp_path, DATA_DIR=str(data)):
        (listed,) = run_command("list-servers")["servers"]
        assert (listed["state"] in {"ready", "asleep"}, listed["tools"]) == (True, 1)
    with run_gateway(tmp_path, DATA_DIR=str(data)) as again:
        assert "0 of 1 server ready, 1 asleep" in again.output
        assert starts.read_text().split() == ["started"]
        (listed,) = run_command("list-servers")["servers"]
        assert (listed["state"], listed["tools"]) == ("asleep", 1)
        (hit,) = run_command("search", "echo")["results"]
        assert (hit["toolId"], hit["serverState"]) == ("rare__echo", "asleep")
        assert run_command("call", "rare__echo", "--arg", "text=x") == {"text": "x"}
        assert starts.read_text().split() == ["started", "started"]
