"""The learned curves: more evidence never makes a hit less sure, and every probability is one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.retrieval.learned_ranking import LEARNED, Curve, Signals

pytestmark = pytest.mark.req("S-01")

signals = st.builds(Signals, st.floats(-1, 2), st.floats(0, 1), st.floats(0, 1), st.floats(0, 6))
curves = pytest.mark.parametrize("curve", [LEARNED.hybrid, LEARNED.words], ids=["hybrid", "words"])


@curves
@settings(max_examples=scale_examples(100), deadline=None)
@given(known=signals, more=st.floats(0, 1))
def test_more_evidence_is_never_less_sure(curve: Curve, known: Signals, more: float) -> None:
    for name in ("similarity", "coverage", "lead"):
        raised = known._replace(**{name: getattr(known, name) + more})
        assert 0 <= curve.estimate(known) <= curve.estimate(raised) <= 1


@curves
@settings(max_examples=scale_examples(100), deadline=None)
@given(known=signals, more=st.floats(0, 3))
def test_among_more_tools_the_same_evidence_is_worth_less(curve: Curve, known: Signals, more: float) -> None:
    assert curve.estimate(known) >= curve.estimate(known._replace(size=known.size + more))


@curves
def test_a_request_that_shares_nothing_with_any_tool_is_left_empty(curve: Curve) -> None:
    assert curve.estimate(Signals(similarity=0.0, coverage=0.0, lead=1.0, size=2.0)) < 0.35


def test_extreme_numbers_do_not_overflow() -> None:
    extreme = Curve(base=-1e6, similarity=1e6, coverage=0.0, size=0.0, tie=1e6, lead=0.0)
    assert extreme.estimate(Signals(0.0, 0.0, 0.0, 0.0)) == 0.0
    assert extreme.estimate(Signals(5.0, 0.0, 0.0, 0.0)) == 1.0
