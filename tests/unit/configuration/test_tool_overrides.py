"""What a server's entry changes of its tools: read, or refused with the key; and written as people write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolscript.configuration.files import load_configuration
from toolscript.configuration.override_edit import read_override, write_override
from toolscript.configuration.snippets import ConfigurationPlace
from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.redaction import redact_arguments
from toolscript.domain.servers import ServerSpec
from toolscript.domain.tool_overrides import ArgumentOverride, ToolOverride
from toolscript.services.support.configured_secrets import list_configured_secrets

pytestmark = pytest.mark.req("O-03")

TICKET = {
    "name": "new_ticket",
    "description": "Opens a ticket.",
    "arguments": {
        "repo": {"default": "acme/app", "hidden": True},
        "token": {"default": {"key": "${TOKEN}"}, "hidden": True},
        "labels": {"default": [], "description": "Its labels."},
    },
}


def load(folder: Path, tools: Any) -> ServerSpec:
    entry = {"command": "run", "tools": tools}
    (folder / ".toolscript.json").write_text(json.dumps({"mcpServers": {"git": entry}}))
    (spec,) = load_configuration(home=folder, folder=folder, environment={"TOKEN": "s3cret-value"}).servers
    return spec


def test_names_texts_and_arguments_are_read_with_variables(tmp_path: Path) -> None:
    spec = load(tmp_path, {"create_issue": TICKET, "drop": {"hidden": True}})
    assert spec.tools["drop"] == ToolOverride(hidden=True)
    ticket = spec.tools["create_issue"]
    assert (ticket.name, ticket.description) == ("new_ticket", "Opens a ticket.")
    assert ticket.arguments["labels"] == ArgumentOverride([], has_default=True, description="Its labels.")
    assert ticket.fixed == {"repo": "acme/app", "token": {"key": "s3cret-value"}}
    assert ticket.arguments["token"].secrets == ("s3cret-value",)
    assert "s3cret" not in f"{spec!r} {json.dumps(ticket.describe())}"
    assert load(tmp_path, ["*"]).tools == {}, "a key of other clients"


def test_a_secret_is_what_a_variable_brings_into_a_longer_default(tmp_path: Path) -> None:
    default = {"url": "postgres://u:${TOKEN}@db/${userHome}", "header": "Bearer ${env:TOKEN}", "by": "${BY:-our-team}"}
    spec = load(tmp_path, {"query": {"arguments": {"to": {"default": default, "hidden": True}}}})
    argument = spec.tools["query"].arguments["to"]
    assert argument.default["header"] == "Bearer s3cret-value"
    assert argument.secrets == ("s3cret-value", "s3cret-value", "our-team")
    shown = redact_arguments({"x": "use s3cret-value"}, secrets=list_configured_secrets([spec]))
    assert shown == {"x": "use [redacted]"}


def test_what_is_listed_depends_on_overrides_and_not_on_fixed_values(tmp_path: Path) -> None:
    def digest(value: str, **about: Any) -> str:
        return load(tmp_path, {"a": {"arguments": {"b": {"default": value, "hidden": True}}, **about}}).digest

    assert digest("one") == digest("two")
    assert digest("one") != digest("one", name="c")


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        (5, "tools: must be an object such as"),
        ({"a": 5}, "tools.a: must be an object"),
        ({"a": {"hiden": True}}, 'tools.a.hiden: unknown key: allowed are name, description, hidden, arguments; did'),
        ({"a": {"hidden": "yes"}}, "tools.a.hidden: must be true or false"),
        ({"a": {"name": ""}}, "tools.a.name: invalid name of a tool: use 1 to 64 letters"),
        ({"a": {"name": "b c"}}, "tools.a.name: invalid name of a tool"),
        ({"a": {"name": 5}}, "tools.a.name: must be a string"),
        ({"a": {"description": 5}}, "tools.a.description: must be a string"),
        ({"a": {"arguments": []}}, "tools.a.arguments: must be an object"),
        ({"a": {"arguments": {"b": {"hidden": True}}}}, "tools.a.arguments.b: is hidden and has no default"),
        ({"a": {"arguments": {"b": {"defalt": 1}}}}, 'tools.a.arguments.b.defalt: unknown key: allowed are default'),
        ({"a": {"arguments": {"b": {"default": "${TOKEN}"}}}}, "callers see it, and it has a variable"),
        ({"a": {"arguments": {"b": {"default": "${NOPE}", "hidden": True}}}}, "variable NOPE is not set"),
        ({"a": {"name": "c"}, "b": {"name": "c"}}, "tools.b.name: 'c' is the name of tools.a, too"),
        ({"a": {"name": "b"}, "b": {"description": "x"}}, "tools.b: 'b' is the name of tools.a, too"),
    ],
)  # fmt: skip
def test_wrong_overrides_are_refused_with_their_key(tmp_path: Path, tools: Any, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        load(tmp_path, tools)
    assert problem in refused.value.message
    assert "s3cret" not in refused.value.message


def test_an_override_is_written_beside_what_the_file_has(tmp_path: Path) -> None:
    file = tmp_path / ".toolscript.json"
    file.write_text('{\n  // ours\n  "servers": {\n    "a/git": { "command": "run" } // keep\n  }\n}\n')
    place = ConfigurationPlace(None, tmp_path, tmp_path, {"TOKEN": "s3cret-value"})
    assert read_override(place, "a-git", "create_issue").override == {}
    written = write_override(place, "a-git", "create_issue", TICKET)
    assert (written.file, written.override) == (file, TICKET)
    text = file.read_text()
    assert ("// ours" in text, "// keep" in text, "${TOKEN}" in text) == (True, True, True)
    assert read_override(place, "a-git", "create_issue").override == TICKET
    (spec,) = load_configuration(home=tmp_path, folder=tmp_path, environment={"TOKEN": "t"}).servers
    assert spec.tools["create_issue"].name == "new_ticket"
    write_override(place, "a-git", "other", {"hidden": True})
    write_override(place, "a-git", "create_issue", {})
    (spec,) = load_configuration(home=tmp_path, folder=tmp_path, environment={}).servers
    assert spec.tools == {"other": ToolOverride(hidden=True)}


def test_a_wrong_override_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    place = ConfigurationPlace(None, tmp_path, tmp_path, {})
    file = tmp_path / ".toolscript.json"
    file.write_text(before := '{"mcpServers": {"git": {"command": "run"}}}')
    for override in ({"nmae": "x"}, {"name": "a b"}, {"arguments": {"b": {"hidden": True}}}):
        with pytest.raises(Invalid):
            write_override(place, "git", "create_issue", override)
    with pytest.raises(NotFound, match="no configuration file names the server 'svn'"):
        write_override(place, "svn", "create_issue", {"hidden": True})
    assert file.read_text() == before
    file.write_text("{")
    with pytest.raises(Invalid, match="Correct the file first"):
        write_override(place, "git", "create_issue", {"hidden": True})
