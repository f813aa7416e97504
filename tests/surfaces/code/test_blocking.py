"""What one caller's programs cannot do to others: take the checker, the loop or the names of others."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.surfaces.code.conftest import CodeClient
from toolscript.adapters.monty.sandbox import MontySandbox
from toolscript.domain.programs import Program, ProgramProblem
from toolscript.services.support.search_events import work_on

pytestmark = pytest.mark.req("C-02")


async def test_one_program_of_a_caller_is_checked_at_a_time(
    client: CodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, maximum = 0, 0

    async def check(_: MontySandbox, __: Program, ___: float) -> list[ProgramProblem]:
        nonlocal running, maximum
        running += 1
        maximum = max(maximum, running)
        await asyncio.sleep(0.02)
        running -= 1
        return []

    monkeypatch.setattr(MontySandbox, "check", check)
    await asyncio.gather(*[client.run(f"{number}  # checked alone") for number in range(4)])
    assert maximum == 1


async def test_the_signature_of_a_tool_that_a_line_names_often_comes_once(client: CodeClient) -> None:
    answer = await client.run(f"{'tools.box.echo; ' * 1000}x: str = 1")
    assert answer["end"] == "rejected"
    assert [len(problem["signatures"]) for problem in answer["problems"]] == [1]


async def test_long_ids_and_queries_of_programs_are_refused(client: CodeClient) -> None:
    for call in ('search_tools("a b " * 10_000)', 'describe_tool("a" * 10_001)', 'search_tools(" " * 1_000_000)'):
        answer = await client.run(f"try:\n    await {call}\nexcept Exception as error:\n    print(error)")
        assert len(answer["printed"]) < 200
        assert "VALIDATION_ERROR" in answer["printed"]


async def test_a_call_without_an_id_is_recorded_under_the_name_of_its_function(client: CodeClient) -> None:
    program = 'try:\n    await eval("call_host")("call_tool", {"tool_id": [0] * 1000})\nexcept Exception:\n    pass'
    answer = await client.run(program)
    assert [call["function"] for call in answer["calls"]] == ["call_tool"]


@pytest.mark.parametrize(
    ("value", "is_large"),
    [({"a": [1, 2]}, False), ([0] * 1001, True), ({"a": [[0] * 600, {"b": [0] * 600}]}, True), ("x" * 10**6, False)],
)
async def test_values_with_many_parts_leave_the_loop_to_others(value: Any, is_large: bool) -> None:
    thread = await work_on(value, lambda _: threading.current_thread())
    assert (thread is not threading.current_thread()) is is_large
