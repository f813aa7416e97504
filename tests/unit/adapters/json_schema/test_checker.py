"""Arguments are checked in a worker that cannot hold up the gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolscript.adapters.json_schema.checker import WorkerChecker
from toolscript.domain.errors import TimedOut
from toolscript.ports.schemas import ArgumentProblem

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
# Each definition is checked twice as often as the one before it: two to the power of 28 checks.
DOUBLING: dict[str, Any] = {
    "$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(28)} | {"a28": {"type": "object"}},
    "$ref": "#/$defs/a0",
}


@pytest.fixture
async def checker() -> AsyncIterator[WorkerChecker]:
    checker = WorkerChecker(seconds=0.5)
    yield checker
    await checker.close()


async def test_a_problem_names_its_field(checker: WorkerChecker) -> None:
    assert await checker.check(PATH, {"path": "/tmp"}, within=10) is None
    assert await checker.check(PATH, {"path": 1}, within=10) == ArgumentProblem("path", "1 is not of type 'string'")
    missing = await checker.check(PATH, {}, within=10)
    assert missing is not None
    assert missing.field == "path"


async def test_a_schema_that_no_validator_can_use_accepts_everything(checker: WorkerChecker) -> None:
    for schema in ({"type": 3}, {"$ref": "#/nowhere"}, {"$ref": "https://example.org/schema.json"}):
        assert await checker.check(schema, {"a": 1}, within=10) is None


async def test_an_endless_check_is_given_up_and_others_go_on(checker: WorkerChecker) -> None:
    await checker.check(PATH, {"path": "/tmp"}, within=10)
    began = time.monotonic()
    endless = asyncio.ensure_future(checker.check(DOUBLING, {}, within=10))
    await asyncio.sleep(0)
    assert await checker.check(PATH, {"path": 1}, within=10) is not None
    with pytest.raises(TimedOut, match=r"0\.5 s"):
        await endless
    assert time.monotonic() - began < 5


async def test_a_schema_that_used_up_its_time_is_not_tried_again_at_once(checker: WorkerChecker) -> None:
    with pytest.raises(TimedOut):
        await checker.check(DOUBLING, {}, within=10)
    began = time.monotonic()
    with pytest.raises(TimedOut, match="a moment ago"):
        await checker.check(DOUBLING, {}, within=10)
    assert time.monotonic() - began < 0.1


async def test_waiting_for_others_does_not_count_against_a_schema(checker: WorkerChecker) -> None:
    await checker.check(PATH, {"path": "/tmp"}, within=10)
    endless = asyncio.ensure_future(checker.check(DOUBLING, {}, within=10))
    await asyncio.sleep(0)
    with pytest.raises(TimedOut):
        await checker.check(PATH, {"path": 1}, within=0.05)
    with pytest.raises(TimedOut):
        await endless
    assert await checker.check(PATH, {"path": 1}, within=10) is not None


async def test_a_cancelled_check_leaves_no_reply_behind(checker: WorkerChecker) -> None:
    await checker.check(PATH, {"path": "/tmp"}, within=10)
    cancelled = asyncio.ensure_future(checker.check(DOUBLING, {}, within=10))
    await asyncio.sleep(0.05)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert await checker.check(PATH, {"path": "/tmp"}, within=10) is None


async def test_large_honest_lists_are_checked_for_equal_items(checker: WorkerChecker) -> None:
    schema = {"properties": {"rows": {"type": "array", "uniqueItems": True}}}
    rows: list[Any] = [{"id": i} for i in range(3000)]
    assert await checker.check(schema, {"rows": rows}, within=10) is None
    assert await checker.check(schema, {"rows": [*rows, {"id": 7.0}]}, within=10) is not None
    assert await checker.check(schema, {"rows": [1, True, "1", None, [1], {"1": 1}]}, within=10) is None
