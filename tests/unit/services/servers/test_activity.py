"""What is kept of a server's log, calls and restarts is bounded, and the newest."""

from __future__ import annotations

import pytest

from toolscript.domain.servers import LogSource, ServerState, ServerStatus, Transport
from toolscript.services.servers.activity import MAX_CALLS, MAX_CHARACTERS, MAX_LINES, ServerActivity

STATUS = ServerStatus("files", Transport.STDIO, ServerState.READY)


@pytest.mark.req("G-02")
def test_the_newest_lines_are_kept_and_all_are_counted() -> None:
    activity = ServerActivity(clock=lambda: 7.0)
    for number in range(MAX_LINES + 50):
        activity.add_line(f"line {number}")
    assert [line.text for line in activity.lines] == [f"line {n}" for n in range(50, MAX_LINES + 50)]
    assert {(line.time, line.source) for line in activity.lines} == {(7.0, LogSource.SERVER)}
    assert activity.add_to(STATUS).log_lines == MAX_LINES + 50


@pytest.mark.req("G-02")
def test_long_lines_push_out_more_of_the_older_ones() -> None:
    activity = ServerActivity()
    for _ in range(MAX_LINES):
        activity.add_line("x" * 1000)
    assert sum(len(line.text) for line in activity.lines) <= MAX_CHARACTERS


@pytest.mark.req("G-02")
def test_the_last_calls_are_kept_with_their_times() -> None:
    activity = ServerActivity()
    for number in range(MAX_CALLS + 2):
        activity.note_call(number / 1000, is_ok=number % 2 == 0)
    calls = activity.add_to(STATUS).recent_calls
    assert [call.ms for call in calls] == list(range(2, MAX_CALLS + 2))
    assert [call.is_ok for call in calls[:2]] == [True, False]


@pytest.mark.req("G-02")
def test_only_a_connection_after_a_lost_one_is_a_restart() -> None:
    activity = ServerActivity()
    activity.note_connected()
    assert activity.add_to(STATUS).restarts == 0
    activity.note_lost("exited with code 7")
    assert activity.add_to(STATUS).restarts == 0
    activity.note_connected()
    status = activity.add_to(STATUS)
    assert (status.restarts, status.restart_reason) == (1, "exited with code 7")
    assert [line.text for line in activity.lines] == ["connected", "exited with code 7", "connected"]
