"""Values of programs are measured before they are written, because writing them holds up everybody else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.sandbox.loop_watch import watch_loop
from tests.fixtures.coroutines import finish
from tests.fixtures.examples import choose, scale_examples
from toolscript.adapters.sandbox.bounded_json import (
    MAX_PARTS,
    MAX_UNMEASURED,
    MIN_OPEN_BYTES,
    SMALL_TEXT_LENGTH,
    SMALL_VALUES,
    RunValues,
    TooMuchJson,
)
from toolscript.domain.errors import InvalidArguments

pytestmark = pytest.mark.req("C-02")


def refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not JSON")


@pytest.mark.parametrize("value", [[10**4200] * 3000, [-(10**4200)] * 3000, [1 / 3] * 100_000, {"a": [10**300] * 9000}])
async def test_numbers_have_a_size(value: Any) -> None:
    with pytest.raises(TooMuchJson):
        await RunValues(10**6).measure(value, 10**6, refuse)


@pytest.mark.parametrize(
    "value", [list(range(10_000)), [0.5] * 10_000, [True, None, -1, 10**4200], {"a": ["b", 1e300]}]
)
async def test_what_is_small_enough_is_copied(value: Any) -> None:
    assert await RunValues(10**6).copy(value, 100_000, refuse) == value


async def test_what_is_no_json_is_refused_before_it_is_written() -> None:
    with pytest.raises(ValueError, match="set is not JSON"):
        await RunValues(10**6).measure([{1}], 10**6, refuse)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
    max_leaves=20,
)


@settings(deadline=None, max_examples=scale_examples(30))
@given(VALUES)
def test_values_of_any_size_are_what_they_were(value: Any) -> None:
    """Large ones take another way than small ones."""

    async def check() -> None:
        values, many = RunValues(10**6), [0] * SMALL_VALUES * 3
        for each in (value, [value, many], {"many": many, "value": value}):
            text = await values.write(each)
            assert json.loads(text) == each
            assert await values.read(text) == each
            assert await values.copy(each, 10**9, refuse) == each

    asyncio.run(check())


@pytest.mark.slow
@settings(deadline=None, max_examples=scale_examples(100))
@given(VALUES)
def test_a_value_is_as_large_as_its_json(value: Any) -> None:
    measured = finish(RunValues(10**6).measure(value, 10**9, refuse))
    written = len(json.dumps(value, ensure_ascii=False).encode())
    assert abs(measured - written) <= 2 + written // 4


@pytest.mark.parametrize("padding", ["", " " * SMALL_TEXT_LENGTH])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('["\\ud83d", "\\ud83d\\ude00", "\\\\ud83d"]', ["?", "😀", "\\ud83d"]),
        ('{"\\ude00": "\\u0000\\u2028"}', {"?": "\0\u2028"}),
    ],
)
async def test_halves_of_characters_are_replaced(text: str, value: Any, padding: str) -> None:
    assert await RunValues(10**6).read(text + padding) == value


async def test_a_long_text_with_an_escape_is_read_without_a_stall() -> None:
    async with watch_loop() as turns:
        assert len(await RunValues(0).read('"' + "x" * 10**7 + '\\u0000"')) == 10**7 + 1
    turns.check()


@pytest.mark.parametrize("size", [1, SMALL_TEXT_LENGTH])
async def test_what_is_no_json_is_not_read(size: int) -> None:
    for text in ("NaN", "[1,", "[" * 10**5, "-Infinity", "[-1e400]"):
        with pytest.raises(ValueError, match=r"is not JSON|is too large|Expecting value|too deeply nested"):
            await RunValues(10**6).read(text + " " * size)


@pytest.mark.slow
@pytest.mark.parametrize("part", choose(["[]", "{}", '{"a":[]}'], "{}"))
async def test_lists_and_objects_are_counted_because_python_frees_them_without_a_pause(part: str) -> None:
    values, size = RunValues(10**9), part.count("[") + part.count("{")
    allowed, refused = (f"[{','.join([part] * count)}]" for count in ((MAX_PARTS - 1) // size, MAX_PARTS // size))
    async with watch_loop() as turns:
        value = await values.read(allowed)
        assert len(await values.copy(value, 10**9, refuse)) == len(value)
        assert len(await values.write(value)) >= len(allowed)
        with pytest.raises(ValueError, match="more than 250 000 lists and objects"):
            await values.read(refused)
        with pytest.raises(ValueError, match="more than 250 000 lists and objects"):
            await values.measure([value, []], 10**9, refuse)
    turns.check()


async def test_a_value_is_copied_as_json_would() -> None:
    value = {1: (True, None), 2.5: {"a": ()}, None: "b", False: 0}
    assert await RunValues(10**6).copy(value, 10**6, refuse) == json.loads(json.dumps(value))


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {(1, 2): 3}, [10**5000]])
async def test_what_json_does_not_have_is_not_copied(value: Any) -> None:
    with pytest.raises(ValueError, match=r"not JSON compliant|keys must be|4300 digits"):
        await RunValues(10**6).copy(value, 10**9, refuse)


@pytest.mark.slow
async def test_a_run_with_many_large_values_does_not_hold_up_another() -> None:
    hostile, other, ends = RunValues(10**9), RunValues(10**9), list[str]()
    large = [0] * 20_000

    async def measure(values: RunValues, name: str) -> None:
        await values.measure(large, 10**9, refuse)
        ends.append(name)

    await asyncio.gather(*[measure(hostile, "hostile") for _ in range(MAX_UNMEASURED)], measure(other, "other"))
    assert ends.index("other") <= 2


async def test_large_values_that_wait_are_bounded() -> None:
    values, large = RunValues(10**9), [0] * 2 * SMALL_VALUES
    measuring = [values.measure(large, 10**9, refuse) for _ in range(MAX_UNMEASURED + 5)]
    results = await asyncio.gather(*measuring, return_exceptions=True)
    assert [isinstance(result, InvalidArguments) for result in results].count(True) == 5
    assert await values.measure([1] * 100, 10**9, refuse) == 300


@pytest.mark.parametrize(("max_bytes", "allowed"), [(1000, MIN_OPEN_BYTES), (10**7, 10**7)])
async def test_arguments_of_running_calls_are_bounded(max_bytes: int, allowed: int) -> None:
    values = RunValues(max_bytes)
    with values.hold_arguments(allowed - 40), pytest.raises(InvalidArguments, match="start fewer at a time"):  # noqa: SIM117
        with values.hold_arguments(41):
            pass
    with values.hold_arguments(allowed):
        pass
