"""What single inspections of `toolscript doctor` say. They start nothing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from toolscript.app.inspection import list_network_variables
from toolscript.settings import Settings
from toolscript.surfaces.cli.doctor import command, servers
from toolscript.surfaces.cli.doctor.clients import inspect_clients
from toolscript.surfaces.cli.doctor.findings import DoctorFinding, Level
from toolscript.surfaces.cli.doctor.gateway import inspect_gateway
from toolscript.surfaces.cli.doctor.servers import inspect_configuration, inspect_servers
from toolscript.surfaces.cli.doctor.settings import inspect_network

pytestmark = pytest.mark.req("A-05")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, and an environment without proxies and certificates."""
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", *list_network_variables(os.environ)):
        monkeypatch.delenv(name, raising=False)
    return home


def test_a_check_that_fails_in_any_way_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "send_to_gateway", lambda *_: {"servers": [], "configurationError": None})
    settings = Settings()
    check = command._guard("servers", lambda: inspect_servers(settings, None, asks_gateway=True, starts=False))
    (finding,) = check
    assert (finding.level, "configurationWarnings" in finding.text) == (Level.ERROR, True)


def test_without_the_extra_for_servers_the_port_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "toolscript.surfaces.http.server", None)
    (finding,) = inspect_gateway(Settings(data_dir=tmp_path))
    assert finding.level is Level.OK


def write_hook(home: Path, hook: str) -> None:
    (home / ".claude").mkdir(exist_ok=True)
    hooks = {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": hook}]}]}
    (home / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))


@pytest.mark.parametrize(
    ("hook", "level"),
    [
        ("/gone/toolscript suggest", Level.ERROR),
        (f"{sys.executable} -m toolscript suggest # don't", Level.OK),
        ("$HOME/bin/toolscript suggest", None),
        ("~/bin/toolscript suggest", None),
        ("FOO=1 toolscript suggest", None),
        ("cd /x && toolscript suggest", None),
        ("toolscript suggest || echo don't", None),
    ],
)
def test_a_hook_is_looked_at_that_names_its_program_by_its_path(home: Path, hook: str, level: Level | None) -> None:
    write_hook(home, hook)
    found = [each.level for each in inspect_clients(Settings(data_dir=home)) if "hook" in (each.subject or "")]
    assert found == ([level] if level else [])
