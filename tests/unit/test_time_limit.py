"""A test that hangs fails by name, and the other tests of its file run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TESTS = """
import threading, pytest

@pytest.fixture
def waits_at_its_end():
    yield
    threading.Event().wait()

def test_that_fails_and_then_hangs(waits_at_its_end): raise AssertionError
def test_that_is_well(): pass
"""


@pytest.mark.extended
def test_a_test_that_hangs_fails_once_and_the_others_run(tmp_path: Path) -> None:
    tmp_path.joinpath("test_it.py").write_text(TESTS, encoding="utf-8")
    limits = ["-o", "faulthandler_timeout=5", "-o", "faulthandler_exit_on_timeout=true"]
    options = ["-p", "tests.time_limit", "-p", "no:cacheprovider", "-n", "1", "--dist", "loadfile", "-rA", *limits]
    command = [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", str(tmp_path)]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert "2 failed, 1 passed" in ended.stdout, ended.stdout
    assert "crashed while running 'test_it.py::test_that_fails_and_then_hangs'" in ended.stdout
    assert "in waits_at_its_end" in ended.stderr
