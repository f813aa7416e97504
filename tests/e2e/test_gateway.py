"""The real command in a real process: a first result in the terminal, HTTP, and a clean shutdown."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

Process = subprocess.Popen[str]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Process, str, str]]:
    """The gateway on a free port, its output, and its URL."""
    command = [sys.executable, "-m", "toolscript", "gateway", "start", "--port", "0"]
    environment = {**os.environ, "TOOLSCRIPT_DATA_DIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            serving = re.search(r"Serving (http://\S+)", line)
            if serving:
                break
        else:
            assert process.stderr is not None
            pytest.fail(process.stderr.read())
        yield process, printed, serving[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=15) == 0


@pytest.mark.req("X-01", "S-08")
def test_the_main_job_runs_on_an_empty_folder_with_no_network(started: tuple[Process, str, str]) -> None:
    _, printed, url = started
    assert "git__git_commit" in printed
    with urllib.request.urlopen(f"{url}/search?q=read_fil") as response:
        answer = json.loads(response.read())
    assert answer["results"][0]["toolId"] == "filesystem__read_file"
    with urllib.request.urlopen(f"{url}/search/stats") as response:
        stats = json.loads(response.read())
    assert (stats["model"], stats["requestedModel"]) == ("all-MiniLM-L6-v2", "Xenova/bge-small-en-v1.5")
    assert "cannot be reached" in stats["fallback"]


def toolscript(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "toolscript", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.req("X-05", "S-05")
def test_a_search_on_the_same_folder_uses_the_gateway(started: tuple[Process, str, str], tmp_path: Path) -> None:
    second = toolscript("search", "read_fil", "--data-dir", str(tmp_path), "--json", "--limit", "1")
    assert second.stderr == ""
    assert [hit["toolId"] for hit in json.loads(second.stdout)["results"]] == ["filesystem__read_file"]
    refused = toolscript("search", " ", "--data-dir", str(tmp_path))
    assert (refused.returncode, "blank" in refused.stderr) == (2, True)


@pytest.mark.req("X-05")
def test_a_second_process_that_needs_the_folder_itself_gets_a_clear_message(
    started: tuple[Process, str, str], tmp_path: Path
) -> None:
    second = toolscript("index", "rebuild", "--data-dir", str(tmp_path))
    assert second.returncode == 3
    assert "in use by another process" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.req("S-05")
def test_the_note_of_a_killed_gateway_is_ignored(started: tuple[Process, str, str], tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "gateway.json").write_text('{"url": "http://127.0.0.1:9", "pid": 1}', encoding="utf-8")
    found = toolscript("search", "read_file", "--data-dir", str(folder), "--limit", "1")
    assert "filesystem__read_file" in found.stdout
    assert found.returncode == 0


def test_a_port_in_use_is_reported_with_a_solution(started: tuple[Process, str, str], tmp_path: Path) -> None:
    port = started[2].rpartition(":")[2]
    command = [sys.executable, "-m", "toolscript", "gateway", "start", "--port", port]
    second = subprocess.run(
        [*command, "--data-dir", str(tmp_path / "other")], capture_output=True, text=True, check=False
    )
    assert second.returncode == 3
    assert f"port {port}" in second.stderr
    assert "--port" in second.stderr


@pytest.mark.req("G-09")
def test_a_gateway_without_servers_lists_none(started: tuple[Process, str, str], tmp_path: Path) -> None:
    listed = toolscript("list-servers", "--data-dir", str(tmp_path))
    assert listed.stdout.startswith("No servers are configured")
    assert (listed.returncode, "Reason" in listed.stdout) == (0, False)
