"""A cancellation fails the test or fixture that it belongs to, a wait without end its test, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TESTS = """
import asyncio, pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
async def cancelled_at_start(anyio_backend):
    raise asyncio.CancelledError

@pytest.fixture
async def cancelled_at_end(anyio_backend):
    yield
    raise asyncio.CancelledError

async def test_of_a_fixture_that_is_cancelled_at_its_start(cancelled_at_start): pass
async def test_of_a_fixture_that_is_cancelled_at_its_end(cancelled_at_end): pass
async def test_that_is_cancelled(): raise asyncio.CancelledError

async def test_that_leaves_a_request_to_cancel():
    asyncio.current_task().cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        pass

async def test_that_fails_in_a_task_group():
    async with asyncio.TaskGroup():
        pytest.fail("in a group")

async def test_that_is_well(): await asyncio.sleep(0)
"""
HANGING_TESTS = """
import asyncio, pytest
import pytest
from tests.fixtures.coroutines import put_clock_forward

@pytest.fixture
def anyio_backend():
    return "asyncio"

async def wait_for_ever(): await asyncio.Event().wait()

@pytest.fixture
def little_time(monkeypatch):
    monkeypatch.setattr("tests.async_tests.MAX_SECONDS", 0.1)

async def test_that_hangs(little_time): await wait_for_ever()

async def test_that_puts_the_clock_forward():
    put_clock_forward(3600.0)
    await asyncio.sleep(0.01)
"""


def run(folder: Path, tests: str) -> tuple[str, set[str]]:
    """The output and the summary of these tests."""
    file = folder / "test_it.py"
    file.write_text(tests, encoding="utf-8")
    options = ["-p", "tests.async_tests", "-p", "no:cacheprovider", "-p", "no:xdist", "--anyio-mode=auto", "-q", "-rA"]
    command = [sys.executable, "-m", "pytest", *options, f"--rootdir={folder}", str(file)]
    output = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout
    lines = [line.split(" - ")[0] for line in output.splitlines() if "::" in line]
    return output, {f"{line.split()[0]} {line.partition('::')[2]}" for line in lines}


@pytest.mark.extended
def test_a_cancellation_stays_where_it_belongs(tmp_path: Path) -> None:
    output, summary = run(tmp_path, TESTS)
    assert {"PASSED test_that_is_well", "FAILED test_that_is_cancelled"} <= summary, output
    assert "FAILED test_that_leaves_a_request_to_cancel" in summary
    assert "FAILED test_that_fails_in_a_task_group" in summary
    assert "ERROR test_of_a_fixture_that_is_cancelled_at_its_start" in summary
    assert "ERROR test_of_a_fixture_that_is_cancelled_at_its_end" in summary
    assert "ClosedResourceError" not in output


@pytest.mark.extended
def test_a_test_that_waits_for_ever_fails_with_its_stack_and_the_next_one_runs(tmp_path: Path) -> None:
    output, summary = run(tmp_path, HANGING_TESTS)
    assert summary == {"FAILED test_that_hangs", "PASSED test_that_puts_the_clock_forward"}, output
    assert "async def wait_for_ever" in output
    assert "takes more than 0.1 seconds" in output
