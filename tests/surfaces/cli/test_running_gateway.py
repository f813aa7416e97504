"""How commands find a running gateway, and how they handle its errors."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from filelock import FileLock

from tests.fixtures.http_services import HttpDouble
from tests.fixtures.limits import set_limits
from toolscript.adapters.tokens.jwt import JwtVerifier, is_local_token
from toolscript.domain.access import Principal
from toolscript.domain.errors import NotFound, RateLimited, ToolscriptError, Unauthorized, Unavailable
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli.client import session
from toolscript.surfaces.cli.client.announcement import announce_gateway
from toolscript.surfaces.cli.client.gateway import (
    build_credentials,
    find_gateway_url,
    is_gateway_running,
    send_to_gateway,
)
from toolscript.surfaces.cli.main import run

LOCAL_KEY = "a-local-key-of-the-tests-that-is-long-enough"


class Gateway(HttpDouble):
    """Records requests, and responds or closes the connection."""

    def __init__(self, *, hangs_up: bool = False) -> None:
        super().__init__()
        self.hangs_up = hangs_up
        self.refuses: tuple[int, dict[str, Any]] | None = None
        self.keys: list[str | None] = []
        self.other_keys: list[str | None] = []
        self.bodies: list[bytes] = []

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.keys.append(request.headers.get("Authorization"))
        self.other_keys.append(request.headers.get("X-API-Key"))
        self.bodies.append(body)
        if self.hangs_up:
            request.close_connection = True
        elif self.refuses:
            self.send(request, self.refuses[0], json.dumps({"error": self.refuses[1]}).encode())
        elif request.command == "DELETE":
            self.send(request, 204, b"")
        else:
            self.send(request, 200, b'{"answer": 42}')


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path, api_key="a-key", variables={})


def leave_note(settings: Settings, url: str, pid: int) -> None:
    rest: dict[str, Any] = {
        "config": None,
        "key": None,
        "started_at": "2026-11-19T12:00:00",
        "settings": {},
        "process_start": None,
    }
    (settings.data / "gateway.json").write_text(json.dumps(rest | {"url": url, "pid": pid}), encoding="utf-8")


@pytest.mark.req("S-05", "X-05")
def test_requests_to_a_running_gateway_carry_the_api_key(settings: Settings) -> None:
    with Gateway() as gateway, announce_gateway(settings, gateway.root):
        assert send_to_gateway(settings, "/search", q="x") == {"answer": 42}
        assert gateway.keys == ["Bearer a-key"]
        assert gateway.requests == ["GET /search?q=x"]
    assert send_to_gateway(settings, "/search", q="x") is None


@pytest.mark.req("H-09")
def test_requests_use_any_method_and_a_response_may_be_empty(settings: Settings) -> None:
    with Gateway() as gateway, announce_gateway(settings, gateway.root):
        assert send_to_gateway(settings, "/skills/x", method="PUT", body={"name": "X"}) == {"answer": 42}
        assert send_to_gateway(settings, "/skills/x", body={}) == {"answer": 42}
        assert send_to_gateway(settings, "/skills/x", method="DELETE") == ""
        assert gateway.requests == ["PUT /skills/x?", "POST /skills/x?", "DELETE /skills/x?"]
        assert gateway.bodies == [b'{"name": "X"}', b"{}", b""]


@pytest.mark.req("X-04")
def test_the_api_key_is_not_sent_through_a_proxy(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with Gateway() as proxy, Gateway() as gateway, announce_gateway(settings, gateway.root):
        monkeypatch.setenv("http_proxy", proxy.root)
        assert send_to_gateway(settings, "/search", q="x") == {"answer": 42}
        assert (len(proxy.requests), len(gateway.requests)) == (0, 1)


@pytest.mark.req("X-04", "X-05")
def test_the_api_key_is_not_sent_to_the_port_of_a_gateway_that_was_killed(settings: Settings) -> None:
    with Gateway() as stranger:
        leave_note(settings, stranger.root, pid=2**22 + 1)
        assert send_to_gateway(settings, "/search", q="x") is None
        assert stranger.requests == []


@pytest.mark.req("G-05", "G-09")
def test_a_request_that_was_accepted_and_not_answered_is_not_repeated(settings: Settings) -> None:
    with Gateway(hangs_up=True) as gateway, announce_gateway(settings, gateway.root):
        with pytest.raises(Unavailable, match="it is unknown whether the request was carried out"):
            send_to_gateway(settings, "/tools/x", body={})
        assert len(gateway.requests) == 1


def test_an_error_of_the_gateway_is_raised(settings: Settings) -> None:
    with Gateway() as gateway, announce_gateway(settings, gateway.root):
        gateway.fail_with = 500
        with pytest.raises(ToolscriptError):
            send_to_gateway(settings, "/search", q="x")


@pytest.mark.req("K-01", "G-09")
def test_status_503_is_unavailable_whatever_its_code(settings: Settings) -> None:
    with Gateway() as gateway, announce_gateway(settings, gateway.root):
        gateway.refuses = (503, {"code": "INTERNAL_ERROR", "message": "down", "details": {"adapter": "store"}})
        with pytest.raises(Unavailable, match="down"):
            send_to_gateway(settings, "/search_knowledge", body={"query": "x"})


def test_a_gateway_removes_its_own_note_and_no_other(settings: Settings) -> None:
    with announce_gateway(settings, "http://127.0.0.1:9"):
        leave_note(settings, "http://127.0.0.1:8", os.getpid())
    assert find_gateway_url(settings) == "http://127.0.0.1:8"


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"url": 5, "pid": 1}', '{"url": "http://x", "pid": "y"}'])
def test_an_invalid_note_is_ignored(settings: Settings, note: str) -> None:
    (settings.data / "gateway.json").write_text(note, encoding="utf-8")
    assert find_gateway_url(settings) is None


@pytest.mark.req("G-01", "X-05")
def test_a_gateway_with_another_configuration_file_is_not_used(settings: Settings, tmp_path: Path) -> None:
    mine, other = tmp_path / "mine.json", tmp_path / "other.json"
    with Gateway() as gateway, announce_gateway(replace(settings, config=mine), gateway.root):
        assert send_to_gateway(replace(settings, config=mine), "/servers") == {"answer": 42}
        assert send_to_gateway(settings, "/servers") == {"answer": 42}
        with pytest.raises(Unavailable, match=r"mine\.json, not .*other\.json"):
            send_to_gateway(replace(settings, config=other), "/servers")


# --- requests for a tenant ---


@contextmanager
def announce_with_key(settings: Settings, gateway: Gateway) -> Iterator[JwtVerifier]:
    """A gateway that has announced its key; yields what it verifies tokens with."""
    with announce_gateway(settings, gateway.root, key=LOCAL_KEY):
        yield JwtVerifier(None, None, local_key=LOCAL_KEY)


@pytest.mark.req("D-04", "D-09")
async def test_the_owner_of_the_folder_sends_a_token_of_the_tenant(settings: Settings) -> None:
    with Gateway() as gateway, announce_with_key(settings, gateway) as verifier:
        assert send_to_gateway(settings, "/search", body={}, tenant="acme") == {"answer": 42}
        scheme, _, token = (gateway.keys[0] or "").partition(" ")
        assert scheme == "Bearer"
        assert await verifier.verify(token) == Principal("acme")
        assert gateway.other_keys == ["a-key"]


@pytest.mark.req("D-04", "D-09")
async def test_without_an_api_key_none_is_sent(settings: Settings) -> None:
    with Gateway() as gateway, announce_with_key(settings, gateway):
        send_to_gateway(replace(settings, api_key=None), "/documents", tenant="acme")
        send_to_gateway(replace(settings, api_key=None), "/servers")
        assert gateway.other_keys == [None, None]
        assert gateway.keys[1] is None
        assert build_credentials(replace(settings, api_key=None)) == {}


@pytest.mark.req("D-05", "X-04")
def test_only_the_owner_can_read_the_note_of_a_gateway(settings: Settings) -> None:
    note = settings.data / "gateway.json"
    note.write_text("earlier")
    note.chmod(0o666)
    before = os.umask(0)
    try:
        with announce_gateway(settings, "http://127.0.0.1:9", key=LOCAL_KEY):
            assert stat.S_IMODE(note.stat().st_mode) == 0o600
            assert json.loads(note.read_text())["key"] == LOCAL_KEY
    finally:
        os.umask(before)
    assert not note.exists()


@pytest.mark.req("D-05", "X-03")
def test_without_a_local_key_no_request_for_a_tenant_is_sent(settings: Settings) -> None:
    with Gateway() as gateway, announce_gateway(settings, gateway.root):
        with pytest.raises(Unavailable, match="restart it"):
            send_to_gateway(settings, "/documents", tenant="acme")
        assert gateway.requests == []


@pytest.mark.req("D-05", "D-11")
def test_a_refused_token_is_reported_with_the_gateways_message(settings: Settings) -> None:
    why = {"code": "UNAUTHORIZED", "message": "the token has expired (exp)", "details": {"field": "Authorization"}}
    with Gateway() as gateway, announce_with_key(settings, gateway):
        gateway.refuses = (401, why)
        with pytest.raises(Unauthorized, match="has expired"):
            send_to_gateway(settings, "/documents", tenant="acme")
        with pytest.raises(Unauthorized, match="set TOOLSCRIPT_API_KEY"):
            send_to_gateway(settings, "/servers")


@pytest.mark.req("D-11", "D-12")
def test_a_rate_limit_says_when_to_try_again(settings: Settings) -> None:
    why = {"code": "RATE_LIMITED", "message": "slowly", "details": {"retry_after_seconds": 2.5}}
    with Gateway() as gateway, announce_with_key(settings, gateway):
        gateway.refuses = (429, why)
        with pytest.raises(RateLimited) as error:
            send_to_gateway(settings, "/documents", tenant="acme")
        assert error.value.details == {"retry_after_seconds": 2.5}


@pytest.mark.req("S-05", "X-05", "D-04", "D-05", "D-09")
def test_the_owner_of_the_folder_needs_no_key_and_no_token_of_a_tenant(
    demo_folder: Path, start_gateway: Callable[[], None]
) -> None:
    start_gateway()
    settings = load_settings()
    assert stat.S_IMODE((demo_folder / "gateway.json").stat().st_mode) == 0o600
    send_to_gateway(settings, "/documents/report", method="PUT", body={"text": "a report"}, tenant="acme")
    assert send_to_gateway(settings, "/documents/report", tenant="acme")["text"] == "a report"
    with pytest.raises(NotFound):
        send_to_gateway(settings, "/documents/report", tenant="other")

    created = CliRunner().invoke(run, ["keys", "create", "prometheus", "--scope", "metrics"])
    assert created.exit_code == 0
    url = find_gateway_url(settings) or ""
    deadline = time.monotonic() + 60
    while httpx.get(f"{url}/servers", headers={"Via": "1.1 proxy"}).status_code != 401:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert send_to_gateway(settings, "/servers")["servers"] == []
    assert send_to_gateway(settings, "/search", q="read a file")["results"]
    assert send_to_gateway(settings, "/api/v1/skills/suggestions") is not None
    with pytest.raises(Unauthorized, match="set TOOLSCRIPT_API_KEY"):
        send_to_gateway(replace(settings, api_key="wrong"), "/servers")
    assert send_to_gateway(replace(settings, gateway_url=url), "/servers")["servers"] == []


@pytest.mark.req("X-04", "X-05")
def test_the_token_of_the_owner_is_sent_only_to_the_gateway_of_the_folder(settings: Settings) -> None:
    why = {"code": "UNAUTHORIZED", "message": "a key is required", "details": {}}
    without_key = replace(settings, api_key=None)
    with Gateway() as gateway, Gateway() as other, announce_with_key(without_key, gateway):
        gateway.refuses = other.refuses = (401, why)
        with pytest.raises(Unauthorized):
            send_to_gateway(without_key, "/servers")
        with pytest.raises(Unauthorized):
            send_to_gateway(replace(without_key, gateway_url=other.root), "/servers")
        assert (len(gateway.keys), other.keys) == (2, [None])
        assert is_local_token(LOCAL_KEY, (gateway.keys[1] or "").removeprefix("Bearer "))


@pytest.fixture
def lock(small_folder: Path) -> Iterator[FileLock]:
    """Keeps the index folder, as another process does, until it is released."""
    (small_folder / "index").mkdir(parents=True)
    with FileLock(small_folder / "index" / ".lock") as lock:
        yield lock


@pytest.mark.req("X-05")
def test_a_command_waits_for_another_that_uses_the_folder(lock: FileLock, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    def find_gateway(settings: Settings) -> bool:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            lock.release()
        return is_gateway_running(settings)

    monkeypatch.setattr(session, "is_gateway_running", find_gateway)
    result = CliRunner().invoke(run, ["documents", "list"])
    assert (result.exit_code, attempts) == (0, 2), result.output


@pytest.mark.req("X-05")
@pytest.mark.usefixtures("lock")
def test_a_folder_that_stays_in_use_is_named(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, index_folder=0.2)
    result = CliRunner().invoke(run, ["documents", "list"])
    assert result.exit_code == 3, result.output
    assert f"the index folder {small_folder / 'index'} is in use by another process" in result.stderr
