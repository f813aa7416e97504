"""The meaning of the filter language, which every index adapter must reproduce."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.domain.catalog import ItemType
from toolscript.domain.errors import Invalid
from toolscript.domain.filters import (
    EVERYTHING,
    RANGE_OPS,
    Condition,
    Filter,
    Op,
    Subset,
    is_number,
    matches,
    parse_moment,
)

MISSING: list[dict[str, Any]] = [{}, {"f": None}, {"f": []}]
DAYS = ["2024-01-01", "2024-01-01T01:00:00+01:00", "2024-06-30T12:00:00.5Z", "2025-02-03 04:05:06"]

NEARLY_DATES = [
    "2024-W05-1",
    "20240201",
    "2024-02-01T10",
    "2024-02-01T10:00Z",
    "2024-02-01T10:00:00,5Z",
    "2024-02-01T10:00:00.Z",
    "2024-02-01_10:00:00",
    "2024-02-01T24:00:00",
    "2024-02-01T10:00:00+00:00:30",
    "2024-02-01T10:00:00+24:00",
    "2024-02-01T10:00:00+01:60",
    "2024-02-30",
    "2024-02-01\n",
    "٢٠٢٤-02-01",
]

numbers = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -1.25, 3.0]))
scalars = st.one_of(st.sampled_from(["red", "green", "dark green", "", *DAYS]), numbers, st.booleans())
payloads = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.one_of(scalars, st.lists(scalars, max_size=3), st.none()), max_size=3
)
fields = st.sampled_from(["a", "b", "c"])
conditions = st.one_of(
    st.builds(Condition, fields, st.sampled_from([Op.EQ, Op.NE, Op.CONTAINS]), scalars),
    st.builds(Condition, fields, st.sampled_from(sorted(RANGE_OPS)), st.one_of(numbers, st.sampled_from(DAYS))),
    st.builds(Condition, fields, st.sampled_from([Op.IN, Op.NIN]), st.lists(scalars, max_size=3)),
    st.builds(Condition, fields, st.just(Op.EXISTS), st.booleans()),
)
groups = st.lists(conditions, max_size=3).map(tuple)
filters = st.builds(Filter, groups, groups, groups)
quick = settings(max_examples=scale_examples(100), deadline=None)


def passes(payload: dict[str, Any], field: str, op: Op, value: Any) -> bool:
    return matches(Filter(must=(Condition(field, op, value),)), payload)


def holds(condition: Condition, payload: dict[str, Any]) -> bool:
    return matches(Filter(must=(condition,)), payload)


@pytest.mark.req("D-03")
@pytest.mark.parametrize(
    ("op", "value", "passing", "failing"),
    [
        (Op.EQ, "red", ["red", ["blue", "red"]], ["Red", "dark red", ["blue"]]),
        (Op.EQ, 3, [3, 3.0, [1, 3]], ["3", 4, True]),
        (Op.EQ, True, [True, [False, True]], [False, 1, "true"]),
        (Op.NE, "red", ["blue", 3, ["blue", "green"]], ["red", ["blue", "red"]]),
        (Op.LT, 3, [2, 2.9, [9, 1]], [3, 4, "2", [3, 4]]),
        (Op.LTE, 3, [2, 3, 3.0, [9, 3]], [3.1, 4, "3"]),
        (Op.GT, 3, [4, 3.1, [1, 9]], [3, 2, "4"]),
        (Op.GTE, 3, [4, 3, 3.0, [1, 3]], [2.9, 2, "3"]),
        (Op.CONTAINS, "red", ["red", "dark reddish", ["blue", "infrared"]], ["Red", "re", 3]),
        (Op.CONTAINS, "", ["", "anything"], [3, True]),
        (Op.CONTAINS, 3, [3, [1, 3]], ["3", 33]),
        (Op.IN, ["red", 3], ["red", 3, 3.0, ["blue", "red"]], ["blue", "3", ["blue"]]),
        (Op.IN, [], [], ["red", 3, ["red"]]),
        (Op.NIN, ["red", 3], ["blue", "3", ["blue"]], ["red", 3, ["blue", "red"]]),
        (Op.NIN, [], ["red", 3, ["red"]], []),
        (Op.EXISTS, True, ["", 0, False, ["x"]], []),
        (Op.EXISTS, False, [], ["", 0, False, ["x"]]),
    ],
)
def test_an_operator_matches_the_right_values(op: Op, value: Any, passing: list[Any], failing: list[Any]) -> None:
    assert [each for each in passing if not passes({"f": each}, "f", op, value)] == []
    assert [each for each in failing if passes({"f": each}, "f", op, value)] == []


@pytest.mark.req("D-03")
@pytest.mark.parametrize("payload", MISSING)
def test_a_missing_field_passes_ne_nin_and_exists_false_and_nothing_else(payload: dict[str, Any]) -> None:
    values: dict[Op, Any] = {Op.IN: ["x"], Op.NIN: ["x"], Op.EXISTS: True} | dict.fromkeys(RANGE_OPS, 1)
    assert {op for op in Op if passes(payload, "f", op, values.get(op, "x"))} == {Op.NE, Op.NIN}
    assert passes(payload, "f", Op.EXISTS, False)


@pytest.mark.req("D-03")
def test_a_boolean_is_not_a_number() -> None:
    assert not is_number(True)
    assert not passes({"f": True}, "f", Op.GTE, 0)
    assert not passes({"f": 1}, "f", Op.EQ, True)
    assert not passes({"f": 0}, "f", Op.IN, [False])
    assert passes({"f": 1}, "f", Op.NE, True)


@pytest.mark.req("D-03")
def test_a_date_without_an_offset_is_utc() -> None:
    assert (
        parse_moment("2024-01-01") == parse_moment("2024-01-01T00:00:00Z") == parse_moment("2024-01-01T01:00:00+01:00")
    )
    assert (
        parse_moment("2024-01-01 12:30")
        == parse_moment("2024-01-01T07:30:00-05:00")
        == parse_moment("2024-01-01 13:30:00 +01")
    )
    assert parse_moment("2024-01-01T00:00:00.1234567891z") == parse_moment("2024-01-01T05:30:00.123456+0530")


@pytest.mark.req("D-03")
@pytest.mark.parametrize(
    "text", ["", "3", "2024", "2024-13-01", "yesterday", "2024-01-01 and more", 2024, None, True, *NEARLY_DATES]
)
def test_other_values_are_not_moments(text: Any) -> None:
    assert parse_moment(text) is None


@pytest.mark.req("D-03")
def test_dates_are_ordered_as_instants_and_not_as_text() -> None:
    later_as_text = {"day": "2024-01-01T00:30:00+01:00"}
    assert passes(later_as_text, "day", Op.LT, "2024-01-01")
    assert not passes(later_as_text, "day", Op.GTE, "2024-01-01T00:00:00")
    assert passes({"day": ["2020-01-01", "2030-01-01T00:00:00-08:00"]}, "day", Op.GT, "2030-01-01T07:59:59Z")


@pytest.mark.req("D-03")
def test_dates_are_equal_as_text_only() -> None:
    assert not passes({"day": "2024-01-01T00:00:00Z"}, "day", Op.EQ, "2024-01-01")


@pytest.mark.req("D-03")
def test_numbers_and_dates_are_never_ordered_against_each_other() -> None:
    assert not passes({"f": 20_240_101}, "f", Op.LTE, "2024-01-01")
    assert not passes({"f": "2024-01-01"}, "f", Op.GTE, 0)


@pytest.mark.req("D-03")
def test_a_member_of_an_enumeration_equals_its_text() -> None:
    assert passes({"type": "tool"}, "type", Op.EQ, ItemType.TOOL)


@pytest.mark.req("D-03")
def test_a_subset_is_the_points_it_names_or_all_others() -> None:
    named = Subset(frozenset({"a", "b"}), (Condition("server", Op.EQ, "git"),))
    points = [("a", {}), ("c", {"server": "git"}), ("d", {"server": "shell"})]
    assert [matches(Filter(within=named), payload, i) for i, payload in points] == [True, True, False]
    others = Filter(within=replace(named, excluded=True))
    assert [matches(others, payload, i) for i, payload in points] == [False, False, True]
    assert not matches(Filter(within=Subset()), {}, "a")
    assert not matches(others.with_conditions(Condition("server", Op.EQ, "git")), {"server": "shell"}, "d")


@pytest.mark.req("D-03")
@quick
@given(payloads)
def test_an_empty_filter_matches_everything(payload: dict[str, Any]) -> None:
    assert matches(EVERYTHING, payload)


@pytest.mark.req("D-03")
@quick
@given(filters, payloads)
def test_a_filter_is_all_must_any_should_and_no_must_not(where: Filter, payload: dict[str, Any]) -> None:
    expected = all(holds(c, payload) for c in where.must)
    if where.should:
        expected = expected and any(holds(c, payload) for c in where.should)
    expected = expected and not any(holds(c, payload) for c in where.must_not)
    assert matches(where, payload) is expected


@pytest.mark.req("D-03")
@quick
@given(conditions, payloads)
def test_must_not_negates(condition: Condition, payload: dict[str, Any]) -> None:
    assert matches(Filter(must_not=(condition,)), payload) is not holds(condition, payload)


@pytest.mark.req("D-03")
@quick
@given(st.lists(conditions, min_size=1, max_size=3).map(tuple), payloads)
def test_none_of_many_is_not_any_of_them(several: tuple[Condition, ...], payload: dict[str, Any]) -> None:
    assert matches(Filter(must_not=several), payload) is not matches(Filter(should=several), payload)


@pytest.mark.req("D-03")
@quick
@given(filters, groups, payloads)
def test_further_conditions_narrow_a_filter(
    where: Filter, more: tuple[Condition, ...], payload: dict[str, Any]
) -> None:
    passed = matches(where, payload)
    assert matches(where.with_conditions(*more), payload) is (passed and all(holds(c, payload) for c in more))
    assert matches(where, payload) is passed


@pytest.mark.req("D-03")
@quick
@given(scalars, st.lists(scalars, max_size=3), payloads)
def test_exactly_one_of_an_operator_and_its_opposite_matches(
    value: Any, several: list[Any], payload: dict[str, Any]
) -> None:
    assert passes(payload, "a", Op.NE, value) is not passes(payload, "a", Op.EQ, value)
    assert passes(payload, "a", Op.NIN, several) is not passes(payload, "a", Op.IN, several)
    assert passes(payload, "a", Op.EXISTS, False) is not passes(payload, "a", Op.EXISTS, True)


@pytest.mark.req("D-03")
@quick
@given(st.lists(scalars, max_size=3), payloads)
def test_in_is_equal_to_any(several: list[Any], payload: dict[str, Any]) -> None:
    assert passes(payload, "a", Op.IN, several) is any(passes(payload, "a", Op.EQ, each) for each in several)


@pytest.mark.req("D-03")
@quick
@given(numbers, payloads)
def test_gte_is_gt_or_equal(bound: float, payload: dict[str, Any]) -> None:
    equal = passes(payload, "a", Op.EQ, bound)
    assert passes(payload, "a", Op.GTE, bound) is (passes(payload, "a", Op.GT, bound) or equal)
    assert passes(payload, "a", Op.LTE, bound) is (passes(payload, "a", Op.LT, bound) or equal)


@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    ("op", "value", "allowed"),
    [
        (Op.EXISTS, 1, "true or false"),
        (Op.EXISTS, None, "true or false"),
        (Op.IN, "red", "a list"),
        (Op.NIN, 3, "a list"),
        (Op.IN, ["red", None], "a string, a number, true or false"),
        (Op.NIN, [["red"]], "a string, a number, true or false"),
        (Op.LT, "soon", "a number or an ISO 8601 date"),
        (Op.LTE, True, "a number or an ISO 8601 date"),
        (Op.GT, None, "a number or an ISO 8601 date"),
        (Op.GT, "2024-01-01T10:00:00+00:00:30", "a number or an ISO 8601 date"),
        (Op.GTE, [1], "a number or an ISO 8601 date"),
        (Op.EQ, None, "a string, a number, true or false"),
        (Op.NE, ["red"], "a string, a number, true or false"),
        (Op.CONTAINS, {"a": 1}, "a string, a number, true or false"),
        (Op.EQ, b"red", "a string, a number, true or false"),
        (Op.EQ, float("nan"), "2^53"),
        (Op.LT, float("inf"), "2^53"),
        (Op.IN, [1, -(2**53) - 2], "2^53"),
    ],
)
def test_an_invalid_value_is_refused_with_field_operator_and_what_is_allowed(op: Op, value: Any, allowed: str) -> None:
    with pytest.raises(Invalid) as refused:
        Condition("colour", op, value)
    assert "'colour'" in refused.value.message
    assert f"'{op.value}'" in refused.value.message
    assert allowed in refused.value.message
    assert refused.value.details["field"] == "colour"
    assert refused.value.details["op"] == op.value


@pytest.mark.req("X-03")
@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 10**400], ids=["above", "below", "far above"])
def test_a_whole_number_that_engines_cannot_store_exactly_is_refused(number: int) -> None:
    with pytest.raises(Invalid, match=r"2\^53"):
        Condition("size", Op.EQ, number)


@pytest.mark.req("D-03")
@pytest.mark.parametrize("number", [2**53, -(2**53), 2.0**53])
def test_the_largest_exact_numbers_are_allowed(number: float) -> None:
    assert passes({"size": number}, "size", Op.EQ, number)


@pytest.mark.req("X-03")
@pytest.mark.parametrize("field", ["", 'a"b'])
def test_an_invalid_field_name_is_refused(field: str) -> None:
    with pytest.raises(Invalid, match="without double quotes") as refused:
        Condition(field, Op.EQ, 1)
    assert repr(field) in refused.value.message
    assert refused.value.details["field"] == "filters"
