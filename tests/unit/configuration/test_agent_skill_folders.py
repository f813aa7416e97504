"""`skillFolders`: read, found where clients keep agent skills, added by a setup, and taken back byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.agent_skills import write_agent_skill
from toolscript.configuration.agent_skill_folders import add_folders, find_client_folders, list_missing
from toolscript.configuration.files import load_configuration
from toolscript.configuration.setup_plan import plan_changes
from toolscript.domain.errors import Invalid
from toolscript.surfaces.cli.setup.changes import apply_changes, undo_changes

pytestmark = pytest.mark.req("A-02")

TARGETS = [
    None,
    "",
    "{}",
    '{"mcpServers": {}} ',
    '{"skillFolders": null, "mcpServers": {}}',
    '{\n  // mine\n  "skillFolders": [],\n}\n',
    '{\n\t"skillFolders": [\n\t\t"skills", // of this project\n\t\t"~/.claude/skills"\n\t],\n\t"mcpServers": {}\n}',
]


def load(tmp_path: Path, text: str) -> tuple[str, ...]:
    file = tmp_path / ".toolscript.json"
    file.write_text(text)
    return load_configuration(file, home=tmp_path / "home", folder=tmp_path, environment={}).agent_skill_folders


def test_folders_are_read_relative_to_their_file_and_to_the_home_folder(tmp_path: Path) -> None:
    text = '{"skillFolders": ["skills", "~/.claude/skills", "skills/../skills", "/opt/x"]}'
    assert load(tmp_path, text) == (f"{tmp_path}/skills", f"{tmp_path}/home/.claude/skills", "/opt/x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"skillFolders": "skills"}', "skillFolders: must be a list of folders"),
        ('{"skillFolders": [1]}', "must be a string, not a number"),
        ('{"skillFolder": ["a"], "mcpServers": {}}', 'did you mean "skillFolders"'),
        ('{"skillFolders": ["a"], "mcpServers": {"agent-skills": {"command": "x"}}}', "rename that server"),
    ],
)
def test_a_bad_list_is_refused_with_file_and_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(Invalid, match=rf"{problem}.*\(line 1\)"):
        load(tmp_path, text)


@pytest.mark.parametrize("has_server_first", [True, False])
def test_no_file_can_give_a_server_the_name_of_folders(tmp_path: Path, has_server_first: bool) -> None:
    contents: list[dict[str, object]] = [{"mcpServers": {"agent-skills": {"command": "x"}}}, {"skillFolders": ["a"]}]
    for folder, content in zip(("home", "project"), contents if has_server_first else contents[::-1], strict=True):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / ".toolscript.json").write_text(json.dumps(content))
    with pytest.raises(Invalid, match="rename that server"):
        load_configuration(home=tmp_path / "home", folder=tmp_path / "project", environment={})


def test_only_folders_with_agent_skills_are_found(tmp_path: Path) -> None:
    assert find_client_folders(tmp_path) == []
    (tmp_path / ".agents" / "skills" / "empty").mkdir(parents=True)
    write_agent_skill(tmp_path / ".claude" / "skills")
    assert find_client_folders(tmp_path) == [tmp_path / ".claude" / "skills"]


@pytest.mark.parametrize("before", TARGETS)
def test_a_setup_adds_folders_once_and_its_undo_restores_every_byte(tmp_path: Path, before: str | None) -> None:
    home, target = tmp_path / "home", tmp_path / "home" / ".toolscript.json"
    found = [write_agent_skill(home / place).parent for place in (".claude/skills", ".agents/skills")]
    if before is not None:
        target.write_text(before)
    text = before if before and before.strip() else "{}"
    folders = list_missing(text, found, file=target, home=home)
    apply_changes(tmp_path / "data", plan_changes([], target, before, ["toolscript"], folders))
    after = target.read_text()
    assert list_missing(after, found, file=target, home=home) == []
    read = load_configuration(target, home=home, folder=home, environment={}).agent_skill_folders
    assert set(map(str, found)) <= set(read)
    assert all(comment in after for comment in ("// mine", "// of this project") if comment in text)
    undo_changes(tmp_path / "data")
    assert (target.read_text() if target.exists() else None) == before


def test_folders_elsewhere_are_named_in_full(tmp_path: Path) -> None:
    folder = tmp_path / "project" / ".claude" / "skills"
    assert list_missing("{}", [folder], file=tmp_path / "x.json", home=tmp_path / "home") == [str(folder)]
    assert json.loads(add_folders("{}", [str(folder)])) == {"skillFolders": [str(folder)]}
