"""Entries that work outside of their client and project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolscript.configuration.jsonc import parse_jsonc
from toolscript.configuration.portable_entry import make_portable
from toolscript.domain.errors import Invalid

PROJECT = Path("/code/shop")


def convert(project: Path | None = None, **entry: Any) -> tuple[dict[str, Any], dict[str, str]]:
    portable = make_portable(json.dumps(entry), project)
    return parse_jsonc(portable.source).root.to_python(), portable.variables


def test_an_entry_without_variables_stays_as_it_is() -> None:
    source = '{"command": "npx", // the usual\n "args": ["-y", "x"], "env": {"TOKEN": "s3cret"},}'
    assert make_portable(source, None).source == source


def test_variables_get_an_empty_default_and_are_passed_on_as_the_client_writes_them() -> None:
    entry, variables = convert(env={"A": "${env:AA}", "B": "x ${BB} y", "C": "${CC:-c}", "H": "${HOME}"})
    assert entry["env"] == {"A": "${AA:-}", "B": "x ${BB:-} y", "C": "${CC:-c}", "H": "${HOME:-}"}
    assert variables == {"AA": "${env:AA}", "BB": "${BB}", "CC": "${CC:-c}"}


def test_an_input_of_vs_code_becomes_a_variable_that_vs_code_sets() -> None:
    entry, variables = convert(headers={"Authorization": "Bearer ${input:api-key}"})
    assert entry["headers"] == {"Authorization": "Bearer ${API_KEY:-}"}
    assert variables == {"API_KEY": "${input:api-key}"}


@pytest.mark.parametrize("variable", ["${config:x.y}", "${command:pick}", "${file:/run/secret}"])
def test_what_only_the_client_can_resolve_is_refused(variable: str) -> None:
    with pytest.raises(Invalid, match="only its client can resolve"):
        convert(command="x", args=[variable])


@pytest.mark.parametrize("entry", [{"oauth": {"clientId": "x"}}, {"headersHelper": "h.sh"}, {"sandboxEnabled": True}])
def test_a_server_stays_whose_login_or_limits_only_its_client_has(entry: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="only its client can apply"):
        convert(command="x", **entry)
    assert convert(command="x", sandboxEnabled=False)[0] == {"command": "x", "sandboxEnabled": False}


def test_places_of_a_project_become_paths() -> None:
    entry, _ = convert(PROJECT, command="${workspaceFolder}/run", args=["${workspaceFolderBasename}"], envFile=".env")
    assert entry == {"command": "/code/shop/run", "args": ["shop"], "envFile": "/code/shop/.env", "cwd": "/code/shop"}


def test_a_folder_that_is_given_stays() -> None:
    assert convert(PROJECT, command="x", cwd="/srv")[0]["cwd"] == "/srv"
    assert convert(PROJECT, command="x", cwd="sub")[0]["cwd"] == "/code/shop/sub"
    assert "cwd" not in convert(PROJECT, url="https://example.com/mcp")[0]
    assert convert(PROJECT, openapi="api.yaml")[0] == {"openapi": "/code/shop/api.yaml"}
    assert convert(PROJECT, openapi="https://api.example/a")[0] == {"openapi": "https://api.example/a"}


@pytest.mark.parametrize("entry", [{"command": "${workspaceFolder}/run"}, {"command": "x", "cwd": "sub"}])
def test_places_of_a_project_in_a_file_for_all_projects_are_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        convert(**entry)


def test_tools_that_windsurf_has_disabled_stay_disabled() -> None:
    assert convert(command="x", disabledTools=["drop"])[0] == {"command": "x", "excludeTools": ["drop"]}
