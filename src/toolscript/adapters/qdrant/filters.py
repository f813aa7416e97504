"""What Qdrant in-process and Qdrant by URL have in common: how our ids, filters and ties are said to either.

The two packages name the same things with different classes; each adapter brings its own `QdrantWords`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from toolscript.domain.filters import Condition, Filter, Op, is_number, parse_moment
from toolscript.domain.search import Candidate, FieldType, sort_candidates

DENSE = "dense"
TERMS = "terms"
ID_FIELD = "_id"
MOMENTS_FIELD = "_moments"

# Qdrant reads more texts as dates than the filter language does; all of them begin like this.
_MAYBE_DATE = re.compile(r"\s*[+-]?\d+\s*-")
_NO_DATE = "-"

_NAMESPACE = uuid.UUID("6f1c4a52-5a3e-4b0e-9d52-5c8b8f0f4f57")


class QdrantWords(Protocol):
    """The classes of one Qdrant package. A condition is whatever that package calls one."""

    def all_any_none(self, must: list[Any], should: list[Any], must_not: list[Any]) -> Any: ...
    def equals(self, key: str, value: str | bool) -> Any: ...
    def any_of(self, key: str, values: list[str]) -> Any: ...
    def substring(self, key: str, value: str) -> Any: ...
    def number_range(self, key: str, bounds: dict[str, float]) -> Any: ...
    def date_range(self, key: str, bounds: dict[str, str]) -> Any: ...
    def is_empty(self, key: str) -> Any: ...
    def nothing(self) -> Any: ...


def point_id(own_id: str) -> str:
    """The UUID under which Qdrant keeps a point of ours."""
    return str(uuid.uuid5(_NAMESPACE, own_id))


def moments_of(payload: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """What is kept beside a payload: for fields with a text that Qdrant might take for a date and the filter language
    does not, the dates that are in the field. Nothing for most payloads."""
    found = {field: told for field, value in payload.items() if (told := _moments(value))}
    return {MOMENTS_FIELD: found} if found else {}


def payload_of(fields: Sequence[str] | None) -> bool | list[str]:
    """What to ask a point for: all of its payload, or its id and the named fields."""
    return True if fields is None else [ID_FIELD, *map(key, fields)]


def key(field: str) -> str:
    """A payload field as a path: quoted, so that dots and spaces in it are part of the name."""
    return field if field.replace("_", "a").isalnum() and field.isascii() else f'"{field}"'


def translated(where: Filter, words: QdrantWords, fields: Mapping[str, FieldType]) -> Any | None:
    """The filter in Qdrant's words; None for a filter that lets everything pass."""
    if not (where.must or where.should or where.must_not):
        return None
    say = _Translation(words, fields)
    must = [say.condition(c) for c in where.must]
    if where.should:
        must.append(words.all_any_none([], [say.condition(c) for c in where.should], []))
    return words.all_any_none(must, [], [say.condition(c) for c in where.must_not])


async def with_ties(fetch: Callable[[int], Awaitable[list[Candidate]]], limit: int) -> list[Candidate]:
    """The best `limit`, equal scores by id even where the engine's own cut falls among equals."""
    wanted = limit + 1
    while True:
        found = await fetch(wanted)
        if len(found) < wanted or found[-1].score < found[limit - 1].score:
            return sort_candidates(found)[:limit]
        wanted *= 2


class _Translation:
    """Conditions on the fields of one collection, in the words of one package."""

    def __init__(self, words: QdrantWords, fields: Mapping[str, FieldType]) -> None:
        self._words = words
        self._fields = fields

    def condition(self, condition: Condition) -> Any:
        field, value = condition.field, condition.value
        match condition.op:
            case Op.EQ:
                return self._equals(field, value)
            case Op.NE:
                return self._not(self._equals(field, value))
            case Op.IN:
                return self._one_of(field, value)
            case Op.NIN:
                return self._not(self._one_of(field, value))
            case Op.CONTAINS:
                return (
                    self._words.substring(key(field), value) if isinstance(value, str) else self._equals(field, value)
                )
            case Op.EXISTS:
                empty = self._words.is_empty(key(field))
                return self._not(empty) if value else empty
            case op:
                return self._range(field, op, value)

    def _not(self, condition: Any) -> Any:
        return self._words.all_any_none([], [], [condition])

    def _equals(self, field: str, value: Any) -> Any:
        if is_number(value):
            return self._numbers(field, {"gte": float(value), "lte": float(value)})
        return self._words.equals(key(field), value)

    def _one_of(self, field: str, values: Sequence[Any]) -> Any:
        texts = [v for v in values if isinstance(v, str)]
        others = [self._equals(field, v) for v in values if not isinstance(v, str)]
        choices = [*([self._words.any_of(key(field), texts)] if texts else []), *others]
        return self._words.all_any_none([], choices, []) if choices else self._words.nothing()

    def _range(self, field: str, op: Op, value: Any) -> Any:
        if is_number(value):
            return self._numbers(field, {op.value: float(value)})
        instant = parse_moment(value)
        if instant is None or self._fields.get(field) in {FieldType.INTEGER, FieldType.FLOAT}:
            return self._words.nothing()
        bounds, ours = {op.value: _in_utc(instant)}, f"{MOMENTS_FIELD}.{key(field)}"
        theirs = self._words.all_any_none(
            [self._words.is_empty(ours), self._words.date_range(key(field), bounds)], [], []
        )
        return self._words.all_any_none([], [theirs, self._words.date_range(ours, bounds)], [])

    def _numbers(self, field: str, bounds: dict[str, float]) -> Any:
        # An index of dates holds them as numbers, and would compare them with ours.
        if self._fields.get(field) is FieldType.DATETIME:
            return self._words.nothing()
        return self._words.number_range(key(field), bounds)


def _moments(value: Any) -> list[str]:
    values = [v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, str)]
    instants = [parse_moment(v) for v in values]
    if not any(i is None and _MAYBE_DATE.match(v) for v, i in zip(values, instants, strict=True)):
        return []
    return [_NO_DATE, *(_in_utc(i) for i in instants if i is not None)]


def _in_utc(instant: datetime) -> str:
    try:
        return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:  # within a day of the first year or the last
        return instant.isoformat()
