"""Arguments are checked in a worker that cannot hold up the gateway."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fixtures.limits import set_limits
from toolscript.adapters.json_schema.checker import WorkerChecker
from toolscript.adapters.workers.process import start_worker
from toolscript.domain.errors import TimedOut, Unavailable
from toolscript.ports.schemas import ArgumentProblem

pytestmark = pytest.mark.slow

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
# Each definition is checked twice as often as the one before it: two to the power of 28 checks.
DOUBLING: dict[str, Any] = {
    "$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(28)} | {"a28": {"type": "object"}},
    "$ref": "#/$defs/a0",
}


@pytest.fixture
async def checker() -> AsyncIterator[WorkerChecker]:
    checker = WorkerChecker()
    yield checker
    await checker.close()


@pytest.fixture(scope="module")
async def shared(anyio_backend: str) -> AsyncIterator[WorkerChecker]:
    """One worker for many checks."""
    checker = WorkerChecker()
    yield checker
    await checker.close()


@pytest.fixture
async def hasty() -> AsyncIterator[WorkerChecker]:
    """Gives endless checks up soon."""
    checker = WorkerChecker(seconds=0.2)
    yield checker
    await checker.close()


async def test_a_problem_names_its_field(checker: WorkerChecker) -> None:
    assert await checker.check(PATH, {"path": "/tmp"}) is None
    assert await checker.check(PATH, {"path": 1}) == ArgumentProblem("path", "1 is not of type 'string'")
    missing = await checker.check(PATH, {})
    assert missing is not None
    assert missing.field == "path"


async def test_a_schema_that_no_validator_can_use_accepts_everything(checker: WorkerChecker) -> None:
    for schema in ({"type": 3}, {"$ref": "#/nowhere"}, {"$ref": "https://example.org/schema.json"}):
        assert await checker.check(schema, {"a": 1}) is None


DEFINITIONS: dict[str, Any] = {
    "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "a/b c": {"$anchor": "anchored", "type": "string"},
    "all": True,
    "book": {"$id": "urn:book", "$ref": "#/$defs/title", "$defs": {"title": {"type": "string"}}},
}


@pytest.mark.parametrize(
    ("part", "lost"),
    [
        ({"$ref": "#"}, ""),
        ({"$ref": "#/$defs/name"}, ""),
        ({"$ref": "#/$defs/a~1b%20c"}, ""),
        ({"$ref": "#/$defs/name/anyOf/1"}, ""),
        ({"$ref": "#/$defs/all"}, ""),
        ({"$ref": "#/parts/y"}, ""),
        ({"$ref": "#anchored"}, ""),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, ""),
        ({"$dynamicRef": "#anchored"}, ""),
        ({"$ref": "urn:book#/$defs/title"}, ""),
        ({"const": {"$ref": "#/nowhere"}, "default": [{"$ref": "#/nowhere"}], "x": {"$ref": "#/nowhere"}}, ""),
        ({"properties": {"const": {"$ref": "#/$defs/name"}}}, ""),
        ({"properties": {"const": {"$ref": "#/nowhere"}}}, "#/nowhere"),
        ({"$ref": "#/$defs/other"}, "#/$defs/other"),
        ({"$ref": "#/$defs/title"}, "#/$defs/title"),
        ({"$ref": "#/$defs/name/anyOf/2"}, "#/$defs/name/anyOf/2"),
        ({"$ref": "#/$defs/name/anyOf/one"}, "#/$defs/name/anyOf/one"),
        ({"$ref": f"#/$defs/name/anyOf/{'9' * 5000}"}, "#/$defs/name/anyOf/9"),
        ({"$ref": "#/$defs/a~1b%20c/type"}, "#/$defs/a~1b%20c/type"),
        ({"$ref": "#/$defs/all/x"}, "#/$defs/all/x"),
        ({"$ref": "#/parts/x"}, "#/parts/nothing"),
        ({"$ref": "#unknown"}, "#unknown"),
        ({"$dynamicRef": "#unknown"}, "#unknown"),
        ({"$ref": "urn:book#/$defs/name"}, "urn:book#/$defs/name"),
        ({"$ref": "https://example.org/schema.json"}, "https://example.org/schema.json"),
        ({"anyOf": [True, {"not": {"items": {"$ref": "#/nowhere"}}}]}, "#/nowhere"),
    ],
)
async def test_a_reference_to_no_part_of_the_schema_is_a_fault(
    shared: WorkerChecker, part: dict[str, Any], lost: str
) -> None:
    parts = {"x": {"$ref": "#/parts/nothing"}, "y": {"items": {"$ref": "#/parts/y"}}}
    schema = {"type": "object", "properties": {"part": part}, "$defs": DEFINITIONS, "parts": parts}
    fault = await shared.find_fault(schema)
    assert fault.startswith(f"the reference '{lost}") if lost else not fault, fault
    assert await shared.check(schema, {}) is None


DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}


@pytest.mark.parametrize(
    ("schema", "lost"),
    [
        ({"properties": {"a": {"$ref": "#/definitions/b"}}}, "#/definitions/b"),
        ({"properties": {"a": {"$ref": "#/definitions/b"}}, "definitions": {"b": {"type": "string"}}}, ""),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$ref": "#/$defs/c"}}}, "#/$defs/c"),
        ({"dependencies": {"a": {"required": ["b"]}, "c": ["d"]}}, ""),
        ({"dependencies": {"a": {"$ref": "#/nowhere"}, "c": ["d"]}}, "#/nowhere"),
    ],
)
async def test_references_of_older_schemas_follow_their_own_rules(
    shared: WorkerChecker, schema: dict[str, Any], lost: str
) -> None:
    fault = await shared.find_fault(DRAFT_7 | schema)
    assert fault == (f"the reference '{lost}' leads to no schema within it" if lost else "")


async def test_a_problem_that_has_no_field_does_not_end_the_worker(shared: WorkerChecker) -> None:
    draft_3 = {"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"a": {"required": True}}}
    assert await shared.check(draft_3, {}) is None
    assert await shared.check(PATH, {"path": 1}) is not None


async def test_an_endless_check_is_given_up_and_others_go_on(hasty: WorkerChecker) -> None:
    await hasty.check(PATH, {"path": "/tmp"})
    endless = asyncio.ensure_future(hasty.check(DOUBLING, {}))
    await asyncio.sleep(0)
    assert await hasty.check(PATH, {"path": 1}) is not None
    with pytest.raises(TimedOut, match=r"longer than 0\.2 s"):
        await endless


async def test_a_schema_that_used_up_its_time_is_not_tried_again_at_once(hasty: WorkerChecker) -> None:
    with pytest.raises(TimedOut):
        await hasty.check(DOUBLING, {})
    with pytest.raises(TimedOut, match="a moment ago"):
        await hasty.check(DOUBLING, {})


async def test_calls_of_one_endless_schema_at_the_same_time_use_up_its_time_once(
    hasty: WorkerChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []

    async def count_starts(module: str) -> Process:
        starts.append(module)
        return await start_worker(module)

    monkeypatch.setattr("toolscript.adapters.json_schema.checker.start_worker", count_starts)
    found = await asyncio.gather(*(hasty.check(DOUBLING, {}) for _ in range(20)), return_exceptions=True)
    assert {type(each) for each in found} == {TimedOut}
    assert len(starts) == 2  # the worker that was killed, and the one that waits


async def test_large_arguments_do_not_stop_the_checks_of_others(hasty: WorkerChecker) -> None:
    schema = {"$defs": DOUBLING["$defs"], "properties": {"x": {"$ref": "#/$defs/a0"}}, "required": ["y"]}
    with pytest.raises(TimedOut):
        await hasty.check(schema, {"x": {}, "y": "a" * 20_000})
    problem = await hasty.check(schema, {})
    assert problem is not None
    assert problem.field == "y"


async def test_a_long_name_is_a_problem_like_any_other(checker: WorkerChecker) -> None:
    problem = await checker.check({"additionalProperties": False}, {"b" * 100_000: 1})
    assert problem is not None
    assert (problem.field[:3], len(problem.field) < 1000) == ("bbb", True)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no such timers")
def test_a_worker_whose_gateway_was_killed_ends_by_itself() -> None:
    code = "from toolscript.adapters.json_schema import worker; worker.MAX_SECONDS = 0.2; worker.main()"
    request = (
        json.dumps({"digest": "d", "references": False, "seconds": 60.0, "schema": DOUBLING, "arguments": {}}) + "\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGALRM


async def test_waiting_for_others_does_not_count_against_a_schema(
    hasty: WorkerChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hasty.check(PATH, {"path": "/tmp"})
    endless = asyncio.ensure_future(hasty.check(DOUBLING, {}))
    await asyncio.sleep(0)
    with monkeypatch.context() as patch:
        set_limits(patch, argument_check_turn=0.0)
        with pytest.raises(TimedOut, match="other checks"):
            await hasty.check(PATH, {"path": 1})
    with pytest.raises(TimedOut):
        await endless
    assert await hasty.check(PATH, {"path": 1}) is not None


async def test_a_worker_that_gets_no_processor_has_used_none_of_its_time(hasty: WorkerChecker) -> None:
    await hasty.check(PATH, {"path": "/tmp"})
    worker = await hasty._get_worker()
    worker.send_signal(signal.SIGSTOP)
    try:
        check = asyncio.ensure_future(hasty.check(PATH, {"path": 1}))
        finished, _ = await asyncio.wait([check], timeout=3 * hasty._seconds)
        assert not finished
    finally:
        worker.send_signal(signal.SIGCONT)
    assert await check is not None


async def test_the_time_in_which_the_worker_starts_is_not_that_of_a_check(
    hasty: WorkerChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start_late(module: str) -> Process:
        worker = await start_worker(module)
        worker.send_signal(signal.SIGSTOP)
        asyncio.get_running_loop().call_later(3 * hasty._seconds, worker.send_signal, signal.SIGCONT)
        return worker

    monkeypatch.setattr("toolscript.adapters.json_schema.checker.start_worker", start_late)
    assert await hasty.check(PATH, {"path": 1}) is not None


async def test_a_worker_waits_ready_after_one_was_killed(hasty: WorkerChecker) -> None:
    with pytest.raises(TimedOut):
        await hasty.check(DOUBLING, {})
    assert hasty._worker is not None
    assert (await hasty._worker).returncode is None


async def test_a_worker_that_died_while_it_waited_is_replaced(checker: WorkerChecker) -> None:
    await checker.prepare()
    worker = await checker._get_worker()
    worker.kill()
    await worker.wait()
    assert await checker.check(PATH, {"path": 1}) is not None


async def test_a_worker_that_cannot_start_is_named_and_tried_again(
    checker: WorkerChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start_nothing(module: str) -> Process:
        return await start_worker("tests.no_such_module")

    with monkeypatch.context() as patch:
        patch.setattr("toolscript.adapters.json_schema.checker.start_worker", start_nothing)
        with pytest.raises(Unavailable, match="the worker ended"):
            await checker.check(PATH, {"path": 1})
    assert await checker.check(PATH, {"path": 1}) is not None


async def test_a_worker_that_does_not_get_ready_is_named(
    checker: WorkerChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, argument_check_start=0.0)
    with pytest.raises(Unavailable, match="did not start within 0 s"):
        await checker.check(PATH, {"path": 1})


async def test_a_cancelled_check_leaves_no_reply_behind(checker: WorkerChecker) -> None:
    await checker.check(PATH, {"path": "/tmp"})
    cancelled = asyncio.ensure_future(checker.check(DOUBLING, {}))
    await asyncio.sleep(0.05)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert await checker.check(PATH, {"path": "/tmp"}) is None


async def test_large_honest_lists_are_checked_for_equal_items(checker: WorkerChecker) -> None:
    schema = {"properties": {"rows": {"type": "array", "uniqueItems": True}}}
    rows: list[Any] = [{"id": i} for i in range(3000)]
    assert await checker.check(schema, {"rows": rows}) is None
    assert await checker.check(schema, {"rows": [*rows, {"id": 7.0}]}) is not None
    assert await checker.check(schema, {"rows": [1, True, "1", None, [1], {"1": 1}]}) is None
