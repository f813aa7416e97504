"""The tools of a gateway and judged queries, as training reads them."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.http_services import HttpDouble
from toolscript.evaluation.datasets import JudgedQuery
from training.collect import collect, sort_queries
from training.data import read_prepared
from training.prepare import prepare

pytestmark = pytest.mark.req("Q-01")

TOOLS = {f"git__{name}": {"server": "git", "name": name} for name in ("log", "diff")}


def judge(text: str, *tools: str) -> JudgedQuery:
    return JudgedQuery(text, dict.fromkeys(tools, 1.0), ())


def test_queries_are_sorted_by_their_tool() -> None:
    judged = [judge("history", "git__log"), judge("what changed", "git__diff"), judge("past", "git__log")]
    data = sort_queries(TOOLS, [*judged, judge("history", "git__log")])
    assert data.queries == [
        {"server": "git", "name": "log", "queries": ["history", "past"]},
        {"server": "git", "name": "diff", "queries": ["what changed"]},
    ]
    assert (data.tasks, data.unknown, len(data.tools)) == ([], [], 2)


def test_a_query_with_several_tools_is_a_task() -> None:
    data = sort_queries(TOOLS, [judge("compare and list", "git__log", "git__diff")])
    both = [{"server": "git", "name": "log"}, {"server": "git", "name": "diff"}]
    assert data.tasks == [{"task": "compare and list", "tools": both}]
    assert data.queries == []


def test_tools_that_do_not_exist_are_left_out_and_named() -> None:
    data = sort_queries(TOOLS, [judge("push it", "git__push"), judge("both", "git__log", "git__push")])
    assert data.queries == [{"server": "git", "name": "log", "queries": ["both"]}]
    assert data.unknown == ["git__push"]


class Gateway(HttpDouble):
    """A gateway with two tools and a prompt."""

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        tool = {"toolId": "a b__c", "serverName": "a b", "toolName": "c", "type": "tool", "description": "Counts."}
        other = {**tool, "toolId": "a b__d", "toolName": "d"}
        response: dict[str, Any] = {"tools": [tool, other, {**tool, "toolId": "a b__p", "type": "prompt"}]}
        if request.path.startswith("/tools/"):
            called = other if request.path.endswith("d") else tool
            response = {**called, "inputSchema": {"type": "object", "properties": {"limit": {"type": "integer"}}}}
        self.send(request, 200, json.dumps(response).encode())


def test_what_is_collected_can_be_prepared(tmp_path: Path) -> None:
    judged, out = tmp_path / "judged.jsonl", tmp_path / "mine"
    rows = [{"query": "how many", "relevant": ["a b__c"]}, {"query": "both of them", "relevant": ["a b__c", "a b__d"]}]
    judged.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with Gateway() as gateway:
        found = collect(out, gateway.root, [judged])
    assert (len(found.tools), found.unknown) == (2, [])
    files = {name: [out / f"{name}.jsonl"] for name in ("tools", "queries", "tasks")}
    prepare(tmp_path / "data.json.gz", tools=files["tools"], queries=files["queries"], tasks=files["tasks"])
    data = read_prepared(tmp_path / "data.json.gz")
    (pair,) = data["queries"]
    assert pair[1] == "how many"
    assert data["tools"][pair[0]]["text"].startswith("a b c: Counts.")
    assert len(data["tasks"][0][0]) == 2
    with pytest.raises(FileExistsError):
        collect(out, gateway.root, [])
