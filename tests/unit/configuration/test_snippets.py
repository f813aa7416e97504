"""Snippets of servers' documentation: what they would add, and how they are written into a file."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from toolscript.configuration.files import FILE_NAME, load_configuration
from toolscript.configuration.snippets import ConfigurationPlace, PlannedServer, plan_addition, write_addition
from toolscript.domain.errors import Conflict, Invalid, Unavailable

pytestmark = pytest.mark.req("G-01")

GIT = {"command": "uvx", "args": ["mcp-server-git", "--repository", "my folder"]}
Plan = Callable[..., tuple[PlannedServer, ...]]


@pytest.fixture
def place(tmp_path: Path) -> ConfigurationPlace:
    (tmp_path / "work").mkdir()
    return ConfigurationPlace(None, tmp_path, tmp_path / "work", {"SET": "a-value"})


@pytest.fixture
def plan(place: ConfigurationPlace) -> Plan:
    def run(snippet: object, name: str | None = None) -> tuple[PlannedServer, ...]:
        text = snippet if isinstance(snippet, str) else json.dumps(snippet)
        return plan_addition(text, place, name).servers

    return run


@pytest.mark.parametrize(
    "snippet",
    [
        {"mcpServers": {"git": GIT}},
        {"servers": {"git": GIT}},
        {"mcp": {"servers": {"git": GIT}}},
        {"git": GIT},
        f'"git": {json.dumps(GIT)}',
        f'"git": {json.dumps(GIT)},',
        f'"mcpServers": {{"git": {json.dumps(GIT)}}}',
        '{ // a comment\n "mcpServers": {"git": ' + json.dumps(GIT) + ",}}",
    ],
    ids=["mcpServers", "servers", "settings", "by name", "no braces", "comma", "list without braces", "comment"],
)
def test_the_ways_in_which_documentation_gives_an_entry_are_understood(plan: Plan, snippet: object) -> None:
    (server,) = plan(snippet)
    assert (server.name, server.transport, server.problem) == ("git", "stdio", None)
    assert server.runs == "uvx mcp-server-git --repository 'my folder'"


def test_a_single_entry_needs_a_name(plan: Plan) -> None:
    (server,) = plan(GIT, "git")
    assert server.name == "git"
    with pytest.raises(Invalid, match="give the server a name") as refused:
        plan(GIT)
    assert refused.value.details == {"field": "name"}


def test_secrets_are_named_and_not_shown_and_placeholders_noticed(plan: Plan) -> None:
    (server,) = plan({"x": {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer s3cr3t"}}})
    assert (server.runs, server.variables, server.warnings) == ("https://x.example/mcp", ("Authorization",), ())
    for placeholder in ("<YOUR_TOKEN>", "your-api-key", "YOUR_GITHUB_TOKEN", "xxxxx", "...", "my token"):
        (server,) = plan({"x": {"command": "x", "env": {"TOKEN": placeholder}}})
        assert server.warnings == ("env.TOKEN looks like a placeholder: put in the real value",), placeholder
    (server,) = plan({"x": {"command": "x", "env": {"TOKEN": "ghp_1234", "A": "${SET}"}}})
    assert server.warnings == ()


def test_what_will_run_is_shown_and_not_what_will_not(plan: Plan) -> None:
    both = {"command": "sh", "args": ["-c", "evil"], "url": "https://good.example/mcp"}
    (server,) = plan({"x": {**both, "type": "stdio", "cwd": "~/there", "envFile": ".env"}})
    assert (server.transport, server.runs, server.problem) == ("stdio", "sh -c evil", None)
    assert (server.cwd, server.env_file) == ("~/there", ".env")
    (server,) = plan({"x": {**both, "type": "http"}})
    assert (server.transport, server.runs, server.problem) == ("http", "https://good.example/mcp", None)
    (server,) = plan({"x": both})
    assert server.runs == "sh -c evil"
    assert "has both command and url" in (server.problem or "")


@pytest.mark.req("O-04")
def test_a_sandbox_is_shown(plan: Plan) -> None:
    (server,) = plan({"x": {"command": "x", "sandbox": {"kind": "docker", "image": "node:22", "network": True}}})
    assert server.sandbox == "docker, with network"
    (server,) = plan({"x": {"command": "x"}})
    assert server.sandbox is None


@pytest.mark.req("O-01")
def test_an_api_is_shown_with_its_document_and_its_address(plan: Plan) -> None:
    (server,) = plan({"pets": {"openapi": "pets.yaml", "url": "https://api.example/v1", "headers": {"X-Key": "abc"}}})
    shown = (server.transport, server.runs, server.variables, server.problem)
    assert shown == ("openapi", "pets.yaml at https://api.example/v1", ("X-Key",), None)
    (server,) = plan({"pets": {"openapi": "https://api.example/openapi.json"}})
    assert (server.runs, server.problem) == ("https://api.example/openapi.json", None)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"comand": "x"}, 'unknown key, did you mean "command"?'),
        ({"command": "x", "env": {"T": "${NOT_SET}"}}, "variable NOT_SET is not set"),
        ({"command": "x", "args": "-y"}, "must be a list"),
        ({"command": "x", "disabled": True}, "it is disabled"),
        ({"command": "toolscript", "args": ["mcp"]}, "this is Toolscript itself"),
        ("x", "must be an object"),
    ],
)
def test_an_entry_that_cannot_be_used_says_why(plan: Plan, entry: object, problem: str) -> None:
    (server,) = plan({"mcpServers": {"x": entry}})
    assert problem in (server.problem or "")


def test_names_that_cannot_be_used_or_are_taken_are_refused(plan: Plan, place: ConfigurationPlace) -> None:
    (server,) = plan({"mcpServers": {"<script>alert(1)</script>": GIT}})
    assert "invalid server name" in (server.problem or "")
    (place.folder / FILE_NAME).write_text(json.dumps({"mcpServers": {"git": GIT}}), encoding="utf-8")
    (server,) = plan({"git": GIT})
    assert f"{place.folder / FILE_NAME} has a server of this name already" in (server.problem or "")


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"mcpServers": {}}', '{"mcpServers": 3}', "npx -y x", '{"a": '])
def test_a_text_without_servers_is_refused(plan: Plan, text: str) -> None:
    with pytest.raises(Invalid, match="the snippet"):
        plan(text)


def test_the_same_key_twice_is_refused(plan: Plan) -> None:
    with pytest.raises(Invalid, match="duplicate key"):
        plan(f'{{"git": {json.dumps(GIT)}, "git": {json.dumps(GIT)}}}')


def test_servers_are_added_and_nothing_else_changes(place: ConfigurationPlace) -> None:
    file = place.home / FILE_NAME
    before = '\ufeff{\n  // mine\n  "mcpServers": {\n    "a": {"command": "x"}, // first\n  },\n  "other": 1\n}\n'
    file.write_bytes(before.encode())
    file.chmod(0o640)
    snippet = '{"mcpServers": {"git": {\n  "command": "uvx", // theirs\n  "args": ["mcp-server-git"]}, "b": {"url": "https://b"}}}'
    write_addition(plan_addition(snippet, place))
    after = file.read_bytes().decode()
    for kept in ("\ufeff{", "// mine", "// first", "// theirs", '"other": 1'):
        assert kept in after
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    read = load_configuration(None, home=place.home, folder=place.folder, environment={})
    assert [spec.name for spec in read.servers] == ["a", "git", "b"]
    assert {each.name for each in place.home.iterdir()} == {"work", FILE_NAME}


def test_the_file_is_created_for_its_owner_alone(place: ConfigurationPlace) -> None:
    write_addition(plan_addition(json.dumps({"git": GIT}), place))
    assert stat.S_IMODE((place.home / FILE_NAME).stat().st_mode) == 0o600
    read = load_configuration(None, home=place.home, folder=place.folder, environment={})
    assert [spec.name for spec in read.servers] == ["git"]


def test_the_key_of_the_file_is_used_and_links_stay_links(place: ConfigurationPlace) -> None:
    real = place.folder / "mcp.json"
    real.write_text('{"servers": {"a": {"command": "x"}}}', encoding="utf-8")
    (place.home / FILE_NAME).symlink_to(real)
    write_addition(plan_addition(json.dumps({"git": GIT}), place))
    assert (place.home / FILE_NAME).is_symlink()
    assert [*json.loads(real.read_text())["servers"]] == ["a", "git"]


def test_only_the_file_in_the_working_folder_is_used_if_it_is_the_only_one(place: ConfigurationPlace) -> None:
    (place.folder / FILE_NAME).write_text("{}", encoding="utf-8")
    assert place.target == place.folder / FILE_NAME


def test_a_problem_keeps_everything_from_being_written(place: ConfigurationPlace) -> None:
    addition = plan_addition(json.dumps({"git": GIT, "bad": {"command": 3}}), place)
    with pytest.raises(Invalid, match="bad: "):
        write_addition(addition)
    assert not (place.home / FILE_NAME).exists()


def test_a_file_that_changes_meanwhile_or_has_errors_is_left_alone(place: ConfigurationPlace) -> None:
    addition = plan_addition(json.dumps({"git": GIT}), place)
    (place.home / FILE_NAME).write_text('{"mcpServers": {}}', encoding="utf-8")
    with pytest.raises(Conflict, match="has changed in the meantime"):
        write_addition(addition)
    (place.home / FILE_NAME).write_text('{"mcpServers": {', encoding="utf-8")
    with pytest.raises(Invalid, match="Correct the file first"):
        plan_addition(json.dumps({"git": GIT}), place)
    assert (place.home / FILE_NAME).read_text() == '{"mcpServers": {'


@pytest.mark.parametrize(
    "text",
    ['[{"keep": 1}]', '{"mcpServers": ["keep"]}', '{"mcp": "keep", "x": 1}', '{"mcpServers": {"a": {"comand": 1}}}'],
)
@pytest.mark.parametrize("config", [None, Path(FILE_NAME)])
def test_a_file_that_is_no_configuration_is_not_touched(
    place: ConfigurationPlace, text: str, config: Path | None
) -> None:
    place = replace(place, config=config)
    file = place.folder / FILE_NAME
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Invalid, match="Correct the file first") as refused:
        plan_addition(json.dumps({"git": GIT}), place)
    assert str(file) in refused.value.message
    assert file.read_text() == text


def test_a_file_of_config_that_does_not_exist_is_written(place: ConfigurationPlace) -> None:
    write_addition(plan_addition(json.dumps({"git": GIT}), replace(place, config=Path("own.json"))))
    assert [*json.loads((place.folder / "own.json").read_text())["mcpServers"]] == ["git"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no links like this")
def test_a_file_that_cannot_be_written_is_named_with_what_to_do(place: ConfigurationPlace) -> None:
    (place.home / FILE_NAME).symlink_to("/dev/fd/nowhere/file.json")
    addition = plan_addition(json.dumps({"git": GIT}), place)
    with pytest.raises(Unavailable, match="Add the entry there by hand"):
        write_addition(addition)
