"""The curve over thresholds, the reliability of confidences, and means over sets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscript.evaluation.curve import curve, reliability, share_answered, share_left_empty
from toolscript.evaluation.metrics import NAMES, Scores, difference, difference_over, intervals, intervals_over

sure = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def same(value: float) -> Scores:
    return dict.fromkeys(NAMES, value)


@pytest.mark.req("S-01")
def test_the_curve_goes_from_everything_answered_to_nothing_in_steps_of_a_twentieth() -> None:
    points = curve([0.3, 0.6, 0.9, 1.0], [0.1, 0.4])
    assert [p.threshold for p in points] == pytest.approx([step / 20 for step in range(21)])
    by_threshold = {round(p.threshold, 2): (p.answered, p.left_empty) for p in points}
    assert by_threshold[0.0] == (1.0, 0.0)
    assert by_threshold[0.35] == (0.75, 0.5)
    assert by_threshold[1.0] == (0.25, 1.0)


@pytest.mark.req("S-01")
@settings(max_examples=60, deadline=None)
@given(sure, sure)
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
    found = intervals_over([large, small])["r@5"]
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)


def test_a_mean_over_one_set_is_the_mean_of_that_set() -> None:
    run = [same((n * 37 % 100) / 100) for n in range(50)]
    assert intervals_over([run]) == intervals(run)
    other = [same((n * 31 % 100) / 100) for n in range(50)]
    assert difference_over([(run, other)]) == difference(run, other)


def test_small_gains_on_several_sets_are_significant_together() -> None:
    noisy = [same(0.3 if n % 2 else -0.2) for n in range(16)]
    none = [same(0.0)] * 16
    assert difference(noisy, none)["mrr"].low < 0 < difference_over([(noisy, none)] * 8)["mrr"].low
