"""What the embedded engine and the Qdrant server share: point ids, filters, and the order of equal scores.

The two packages have different classes for the same conditions; each adapter brings its own `ConditionBuilder`.
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
DATES_FIELD = "_moments"

# Qdrant parses more strings as dates than the filter language does; all of them begin like this.
_MAYBE_DATE = re.compile(r"\s*[+-]?\d+\s*-")
_NOT_A_DATE = "-"

_NAMESPACE = uuid.UUID("6f1c4a52-5a3e-4b0e-9d52-5c8b8f0f4f57")


class ConditionBuilder(Protocol):
    """Builds filters and conditions of one Qdrant package."""

    def combine(self, must: list[Any], should: list[Any], must_not: list[Any]) -> Any: ...
    def equals(self, path: str, value: str | bool) -> Any: ...
    def any_of(self, path: str, values: list[str]) -> Any: ...
    def substring(self, path: str, value: str) -> Any: ...
    def number_range(self, path: str, bounds: dict[str, float]) -> Any: ...
    def date_range(self, path: str, bounds: dict[str, str]) -> Any: ...
    def is_empty(self, path: str) -> Any: ...
    def nothing(self) -> Any: ...


def point_id(own_id: str) -> str:
    """The UUID under which Qdrant stores a point: it takes no strings as ids."""
    return str(uuid.uuid5(_NAMESPACE, own_id))


def build_dates_field(payload: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """An extra payload field with the dates of those fields that hold a string which only Qdrant would parse as a
    date. Empty for most payloads."""
    dates = {field: found for field, value in payload.items() if (found := _dates_to_keep(value))}
    return {DATES_FIELD: dates} if dates else {}


def select_payload(fields: Sequence[str] | None) -> bool | list[str]:
    """Qdrant's `with_payload`: the whole payload, or the id and the named fields."""
    return True if fields is None else [ID_FIELD, *map(field_path, fields)]


def field_path(field: str) -> str:
    """A payload field as a path: quoted, so that dots and spaces in it are part of the name."""
    return field if field.replace("_", "a").isalnum() and field.isascii() else f'"{field}"'


def translate_filter(where: Filter, build: ConditionBuilder, fields: Mapping[str, FieldType]) -> Any | None:
    """The filter in Qdrant's classes; None for a filter that matches everything."""
    if not (where.must or where.should or where.must_not):
        return None
    translation = _Translation(build, fields)
    must = [translation.condition(c) for c in where.must]
    if where.should:
        must.append(build.combine([], [translation.condition(c) for c in where.should], []))
    return build.combine(must, [], [translation.condition(c) for c in where.must_not])


async def fetch_with_ties(fetch: Callable[[int], Awaitable[list[Candidate]]], limit: int) -> list[Candidate]:
    """The best `limit` candidates, equal scores by id, also where the engine cuts its list among equal scores."""
    wanted = limit + 1
    while True:
        found = await fetch(wanted)
        if len(found) < wanted or found[-1].score < found[limit - 1].score:
            return sort_candidates(found)[:limit]
        wanted *= 2


class _Translation:
    """Translates conditions on the fields of one collection."""

    def __init__(self, build: ConditionBuilder, fields: Mapping[str, FieldType]) -> None:
        self._build = build
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
            case Op.CONTAINS if isinstance(value, str):
                return self._build.substring(field_path(field), value)
            case Op.CONTAINS:
                return self._equals(field, value)
            case Op.EXISTS:
                empty = self._build.is_empty(field_path(field))
                return self._not(empty) if value else empty
            case op:
                return self._range(field, op, value)

    def _not(self, condition: Any) -> Any:
        return self._build.combine([], [], [condition])

    def _equals(self, field: str, value: Any) -> Any:
        if is_number(value):
            return self._number_range(field, {"gte": float(value), "lte": float(value)})
        return self._build.equals(field_path(field), value)

    def _one_of(self, field: str, values: Sequence[Any]) -> Any:
        strings = [v for v in values if isinstance(v, str)]
        others = [self._equals(field, v) for v in values if not isinstance(v, str)]
        choices = [*([self._build.any_of(field_path(field), strings)] if strings else []), *others]
        return self._build.combine([], choices, []) if choices else self._build.nothing()

    def _range(self, field: str, op: Op, value: Any) -> Any:
        if is_number(value):
            return self._number_range(field, {op.value: float(value)})
        instant = parse_moment(value)
        if instant is None or self._fields.get(field) in {FieldType.INTEGER, FieldType.FLOAT}:
            return self._build.nothing()
        bounds, ours = {op.value: _to_utc(instant)}, f"{DATES_FIELD}.{field_path(field)}"
        parsed_by_qdrant = self._build.combine(
            [self._build.is_empty(ours), self._build.date_range(field_path(field), bounds)], [], []
        )
        return self._build.combine([], [parsed_by_qdrant, self._build.date_range(ours, bounds)], [])

    def _number_range(self, field: str, bounds: dict[str, float]) -> Any:
        # Qdrant stores dates as numbers: a number must not match a date.
        if self._fields.get(field) is FieldType.DATETIME:
            return self._build.nothing()
        return self._build.number_range(field_path(field), bounds)


def _dates_to_keep(value: Any) -> list[str]:
    strings = [v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, str)]
    instants = [parse_moment(v) for v in strings]
    if not any(i is None and _MAYBE_DATE.match(v) for v, i in zip(strings, instants, strict=True)):
        return []
    return [_NOT_A_DATE, *(_to_utc(i) for i in instants if i is not None)]


def _to_utc(instant: datetime) -> str:
    try:
        return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:  # within a day of the first or last possible year
        return instant.isoformat()
