"""Judged queries as training reads them."""

import pytest

from toolscript.evaluation.datasets import JudgedQuery
from toolscript.evaluation.training_data import build_training_data

TOOLS = {f"git__{name}": {"server": "git", "name": name} for name in ("log", "diff")}


def judge(text: str, *tools: str) -> JudgedQuery:
    return JudgedQuery(text, dict.fromkeys(tools, 1.0), ())


@pytest.mark.req("S-07")
def test_queries_are_sorted_by_their_tool() -> None:
    judged = [judge("history", "git__log"), judge("what changed", "git__diff"), judge("past", "git__log")]
    data = build_training_data(TOOLS, [*judged, judge("history", "git__log")])
    assert data.queries == [
        {"server": "git", "name": "log", "queries": ["history", "past"]},
        {"server": "git", "name": "diff", "queries": ["what changed"]},
    ]
    assert (data.tasks, data.unknown, len(data.tools)) == ([], [], 2)


@pytest.mark.req("S-07")
def test_a_query_with_several_tools_is_a_task() -> None:
    data = build_training_data(TOOLS, [judge("compare and list", "git__log", "git__diff")])
    both = [{"server": "git", "name": "log"}, {"server": "git", "name": "diff"}]
    assert data.tasks == [{"task": "compare and list", "tools": both}]
    assert data.queries == []


@pytest.mark.req("S-07")
def test_tools_that_do_not_exist_are_left_out_and_named() -> None:
    data = build_training_data(TOOLS, [judge("push it", "git__push"), judge("both", "git__log", "git__push")])
    assert data.queries == [{"server": "git", "name": "log", "queries": ["both"]}]
    assert data.unknown == ["git__push"]
