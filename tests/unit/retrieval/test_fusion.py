"""Compares the fusions with the library ranx and with their definitions."""

from __future__ import annotations

import math
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.domain.search import Candidate, sort_candidates
from toolscript.retrieval.fusion import FUSIONS, put_needs_first, rrf, sort_scores, sum_weighted, zscore

Leg = dict[str, float]

IDS = st.sampled_from("abcdefghij")


def distinct(ids: list[str], eighths: list[int]) -> Leg:
    return {i: e / 8 for i, e in zip(ids, eighths, strict=False)}


# Scores are distinct within a ranking: ranx and we break ties differently.
ids_in_any_order = st.lists(IDS, min_size=1, max_size=8, unique=True)
legs = st.builds(distinct, ids_in_any_order, st.lists(st.integers(-80, 80), min_size=8, max_size=8, unique=True))
several_legs = st.lists(legs, min_size=2, max_size=4)
quick = settings(max_examples=scale_examples(60), deadline=None)


def ranking(leg: Leg) -> list[Candidate]:
    return sort_candidates([Candidate(i, s) for i, s in leg.items()])


def fuse_with_ranx(ranx: ModuleType, of: list[Leg], **how: object) -> Leg:
    fused = ranx.fuse(runs=[ranx.Run({"q": leg}) for leg in of], **how)
    return {str(i): float(s) for i, s in fused.to_dict()["q"].items()}


# What ranx 0.3.21 answers: importing it takes four seconds, so `make test` compares with a record.
RANX_RRF: list[tuple[list[Leg], Leg]] = [
    ([{"a": 3.0, "b": 1.0}, {"b": 0.5, "c": 0.25}], {"a": 0.016393443, "b": 0.032522475, "c": 0.016129032}),
    (
        [{"a": -1.5, "b": 2.25, "c": 0.125, "d": 7.0}, {"d": -3.0, "a": 4.0}, {"e": 1.0}],
        {"a": 0.032018443, "b": 0.016129032, "c": 0.015873016, "d": 0.032522475, "e": 0.016393443},
    ),
    (
        [
            {"j": 9.5, "i": 8.5, "h": -7.5, "g": 0.0, "f": 1.0},
            {"f": 2.0, "g": 3.0, "h": 4.0, "i": 5.0, "j": 6.0},
            {"a": 1.0, "j": 0.5},
            {"c": -10.0},
        ],
        {
            "a": 0.016393443,
            "c": 0.016393443,
            "f": 0.031257631,
            "g": 0.03125,
            "h": 0.031257631,
            "i": 0.032258065,
            "j": 0.048915918,
        },
    ),
]
RANX_ZSCORE: list[tuple[list[Leg], Leg]] = [
    ([{"a": 3.0, "b": 1.0}, {"a": 0.5, "b": 0.25}], {"a": 2.0, "b": -2.0}),
    (
        [
            {"a": -1.5, "b": 2.25, "c": 0.125, "d": 7.0},
            {"a": 4.0, "b": -3.0, "c": 10.0, "d": 0.5},
            {"a": 1.0, "b": 2.0, "c": -4.0, "d": 3.0},
        ],
        {"a": -0.665750165, "b": -0.578653083, "c": -0.764233711, "d": 2.008636959},
    ),
    ([{"a": 5.0}, {"a": -2.0}], {"a": 0.0}),
]


@pytest.mark.req("D-02")
def test_fusions_equal_recorded_ones_of_ranx() -> None:
    for of, theirs in RANX_RRF:
        assert rrf([ranking(leg) for leg in of]) == pytest.approx(theirs, abs=1e-8)
    for of, theirs in RANX_ZSCORE:
        assert zscore([ranking(leg) for leg in of]) == pytest.approx(theirs, abs=1e-6)


@pytest.mark.extended
@pytest.mark.req("D-02")
def test_the_record_is_what_ranx_answers(ranx: ModuleType) -> None:
    for of, expected in RANX_RRF:
        theirs = fuse_with_ranx(ranx, of, norm=None, method="rrf", params={"k": 60})
        assert theirs == pytest.approx(expected, abs=1e-8)
    for of, expected in RANX_ZSCORE:
        assert fuse_with_ranx(ranx, of, norm="zmuv", method="sum") == pytest.approx(expected, abs=1e-8)


@pytest.mark.extended
@pytest.mark.req("D-02")
@quick
@given(of=several_legs)
def test_rrf_equals_that_of_ranx(ranx: ModuleType, of: list[Leg]) -> None:
    theirs = fuse_with_ranx(ranx, of, norm=None, method="rrf", params={"k": 60})
    assert rrf([ranking(leg) for leg in of]) == pytest.approx(theirs)


@pytest.mark.extended
@pytest.mark.req("D-02")
@quick
@given(
    ids=ids_in_any_order,
    scores=st.lists(st.lists(st.integers(-80, 80), min_size=8, max_size=8, unique=True), min_size=2, max_size=4),
)
def test_zscore_equals_that_of_ranx_for_complete_rankings(
    ranx: ModuleType, ids: list[str], scores: list[list[int]]
) -> None:
    of = [distinct(ids, each) for each in scores]
    theirs = fuse_with_ranx(ranx, of, norm="zmuv", method="sum")
    assert zscore([ranking(leg) for leg in of]) == pytest.approx(theirs, abs=1e-6)


@pytest.mark.req("D-02")
def test_rrf_sums_reciprocal_ranks_and_absent_candidates_count_zero() -> None:
    fused = rrf([[Candidate("a", 9.0), Candidate("b", 1.0)], [Candidate("b", 0.3)], []])
    assert fused == pytest.approx({"a": 1 / 61, "b": 1 / 62 + 1 / 61})
    assert rrf([[Candidate("a", 9.0)]], k=1) == {"a": 0.5}


@pytest.mark.req("D-02")
@quick
@given(legs)
def test_rrf_uses_positions_and_not_scores(leg: Leg) -> None:
    backwards = list(ranking(leg))[::-1]
    assert sort_scores(rrf([backwards])) == [(c.id, 1 / (60 + n)) for n, c in enumerate(backwards, start=1)]


@pytest.mark.req("D-02")
@quick
@given(several_legs)
def test_zscore_follows_its_definition(of: list[Leg]) -> None:
    expected = dict.fromkeys({i for leg in of for i in leg}, 0.0)
    for leg in of:
        existing = np.array(list(leg.values()))
        deviation = float(existing.std(ddof=0))
        for i in expected:
            score = leg.get(i, float(existing.min()))
            expected[i] += (score - float(existing.mean())) / deviation if deviation else 0.0
    assert zscore([ranking(leg) for leg in of]) == pytest.approx(expected, abs=1e-9)


@pytest.mark.req("D-02")
@pytest.mark.parametrize("score", [0.0, 0.1, -3.7, 1e9])
def test_a_ranking_of_equal_scores_gives_zero(score: float) -> None:
    equal = [Candidate(i, score) for i in "abc"]
    assert zscore([equal]) == {"a": 0.0, "b": 0.0, "c": 0.0}
    informative = [Candidate("b", 2.0), Candidate("a", 1.0)]
    assert zscore([equal, informative]) == {"a": -1.0, "b": 1.0, "c": -1.0}


@pytest.mark.req("D-02")
def test_scores_that_differ_by_rounding_only_are_equal() -> None:
    assert zscore([[Candidate("a", math.nextafter(1e9, math.inf)), Candidate("b", 1e9)]]) == {"a": 0.0, "b": 0.0}


@pytest.mark.req("D-02")
@pytest.mark.parametrize("name", sorted(FUSIONS))
def test_empty_rankings_change_nothing(name: str) -> None:
    one = [Candidate("a", 2.0), Candidate("b", 1.0)]
    assert FUSIONS[name]([]) == FUSIONS[name]([[], []]) == {}
    assert FUSIONS[name]([[], one, []]) == FUSIONS[name]([one])


@pytest.mark.req("D-02")
@pytest.mark.parametrize("name", sorted(FUSIONS))
@quick
@given(of=several_legs)
def test_the_order_of_the_rankings_does_not_matter(name: str, of: list[Leg]) -> None:
    fuse, rankings = FUSIONS[name], [ranking(leg) for leg in of]
    assert fuse(rankings[::-1]) == pytest.approx(fuse(rankings), abs=1e-9)


@pytest.mark.req("D-02")
@pytest.mark.parametrize("ranks", [(1, 2, 7), (1, 2, 8), (1, 3, 9)])
def test_candidates_with_the_same_ranks_in_three_rankings_tie(ranks: tuple[int, int, int]) -> None:
    rankings = []
    for rank_of_a, rank_of_b in zip(ranks, (ranks[2], *ranks[:2]), strict=True):
        places = [Candidate(f"x{n}", 0.0) for n in range(12)]
        places[rank_of_a - 1], places[rank_of_b - 1] = Candidate("a", 0.0), Candidate("b", 0.0)
        rankings.append(places)
    fused = rrf(rankings)
    assert fused["a"] == fused["b"]


@pytest.mark.req("D-02")
@quick
@given(st.dictionaries(st.text("abcé", max_size=3), st.sampled_from([0.0, 0.5, 1.0]), max_size=8))
def test_equal_scores_are_ordered_by_id_after_better_ones(scores: Leg) -> None:
    found = sort_scores(scores)
    assert dict(found) == scores
    for (first, better), (second, worse) in pairwise(found):
        assert better > worse or (better == worse and first < second)


@pytest.mark.req("D-02")
def test_candidates_that_swap_places_in_two_rankings_tie_in_every_fusion() -> None:
    one, other = ranking({"b": 2.0, "a": 1.0}), ranking({"a": 2.0, "b": 1.0})
    for fuse in FUSIONS.values():
        assert [i for i, _ in sort_scores(fuse([one, other]))] == ["a", "b"]


@pytest.mark.req("D-02")
@quick
@given(st.lists(st.tuples(st.floats(0, 1), legs), max_size=4))
def test_absent_candidates_count_zero_in_a_weighted_sum(of: list[tuple[float, Leg]]) -> None:
    expected: Leg = {}
    for weight, leg in of:
        for i, score in leg.items():
            expected[i] = expected.get(i, 0.0) + weight * score
    assert sum_weighted(of) == pytest.approx(expected, abs=1e-9)
    assert sum_weighted(of[::-1]) == pytest.approx(expected, abs=1e-9)


ranked_needs = st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["a", "b", "c", None])), max_size=12)


@pytest.mark.slow
@pytest.mark.req("S-01")
@settings(max_examples=scale_examples(150), deadline=None)
@given(ranked_needs, st.integers(1, 6))
def test_an_order_by_needs_has_the_same_candidates_and_first_one_and_its_beginning_covers_no_fewer_needs(
    scored: list[tuple[float, str | None]], limit: int
) -> None:
    scored.sort(key=lambda pair: -pair[0])
    ranked = [(str(n), score) for n, (score, _) in enumerate(scored)]
    needs = {str(n): need for n, (_, need) in enumerate(scored) if need is not None}
    ordered = put_needs_first(ranked, needs)
    assert sorted(ordered) == sorted(ranked)
    assert ordered[:1] == ranked[:1]
    covered, plain = ({needs[i] for i, _ in part if i in needs} for part in (ordered[:limit], ranked[:limit]))
    strong = {needs[i] for i, score in ranked if i in needs and score >= 0.5 * ranked[0][1]}
    assert len(covered & strong) >= len(plain & strong)


@pytest.mark.req("S-01")
def test_the_best_candidate_of_each_need_comes_before_the_second_of_another() -> None:
    ranked = [("a1", 0.9), ("a2", 0.8), ("a3", 0.7), ("b1", 0.6), ("c1", 0.2)]
    needs = {i: i[0] for i, _ in ranked}
    assert [i for i, _ in put_needs_first(ranked, needs)] == ["a1", "b1", "a2", "a3", "c1"]
    assert put_needs_first(ranked, {}) == ranked
