"""How commands find a gateway that runs, and what they do when it does not answer as it should."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.doubles import HttpDouble
from toolscript.domain.errors import ToolscriptError, Unavailable
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli.running import address, announced, ask


class Gateway(HttpDouble):
    """Notes who called, and answers or hangs up."""

    def __init__(self, *, hangs_up: bool = False) -> None:
        super().__init__()
        self.hangs_up = hangs_up
        self.keys: list[str | None] = []
        self.bodies: list[bytes] = []

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.keys.append(request.headers.get("Authorization"))
        self.bodies.append(body)
        if self.hangs_up:
            request.close_connection = True
        elif request.command == "DELETE":
            self.send(request, 204, b"")
        else:
            self.send(request, 200, b'{"answer": 42}')


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path, api_key="a-key", environment={})


def leave_note(settings: Settings, url: str, pid: int) -> None:
    (settings.data / "gateway.json").write_text(json.dumps({"url": url, "pid": pid}), encoding="utf-8")


@pytest.mark.req("S-05", "X-05")
def test_a_running_gateway_is_asked_with_the_key(settings: Settings) -> None:
    with Gateway() as gateway, announced(settings.data, gateway.root):
        assert ask(settings, "/search", q="x") == {"answer": 42}
        assert gateway.keys == ["Bearer a-key"]
        assert gateway.requests == ["GET /search?q=x"]
    assert ask(settings, "/search", q="x") is None


@pytest.mark.req("H-09")
def test_a_gateway_is_asked_by_any_method_and_may_answer_nothing(settings: Settings) -> None:
    with Gateway() as gateway, announced(settings.data, gateway.root):
        assert ask(settings, "/skills/x", method="PUT", body={"name": "X"}) == {"answer": 42}
        assert ask(settings, "/skills/x", body={}) == {"answer": 42}
        assert ask(settings, "/skills/x", method="DELETE") == ""
        assert gateway.requests == ["PUT /skills/x?", "POST /skills/x?", "DELETE /skills/x?"]
        assert gateway.bodies == [b'{"name": "X"}', b"{}", b""]


@pytest.mark.req("X-04")
def test_the_key_goes_to_no_proxy(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with Gateway() as proxy, Gateway() as gateway, announced(settings.data, gateway.root):
        monkeypatch.setenv("http_proxy", proxy.root)
        assert ask(settings, "/search", q="x") == {"answer": 42}
        assert (len(proxy.requests), len(gateway.requests)) == (0, 1)


@pytest.mark.req("X-04", "X-05")
def test_the_key_goes_to_nobody_who_has_the_port_of_a_gateway_that_was_killed(settings: Settings) -> None:
    with Gateway() as stranger:
        leave_note(settings, stranger.root, pid=2**22 + 1)
        assert ask(settings, "/search", q="x") is None
        assert stranger.requests == []


@pytest.mark.req("G-05", "G-09")
def test_a_question_that_was_taken_and_not_answered_is_not_asked_again_elsewhere(settings: Settings) -> None:
    with Gateway(hangs_up=True) as gateway, announced(settings.data, gateway.root):
        with pytest.raises(Unavailable, match="whether it did what was asked is not known"):
            ask(settings, "/tools/x", body={})
        assert len(gateway.requests) == 1


def test_a_gateway_that_refuses_is_quoted(settings: Settings) -> None:
    with Gateway() as gateway, announced(settings.data, gateway.root):
        gateway.fail_with = 500
        with pytest.raises(ToolscriptError):
            ask(settings, "/search", q="x")


def test_a_gateway_takes_back_its_own_note_and_no_other(settings: Settings) -> None:
    with announced(settings.data, "http://127.0.0.1:9"):
        leave_note(settings, "http://127.0.0.1:8", os.getpid())
    assert address(settings.data) == "http://127.0.0.1:8"


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"url": 5, "pid": 1}', '{"url": "http://x", "pid": "y"}'])
def test_a_note_that_nobody_can_read_counts_for_nothing(settings: Settings, note: str) -> None:
    (settings.data / "gateway.json").write_text(note, encoding="utf-8")
    assert address(settings.data) is None


@pytest.mark.req("G-01", "X-05")
def test_a_gateway_that_reads_another_file_is_not_asked_about_this_one(settings: Settings, tmp_path: Path) -> None:
    mine, other = tmp_path / "mine.json", tmp_path / "other.json"
    with Gateway() as gateway, announced(settings.data, gateway.root, mine):
        assert ask(replace(settings, config=mine), "/servers") == {"answer": 42}
        assert ask(settings, "/servers") == {"answer": 42}
        with pytest.raises(Unavailable, match=r"mine\.json, not .*other\.json"):
            ask(replace(settings, config=other), "/servers")
