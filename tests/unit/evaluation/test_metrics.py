"""The metrics equal those of the reference script and of the library ranx; curves over thresholds, the reliability of
confidences, and means over sets."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.evaluation.datasets import JudgedQuery
from toolscript.evaluation.metrics import (
    NAMES,
    Scores,
    curve,
    difference,
    intervals,
    mean,
    reliability,
    score_by_grade,
    score_by_group,
    score_hits,
    share_answered,
    share_left_empty,
)

Reference = Callable[[list[dict[str, Any]], list[dict[str, Any]], list[list[int]]], dict[str, float]]

TOOLS = [{"id": f"t{n:03d}"} for n in range(130)]
OURS_BY_REFERENCE = {"Hit1": "hit@1", "R5": "r@5", "R10": "r@10", "NDCG10": "ndcg@10", "C10": "c@10", "MRR": "mrr"}
OURS_BY_RANX = {
    "hit_rate@1": "hit@1",
    "recall@5": "r@5",
    "recall@10": "r@10",
    "ndcg@10": "ndcg@10",
    "mrr@100": "mrr",
}

few = st.integers(0, 19)
confidences = st.lists(st.floats(0, 1), min_size=1, max_size=30)
answers = st.lists(st.frozensets(few, min_size=1, max_size=3), min_size=1, max_size=12)
rankings = st.one_of(
    st.lists(few, unique=True, max_size=20),
    st.permutations(range(20)).map(lambda order: [*range(20, 130)][:95] + list(order)),
)
grades = st.dictionaries(st.sampled_from("abcdefghijklmnop"), st.integers(0, 3), min_size=1, max_size=14).filter(
    lambda g: any(g.values())
)


@pytest.fixture(scope="module")
def reference(shared_data: Path) -> Reference:
    """The function `metrics` of the reference script, without the models that the script loads."""
    tree = ast.parse((shared_data / "tools" / "baseline.py").read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "metrics"]
    names: dict[str, Any] = {"math": math}
    exec(compile(tree, "baseline.py", "exec"), names)
    function: Reference = names["metrics"]
    return function


def build_query(groups: list[frozenset[int]]) -> JudgedQuery:
    named = tuple(frozenset(str(TOOLS[n]["id"]) for n in g) for g in groups)
    return JudgedQuery("q", dict.fromkeys((i for g in named for i in g), 1.0), named)


def same(value: float) -> Scores:
    return dict.fromkeys(NAMES, value)


@settings(max_examples=scale_examples(100), deadline=None)
@given(query=st.lists(st.tuples(answers, rankings), min_size=1, max_size=4))
def test_metrics_by_group_are_those_of_the_reference(
    reference: Reference, query: list[tuple[list[frozenset[int]], list[int]]]
) -> None:
    questions = [build_query(groups) for groups, _ in query]
    rows = [{"relevant": list(q.grades), "groups": [list(g) for g in q.groups]} for q in questions]
    theirs = reference(TOOLS, rows, [ranking for _, ranking in query])
    ours = mean(
        [score_by_group(q, [str(TOOLS[n]["id"]) for n in r]) for q, (_, r) in zip(questions, query, strict=True)]
    )
    assert {name: ours[own] for name, own in OURS_BY_REFERENCE.items()} == pytest.approx(theirs)


def test_any_member_counts_for_a_group_once_and_every_group_counts() -> None:
    query = JudgedQuery("q", dict.fromkeys("abc", 1.0), (frozenset("ab"), frozenset("c")))
    one_group_twice = score_by_group(query, ["a", "b"])
    assert (one_group_twice["r@10"], one_group_twice["c@10"], one_group_twice["hit@1"]) == (0.5, 0.0, 1.0)
    assert score_by_group(query, ["b", "c"]) == pytest.approx(same(1.0))
    late = score_by_group(query, ["x"] * 5 + ["c"] + ["x"] * 4 + ["a"])
    assert (late["r@5"], late["r@10"], late["mrr"]) == pytest.approx((0.0, 0.5, 1 / 6))


def test_all_ids_of_a_hit_are_found_at_its_rank() -> None:
    query = JudgedQuery("q", dict.fromkeys("abc", 1.0), tuple(map(frozenset, "abc")))
    assert score_hits(query, [("a", "b"), ("c",)]) == pytest.approx(same(1.0))
    part = score_hits(query, [("x",), ("a", "b")])
    assert (part["hit@1"], part["r@5"], part["c@10"], part["mrr"]) == pytest.approx((0.0, 2 / 3, 0.0, 0.5))
    assert part["ndcg@10"] == pytest.approx((2 / math.log2(3)) / (2 + 1 / math.log2(3)))
    once = JudgedQuery("q", dict.fromkeys("ab", 1.0), (frozenset("ab"),))
    assert score_hits(once, [("a", "b"), ("b",)]) == pytest.approx(same(1.0))


@pytest.mark.extended
@settings(max_examples=scale_examples(80), deadline=None)
@given(grades=grades, ranking=st.lists(st.sampled_from("abcdefghijklmnopqrst"), unique=True, min_size=1, max_size=16))
def test_graded_metrics_are_those_of_ranx(ranx: ModuleType, grades: dict[str, int], ranking: list[str]) -> None:
    query = JudgedQuery("q", {i: float(g) for i, g in grades.items()}, ())
    run = ranx.Run({"q": {i: float(100 - n) for n, i in enumerate(ranking)}})
    theirs = ranx.evaluate(ranx.Qrels({"q": grades}), run, list(OURS_BY_RANX))
    ours = score_by_grade(query, ranking)
    assert {name: ours[own] for name, own in OURS_BY_RANX.items()} == pytest.approx(theirs)
    relevant = {i for i, g in grades.items() if g}
    assert ours["c@10"] == float(relevant <= set(ranking[:10]))


def test_grades_are_linear_gains() -> None:
    query = JudgedQuery("q", {"a": 3.0, "b": 1.0}, ())
    assert score_by_grade(query, ["b", "a"])["ndcg@10"] == pytest.approx(
        (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    )


def test_ten_of_more_than_ten_relevant_documents_are_a_full_score() -> None:
    scores = score_by_grade(JudgedQuery("q", dict.fromkeys("abcdefghijkl", 1.0), ()), list("abcdefghijkl"))
    assert (scores["ndcg@10"], scores["r@10"], scores["c@10"]) == pytest.approx((1.0, 10 / 12, 0.0))


def test_an_empty_ranking_scores_zero() -> None:
    query = JudgedQuery("q", {"a": 1.0}, (frozenset("a"),))
    assert score_by_group(query, []) == score_by_grade(query, []) == same(0.0)


def test_the_first_answer_counts_up_to_the_hundredth_place() -> None:
    query = JudgedQuery("q", {"a": 1.0}, (frozenset("a"),))
    for score in (score_by_group, score_by_grade):
        assert score(query, ["x"] * 99 + ["a"])["mrr"] == pytest.approx(0.01)
        assert score(query, ["x"] * 100 + ["a"])["mrr"] == 0


@settings(max_examples=8, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_an_interval_contains_its_mean(values: list[float]) -> None:
    for name, found in intervals([same(v) for v in values]).items():
        assert found.mean == pytest.approx(sum(values) / len(values)), name
        assert found.low - 1e-9 <= found.mean <= found.high + 1e-9


def test_an_interval_is_the_same_each_time_and_narrows_with_more_queries() -> None:
    few_queries = [same(float(n % 2)) for n in range(20)]
    narrow, wide = intervals(few_queries * 20)["mrr"], intervals(few_queries)["mrr"]
    assert intervals(few_queries)["mrr"] == wide
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2
    # 1.96 standard errors either side of one half
    assert (narrow.low, narrow.high) == pytest.approx((0.451, 0.549), abs=0.01)


def test_a_run_does_not_differ_from_itself() -> None:
    run = [same(n / 7) for n in range(8)]
    assert {(d.mean, d.low, d.high) for d in difference((run, run)).values()} == {(0.0, 0.0, 0.0)}


def test_the_interval_of_a_significant_gain_lies_above_zero() -> None:
    base = [same((n * 37 % 100) / 200) for n in range(60)]
    better = [{n: v + 0.05 for n, v in s.items()} for s in base]
    mixed = [{n: v + (0.2 if i % 2 else -0.2) for n, v in s.items()} for i, s in enumerate(base)]
    assert all(d.low > 0 and d.mean == pytest.approx(0.05) for d in difference((better, base)).values())
    assert all(d.high < 0 for d in difference((base, better)).values())
    assert all(d.low < 0 < d.high for d in difference((mixed, base)).values())


def test_runs_over_different_queries_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="zip"):
        difference(([same(1.0)], [same(1.0), same(0.0)]))


@pytest.mark.req("S-01")
def test_the_curve_goes_from_everything_answered_to_nothing_in_steps_of_a_twentieth() -> None:
    points = curve([0.3, 0.6, 0.9, 1.0], [0.1, 0.4])
    assert [p.threshold for p in points] == pytest.approx([step / 20 for step in range(21)])
    by_threshold = {round(p.threshold, 2): (p.answered, p.left_empty) for p in points}
    assert by_threshold[0.0] == (1.0, 0.0)
    assert by_threshold[0.35] == (0.75, 0.5)
    assert by_threshold[1.0] == (0.25, 1.0)


@pytest.mark.req("S-01")
@settings(max_examples=scale_examples(60), deadline=None)
@given(confidences, confidences)
def test_a_higher_threshold_never_answers_more(answerable: list[float], unanswerable: list[float]) -> None:
    points = curve(answerable, unanswerable)
    answered = [p.answered or 0.0 for p in points]
    empty = [p.left_empty or 0.0 for p in points]
    assert answered == sorted(answered, reverse=True)
    assert empty == sorted(empty)


@pytest.mark.req("S-01")
def test_a_query_without_any_hit_is_not_answered_at_any_threshold() -> None:
    assert share_answered([0.0], 0.0) == 0.0
    assert share_left_empty([0.0], 0.0) == 1.0
    assert (share_answered([], 0.5), share_left_empty([], 0.5)) == (None, None)


@pytest.mark.req("S-01")
def test_a_bucket_has_the_share_of_right_first_hits() -> None:
    buckets = reliability([0.05, 0.62, 0.68, 0.95, 1.0], [False, True, False, True, True])
    assert [(b.low, b.high, b.queries, b.precision) for b in buckets] == [
        (0.0, 0.1, 1, 0.0),
        (0.6, 0.7, 2, 0.5),
        (0.9, 1.0, 2, 1.0),
    ]


def test_in_a_mean_over_sets_each_set_has_the_same_weight() -> None:
    large, small = [same(1.0)] * 900, [same(0.0)] * 9
    found = intervals(large, small)["r@5"]
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)


def test_small_gains_on_several_sets_are_significant_together() -> None:
    noisy = [same(0.3 if n % 2 else -0.2) for n in range(16)]
    none = [same(0.0)] * 16
    assert difference((noisy, none))["mrr"].low < 0 < difference(*[(noisy, none)] * 8)["mrr"].low
