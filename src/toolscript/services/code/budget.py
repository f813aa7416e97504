"""What a run may use, together with the workflows that its program calls, directly or through others."""

from __future__ import annotations

from dataclasses import replace

from toolscript.domain.errors import InvalidArguments
from toolscript.domain.programs import LimitReached, RunEnd, RunLimits

# A workflow ends before the program that calls it, which then has time to return what it has found so far.
WORKFLOW_SHARE = 0.95
MIN_SECONDS = 0.001


class RunBudget:
    """The limits of one run, and what is used of them, by its program and by everything that it calls."""

    def __init__(self, limits: RunLimits) -> None:
        self._limits = limits
        self._calls = 0
        self._cpu_seconds = 0.0
        self._has_workflows = False

    def count_call(self) -> None:
        """Counts a call. Raises LimitReached."""
        self._calls += 1
        if self._calls > self._limits.calls:
            who = "the program and the workflows that it calls" if self._has_workflows else "the program"
            raise LimitReached(
                RunEnd.CALLS, f"{who} made more than {self._limits.calls} calls: make fewer, or raise the limit `calls`"
            )

    def count_cpu(self, seconds: float) -> None:
        """Counts the processor time of a program that has ended."""
        self._cpu_seconds += seconds

    def get_rest(self, seconds: float, seconds_left: float) -> RunLimits:
        """The limits of a workflow that is called now and may take so many seconds, by a program that has so many left.
        Raises InvalidArguments when there is no processor time left."""
        self._has_workflows = True
        cpu_left = self._limits.cpu_seconds - self._cpu_seconds
        if cpu_left < MIN_SECONDS:
            raise InvalidArguments(
                f"the workflows of this run have used its {self._limits.cpu_seconds:g} seconds of processor time: call "
                "fewer, or raise the limit `cpu_seconds`"
            )
        seconds = max(round(min(seconds, seconds_left * WORKFLOW_SHARE), 1), MIN_SECONDS)
        return replace(self._limits, seconds=seconds, cpu_seconds=cpu_left)
