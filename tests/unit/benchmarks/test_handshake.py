"""The benchmark of handshakes times answers of a server, and compares them with those of the references."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.handshake import Handshake, Rounds, build_tables, shake_hands
from tests.servers import make_scripted_spec


@pytest.mark.slow
def test_a_handshake_is_timed_until_both_answers_and_the_server_ends(tmp_path: Path) -> None:
    server = make_scripted_spec(slow_start=0.2)
    handshake = shake_hands([server["command"], *server["args"]], tmp_path)
    assert 0.2 < handshake.initialize < handshake.tools
    assert handshake.resident > 2**20


@pytest.mark.slow
def test_a_server_that_ends_without_an_answer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended before it answered initialize"):
        shake_hands([sys.executable, "-I", "-S", "-c", "input()"], tmp_path)


def test_medians_are_divided_by_those_of_the_references() -> None:
    ours = [Handshake(seconds, 2 * seconds, 2**24) for seconds in (0.1, 0.2, 0.9)]
    rounds = Rounds("first start", ours, [Handshake(0.8, 1.0, 2**25)] * 3, [0.4, 0.4, 0.4])
    initialize, tools, memory = build_tables([rounds])
    assert initialize.rows == [("first start", "200 ms", "900 ms", "400 ms", "0.5", "800 ms", "0.25")]
    assert tools.rows == [("first start", "400 ms", "1.8 s", "400 ms", "1", "1 s", "0.4")]
    assert memory.rows == [("first start", "16 MiB", "32 MiB")]
