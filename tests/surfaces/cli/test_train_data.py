"""`toolscript train-data`: what it writes is what training reads."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.http_services import HttpDouble
from tests.surfaces.cli.test_sync import invoke, run_json
from training.data import read_prepared
from training.prepare import prepare

pytestmark = [pytest.mark.req("S-07"), pytest.mark.usefixtures("small_folder")]


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    rows = [
        {"query": "show the past", "relevant": ["git__git_log"]},
        {"query": "write it down and record it", "relevant": {"filesystem__write_file": 1, "git__git_commit": 2}},
        {"query": "nobody does this", "relevant": []},
        {"query": "gone", "relevant": ["no__such"]},
    ]
    file = tmp_path / "judged.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_tools_and_queries_are_exported_as_training_reads_them(tmp_path: Path, judged: Path) -> None:
    out = tmp_path / "mine"
    answer = run_json("train-data", str(out), "--queries", str(judged))
    assert answer == {"folder": str(out), "tools": 56, "queries": 1, "tasks": 1, "unknown": ["no__such"]}
    files = {name: [out / f"{name}.jsonl"] for name in ("tools", "queries", "tasks")}
    prepare(tmp_path / "data.json.gz", tools=files["tools"], queries=files["queries"], tasks=files["tasks"])
    data = read_prepared(tmp_path / "data.json.gz")
    (pair,) = data["queries"]
    assert pair[1] == "show the past"
    assert data["tools"][pair[0]]["text"].startswith("git log: ")
    assert "Parameters: " in data["tools"][pair[0]]["text"]
    assert len(data["tasks"][0][0]) == 2


class GatewayWithOneTool(HttpDouble):
    """A gateway with a tool and a prompt."""

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        tool = {"toolId": "a b__c", "serverName": "a b", "toolName": "c", "type": "tool", "description": "Counts."}
        if request.path.startswith("/tools/"):
            response: dict[str, Any] = {**tool, "inputSchema": {"properties": {"limit": {}}}}
        else:
            response = {"tools": [tool, {**tool, "toolId": "a b__p", "type": "prompt"}]}
        self.send(request, 200, json.dumps(response).encode())


def test_a_gateway_gives_the_tools_with_their_schemas(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    with GatewayWithOneTool() as gateway:
        assert run_json("train-data", str(out), "--gateway", gateway.root)["tools"] == 1
    (line,) = (out / "tools.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {
        "server": "a b",
        "name": "c",
        "description": "Counts.",
        "input_schema": {"properties": {"limit": {}}},
    }


def test_the_answer_in_words_names_what_was_left_out(tmp_path: Path, judged: Path) -> None:
    shown = invoke("train-data", str(tmp_path / "mine"), "--queries", str(judged))
    assert "Wrote 56 tools, 1 query and 1 task" in shown.stdout
    assert "left out: no__such" in shown.stderr


def test_a_folder_with_files_and_queries_of_other_tools_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    assert "not empty" in invoke("train-data", str(tmp_path / "full"), code=7).stderr
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"query": "gone", "relevant": ["no__such"]}), encoding="utf-8")
    refused = invoke("train-data", str(tmp_path / "mine"), "--queries", str(other), code=2)
    assert "no query has a tool of this catalogue" in refused.stderr
    assert not (tmp_path / "mine").exists()
