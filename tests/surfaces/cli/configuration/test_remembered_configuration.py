"""A data folder remembers its configuration: commands that read change nothing, and the demo stays out of it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.fixtures.examples import choose
from tests.servers import make_scripted_spec
from tests.servers.gateway import run_gateway
from toolscript.app.app import open_app
from toolscript.domain.catalog import Suggestion
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.catalogue import read_record
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("G-01", "G-09")

GOOD = make_scripted_spec(tools=["echo", "pid"])
# As many tools of the demo as tests need in a folder of an earlier version: to store all takes 0.3 s.
DEMO_TOOLS = 6
READING = [
    ["search", "echo"],
    ["search", "echo", "--strategy", "hierarchical"],
    ["list-tools"],
    ["get-types"],
    ["list-servers"],
    ["skills", "list"],
    ["skills", "suggestions"],
    ["skills", "search", "echo"],
    ["skills", "propose"],
    ["skills", "export"],
    ["documents", "list"],
    ["documents", "search", "echo"],
    ["knowledge", "list"],
    ["knowledge", "search", "echo"],
    ["knowledge", "export"],
    ["quarantine", "list"],
    ["feedback", "list"],
    ["jobs", "list"],
    ["keys", "list"],
    ["workflows", "list"],
    ["calls"],
    ["eval", ".", "--live"],
]


def toolscript(*arguments: str, code: int | None = 0) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["toolscript", *arguments])
        result = CliRunner().invoke(run, list(arguments))
    assert "Traceback" not in result.output
    assert code is None or result.exit_code == code, result.output
    return result


def configure(servers: Mapping[str, Any], file: str) -> str:
    Path(file).write_text(json.dumps({"mcpServers": servers}))
    return str(Path(file).absolute())


def find_tools(*arguments: str) -> list[str]:
    return [tool["toolId"] for tool in json.loads(toolscript("list-tools", "--json", *arguments).stdout)["tools"]]


def dump(data: Path) -> list[str]:
    """Everything in the store, and the record of the configuration."""
    with closing(sqlite3.connect(data / "toolscript.db")) as connection:
        return [*connection.iterdump(), (data / "catalogue.json").read_text()]


def list_files(data: Path) -> list[Path]:
    """Every file of the folder but those of the audit, which records searches, and the index's own, whose engine writes
    journals when it is opened."""
    files = (file.relative_to(data) for file in data.rglob("*"))
    return sorted(file for file in files if not file.name.startswith("audit.db") and file.parts[0] != "index")


def fill(data: Path) -> None:
    """Adds a suggestion to the store."""

    async def write() -> None:
        settings = load_settings(data_dir=data, search_model="hashed-64", variables={})
        async with open_app(settings) as app:
            await app.stores.skills.add_suggestion(Suggestion("Echoes", "What comes back.", "good__echo"))

    asyncio.run(write())


@pytest.mark.req("X-08")
def test_tools_of_the_demo_are_not_among_those_of_servers(demo_folder: Path) -> None:
    assert len(find_tools()) == 56
    configure({"github": make_scripted_spec(crash=True)}, ".toolscript.json")
    found = json.loads(toolscript("search", "list pull requests", "--json", "--threshold", "0").stdout)
    assert (found["results"], find_tools()) == ([], [])
    assert "github" not in toolscript("get-types", "github", code=None).stdout
    assert (demo_folder / "demo").is_dir()


@pytest.mark.req("X-08")
def test_commands_that_read_change_nothing(small_folder: Path) -> None:
    Path("queries.jsonl").write_text(json.dumps({"query": "echo", "relevant": ["good__echo"]}))
    mine = configure({"good": GOOD}, "mine.json")
    other = configure({"other": make_scripted_spec(tools=["pid"])}, "other.json")
    toolscript("sync", "--config", mine)
    fill(small_folder)
    before, files = dump(small_folder), list_files(small_folder)
    for command in READING:
        toolscript(*command)
        assert dump(small_folder) == before, command
        assert list_files(small_folder) == files, command
    for file in (mine, other):
        for command in (["search", "echo"], ["list-servers"], ["skills", "suggestions"]):
            is_refused = file == other and command[0] != "list-servers"
            toolscript(*command, "--config", file, code=2 if is_refused else 0)
            assert dump(small_folder) == before, [*command, file]
    assert "Echoes" in toolscript("skills", "suggestions").stdout
    configure({}, "mine.json")
    assert find_tools() == ["good__echo", "good__pid"]
    assert dump(small_folder) == before


def test_another_configuration_is_named_in_one_line_and_used_only_by_a_sync(small_folder: Path) -> None:
    mine, other = configure({"good": GOOD}, "mine.json"), configure({"new": GOOD}, "other.json")
    toolscript("sync", "--config", mine)
    implied = configure({"new": GOOD}, ".toolscript.json")
    note = toolscript("list-tools").stderr
    assert note.count("\n") == 1
    assert f"is that of {mine}; {implied} is not used" in note
    Path(".toolscript.json").unlink()
    assert toolscript("list-tools").stderr == ""
    switched = toolscript("sync", "--config", other).stderr
    assert f"was that of {mine}; now it is that of {other}" in switched
    assert find_tools() == ["new__echo", "new__pid"]
    assert read_record(small_folder).config == Path(other)


def test_changes_of_the_configuration_are_named_and_applied_by_a_sync(small_folder: Path) -> None:
    file = configure({"good": GOOD, "old": GOOD}, "servers.json")
    toolscript("sync", "--config", file)
    configure({"good": GOOD, "new": GOOD}, "servers.json")
    notes = toolscript("list-tools").stderr
    assert "not indexed yet: new (" in notes
    assert "no longer configured: old (" in notes
    toolscript("sync")
    assert find_tools() == ["good__echo", "good__pid", "new__echo", "new__pid"]
    Path(file).unlink()
    assert len(find_tools()) == 4


@pytest.mark.req("C-03")
def test_workflows_are_no_server_that_was_removed(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure({"good": GOOD}, ".toolscript.json")
    monkeypatch.setenv("TOOLSCRIPT_CODE", "python")
    toolscript("sync")
    monkeypatch.delenv("TOOLSCRIPT_CODE")
    assert "workflows" in read_record(small_folder).servers
    assert toolscript("list-tools").stderr == ""


def test_a_gateway_uses_the_configuration_that_the_folder_remembers(small_folder: Path) -> None:
    toolscript("sync", "--config", configure({"good": GOOD}, "servers.json"))
    with run_gateway(Path.cwd(), "--data-dir", str(small_folder)):
        assert find_tools() == ["good__echo", "good__pid"]


@pytest.mark.req("X-08")
def test_a_gateway_leaves_the_demo_when_servers_are_configured(demo_folder: Path) -> None:
    import time

    with run_gateway(Path.cwd(), "--data-dir", str(demo_folder)):
        assert len(find_tools()) == 56
        configure({"good": GOOD}, ".toolscript.json")
        end = time.monotonic() + 60
        while toolscript("list-tools", "good", "--json", code=None).stdout.count("good__echo") == 0:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert find_tools() == ["good__echo", "good__pid"]


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\x00", b'{"servers": {}, "config": 5}', None])
def test_a_record_that_cannot_be_read_is_named_and_the_demo_is_not_used(
    small_folder: Path, content: bytes | None
) -> None:
    file = small_folder / "catalogue.json"
    small_folder.mkdir()
    file.mkdir() if content is None else file.write_bytes(content)
    for command in (["search", "echo"], ["get-types", "github"], ["gateway", "start"], ["sync"], ["list-servers"]):
        error = toolscript(*command, code=3).stderr
        assert error.startswith(f"error: cannot read {file}, which names the servers of this folder: ")
        assert "Delete it and run `toolscript sync --config FILE`" in error
        assert error.count("\n") == 1
    assert not (small_folder / "demo").exists()


@pytest.mark.parametrize("name", choose(["servers.json", ".toolscript.json"], "servers.json"))
def test_a_missing_configuration_is_named_and_the_demo_is_not_used(small_folder: Path, name: str) -> None:
    file = configure({"good": GOOD}, name)
    toolscript("sync", *(["--config", file] if name == "servers.json" else []))
    Path(file).unlink()
    assert find_tools() == ["good__echo", "good__pid"]
    for command in (["list-servers"], ["sync"], ["gateway", "start", "--port", "0"], ["call", "good__pid"]):
        error = toolscript(*command, code=3).stderr
        assert file in error
        assert "exist: name another with --config, or choose another folder with --data-dir" in error
        assert error.count("\n") == 1
    other = configure({"new": GOOD}, "other.json")
    assert f"{file}, not that of {other}: " in toolscript("list-tools", "--config", other, code=2).stderr
    assert file in toolscript("call", "good__pid", "--config", other, code=2).stderr
    toolscript("sync", "--config", other)
    assert find_tools() == ["new__echo", "new__pid"]
    assert not (small_folder / "demo").exists()


def test_a_folder_whose_servers_all_failed_does_not_become_the_demo(small_folder: Path) -> None:
    file = configure({"bad": make_scripted_spec(crash=True)}, "servers.json")
    toolscript("sync", "--config", file, code=3)
    Path(file).unlink()
    assert find_tools() == []
    assert file in toolscript("sync", code=3).stderr


def test_a_tool_of_a_server_that_is_no_longer_configured_cannot_be_called(small_folder: Path) -> None:
    toolscript("sync", "--config", configure({"good": GOOD}, "servers.json"))
    configure({}, "servers.json")
    assert "the server good is no longer configured" in toolscript("call", "good__pid", code=3).stderr


def test_listing_the_servers_of_another_configuration_says_so(small_folder: Path) -> None:
    mine, other = configure({"good": GOOD}, "mine.json"), configure({"new": GOOD}, "other.json")
    toolscript("sync", "--config", mine)
    assert toolscript("list-servers", "--config", mine).stderr == ""
    listed = toolscript("list-servers", "--config", other)
    assert f"the catalogue in {small_folder} is that of {mine}; these are the servers of {other}" in listed.stderr
