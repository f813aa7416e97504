"""`toolscript sync`: its counts, messages and exit codes, with and without a gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.command_line import invoke, run_json
from tests.fixtures.examples import choose
from tests.servers import make_scripted_spec
from tests.servers.chat import ChatApi, Reply, prompt_of, says

pytestmark = [pytest.mark.req("H-14"), pytest.mark.usefixtures("small_folder")]

READ = "filesystem__read_file"
NOTHING = {"added": 0, "changed": 0, "vanished": 0, "embedded": 0}


def configure(servers: Mapping[str, Any]) -> None:
    Path(".toolscript.json").write_text(json.dumps({"mcpServers": servers}))


@pytest.mark.extended
def test_without_servers_the_demo_catalogue_is_synced_once() -> None:
    assert run_json("sync") == {"servers": [], "items": 56, "classified": 56, "refined": 0, "waiting": 0}
    assert run_json("sync") == {"servers": [], "items": 56, "classified": 0, "refined": 0, "waiting": 0}
    shown = invoke("sync")
    assert "No servers are configured" in shown.stdout
    assert "56 tools, 0 newly classified; 0 suggestions wait for a decision" in shown.stdout
    assert shown.stderr == ""


def test_added_changed_and_removed_tools_are_counted_per_server(tmp_path: Path) -> None:
    lists = tmp_path / "lists.json"
    first = [{"name": "send_email", "description": "Send an email"}, {"name": "read_email", "description": "Read one"}]
    lists.write_text(json.dumps({"tools": first}))
    configure({"post": make_scripted_spec(watch=str(lists)), "other": make_scripted_spec(tools=["pid"])})
    answer = run_json("sync")
    assert [(s["name"], s["added"], s["error"]) for s in answer["servers"]] == [("other", 1, None), ("post", 2, None)]
    assert (answer["items"], answer["classified"]) == (3, 3)

    changed = [{"name": "send_email", "description": "Send an email now"}, {"name": "draft_email"}]
    lists.write_text(json.dumps({"tools": changed}))
    other, post = run_json("sync")["servers"]
    assert other == {"name": "other", "error": None} | NOTHING
    assert {k: post[k] for k in ("added", "changed", "vanished")} == {"added": 1, "changed": 1, "vanished": 1}

    header, first_row, second_row, _, summary = invoke("sync").stdout.splitlines()[:5]
    assert header.split() == ["Server", "Added", "Changed", "Removed", "Error"]
    assert (first_row.split(), second_row.split()) == (["other", "0", "0", "0"], ["post", "0", "0", "0"])
    assert summary.startswith("3 tools, 0 newly classified; ")


@pytest.mark.req("H-14", "G-02")
def test_a_server_that_fails_is_named_and_the_others_are_synced() -> None:
    configure({"bad": make_scripted_spec(crash=True), "good": make_scripted_spec(tools=["echo"])})
    result = invoke("sync")
    assert "server bad" not in result.stderr  # the table names it
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    assert "exited with code 3" in rows["bad"]
    assert rows["good"].split() == ["good", "1", "0", "0"]
    bad, good = run_json("sync")["servers"]
    assert "exited with code 3" in bad.pop("error")
    assert bad == {"name": "bad"} | NOTHING
    assert good == {"name": "good", "error": None} | NOTHING
    assert "good__echo" in invoke("list-tools").stdout


@pytest.mark.extended
@pytest.mark.req("H-10")
@pytest.mark.parametrize("place", choose(["alone", "with a gateway"], "alone"))
def test_assignments_of_a_person_stay_unless_forced(place: str, request: pytest.FixtureRequest) -> None:
    if place != "alone":
        request.getfixturevalue("start_gateway")()
    invoke("skills", "assign", READ, "email")
    for option, origins in (([], {"human"}), (["--reclassify"], {"human"}), (["--force"], {"embedding_auto"})):
        answer = run_json("sync", *option)
        assert answer["classified"] == {"--reclassify": 55, "--force": 56}.get("".join(option), 0)
        shown = run_json("skills", "show", "email" if "human" in origins else "file_operations")
        assert {t["origin"] for t in shown["tools"] if t["id"] == READ} == origins


def test_a_running_gateway_does_the_work(start_gateway: Callable[[], None]) -> None:
    configure({"bad": make_scripted_spec(crash=True), "good": make_scripted_spec(tools=["echo"])})
    start_gateway()
    answer = run_json("sync")
    bad, good = answer["servers"]
    assert "exited with code 3" in bad["error"]
    assert good == {"name": "good", "error": None} | NOTHING
    assert (answer["items"], answer["classified"]) == (1, 0)
    assert run_json("sync", "--force")["classified"] == 1
    shown = invoke("sync")
    assert "exited with code 3" in shown.stdout
    assert shown.stderr == ""


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text("{")
    assert "bad.json" in invoke("sync", "--config", str(file), code=2).stderr


@pytest.mark.req("H-10")
def test_the_language_model_reviews_each_new_tool_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(request: dict[str, Any]) -> Reply:
        into = {"work": "x", "assignments": [{"skill_id": "email", "confidence": 0.9}], "missing": None}
        if "definitions" in request["messages"][0]["content"]:
            return says({key: {"work": "x", "harm": None, "passage": None} for key in prompt_of(request)})
        return says(dict.fromkeys(prompt_of(request), into))

    with ChatApi(reply) as api:
        monkeypatch.setenv("TOOLSCRIPT_LLM_URL", api.url)
        monkeypatch.setenv("TOOLSCRIPT_LLM_MODEL", "tiny")
        configure({"good": make_scripted_spec(tools=["echo", "pid"])})
        assert run_json("sync")["refined"] == 2
        requests = len(api.bodies)
        assert requests >= 1
        assert run_json("sync")["refined"] == 0
        assert len(api.bodies) == requests
        assert "2 newly classified, 2 reviewed by the language model" in invoke("sync", "--reclassify").stdout
    tools = run_json("skills", "show", "email")["tools"]
    assert {t["id"]: t["origin"] for t in tools} == {"good__echo": "llm_auto", "good__pid": "llm_auto"}
