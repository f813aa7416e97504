"""Relevances are probabilities that grow with the evidence, and say how relevant anything can be that was not read."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.domain.search import SimilarityRange
from toolscript.retrieval.relevance import (
    LEARNED,
    LegScores,
    RareMatches,
    RelevanceCurve,
    Relevances,
    RelevanceSignals,
    parse_learned_relevance,
)
from training.relevance import JudgedHit, fit_relevance, write_relevance

pytestmark = pytest.mark.req("F-03")

MODEL = SimilarityRange(0.1, 0.5)
scores = st.dictionaries(st.sampled_from("abcdef"), st.floats(-1, 1), max_size=6).map(LegScores)
curves = pytest.mark.parametrize(
    "curve", [LEARNED.hybrid, LEARNED.meaning, LEARNED.words], ids=["hybrid", "meaning", "words"]
)


@curves
@settings(max_examples=scale_examples(100), deadline=None)
@given(known=st.builds(RelevanceSignals, st.floats(-3, 3), st.floats(0, 1)), more=st.floats(0, 1))
def test_more_evidence_is_never_less_relevant(curve: RelevanceCurve, known: RelevanceSignals, more: float) -> None:
    for name in RelevanceSignals._fields:
        raised = known._replace(**{name: getattr(known, name) + more})
        assert 0 <= curve.estimate(known) <= curve.estimate(raised) <= 1


@settings(max_examples=scale_examples(100), deadline=None)
@given(
    cosines=st.none() | scores,
    words=st.none() | scores,
    full=st.floats(0, 10),
    absent=st.tuples(st.floats(-1, 1), st.floats(0, 1)),
    rare=st.frozensets(st.sampled_from("abcdef")),
)
def test_no_hit_is_more_relevant_than_the_bound_and_none_that_was_not_read_more_than_it_can_be(
    cosines: LegScores | None,
    words: LegScores | None,
    full: float,
    absent: tuple[float, float],
    rare: frozenset[str],
) -> None:
    cosines, words = (
        leg and LegScores(leg.scores, min([value, *leg.scores.values()]))
        for leg, value in zip((cosines, words), absent, strict=True)
    )
    ranked = {hit for leg in (cosines, words) if leg for hit in leg.scores}
    found = Relevances(MODEL, full, cosines, words, RareMatches(rare & ranked, 0.7))
    for hit in "abcdef":
        assert 0 <= found.estimate_absent() <= found.estimate(hit) <= found.estimate_bound() <= 1


@curves
def test_a_text_that_has_nothing_of_the_query_is_below_the_threshold(curve: RelevanceCurve) -> None:
    assert curve.estimate(RelevanceSignals(similarity=0.0, coverage=0.0)) < LEARNED.threshold


@pytest.mark.parametrize("curve", [LEARNED.hybrid, LEARNED.meaning])
def test_a_text_that_repeats_the_query_is_likely_relevant(curve: RelevanceCurve) -> None:
    assert curve.estimate(RelevanceSignals(similarity=2.0, coverage=1.0)) > 0.8


def test_signals_that_a_search_does_not_have_choose_the_curve() -> None:
    one = LegScores({"a": 0.5})
    signals = RelevanceSignals(1.0, 0.25)
    expected = {
        LEARNED.hybrid: Relevances(MODEL, 2.0, one, one),
        LEARNED.meaning: Relevances(MODEL, 2.0, one, None),
        LEARNED.words: Relevances(MODEL, 2.0, None, one),
    }
    for curve, found in expected.items():
        assert found.estimate("a") == pytest.approx(curve.estimate(signals), abs=1e-4)
    without_words = Relevances(MODEL, 0.0, one, one)
    assert without_words.estimate("a") == expected[LEARNED.meaning].estimate("a")


def test_the_packaged_numbers_can_be_written_and_read(tmp_path: Path) -> None:
    write_relevance(tmp_path / "relevance.toml", LEARNED)
    assert parse_learned_relevance(tomllib.loads((tmp_path / "relevance.toml").read_text())) == LEARNED


def test_slopes_are_fitted_within_sets_whose_judges_differ() -> None:
    """The generous set has the less similar hits: pooled, similarity would count against a hit."""
    hits = [
        JudgedHit(
            name, f"{name} {number}", False, RelevanceSignals(low + place / 10, 0.5), place + generous >= number % 10
        )
        for name, low, generous in (("strict", 1.0, -3), ("generous", 0.0, 5))
        for number in range(200)
        for place in range(10)
    ]
    hits += [JudgedHit(name, "far", True, RelevanceSignals(-1.0, 0.0), False) for name in ("strict", "generous")]
    learned = fit_relevance(dict.fromkeys(("hybrid", "meaning", "words"), hits))
    assert learned.meaning.similarity > 1
    assert (learned.meaning.coverage, learned.words.similarity) == (0.0, 0.0)
    assert min(learned.hybrid.similarity, learned.hybrid.coverage) >= 0
    assert 0 < learned.threshold < 0.5
