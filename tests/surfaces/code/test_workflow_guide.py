"""The example of the guide to workflows runs as it is printed, from the terminal and over HTTP."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from docs.generate import ROOT
from tests.servers.gateway import run_gateway
from tests.servers.real import real_servers
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("C-03")

GUIDE = (ROOT / "docs" / "guide" / "workflows.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:3780"
HUB = "http://127.0.0.1:9"  # that of all tests: no network
TIMEOUT_SECONDS = 60.0


def find_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def join_lines(text: str) -> str:
    return text.replace("\\\n", "")


@dataclass(frozen=True, slots=True)
class Gateway:
    """The address of a gateway with the server that the guide names, a key, and the folders of both."""

    url: str
    key: str
    folder: Path
    data: Path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder, data = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("data")
    servers = {"filesystem": real_servers(folder)["filesystem"]}
    (folder / ".toolscript.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    scopes = [word for scope in ("admin", "search", "call") for word in ("--scope", scope)]
    variables = {"TOOLSCRIPT_DATA_DIR": str(data), "TOOLSCRIPT_SEARCH_MODEL": "hashed-64"}
    created = CliRunner().invoke(run, ["keys", "create", "guide", *scopes, "--json"], env=variables)
    with run_gateway(folder, "--data-dir", str(data), CODE="python", HUB_URL=HUB) as started:
        yield Gateway(started.url, json.loads(created.stdout)["key"], folder, data)


@pytest.fixture
def gateway(running: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """The gateway for commands and requests of one test, without workflows."""
    monkeypatch.chdir(running.folder)
    monkeypatch.setenv("TOOLSCRIPT_DATA_DIR", str(running.data))
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_MODEL", "hashed-64")
    monkeypatch.setenv("TOOLSCRIPT_CODE", "python")
    monkeypatch.setenv("COLUMNS", "200")
    yield running
    place, headers = f"{running.url}/api/v1/workflows", {"X-API-Key": running.key}
    for workflow in httpx.get(place, headers=headers, timeout=TIMEOUT_SECONDS).json()["workflows"]:
        httpx.delete(f"{place}/{workflow['name']}", headers=headers, timeout=TIMEOUT_SECONDS)


def invoke(command: str) -> str:
    """The output of a command line, which may read what `echo` prints."""
    given, _, piped = command.partition(" | ") if command.startswith("echo ") else ("", "", command)
    text = shlex.split(given)[1] if given else None
    result = CliRunner().invoke(run, shlex.split(piped)[1:], input=text)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.usefixtures("gateway")
def test_the_commands_print_what_the_guide_says() -> None:
    for name, text in zip(["parameters", "result"], find_blocks("json"), strict=True):
        Path(f"{name}.json").write_text(text, encoding="utf-8")
    for source, commands in zip(find_blocks("python"), find_blocks("console"), strict=True):
        Path("count_words.py").write_text(source, encoding="utf-8")
        for step in join_lines(commands).split("$ ")[1:]:
            command, _, expected = step.partition("\n")
            output = invoke(command)
            if expected:
                assert output == expected
            else:
                assert re.search("count_words|return", output)


def test_the_requests_of_the_guide_succeed(gateway: Gateway) -> None:
    (block,) = find_blocks("sh")
    answers = [send(line, gateway) for line in re.split(r"^curl ", join_lines(block), flags=re.MULTILINE)[1:]]
    saved, found, called, changed, shown, removed = answers
    assert (saved["tool_id"], called) == ("workflows__count_words", {"words": 4})
    assert found["results"][0]["toolId"] == "workflows__count_words"
    assert (changed["result"], shown["source"]) == (None, "return 0")
    assert removed["total"] == 0


def send(line: str, gateway: Gateway) -> Any:
    """The response of a request that is written for curl."""
    words = shlex.split(line)
    options = {"-X": "GET", "-d": None}
    headers: dict[str, str] = {}
    url = ""
    while words:
        word = words.pop(0)
        if word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value.replace("$KEY", gateway.key)
        elif word in options:
            options[word] = words.pop(0)
        else:
            url = word.replace(ADDRESS, gateway.url)
    method, body = options["-X"] or "GET", options["-d"]
    response = httpx.request(method, url, headers=headers, content=body, timeout=TIMEOUT_SECONDS)
    assert response.status_code == 200, response.text
    return response.json()
