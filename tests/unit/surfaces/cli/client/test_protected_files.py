"""What no server in a sandbox may write: every file that Toolscript obeys, also where there is none yet."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolscript.settings import Settings
from toolscript.surfaces.cli.client.catalogue import read_configuration

pytestmark = pytest.mark.req("O-04")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    return tmp_path / "home"


def read_protected(settings: Settings, file: Path, servers: dict[str, Any], **more: Any) -> tuple[str, ...]:
    """The paths that the server `boxed` may not write."""
    boxed = {"command": "run", "sandbox": "bwrap"}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": {"boxed": boxed, **servers}, **more}))
    read = read_configuration(settings, file.parent)
    return next(s.sandbox.protected for s in read.servers if s.sandbox)


def test_the_files_of_configuration_and_settings_are_protected(tmp_path: Path, home: Path) -> None:
    project = tmp_path / "project"
    protected = read_protected(Settings(), project / ".toolscript.json", {})
    default = [str(home / ".toolscript.json"), str(project / ".toolscript.json"), str(project / ".env")]
    assert sorted(protected) == sorted(default)
    settings = Settings(
        config=Path("own.json"),
        plans=Path("plans.toml"),
        skills=tmp_path / "skills.toml",
        search_capabilities=Path("../capabilities.toml"),
        jwt_jwks="keys.json",
        events="https://example.com/events",
    )
    named = [project / "own.json", project / "plans.toml", project / "keys.json"]
    named += [tmp_path / "skills.toml", tmp_path / "capabilities.toml"]
    assert sorted(read_protected(settings, project / "own.json", {})) == sorted([*default, *map(str, named)])


def test_what_entries_of_other_servers_name_is_protected(tmp_path: Path, home: Path) -> None:
    servers: dict[str, dict[str, Any]] = {
        "env": {"command": "run", "envFile": "variables.env"},
        "api": {"openapi": "api.json", "url": "https://example.com"},
        "remote": {"openapi": "https://example.com/api.json"},
        "program": {"command": str(tmp_path / "tools" / "server")},
        "image": {"command": "/usr/bin/node", "sandbox": {"kind": "docker", "image": "node:22"}},
    }
    file = tmp_path / ".toolscript.json"
    protected = read_protected(Settings(), file, servers, skillFolders=["skills"])
    names = {"variables.env", "api.json", "tools/server", "skills", ".toolscript.json", ".env"}
    assert set(protected) == {str(home / ".toolscript.json"), *(str(tmp_path / name) for name in names)}


def test_a_new_file_to_protect_restarts_the_server_and_lists_its_tools_no_further_time(
    tmp_path: Path, home: Path
) -> None:
    file = tmp_path / ".toolscript.json"
    file.write_text(json.dumps({"mcpServers": {"boxed": {"command": "run", "sandbox": "bwrap"}}}))
    (spec,) = read_configuration(Settings(), tmp_path).servers
    (other,) = read_configuration(replace(Settings(), plans=Path("plans.toml")), tmp_path).servers
    assert spec != other
    assert spec.digest == other.digest
