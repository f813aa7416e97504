"""Values of programs are measured before they are written, because writing them holds up everybody else."""

from __future__ import annotations

from typing import Any

import pytest

from toolscript.adapters.bounded_json import TooMuchJson, copy_as_json, measure_json

pytestmark = pytest.mark.req("C-02")


def refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not JSON")


@pytest.mark.parametrize("value", [[10**4200] * 3000, [-(10**4200)] * 3000, [1 / 3] * 100_000, {"a": [10**300] * 9000}])
async def test_numbers_have_a_size(value: Any) -> None:
    with pytest.raises(TooMuchJson):
        await measure_json(value, 10**6, refuse)


@pytest.mark.parametrize(
    "value", [list(range(10_000)), [0.5] * 10_000, [True, None, -1, 10**4200], {"a": ["b", 1e300]}]
)
async def test_what_is_small_enough_is_copied(value: Any) -> None:
    assert await copy_as_json(value, 100_000, refuse) == value


async def test_what_is_no_json_is_refused_before_it_is_written() -> None:
    with pytest.raises(ValueError, match="set is not JSON"):
        await measure_json([{1}], 10**6, refuse)
