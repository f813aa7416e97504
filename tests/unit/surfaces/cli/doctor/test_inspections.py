"""What single inspections of `toolscript doctor` say. They start nothing."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from toolscript.app.inspection import list_network_variables
from toolscript.settings import Settings
from toolscript.surfaces.cli.doctor import command, servers
from toolscript.surfaces.cli.doctor.clients import inspect_clients
from toolscript.surfaces.cli.doctor.findings import Level
from toolscript.surfaces.cli.doctor.gateway import inspect_gateway
from toolscript.surfaces.cli.doctor.installation import inspect_index
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


@pytest.mark.parametrize("mark", ["", "/", "#", "?", "@", "://"])
@pytest.mark.parametrize("scheme", ["", "http://"])
def test_no_password_of_a_proxy_is_shown(monkeypatch: pytest.MonkeyPatch, scheme: str, mark: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"{scheme}ann:hun{mark}ter@proxy:3128")
    (finding,) = inspect_network()
    assert finding.text == f"{scheme}***@proxy:3128"


def test_addresses_of_servers_are_shown_without_login_and_query(tmp_path: Path) -> None:
    entry = {"url": "https://bob:s3cret@a.example/mcp?key=s3cret"}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"a": entry}}))
    settings = Settings(data_dir=tmp_path, config=tmp_path / "servers.json")
    choice, _ = inspect_configuration(settings)
    (finding,) = inspect_servers(settings, choice, asks_gateway=False, starts=False)
    assert finding.text == "not asked: https://a.example/mcp"


@pytest.mark.parametrize(
    ("folders", "level"), [("{here}:{here}/gone", Level.OK), ("{here}/gone:{here}/lost", Level.ERROR)]
)
def test_a_list_of_folders_with_certificates_may_have_some_that_are_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folders: str, level: Level
) -> None:
    monkeypatch.setenv("SSL_CERT_DIR", folders.format(here=tmp_path).replace(":", os.pathsep))
    (finding,) = inspect_network()
    assert finding.level is level


@pytest.mark.parametrize("place", ["servers", "mcp.servers", "mcpServers"])
def test_secrets_in_every_list_of_a_file_that_others_can_read_are_named(tmp_path: Path, place: str) -> None:
    well: dict[str, Any] = {"w": {"command": "true"}}
    secret = {"x": {"command": "true", "env": {"TOKEN": "abc"}}}
    outer, _, inner = place.partition(".")
    (file := tmp_path / "servers.json").write_text(
        json.dumps({"mcpServers": well, outer: {inner: secret} if inner else secret})
    )
    file.chmod(0o644)
    _, findings = inspect_configuration(Settings(data_dir=tmp_path, config=file))
    assert [each.level for each in findings if "values of x" in each.text] == [Level.NOTE]


def test_a_lock_of_the_index_that_cannot_be_opened_is_not_called_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(lock: FileLock, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", lock.lock_file)

    async def work(_: Settings) -> str:
        return "the engine"

    monkeypatch.setattr("toolscript.surfaces.cli.doctor.installation.check_index", work)
    monkeypatch.setattr(FileLock, "acquire", refuse)
    (lock := tmp_path / "index" / ".lock").parent.mkdir()
    lock.touch()
    _, finding = inspect_index(Settings(data_dir=tmp_path))
    assert (finding.level, finding.text) == (Level.ERROR, f"{lock} cannot be opened: Permission denied")


@pytest.mark.parametrize("words", [["--config", "/gone.json"], ["--config=/gone.json"]])
def test_an_entry_of_a_client_whose_configuration_is_gone_is_stale(home: Path, words: list[str]) -> None:
    entry = {"command": sys.executable, "args": ["-m", "toolscript", "mcp", *words]}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"toolscript": entry}}))
    (finding,) = inspect_clients(Settings(data_dir=home))
    assert (finding.cause, "/gone.json" in finding.text) == ("stale_path", True)
