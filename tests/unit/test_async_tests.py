"""A cancellation fails the test or fixture that it leaves, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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

async def test_that_is_well(): await asyncio.sleep(0)
"""


def test_a_cancellation_stays_where_it_belongs(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(TESTS, encoding="utf-8")
    options = ["-p", "tests.async_tests", "-p", "no:cacheprovider", "-p", "no:xdist", "--anyio-mode=auto", "-q", "-rA"]
    command = [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", str(file)]
    output = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout
    lines = [line.split(" - ")[0] for line in output.splitlines() if "::" in line]
    summary = {f"{line.split()[0]} {line.partition('::')[2]}" for line in lines}
    assert {"PASSED test_that_is_well", "FAILED test_that_is_cancelled"} <= summary, output
    assert "FAILED test_that_leaves_a_request_to_cancel" in summary
    assert "ERROR test_of_a_fixture_that_is_cancelled_at_its_start" in summary
    assert "ERROR test_of_a_fixture_that_is_cancelled_at_its_end" in summary
    assert "ClosedResourceError" not in output
