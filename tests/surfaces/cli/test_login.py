"""`toolscript login` and `logout` in processes, beside a running gateway and a real authorization server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import jwt
import pytest
from click.testing import CliRunner
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client

from tests.servers.gateway_process import TIMEOUT_SECONDS, start_gateway, wait_until
from tests.servers.logins import (
    Authorization,
    ProtectedServer,
    follow_redirects,
    serving_authorization,
    serving_protected,
)
from tests.servers.preloaded import toolscript_command
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("G-11", "X-04", "G-09")


@pytest.fixture
def authorization() -> Iterator[Authorization]:
    """An authorization server of the test's own, whose record has nothing else."""
    with serving_authorization(ttl=8) as server:
        yield server


@pytest.fixture
def web(authorization: Authorization) -> Iterator[ProtectedServer]:
    with serving_protected(authorization.issuer) as server:
        yield server


@pytest.fixture(scope="module")
def shared_web() -> Iterator[ProtectedServer]:
    """A protected server for tests that only log in."""
    with serving_authorization(ttl=8) as authorization, serving_protected(authorization.issuer) as server:
        yield server


def _build_environment(folder: Path) -> dict[str, str]:
    """The gateway's data folder and configuration."""
    return {
        "HOME": str(folder),
        "TOOLSCRIPT_DATA_DIR": str(folder / "data"),
        "TOOLSCRIPT_CONFIG": str(folder / "servers.json"),
    }


@contextmanager
def _start(folder: Path, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a command with the gateway's data folder and configuration."""
    with subprocess.Popen(
        [*toolscript_command(), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | _build_environment(folder) | variables,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _read_address(process: subprocess.Popen[str]) -> str:
    """The address that the command wants to be opened."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"open this address in a browser: (\S+)", line):
            return found[1]
    raise AssertionError("the command printed no address")


def _log_in(folder: Path, *arguments: str, pasted: bool = False) -> tuple[str, str]:
    """Logs in, with the browser that reaches the loopback port or by pasting; returns what the command printed."""
    with _start(folder, "login", "web", "--no-browser", "--json", *arguments) as process:
        address = _read_address(process)
        back = follow_redirects(address)
        if pasted:
            wrong = back.replace("state=", "state=x")
            printed, errors = process.communicate(f"hello\n{wrong}\n{back}\n", timeout=TIMEOUT_SECONDS)
            assert "this is not an address of this login" in errors
        else:
            assert httpx.get(back.replace("state=", "state=x"), timeout=60).status_code == 404
            answer = httpx.get(back, timeout=60)
            assert "close this page" in answer.text
            assert answer.headers["referrer-policy"] == "no-referrer"
            printed, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, errors
        return printed, address + errors


def _run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Runs a command in this process, which takes a fraction of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in _build_environment(folder).items():
            patch.setenv(name, value)
        done = CliRunner().invoke(run, arguments)
    return done.exit_code, done.stdout, done.stderr


def _run_process(folder: Path, *arguments: str) -> tuple[int, str, str]:
    with _start(folder, *arguments) as process:
        printed, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        return process.returncode, printed, errors


def _find_secrets(folder: Path, secrets: list[str]) -> list[str]:
    """The files below the folder that contain one of the secrets."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [str(file) for file in files if any(secret.encode() in file.read_bytes() for secret in secrets)]


@pytest.mark.extended
def test_a_running_gateway_uses_renews_and_forgets_a_login(
    tmp_path: Path, authorization: Authorization, web: ProtectedServer
) -> None:
    servers: dict[str, Any] = {"web": {"type": "http", "url": web.http}}
    printed: list[str] = []
    with start_gateway(tmp_path, servers, TOOLSCRIPT_LOG_LEVEL="debug") as gateway:
        wait_until(gateway.is_ready)
        wait_until(lambda: gateway.servers()["web"]["needsLogin"])
        assert "toolscript login web" in gateway.servers()["web"]["reason"]
        assert gateway.http.get("/health").status_code == 200
        assert gateway.http.get("/ready").json()["servers"] == {"needs_login": 1}
        assert "1 needs login" in _run(tmp_path, "gateway", "status")[1]
        code, listed, _ = _run(tmp_path, "list-servers")
        assert code == 3
        assert "needs login" in listed
        printed.extend(_log_in(tmp_path))
        assert json.loads(printed[0])["issuer"] == authorization.issuer
        wait_until(lambda: gateway.states()["web"] == "ready")
        assert not gateway.servers()["web"]["needsLogin"]
        seen: set[str] = set()

        def has_renewed() -> bool:
            seen.add(gateway.call("web__authorization")["value"])
            return len(seen) > 1

        wait_until(has_renewed)
        assert authorization.get_record()["grants"]["refresh_token"] >= 1
        code, out, _ = _run(tmp_path, "logout", "web", "--json")
        assert (code, json.loads(out)) == (0, {"server": "web", "revoked": True})
        wait_until(lambda: gateway.servers()["web"]["needsLogin"])
        refused = gateway.http.post("/tools/web__echo", json={"text": "x"})
        assert refused.status_code == 503
        assert "toolscript login web" in refused.text
        printed += [out, refused.text, json.dumps(gateway.servers())]
        assert gateway.end() == 0
    assert _run(tmp_path, "logout", "web")[0] == 6
    events = json.loads(_run(tmp_path, "calls", "--kind", "servers", "--json")[1])["events"]
    assert sorted((each["tool"], each["server"], each["about"], each["outcome"]) for each in events) == [
        ("log in", "web", "login of the installation", "ok"),
        ("log out", "web", "login of the installation", "UNAUTHORIZED"),
        ("log out", "web", "login of the installation", "ok"),
    ]
    secrets = authorization.get_record()["secrets"]
    assert len(secrets) > 5
    assert [secret for secret in secrets if secret in "".join(printed)] == []
    assert _find_secrets(tmp_path, secrets) == []
    assert (tmp_path / "data" / "login.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.extended
def test_a_login_can_be_pasted_and_outlives_a_restart(
    tmp_path: Path, authorization: Authorization, web: ProtectedServer
) -> None:
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"web": {"type": "sse", "url": web.sse}}}))
    _log_in(tmp_path, "--port", "47123", pasted=True)
    wait_until(lambda: _is_expired(authorization))
    code, listed, errors = _run(tmp_path, "list-servers", "--json")
    assert code == 0, errors
    (server,) = json.loads(listed)["servers"]
    assert (server["state"], server["tools"] > 0) == ("ready", True)
    assert authorization.get_record()["grants"]["refresh_token"] >= 1


def _is_expired(authorization: Authorization) -> bool:
    """Whether the tokens that were issued so far have expired."""
    tokens = [secret for secret in authorization.get_record()["secrets"] if secret.count(".") == 2]
    claims = [jwt.decode(token, options={"verify_signature": False}) for token in tokens if token.startswith("ey")]
    return bool(claims) and all(each["exp"] < time.time() for each in claims)


@pytest.mark.extended
def test_callers_with_keys_use_their_own_logins(tmp_path: Path, shared_web: ProtectedServer) -> None:
    servers: dict[str, Any] = {"web": {"url": shared_web.http, "oauth": {"perUser": True}}}
    with start_gateway(tmp_path, servers) as gateway:
        wait_until(gateway.is_ready)
        _log_in(tmp_path)
        keys = {}
        for name in ("ann", "bob"):
            _, printed, _ = _run(tmp_path, "keys", "create", name, "--scope", "call", "--scope", "admin", "--json")
            keys[name] = {"X-API-Key": json.loads(printed)["key"]}
        _log_in(tmp_path, "--user", "ann")

        def call(headers: dict[str, str]) -> httpx.Response:
            return gateway.http.post("/tools/web__authorization", json={}, headers=headers)

        def call_over_mcp(headers: dict[str, str]) -> str:
            return str(asyncio.run(_call_over_mcp(f"{gateway.http.base_url}/mcp", headers)))

        wait_until(lambda: call(keys["ann"]).status_code == 200)
        of_ann, of_owner = call(keys["ann"]).json()["value"], _run(tmp_path, "call", "web__authorization")[1]
        assert of_ann not in of_owner
        assert "Bearer" in of_owner
        subject = jwt.decode(of_ann.removeprefix("Bearer "), options={"verify_signature": False})
        assert subject["sub"] == "ann"
        refused = call(keys["bob"])
        assert refused.status_code == 503
        assert "toolscript login web --user bob" in refused.text
        assert "toolscript login web --user bob" in call_over_mcp(keys["bob"])
        assert "Bearer" in call_over_mcp(keys["ann"])
        assert _run(tmp_path, "logout", "web", "--user", "ann")[0] == 0
        wait_until(lambda: call(keys["ann"]).status_code == 503)
        assert "Bearer" in _run(tmp_path, "call", "web__authorization")[1]


async def _call_over_mcp(url: str, headers: dict[str, str]) -> str:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(url, http_client=http) as (inbox, outbox, *_),
        ClientSession(inbox, outbox) as session,
    ):
        await session.initialize()
        result = await session.call_tool("call_tool", {"tool_id": "web__authorization", "arguments": {}})
        return str(result.content)


@pytest.mark.slow
def test_before_anything_is_stored_a_server_says_that_it_needs_a_login(
    tmp_path: Path, shared_web: ProtectedServer
) -> None:
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"web": {"url": shared_web.http}}}))
    code, listed, errors = _run(tmp_path, "list-servers", "--json")
    assert code == 3, errors
    (server,) = json.loads(listed)["servers"]
    assert (server["needsLogin"], server["reason"]) == (True, "it needs a login: run `toolscript login web`")
    assert not (tmp_path / "data").exists()


def test_what_cannot_be_logged_in_is_named(tmp_path: Path) -> None:
    servers = {"files": {"command": "files"}, "gone": {"url": "http://127.0.0.1:9/mcp"}}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    code, _, errors = _run_process(tmp_path, "login", "file")
    assert (code, 'did you mean "files"?' in errors) == (4, True)
    code, _, errors = _run_process(tmp_path, "login", "files")
    assert (code, "a program on this machine" in errors) == (2, True)
    code, _, errors = _run_process(tmp_path, "login", "gone")
    assert (code, "no answer from 127.0.0.1:9" in errors) == (3, True)


def test_a_login_that_nobody_finishes_ends(tmp_path: Path, shared_web: ProtectedServer) -> None:
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"web": {"url": shared_web.http}}}))
    code, _, errors = _run_process(tmp_path, "login", "web", "--no-browser", "--timeout", "1")
    assert (code, "nobody logged in within 1 s" in errors) == (5, True)


def test_the_browser_of_the_environment_is_opened(tmp_path: Path, shared_web: ProtectedServer) -> None:
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"web": {"url": shared_web.http}}}))
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\nprintf %s \"$1\" > '{tmp_path}/part' && mv '{tmp_path}/part' '{tmp_path}/opened'\n")
    browser.chmod(0o700)
    with _start(tmp_path, "login", "web", BROWSER=f"{browser} %s") as process:
        wait_until((tmp_path / "opened").exists)
        httpx.get(follow_redirects((tmp_path / "opened").read_text()), timeout=60)
        printed, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert printed.startswith("Logged in at web"), errors
