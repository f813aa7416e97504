"""Feedback on the command line: without and with a gateway."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.command_line import invoke, run_json
from tests.fixtures.examples import choose
from tests.fixtures.waiting import TIMEOUT_SECONDS

TOOL = "git__git_commit"


def read(*arguments: str) -> Any:
    return run_json(*arguments)


@pytest.mark.parametrize("with_gateway", choose([False, True], False))
def test_marks_are_listed_shown_and_forgotten(
    demo_folder: Path, start_gateway: Callable[[], None], with_gateway: bool
) -> None:
    if with_gateway:
        start_gateway()
    assert "No tool has served" in invoke("feedback").output
    assert f"Recorded: {TOOL}" in invoke("feedback", "mark", TOOL, "keep a snapshot").output
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while "moved" not in invoke("feedback").output:  # a gateway computes the step after its answer
        assert time.monotonic() < deadline
    (tool,) = read("feedback")["tools"]
    assert (tool["tool_id"], tool["successes"], tool["state"]) == (TOOL, 1, "moved")
    assert read("feedback", "list")["tools"] == [tool]
    assert read("feedback", "show", TOOL)["requests"] == ["keep a snapshot"]
    assert "(none) 1" in invoke("feedback").output
    assert "Forgot 0 requests" in invoke("feedback", "reset", "--key", "ci", "--yes").output
    assert "Taken back" in invoke("feedback", "mark", TOOL, "keep a snapshot", "--take-back").output
    assert f"Recorded as wrong: {TOOL}" in invoke("feedback", "mark", TOOL, "show the weather", "--wrong").output
    assert read("feedback", "show", TOOL)["wrong_requests"] == ["show the weather"]
    assert "wrong: show the weather" in invoke("feedback", "show", TOOL).output
    invoke("feedback", "mark", TOOL, "show the weather", "--take-back")
    invoke("feedback", "mark", TOOL, "keep a snapshot")
    assert "nothing was removed" in invoke("feedback", "reset", code=2).output
    assert "Forgot 1 request" in invoke("feedback", "reset", TOOL).output
    assert read("feedback", "reset", "--yes") == {"removed": 0}
    assert "no feedback" in invoke("feedback", "show", TOOL, code=4).output


def test_feedback_can_be_switched_off(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCRIPT_FEEDBACK", "false")
    assert "switched off" in invoke("feedback").output
    assert "switched off" in invoke("feedback", "mark", TOOL, "keep a snapshot", code=3).output
