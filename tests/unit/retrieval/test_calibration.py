"""Scores and cosines convert into each other, for every model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.domain.search import SimilarityRange, Vector
from toolscript.retrieval.calibration import calibrate, measure_similarity

similarities = st.builds(
    lambda floor, span: SimilarityRange(floor, floor + span), st.floats(-0.5, 0.9), st.floats(0.05, 1.0)
)
cosines = st.floats(-1, 1)
quick = settings(max_examples=scale_examples(100), deadline=None)


def unit(*values: float) -> Vector:
    vector = np.array(values, np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


@pytest.mark.req("H-07")
@quick
@given(similarities, st.floats(0, 1))
def test_a_score_is_linear_between_floor_and_ceiling(similarity: SimilarityRange, share: float) -> None:
    cosine = (1 - share) * similarity.floor + share * similarity.ceiling
    assert calibrate(cosine, similarity) == pytest.approx(share, abs=1e-9)


@pytest.mark.req("H-07")
@quick
@given(similarities, st.floats(0, 2))
def test_scores_outside_floor_and_ceiling_are_zero_and_one(similarity: SimilarityRange, beyond: float) -> None:
    assert calibrate(similarity.floor - beyond, similarity) == 0
    assert calibrate(similarity.ceiling + 1e-9 + beyond, similarity) == 1


@pytest.mark.req("H-07")
@quick
@given(similarities, cosines, cosines)
def test_a_larger_cosine_never_scores_less(similarity: SimilarityRange, one: float, other: float) -> None:
    lesser, larger = sorted([one, other])
    assert calibrate(lesser, similarity) <= calibrate(larger, similarity)


@pytest.mark.req("H-07")
def test_the_cosine_of_a_score_depends_on_the_model() -> None:
    assert calibrate(0.3, SimilarityRange(0.0, 0.6)) == pytest.approx(0.5)
    assert calibrate(0.8, SimilarityRange(0.7, 0.9)) == pytest.approx(0.5)


@pytest.mark.req("H-07")
def test_a_typical_answer_scores_half() -> None:
    vectors = list(np.eye(4, dtype=np.float32))
    assert measure_similarity(vectors, vectors) == SimilarityRange(0.0, 2.0)


@pytest.mark.req("H-07")
def test_the_floor_is_above_other_answers_and_the_middle_of_own_ones_scores_half() -> None:
    cosines = np.array([[0.6, 0.1, 0.2], [0.1, 0.7, 0.3], [0.2, 0.95, 0.9]], np.float32)
    found = measure_similarity(list(np.eye(3, dtype=np.float32)), list(cosines.T))
    assert (found.floor, found.ceiling) == pytest.approx((0.275, 1.125), abs=1e-6)
    assert calibrate(0.7, found) == pytest.approx(0.5)


@pytest.mark.req("H-07")
def test_a_model_that_cannot_distinguish_texts_gets_a_usable_range() -> None:
    same = [unit(1, 2, 3)] * 3
    found = measure_similarity(same, same)
    assert found.floor == pytest.approx(1.0, abs=1e-6)
    assert found.ceiling - found.floor == pytest.approx(0.05)
