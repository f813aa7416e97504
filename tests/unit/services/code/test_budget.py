"""What a run and the workflows that it calls may use together."""

from __future__ import annotations

import pytest

from toolscript.domain.errors import InvalidArguments
from toolscript.domain.programs import LimitReached, RunLimits
from toolscript.services.code.budget import RunBudget

pytestmark = pytest.mark.req("C-03")

LIMITS = RunLimits(seconds=100.0, cpu_seconds=2.0, memory_mb=32, calls=3)


def test_a_workflow_gets_what_is_left_of_the_limits() -> None:
    budget = RunBudget(LIMITS)
    budget.count_cpu(0.5)
    rest = budget.get_rest(60.0, 100.0)
    assert (rest.seconds, rest.cpu_seconds, rest.memory_mb) == (60.0, 1.5, 32)


def test_a_workflow_ends_before_the_program_that_calls_it() -> None:
    assert RunBudget(LIMITS).get_rest(60.0, 20.0).seconds == 19.0
    assert 0 < RunBudget(LIMITS).get_rest(60.0, -1.0).seconds < 0.1


def test_without_processor_time_no_workflow_is_run() -> None:
    budget = RunBudget(LIMITS)
    budget.count_cpu(2.0)
    with pytest.raises(InvalidArguments, match="have used its 2 seconds of processor time: call fewer"):
        budget.get_rest(60.0, 100.0)


def test_calls_are_counted_together() -> None:
    budget = RunBudget(LIMITS)
    for _ in range(3):
        budget.count_call()
    for _ in range(2):
        with pytest.raises(LimitReached, match=r"^the program made more than 3 calls: make fewer"):
            budget.count_call()
