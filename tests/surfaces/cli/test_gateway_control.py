"""A gateway that runs already: its status, how it is stopped, how commands name it, and how they use one elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from click.testing import CliRunner, Result

from tests.fixtures.http_services import HttpDouble
from tests.servers.gateway import run_gateway
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.announcement import announce_gateway, read_announcement
from toolscript.surfaces.cli.main import run

Toolscript = Callable[..., Result]
SECRET = "a-secret-of-the-tests-that-is-long-enough"


@pytest.fixture
def toolscript(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Toolscript:
    def invoke(*arguments: str, code: int = 0, **variables: str) -> Result:
        monkeypatch.setattr("sys.argv", ["toolscript", *arguments])
        result = CliRunner(env={f"TOOLSCRIPT_{n}": v for n, v in variables.items()}).invoke(run, list(arguments))
        assert result.exit_code == code, result.output
        return result

    return invoke


def read_json(result: Result) -> Any:
    return json.loads(result.stdout)


@pytest.mark.req("G-09", "X-05")
def test_a_running_gateway_is_shown_named_and_stopped(
    toolscript: Toolscript,
    small_folder: Path,
    start_gateway: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start_gateway()
    status = read_json(toolscript("gateway", "status", "--json"))
    announced = read_announcement(small_folder)
    assert announced is not None
    assert status == {
        "running": True,
        "ready": True,
        "url": announced.url,
        "pid": announced.pid,
        "started_at": announced.started_at,
        "config": None,
        "model": "hashed-64",
        "servers": {},
        "reason": None,
    }
    shown = toolscript("gateway", "status").stdout
    assert f"Process  {announced.pid}" in shown
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) is None)  # type: ignore[func-returns-value]
    monkeypatch.setenv("DISPLAY", ":0")
    assert f"opens {announced.url}/" in toolscript("open").stdout
    assert [url.partition("#")[0] for url in opened] == [f"{announced.url}/"]
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(variable, raising=False)
    answer = read_json(toolscript("open", "--json"))
    assert answer["url"].startswith(f"{announced.url}/#/sign-in?code=")
    assert answer["opened"] is False
    assert announced.url in shown

    # Who tries to open the same folder or port learns who has it.
    who = f"{announced.url} (process {announced.pid}, since "
    assert who in toolscript("gateway", "start", "--port", "0", code=3).stderr
    assert who in toolscript("index", "rebuild", code=3).stderr
    assert who in toolscript("search", "x", "--model", "hashed-32", code=3).stderr
    port, other = announced.url.rpartition(":")[2], str(tmp_path / "other")
    taken = toolscript("gateway", "start", "--port", port, "--data-dir", other, code=3).stderr
    assert "A Toolscript gateway listens there" in taken
    if Path("/proc").is_dir():
        assert f"process {announced.pid}, since " in taken

    stopped = read_json(toolscript("gateway", "stop", "--json"))
    assert stopped == {"stopped": True, "url": announced.url, "pid": announced.pid}
    assert not (small_folder / "gateway.json").exists()
    assert f"no gateway runs on {small_folder}" in toolscript("gateway", "stop", code=4).stderr
    assert read_json(toolscript("gateway", "status", "--json", code=4))["running"] is False
    assert "toolscript gateway start" in toolscript("open", code=3).output
    assert "toolscript gateway start" in toolscript("gateway", "status", code=4).stdout


@pytest.mark.req("G-09", "X-03")
def test_settings_that_a_running_gateway_makes_void_are_named_once(toolscript: Toolscript, demo_folder: Path) -> None:
    given = {"SEARCH_ALPHA": "0.5", "STORE": "postgresql://user:hidden@nowhere/db", "LOG_LEVEL": "error"}
    with run_gateway(Path.cwd(), "--data-dir", str(demo_folder)) as gateway:
        first = toolscript("search", "read a file", **given).stderr
        assert "TOOLSCRIPT_SEARCH_ALPHA has no effect: the gateway http://" in first
        assert "uses the default; restart it to change it" in first
        assert "TOOLSCRIPT_STORE has no effect" in first
        assert "hidden" not in first
        assert "LOG_LEVEL" not in first
        assert "SEARCH_MODEL" not in first  # the gateway has the same
        assert toolscript("list-tools", **given).stderr == ""
    assert gateway.log.read_text() == "", "a gateway of the demo ends without a stack trace"


@pytest.mark.extended
@pytest.mark.req("G-09", "X-04")
def test_a_gateway_elsewhere_is_used_with_a_key(toolscript: Toolscript, tmp_path: Path, small_folder: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with run_gateway(elsewhere, "--data-dir", str(elsewhere / "data"), API_KEY="a-key", JWT_SECRET=SECRET) as gateway:
        refused = toolscript("search", "read a file", "--gateway", gateway.url, code=6)
        assert "set TOOLSCRIPT_API_KEY" in refused.stderr
        there = {"GATEWAY_URL": f"{gateway.url}/", "API_KEY": "a-key"}
        assert "filesystem__read_file" in toolscript("search", "read a file", **there).stdout
        assert "filesystem__read_file" in toolscript("list-tools", "--gateway", gateway.url, API_KEY="a-key").stdout
        assert toolscript("skills", "list", **there).stdout
        assert read_json(toolscript("gateway", "status", "--json", **there))["ready"] is True
        assert "Nothing found" in toolscript("knowledge", "search", "anything", **there).stdout
        # The key for documents is a tenant's token.
        token = jwt.encode({"tenant_id": "acme", "exp": 4_000_000_000}, SECRET, "HS256")
        listed = toolscript("documents", "list", "--tenant", "other", GATEWAY_URL=gateway.url, API_KEY=token)
        assert "No documents" in listed.stdout
        assert "--tenant has no effect" in listed.stderr
        # Commands that open the data folder say that they do.
        for _ in range(2):  # every time
            assert "TOOLSCRIPT_GATEWAY_URL has no effect" in toolscript("knowledge", "list", **there).stderr
        for command in (["documents", "list"], ["documents", "search", "x"]):
            message = toolscript(*command, code=6, **there).stderr
            assert "`toolscript keys create NAME --scope documents --tenant TENANT`" in message
            assert "X-API-Key" not in message
    assert not (small_folder / "index").exists()
    assert f"no gateway responds at {gateway.url}" in toolscript("list-tools", "--gateway", gateway.url, code=3).stderr
    assert toolscript("gateway", "status", "--gateway", gateway.url, code=4).stdout.startswith("no gateway responds")


@pytest.mark.req("G-09", "X-03")
@pytest.mark.parametrize(
    "url",
    ["ftp://x", "localhost:3780", "http://", "http://user:pass@host", "http://x?y=1"],
)
def test_a_gateway_that_is_not_a_url_is_refused(toolscript: Toolscript, url: str) -> None:
    assert "expected an http or https URL" in toolscript("list-tools", "--gateway", url, code=2).stderr


@pytest.mark.req("G-09", "X-03")
def test_a_gateway_cannot_use_another_model(toolscript: Toolscript) -> None:
    result = toolscript("search", "x", "--model", "hashed-32", "--gateway", "http://127.0.0.1:9", code=2)
    assert "--model cannot be combined with --gateway" in result.stderr


@pytest.mark.req("X-04")
def test_a_redirect_is_not_followed(toolscript: Toolscript) -> None:
    class Redirect(HttpDouble):
        def answer(self, request: Any, body: bytes) -> None:
            request.send_response(302)
            request.send_header("Location", "/elsewhere")
            request.send_header("Content-Length", "0")
            request.end_headers()

    with Redirect() as gateway:
        assert "status 302" in toolscript("list-tools", "--gateway", gateway.root, API_KEY="k", code=3).stderr
        assert gateway.requests == ["GET /health?"]


@pytest.mark.req("G-09", "X-05")
def test_a_stale_announcement_stops_nobody(toolscript: Toolscript, small_folder: Path) -> None:
    """Its process id belongs to another program by now."""
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with announce_gateway(load_settings(data_dir=small_folder), "http://127.0.0.1:9"):
            announced = read_announcement(small_folder)
            assert announced is not None
            assert announced.pid == os.getpid()
            toolscript("gateway", "stop", code=4)
            toolscript("gateway", "status", code=4)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == []


@pytest.mark.req("G-09")
def test_a_process_that_got_the_id_of_a_gateway_is_not_stopped(toolscript: Toolscript, small_folder: Path) -> None:
    """Another gateway has the port of the announced one."""

    class Healthy(HttpDouble):
        def answer(self, request: Any, body: bytes) -> None:
            self.send(request, 200, b'{"status": "ok"}')

    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with Healthy() as other, announce_gateway(load_settings(data_dir=small_folder), other.root):
            file = small_folder / "gateway.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | {"pid": process.pid}))
            toolscript("gateway", "stop", code=4)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


@pytest.mark.req("G-09", "X-03")
def test_an_unknown_variable_is_named_with_the_nearest_setting_once(toolscript: Toolscript, demo_folder: Path) -> None:
    first = toolscript("list-tools", SERCH_LIMIT="3", XYZZY="1").stderr
    assert "TOOLSCRIPT_SERCH_LIMIT is unknown and ignored: did you mean TOOLSCRIPT_SEARCH_LIMIT?" in first
    assert "TOOLSCRIPT_XYZZY is unknown and ignored: no setting has that name" in first
    assert toolscript("list-tools", SERCH_LIMIT="3", XYZZY="1").stderr == ""
    assert "TOOLSCRIPT_MODEL" in toolscript("list-tools", MODEL="3").stderr


@pytest.mark.req("G-09", "G-02")
@pytest.mark.parametrize("command", ["list-servers", "sync", "search", "call"])
def test_a_failed_server_is_named_once(toolscript: Toolscript, command: str) -> None:
    Path(".toolscript.json").write_text('{"mcpServers": {"bad": {"command": "no-such-command"}}}')
    arguments = {"search": ["x"], "call": ["bad__x"]}.get(command, [])
    result = toolscript(command, *arguments, code={"search": 0, "call": 4}.get(command, 3))
    assert result.output.count("command not found: no-such-command") == 1


@pytest.mark.req("G-09")
def test_a_folder_in_the_place_of_the_announcement_is_named(toolscript: Toolscript, small_folder: Path) -> None:
    (small_folder / "gateway.json").mkdir(parents=True)
    error = toolscript("gateway", "start", "--port", "0", code=3).stderr
    assert error.startswith(f"error: {small_folder / 'gateway.json'} is a folder")
    assert error.count("\n") == 1


@pytest.mark.req("G-09")
def test_an_address_without_tls_is_named_as_such(toolscript: Toolscript) -> None:
    class Silent(HttpDouble):
        def answer(self, request: Any, body: bytes) -> None:
            """Is never asked: the handshake fails."""

    with Silent() as gateway:
        url = gateway.root.replace("http:", "https:")
        error = toolscript("list-tools", "--gateway", url, code=3).stderr
        assert f"{url} does not speak https" in error
        assert "unknown whether" not in error


@pytest.mark.req("G-09", "G-02")
def test_a_server_that_failed_is_named_where_its_tools_are_missing(
    toolscript: Toolscript, start_gateway: Callable[[], None]
) -> None:
    Path(".toolscript.json").write_text('{"mcpServers": {"github": {"command": "no-such-command"}}}')
    start_gateway()
    for command in (["get-types", "github"], ["get-types", "github__list"], ["call", "github__list"]):
        error = toolscript(*command, code=4).stderr
        assert "the server github has failed (command not found: no-such-command" in error
    assert "did you mean" not in error
    assert "no such tool" in toolscript("call", "other__list", code=4).stderr
