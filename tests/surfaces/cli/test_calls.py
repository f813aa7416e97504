"""`toolscript calls`: the audit on the command line, without and with a gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.command_line import invoke, run_json
from tests.servers import make_scripted_spec

pytestmark = pytest.mark.req("G-16")

TIMEOUT_SECONDS = 60.0


def list_events(count: int, *arguments: str) -> list[dict[str, Any]]:
    """So many events, which a gateway writes within a second."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        events: list[dict[str, Any]] = run_json("calls", *arguments)["events"]
        if len(events) >= count or time.monotonic() > deadline:
            return events


@pytest.mark.parametrize("with_gateway", [False, True])
def test_calls_and_searches_are_listed_filtered_paged_and_summed_up(
    small_folder: Path, start_gateway: Callable[[], None], with_gateway: bool
) -> None:
    Path(".toolscript.json").write_text(json.dumps({"mcpServers": {"scripted": make_scripted_spec()}}))
    if with_gateway:
        start_gateway()
        assert "No calls." in invoke("calls").output
    invoke("call", "scripted__echo", '{"text": "hello"}')
    invoke("call", "scripted__fail", code=5)
    invoke("search", "return my text")
    newest, first_call = list_events(2)
    assert (newest["tool"], newest["outcome"]) == ("scripted__fail", "UPSTREAM_ERROR")
    assert (first_call["tool"], first_call["outcome"], first_call["surface"]) == ("scripted__echo", "ok", "cli")
    assert first_call["caller"] == ("127.0.0.1" if with_gateway else "owner")
    (search,) = list_events(1, "--kind", "searches")
    assert (search["query"], search["surface"]) == ("return my text", "cli")
    shown = invoke("calls", "--outcome", "error", "--since", "1h", "--server", "scripted").output
    assert "scripted__fail" in shown
    assert "scripted__echo" not in shown
    first = invoke("calls", "--limit", "1").output
    token = first.rpartition("--page ")[2].strip()
    assert "scripted__echo" in invoke("calls", "--limit", "1", "--page", token).output
    assert "return my text" in invoke("calls", "--kind", "searches").output
    assert "scripted" in invoke("calls", "--summary", "server").output
    (row, _) = run_json("calls", "--summary", "tool")["rows"]
    assert (row["calls"], row["errors"]) == (1, 0)
    assert "30m, 12h or 7d" in invoke("calls", "--since", "yesterday", code=2).output


def test_without_any_call_there_is_nothing_to_list(small_folder: Path) -> None:
    assert "No calls." in invoke("calls").output
    assert "No refused requests." in invoke("calls", "--kind", "refusals").output
    assert "No changes of servers." in invoke("calls", "--kind", "servers").output


@pytest.mark.extended
def test_refused_requests_and_changes_of_servers_are_listed_with_who_made_them(
    small_folder: Path, start_gateway: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCRIPT_API_KEY", "the key of the operator")
    start_gateway()
    monkeypatch.setenv("TOOLSCRIPT_API_KEY", "a wrong one")
    invoke("search", "return my text", code=6)
    monkeypatch.setenv("TOOLSCRIPT_API_KEY", "the key of the operator")
    (event,) = list_events(1, "--kind", "refusals")
    assert (event["tool"], event["outcome"], event["surface"]) == ("GET /search", "UNAUTHORIZED", "cli")
    assert event["reason"].startswith("this gateway requires a valid key")
    assert "GET /search" in invoke("calls", "--kind", "refusals").output

    invoke("servers", "stop", "nobody", code=4)
    (event,) = list_events(1, "--kind", "servers")
    assert (event["tool"], event["server"], event["outcome"]) == ("stop", "nobody", "NOT_FOUND")
    assert event["caller"] in invoke("calls", "--kind", "servers").output


def test_an_audit_that_is_switched_off_says_how_to_switch_it_on(
    small_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCRIPT_AUDIT", "false")
    assert "TOOLSCRIPT_AUDIT=true" in invoke("calls", code=4).output
