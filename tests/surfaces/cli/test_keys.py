"""`toolscript keys`: secrets are shown once, and a running gateway follows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.gateway import find_gateway_url
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("X-04", "G-09", "G-19")

DEADLINE_SECONDS = 60.0


def toolscript(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.setattr("sys.argv", ["toolscript", *arguments])
    return CliRunner().invoke(run, list(arguments))


def answer(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    result = toolscript(monkeypatch, *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def wait_for(status: int, url: str, key: str | None) -> None:
    """Sends requests, without a key as a proxy does, until one is answered with this status."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    headers = {"X-API-Key": key} if key else {"Via": "1.1 proxy"}
    while (response := httpx.get(url, headers=headers)).status_code != status:
        assert time.monotonic() < deadline, response.text
        time.sleep(0.05)


def test_the_secret_is_alone_on_standard_output_and_shown_once(
    small_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = toolscript(
        monkeypatch, "keys", "create", "ci", "--scope", "search", "--scope", "call", "--expires", "30d"
    )
    assert created.exit_code == 0
    secret = created.stdout.strip()
    assert secret.startswith("tsk_")
    assert len(created.stdout.splitlines()) == 1
    assert "created: ci is valid until 20" in created.stderr
    listed = toolscript(monkeypatch, "keys", "list")
    assert "ci" in listed.stdout
    assert "call, search" in listed.stdout
    assert "active" in listed.stdout
    files = b"".join(file.read_bytes() for file in small_folder.rglob("*") if file.is_file())
    for place in (listed.stdout.encode(), files):
        assert secret.removeprefix("tsk_").encode() not in place


def test_a_key_is_created_listed_and_revoked_as_json(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created = answer(monkeypatch, "keys", "create", "app", "--scope", "documents", "--tenant", "acme", "--plan", "slow")
    assert created.pop("key").startswith("tsk_")
    assert created["created_at"].endswith("+00:00")
    assert {name: created[name] for name in ("name", "scopes", "tenant", "plan", "state", "expires_at")} == {
        "name": "app",
        "scopes": ["documents"],
        "tenant": "acme",
        "plan": "slow",
        "state": "active",
        "expires_at": None,
    }
    assert answer(monkeypatch, "keys", "list") == {"keys": [created]}
    assert answer(monkeypatch, "keys", "revoke", "app")["state"] == "revoked"
    assert [key["state"] for key in answer(monkeypatch, "keys", "list")["keys"]] == ["revoked"]


def test_the_first_key_is_created_with_a_note_of_what_changes(
    small_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ("keys", "create", "--scope", "search")
    assert "requests without one, except those of programs" in toolscript(monkeypatch, *create, "first").stderr
    assert "requests without one" not in toolscript(monkeypatch, *create, "second").stderr


@pytest.mark.req("X-03")
def test_errors_have_exit_codes_and_say_what_is_allowed(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "keys", "create", "ci", "--scope", "search")
    taken = toolscript(monkeypatch, "keys", "create", "ci", "--scope", "search")
    assert (taken.exit_code, "already exists" in taken.stderr) == (7, True)
    unknown = toolscript(monkeypatch, "keys", "revoke", "nobody")
    assert (unknown.exit_code, "keys list" in unknown.stderr) == (4, True)
    scope = toolscript(monkeypatch, "keys", "create", "x", "--scope", "everything")
    assert (scope.exit_code, "'metrics'" in scope.stderr) == (2, True)
    assert toolscript(monkeypatch, "keys", "create", "x").exit_code == 2
    for expires in ("", "30", "0d", "-1d", "1.5h", "99999d", "1y"):
        refused = toolscript(monkeypatch, "keys", "create", "x", "--scope", "call", "--expires", expires)
        assert (refused.exit_code, "45m, 12h or 30d" in refused.stderr) == (2, True), expires
    assert len(answer(monkeypatch, "keys", "list")["keys"]) == 1


@pytest.mark.req("X-03", "X-08")
def test_listing_creates_no_folder_and_a_store_in_memory_has_no_keys(
    small_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = toolscript(monkeypatch, "keys", "list")
    assert (listed.exit_code, "does not exist" in listed.stderr) == (3, True)
    assert not small_folder.exists()
    monkeypatch.setenv("TOOLSCRIPT_STORE", "sqlite://")
    refused = toolscript(monkeypatch, "keys", "create", "ci", "--scope", "search")
    assert (refused.exit_code, "in the memory of one process" in refused.stderr) == (2, True)


@pytest.mark.req("X-05")
def test_a_running_gateway_follows_within_seconds(
    small_folder: Path, start_gateway: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_gateway()
    url = f"{find_gateway_url(load_settings())}/search?q=read"
    assert httpx.get(url).status_code == 200
    key = answer(monkeypatch, "keys", "create", "ci", "--scope", "search")["key"]
    wait_for(200, url, key)
    wait_for(401, url, None)
    assert httpx.get(url).status_code == 200  # the owner of the machine needs none
    command = ("search", "read a file", "--json")
    assert toolscript(monkeypatch, *command).exit_code == 0  # the owner of the folder needs none
    monkeypatch.setenv("TOOLSCRIPT_API_KEY", "wrong")
    refused = toolscript(monkeypatch, *command)
    assert (refused.exit_code, "set TOOLSCRIPT_API_KEY" in refused.stderr) == (6, True)
    monkeypatch.setenv("TOOLSCRIPT_API_KEY", key)
    assert toolscript(monkeypatch, *command).exit_code == 0
    monkeypatch.delenv("TOOLSCRIPT_API_KEY")
    answer(monkeypatch, "keys", "revoke", "ci")
    wait_for(401, url, key)


@pytest.mark.parametrize(
    "command", [["keys", "create", "ci", "--scope", "search"], ["keys", "list"], ["knowledge", "list"]]
)
def test_a_folder_that_cannot_be_created_is_named(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    result = toolscript(monkeypatch, *command, "--data-dir", "/dev/null/x")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: the store /dev/null/x/toolscript.db ")
    assert result.stderr.count("\n") == 1
