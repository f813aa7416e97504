"""`toolscript doctor` looks at everything around the servers, whatever is broken, and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.fixtures.limits import set_limits
from tests.servers.processes import find_free_port
from toolscript.app.inspection import list_network_variables
from toolscript.settings import DEFAULT_MODEL
from toolscript.surfaces.cli.main import run

pytestmark = [pytest.mark.req("A-05", "X-08"), pytest.mark.slow]

PACKAGED = Path(str(resources.files("toolscript").joinpath("data/models"))) / DEFAULT_MODEL


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_folder: Path) -> Path:
    """An empty home folder, and a port that is free."""
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TOOLSCRIPT_PORT", str(find_free_port()))
    for name in list_network_variables(os.environ):
        monkeypatch.delenv(name)
    return home


def invoke(*words: str, code: int = 0) -> Result:
    arguments = ["doctor", "--no-start", *words]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["toolscript", *arguments])
        done = CliRunner().invoke(run, arguments)
    assert done.exit_code == code, done.output
    return done


def find(area: str, code: int = 0, level: str = "") -> list[dict[str, Any]]:
    """The findings of an area, of that level if one is given."""
    response = json.loads(invoke("--json", code=code).stdout)
    assert response["ok"] == (code == 0)
    return [each for each in response["findings"] if each["area"] == area and level in {"", each["level"]}]


def list_tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    files = {str(each): each.lstat() for each in folder.rglob("*")}
    return {name: (status.st_mode, status.st_size, status.st_mtime_ns) for name, status in files.items()}


def test_an_empty_machine_is_well_and_stays_empty(tmp_path: Path) -> None:
    before = list_tree(tmp_path)
    shown = invoke().stdout
    assert list_tree(tmp_path) == before
    assert "0 errors, 2 notes. Nothing was changed." in shown
    assert "\x1b[" not in shown
    assert "toolscript setup" in shown
    for title in ("Settings", "Package", "Data folder", "Index engine", "Model", "Gateway", "Clients", "Network"):
        assert f"\n{title} " in f"\n{shown}"


def test_a_user_without_a_home_folder_gets_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", refuse)
    monkeypatch.setattr(Path, "home", refuse)
    shown = invoke(code=3).stdout
    assert "Could not determine home directory" in shown
    assert "Package " in shown


def test_a_broken_configuration_hides_nothing_else() -> None:
    Path(".toolscript.json").write_text('{"mcpServers": {"a": {"comand": "x"},\n "b": {"url": "nowhere"}}}')
    problems = [each["text"] for each in find("configuration", 3, "error")]
    assert len(problems) == 2
    assert 'did you mean "command"? (line 1)' in problems[0]
    assert "(line 2)" in problems[1]
    assert find("model", 3)[0]["level"] == "ok"
    Path(".toolscript.json").write_text("{")
    assert "(line 1" in find("configuration", 3, "error")[0]["text"]


def test_settings_that_are_unknown_invalid_or_contradict_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_LIMIT", "many")
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_THRESHOLD", "7")
    monkeypatch.setenv("TOOLSCRIPT_MODELL", "x")
    monkeypatch.setenv("TOOLSCRIPT_HOST", "0.0.0.0")
    monkeypatch.setenv("TOOLSCRIPT_ENVIRONMENT", "production")
    monkeypatch.setenv("TOOLSCRIPT_DEBUG_BYPASS_AUTH", "true")
    found = find("settings", 3)
    texts = " ".join(f"{each['subject']} {each['text']} {each['action']}" for each in found)
    for part in (
        "TOOLSCRIPT_SEARCH_LIMIT=many: expected a whole number from 1 to 100",
        "TOOLSCRIPT_SEARCH_THRESHOLD=7: expected a number",
        "TOOLSCRIPT_MODELL unknown, and ignored did you mean TOOLSCRIPT_SEARCH_MODEL?",
        "TOOLSCRIPT_DEBUG_BYPASS_AUTH is on",
        "--host 0.0.0.0 is not a loopback address",
    ):
        assert part in texts
    assert [each["level"] for each in found].count("error") == 4


def test_proxies_are_shown_without_passwords_and_missing_certificates_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:hunter2@proxy:3128")
    monkeypatch.setenv("https_proxy", "http://ann:hunter3@proxy:3129")
    monkeypatch.setenv("HTTP_PROXY", "bob:hunter4@proxy:3128")
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file.pem")
    monkeypatch.setenv("NODE_USE_SYSTEM_CA", "1")
    shown = invoke(code=3).stdout
    assert "hunter" not in shown
    assert "***@proxy:3129" in shown
    found = {each["subject"]: each["level"] for each in find("network", 3)}
    assert found == {
        "HTTPS_PROXY": "note",
        "https_proxy": "ok",
        "HTTP_PROXY": "ok",
        "SSL_CERT_FILE": "error",
        "NODE_USE_SYSTEM_CA": "ok",
    }


@pytest.mark.skipif(sys.platform == "win32", reason="modes say nothing on Windows")
def test_a_data_folder_that_others_can_read_is_named(small_folder: Path) -> None:
    small_folder.mkdir()
    small_folder.chmod(0o755)
    (small_folder / "login.key").write_text("secret")
    (small_folder / "login.key").chmod(0o644)
    (finding,) = find("folder", 3, "error")
    assert "login.key" in finding["text"]
    assert finding["action"] == f"chmod -R go-rwx {small_folder}"
    small_folder.chmod(0o700)
    assert find("folder", 0, "error") == []
    Path(".toolscript.json").write_text(json.dumps({"mcpServers": {"a": {"command": "ls", "env": {"K": "secret"}}}}))
    Path(".toolscript.json").chmod(0o644)
    (note,) = find("configuration", 0, "note")
    assert ("values of a" in note["text"], "secret" in note["text"]) == (True, False)


def test_a_file_in_place_of_the_folder_a_damaged_record_and_a_full_disk_are_named(
    small_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_folder.write_text("")
    assert "is a file" in find("folder", 3, "error")[0]["text"]
    small_folder.unlink()
    small_folder.mkdir(mode=0o700)
    (small_folder / "catalogue.json").write_text("{")
    assert "catalogue.json" in find("folder", 3, "error")[0]["text"]
    (small_folder / "catalogue.json").unlink()
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**6))
    assert "only 1.0 MB are free" in find("folder", 3, "error")[0]["text"]


def test_a_port_that_another_program_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, port_owner=0.1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setenv("TOOLSCRIPT_PORT", str(other.getsockname()[1]))
        (finding,) = find("gateway", 3, "error")
    assert finding["cause"] == "port"
    if sys.platform == "linux":
        assert f"Another program listens there: process {os.getpid()}" in finding["text"]


def test_a_gateway_elsewhere_that_does_not_answer_is_named() -> None:
    response = json.loads(invoke("--json", "--gateway", f"http://127.0.0.1:{find_free_port()}", code=3).stdout)
    (finding,) = [each for each in response["findings"] if each["area"] == "gateway"]
    assert "cannot be asked" in finding["text"]


def test_an_index_that_another_process_holds_or_that_is_damaged_is_named(small_folder: Path) -> None:
    (collection := small_folder / "index" / "mcp_unified_search").mkdir(parents=True, mode=0o700)
    (collection / "collection.json").write_text("{")
    (finding,) = find("index", 3, "error")
    assert ("damaged" in finding["text"], "index rebuild" in finding["action"]) == (True, True)
    hold = "import sys, filelock as f; lock = f.FileLock(sys.argv[1]); lock.acquire(); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(small_folder / "index" / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        (note,) = find("index", 0, "note")
        if sys.platform == "linux":
            assert f"process {process.pid}" in note["text"]
        process.communicate(b"")


def test_a_model_that_is_changed_or_absent_is_named(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(PACKAGED, small_folder / "models" / DEFAULT_MODEL)
    small_folder.chmod(0o700)
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_MODEL", DEFAULT_MODEL)
    with (small_folder / "models" / DEFAULT_MODEL / "config.json").open("a") as file:
        file.write(" ")
    (finding,) = find("model", 3)
    assert "config.json is not the file of the package" in finding["text"]
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_MODEL", "somebody/some-model")
    assert "is not on this machine" in find("model", 3)[0]["text"]


def test_the_packaged_models_are_unchanged_and_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_MODEL", DEFAULT_MODEL)
    assert [each["level"] for each in find("model")] == ["ok", "ok"]


def write_client(home: Path, file: str, entry: dict[str, Any], **others: Any) -> Path:
    path = home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"toolscript": entry, **others}}))
    return path


def test_entries_of_clients_are_whole_stale_or_lack_something(home: Path) -> None:
    own = {"command": sys.executable, "args": ["-m", "toolscript", "mcp"]}
    write_client(home, ".claude.json", own | {"alwaysLoad": True})
    write_client(home, ".cursor/mcp.json", {"command": "/gone/toolscript", "args": ["mcp"]}, other={"command": "npx"})
    write_client(home, ".kiro/settings/mcp.json", own | {"args": [*own["args"], "--config", "/gone/servers.json"]})
    write_client(home, ".copilot/mcp-config.json", own)
    write_client(home, ".junie/mcp/mcp.json", {"command": "toolscript", "args": ["search"]})
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text("{")
    (home / ".claude").mkdir()
    hooks = {"hooks": {"UserPromptSubmit": [{"hooks": [{"command": "/gone/toolscript suggest"}]}]}}
    (home / ".claude" / "settings.json").write_text(json.dumps(hooks))
    found: dict[str, list[tuple[str, str | None]]] = {}
    for each in find("clients", 3):
        found.setdefault(each["subject"].partition(",")[0], []).append((each["level"], each["cause"]))
        assert each["level"] == "ok" or each["action"]
    assert found == {
        "Claude Code": [("ok", None)],
        "Cursor": [("error", "stale_path"), ("note", None)],
        "Kiro": [("error", "stale_path")],
        "Copilot CLI": [("note", None)],
        "Junie of JetBrains": [("error", "stale_path" if shutil.which("toolscript") is None else "incomplete")],
        "Gemini CLI": [("error", None)],
        "hook of Claude Code": [("error", "stale_path")],
    }


def test_an_entry_that_somebody_has_removed_after_a_setup_is_named(home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"a": {"command": "ls"}}}')
    words = ["setup", "--client", "cursor", "--yes", "--no-measure"]
    assert CliRunner().invoke(run, words).exit_code == 0
    file.write_text('{"mcpServers": {}}')
    (finding,) = find("clients", 3, "error")
    assert ("no longer in it" in finding["text"], finding["subject"]) == (True, "~/.cursor/mcp.json")
