"""The filter language of every search, and its meaning in plain Python.

`matches` is the definition: each index adapter translates a `Filter` for its engine, and the contract tests compare
the results with `matches`.
"""

from __future__ import annotations

import operator
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from toolscript.domain.errors import Invalid

Payload = Mapping[str, Any]

# Numbers beyond this lose digits in engines that compare as 64-bit floats.
MAX_EXACT_NUMBER = 2**53

# The forms of ISO 8601 that all engines parse in the same way: a day; with a time; with a time and an offset.
_HOUR, _MINUTE = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
_OFFSET = rf"[Zz]|[+-]{_HOUR}(?::?{_MINUTE})?"
_SECONDS = rf":{_MINUTE}(?:\.[0-9]+)?"
_MOMENT = re.compile(
    rf"(?P<day>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})"
    rf"(?:(?P<time>[T ]{_HOUR}:{_MINUTE})(?:(?P<seconds>{_SECONDS})(?: ?(?P<offset>{_OFFSET}))?)?)?"
)


class Op(StrEnum):
    """The operators of a condition."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LTE = "lte"
    GT = "gt"
    GTE = "gte"
    CONTAINS = "contains"
    IN = "in"
    NIN = "nin"
    EXISTS = "exists"


_COMPARISONS = {Op.LT: operator.lt, Op.LTE: operator.le, Op.GT: operator.gt, Op.GTE: operator.ge}
RANGE_OPS = frozenset(_COMPARISONS)
LIST_OPS = frozenset({Op.IN, Op.NIN})


@dataclass(frozen=True, slots=True)
class Condition:
    """One test of one field. A field with a list passes if any of its values does.

    A missing field (absent, null or an empty list) passes `ne`, `nin` and `exists: false`, nothing else.
    """

    field: str
    op: Op
    value: Any

    def __post_init__(self) -> None:
        if not self.field or '"' in self.field or "\\" in self.field:
            raise Invalid(
                f"invalid filter field {self.field!r}: give a name without double quotes or backslashes",
                details={"field": "filters", "allowed": "a non-empty name without double quotes or backslashes"},
            )
        problem = _value_problem(self.op, self.value)
        if problem:
            raise Invalid(
                f"filter on {self.field!r} with {self.op.value!r}: {problem}",
                details={"field": self.field, "op": self.op.value, "problem": problem},
            )


@dataclass(frozen=True, slots=True)
class Subset:
    """The points with these ids, and the points that pass one of the conditions; with `excluded`, all other points.
    What a caller may see; no request contains it."""

    ids: frozenset[str] = frozenset()
    conditions: tuple[Condition, ...] = ()
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """all(must) and (no should, or any(should)) and none(must_not), within a subset. An empty filter matches
    everything."""

    must: tuple[Condition, ...] = ()
    should: tuple[Condition, ...] = ()
    must_not: tuple[Condition, ...] = ()
    within: Subset | None = None

    def with_conditions(self, *conditions: Condition) -> Filter:
        """Returns this filter with further conditions in `must`."""
        return replace(self, must=(*self.must, *conditions))


EVERYTHING = Filter()


def matches(where: Filter, payload: Payload, point_id: str = "") -> bool:
    """Whether a point with this payload and id passes a filter. Every engine must give the same result."""
    return (
        all(_holds(c, payload) for c in where.must)
        and (not where.should or any(_holds(c, payload) for c in where.should))
        and not any(_holds(c, payload) for c in where.must_not)
        and (where.within is None or _contains_point(where.within, payload, point_id))
    )


def parse_moment(value: Any) -> datetime | None:
    """Parses an ISO 8601 string, to the microsecond; without an offset it is UTC. Returns None for other values, also
    for forms that engines read differently: weeks, dates without hyphens, hours alone, offsets with seconds or after
    minutes.
    """
    match = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    try:
        parsed = datetime.fromisoformat("".join(part or "" for part in match.groups()).upper())
    except ValueError:
        return None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed


def is_number(value: Any) -> bool:
    """Whether the value is a number in the filter language: booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains_point(subset: Subset, payload: Payload, point_id: str) -> bool:
    is_named = point_id in subset.ids or any(_holds(c, payload) for c in subset.conditions)
    return is_named is not subset.excluded


def _holds(condition: Condition, payload: Payload) -> bool:
    found = payload.get(condition.field)
    values = [] if found is None else list(found) if _is_list(found) else [found]
    match condition.op:
        case Op.EXISTS:
            return bool(values) is condition.value
        case Op.EQ | Op.NE | Op.IN | Op.NIN:
            wanted = condition.value if condition.op in LIST_OPS else [condition.value]
            is_found = any(_equal(v, w) for v in values for w in wanted)
            return is_found is (condition.op in {Op.EQ, Op.IN})
        case Op.CONTAINS:
            return any(_contains(v, condition.value) for v in values)
        case _:
            return any(_compare(v, condition.op, condition.value) for v in values)


def _equal(value: Any, wanted: Any) -> bool:
    """Whether two values are equal and of the same kind; members of a StrEnum are strings, booleans are not numbers."""
    is_same_kind = (is_number(value) and is_number(wanted)) or (isinstance(value, str) and isinstance(wanted, str))
    return (is_same_kind or type(value) is type(wanted)) and bool(value == wanted)


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return wanted in value
    return _equal(value, wanted)


def _compare(value: Any, op: Op, wanted: Any) -> bool:
    if is_number(wanted):
        left, right = (value, wanted) if is_number(value) else (None, None)
    else:
        left, right = parse_moment(value), parse_moment(wanted)
    if left is None or right is None:
        return False
    return bool(_COMPARISONS[op](left, right))


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, Sequence) and not isinstance(value, str | bytes))


def _value_problem(op: Op, value: Any) -> str | None:
    if op is Op.EXISTS:
        return None if isinstance(value, bool) else "the value must be true or false"
    if op in LIST_OPS:
        if not _is_list(value):
            return "the value must be a list"
        return next((p for p in map(_scalar_problem, value) if p), None)
    if op in RANGE_OPS and not is_number(value) and parse_moment(value) is None:
        return "the value must be a number or an ISO 8601 date"
    return _scalar_problem(value)


def _scalar_problem(value: Any) -> str | None:
    if isinstance(value, str | bool):
        return None
    if not isinstance(value, int | float):
        return f"{reprlib.repr(value)} must be a string, a number, true or false"
    if not -MAX_EXACT_NUMBER <= value <= MAX_EXACT_NUMBER:
        return f"the number {value!r} is out of range (at most 2^53 either side of zero)"
    return None
