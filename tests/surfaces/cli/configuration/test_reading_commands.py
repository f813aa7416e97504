"""Commands that read neither delete nor replace what a data folder has, whichever skills, model or configuration they
name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.servers import make_scripted_spec
from tests.surfaces.cli.configuration.test_remembered_configuration import configure, dump, find_tools, toolscript

pytestmark = pytest.mark.req("X-08")

SKILLS = """
replace = true
[[skill]]
id = "repeating"
name = "Repeating"
description = "Repeat a text, an echo of what is sent."
keywords = ["echo", "pid"]
"""
READING = [["list-tools"], ["search", "echo"], ["skills", "list"]]


@pytest.fixture
def filled_folder(small_folder: Path) -> Path:
    """A data folder with the tools of a server."""
    file = configure({"good": make_scripted_spec(tools=["echo", "pid"])}, "mine.json")
    toolscript("sync", "--config", file)
    return small_folder


def list_skills() -> list[str]:
    return [skill["id"] for skill in json.loads(toolscript("skills", "list", "--json").stdout)["skills"]]


@pytest.mark.req("H-09")
def test_a_command_that_reads_does_not_use_other_skills_and_deletes_no_classification(
    filled_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = list_skills()
    Path("mine.toml").write_text(SKILLS)
    before = dump(filled_folder)
    monkeypatch.setenv("TOOLSCRIPT_SKILLS", "mine.toml")
    for command in READING:
        refused = toolscript(*command, code=2)
        assert "toolscript sync" in refused.stderr
        assert "TOOLSCRIPT_SKILLS" in refused.stderr
        assert dump(filled_folder) == before, command
    toolscript("documents", "list")
    assert dump(filled_folder) == before

    toolscript("sync")
    assert list_skills() == ["repeating"]
    monkeypatch.delenv("TOOLSCRIPT_SKILLS")
    before = dump(filled_folder)
    for command in READING:
        assert toolscript(*command).stderr == ""
        assert dump(filled_folder) == before, command
    assert list_skills() == ["repeating"]
    toolscript("sync")
    assert list_skills() == packaged


@pytest.mark.req("S-07")
def test_a_search_with_another_model_is_refused_and_the_index_stays(filled_folder: Path) -> None:
    refused = toolscript("search", "echo", "--model", "hashed-32", code=2).stderr
    assert "hashed-64" in refused
    assert "toolscript index rebuild --model hashed-32" in refused
    found = json.loads(toolscript("search", "send a text back", "--threshold", "0", "--json").stdout)
    assert len(found["results"]) == 2


@pytest.mark.req("S-07")
def test_commands_about_documents_leave_the_index_of_tools_alone(
    filled_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(path.name for path in (filled_folder / "index").iterdir())
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_MODEL", "hashed-32")
    toolscript("documents", "list")
    assert sorted(path.name for path in (filled_folder / "index").iterdir()) == before
    assert "hashed-64" in toolscript("search", "echo", code=2).stderr


@pytest.mark.req("G-01", "X-03")
def test_a_search_that_names_another_configuration_is_refused(filled_folder: Path) -> None:
    other = configure({"other": make_scripted_spec(tools=["pid"])}, "other.json")
    before = dump(filled_folder)
    for command in READING[:2]:
        refused = toolscript(*command, "--config", other, code=2)
        assert refused.stdout == ""
        assert "mine.json" in refused.stderr
        assert f"toolscript sync --config {other}" in refused.stderr
        assert dump(filled_folder) == before, command
    assert find_tools("--config", str(Path("mine.json").absolute())) == ["good__echo", "good__pid"]


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.req("G-20")
def test_tools_of_a_renamed_configuration_leave_a_store_of_several_machines(
    small_folder: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCRIPT_STORE", postgres)
    first, second = (make_scripted_spec(tools=[tool]) for tool in ("echo", "pid"))
    toolscript("sync", "--config", configure({"old": first, "kept": second}, "before.json"))
    Path("before.json").unlink()
    after = configure({"kept": second}, "after.json")
    toolscript("sync", "--config", after)
    assert find_tools() == ["kept__pid"]

    toolscript("sync", "--config", configure({"other": first}, "other.json"))
    assert find_tools() == ["kept__pid", "other__echo"]  # perhaps another machine uses the first file
