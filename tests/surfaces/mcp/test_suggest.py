"""`toolscript suggest` as a process, as a hook of a client starts it, beside a gateway with the packaged model."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.servers import make_scripted_spec
from tests.servers.gateway import run_gateway
from toolscript.pipe.suggest import MAX_CHARACTERS
from toolscript.settings import DEFAULT_MODEL

pytestmark = [pytest.mark.req("A-04"), pytest.mark.slow]

TOOLS = {
    "get_current_time": "Get the current time in a timezone.",
    "convert_time": "Convert a time from one timezone to another.",
    "git_commit": "Record changes to the repository, with a message.",
    "send_email": "Send an e-mail to one or more people.",
    "create_invoice": "Create an invoice for a customer.",
    "resize_image": "Change the width and height of an image.",
}
SILENT = ["thanks, that is all", "write me a poem about the sea", "why does this test fail?", "{}", ""]
ROUNDS = 5
# 3.4 measured on a quiet machine: what the process imports beside Python itself.
MAX_RATIO = 8


@pytest.fixture(scope="module")
def gateway_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a gateway on the data folder `data`."""
    folder = tmp_path_factory.mktemp("suggest")
    tools = [
        {"name": name, "description": about, "inputSchema": {"type": "object", "properties": {}}}
        for name, about in TOOLS.items()
    ]
    (folder / "tools.json").write_text(json.dumps({"tools": tools}), encoding="utf-8")
    servers = {"office": make_scripted_spec(listing=str(folder / "tools.json"))}
    (folder / ".toolscript.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    with run_gateway(folder, "--data-dir", str(folder / "data"), SEARCH_MODEL=DEFAULT_MODEL) as gateway:
        # The first search loads what the later ones need.
        urllib.request.urlopen(f"{gateway.url}/search?q=make+a+picture+smaller", timeout=120).close()
        yield folder


def suggest(folder: Path, text: str) -> str:
    """What the command prints for that input. It always succeeds, and writes no errors."""
    command = [sys.executable, "-m", "toolscript", "suggest", "--data-dir", str(folder / "data")]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, cwd=folder, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("prompt", "tool"),
    [
        ("what is the current time in Lisbon", "office__get_current_time"),
        ({"hook_event_name": "UserPromptSubmit", "prompt": "send an e-mail to Ann"}, "office__send_email"),
        ("git_commit", "office__git_commit"),
    ],
)
def test_sure_tools_of_a_running_gateway_are_named(gateway_folder: Path, prompt: Any, tool: str) -> None:
    text = prompt if isinstance(prompt, str) else json.dumps(prompt)
    printed = suggest(gateway_folder, text)
    assert printed.startswith(f"Tools that fit: {tool}")
    assert printed.count("\n") == 1
    assert len(printed) <= MAX_CHARACTERS
    assert not any(about in printed for about in TOOLS.values())


@pytest.mark.parametrize("prompt", SILENT)
def test_nothing_is_printed_for_what_no_tool_serves(gateway_folder: Path, prompt: str) -> None:
    assert suggest(gateway_folder, prompt) == ""


def test_where_no_gateway_runs_nothing_is_printed_in_little_more_than_the_time_that_python_starts_in(
    tmp_path: Path,
) -> None:
    assert suggest(tmp_path, "what time is it in Lisbon") == ""
    assert not (tmp_path / "data").exists()
    command = [sys.executable, "-m", "toolscript", "suggest", "--data-dir", str(tmp_path / "data")]
    spent = [(measure(command, tmp_path), measure([sys.executable, "-c", "pass"], tmp_path)) for _ in range(ROUNDS)]
    ours, pythons = (min(each) for each in zip(*spent, strict=True))
    assert ours < MAX_RATIO * pythons


def measure(command: Sequence[str], folder: Path) -> float:
    """The processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, input=b"what time is it?", capture_output=True, check=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
