"""Points, candidates and filters in the classes of Qdrant's two Python packages."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op, Payload, Subset, is_number, parse_moment
from toolscript.domain.search import Candidate, FieldType, Point, Terms

# Ids whose UUIDs are cached: some 250 bytes each.
MAX_CACHED_IDS = 100_000

DENSE = "dense"
TERMS = "terms"
# Payload fields that are added to a point: its own id; dates, where a field has strings that only Qdrant would parse as
# dates; booleans as strings.
ID_FIELD = "_id"
DATES_FIELD = "_moments"
FLAGS_FIELD = "_flags"

# Qdrant parses more strings as dates than the filter language does; all of them begin like this.
_MAYBE_DATE = re.compile(r"\s*[+-]?\d+\s*-")
_NOT_A_DATE = "-"

_NAMESPACE = uuid.UUID("6f1c4a52-5a3e-4b0e-9d52-5c8b8f0f4f57")


@dataclass(frozen=True, slots=True)
class QdrantPackage:
    """The classes of one package: most have equal names and parameters in both."""

    models: Any
    point: Callable[..., Any]
    number_range: Callable[..., Any]
    date_range: Callable[..., Any]
    is_empty: Callable[[str], Any]
    has_id: Callable[[set[Any]], Any]
    has_flags: bool
    """Whether booleans are stored as strings, too: qdrant_edge passes True as 1, which matches no boolean."""

    def sparse_vector(self, terms: Terms) -> Any:
        return self.models.SparseVector(indices=list(terms.ids), values=list(terms.weights))

    def convert_point(self, point: Point) -> Any:
        vectors: dict[str, Any] = {}
        if point.vector is not None:
            vectors[DENSE] = point.vector.tolist()
        if point.terms.ids:
            vectors[TERMS] = self.sparse_vector(point.terms)
        payload = {**point.payload, ID_FIELD: point.id}
        dates = {field: found for field, value in point.payload.items() if (found := _dates_to_keep(value))}
        if dates:
            payload[DATES_FIELD] = dates
        if self.has_flags:
            payload[FLAGS_FIELD] = _list_flags(point.payload)
        return self.point(id=point_id(point.id), vector=vectors, payload=payload)


def to_candidate(payload: Payload | None, score: float = 0.0) -> Candidate:
    """A candidate with a point's payload, without the fields that `convert_point` adds."""
    fields = dict(payload or {})
    fields.pop(DATES_FIELD, None)
    fields.pop(FLAGS_FIELD, None)
    return Candidate(str(fields.pop(ID_FIELD)), score, fields)


def point_id(own_id: str) -> str:
    """The UUID of a point in Qdrant: Qdrant takes no strings as ids."""
    return str(uuid.uuid5(_NAMESPACE, own_id))


@lru_cache(maxsize=MAX_CACHED_IDS)
def _derive_id(own_id: str) -> uuid.UUID:
    """Cached: 6 µs, and a search of tools names hundreds."""
    return uuid.uuid5(_NAMESPACE, own_id)


@lru_cache(maxsize=64)
def _require_id(has_id: Callable[[set[Any]], Any], own_ids: frozenset[str]) -> Any:
    """Cached: a search names the same ids by meaning and by words, and a caller's subset never changes."""
    return has_id(set(map(_derive_id, own_ids)))


def field_path(field: str) -> str:
    """A payload field as a path: quoted, so that dots and spaces in it are part of the name."""
    return field if field.replace("_", "a").isalnum() and field.isascii() else f'"{field}"'


def translate_filter(where: Filter, package: QdrantPackage, fields: Mapping[str, FieldType]) -> Any | None:
    """The filter in a package's classes; None for a filter that matches everything."""
    if where == EVERYTHING:
        return None
    translation = _Translation(package, fields)
    must = [translation.condition(c) for c in where.must]
    if where.should:
        must.append(translation.any_of([translation.condition(c) for c in where.should]))
    if where.within:
        must.append(translation.subset(where.within))
    must_not = [translation.condition(c) for c in where.must_not]
    return package.models.Filter(must=must or None, must_not=must_not or None)


class _Translation:
    """Translates conditions on the fields of one collection."""

    def __init__(self, package: QdrantPackage, fields: Mapping[str, FieldType]) -> None:
        self._package, self._models = package, package.models
        self._fields = fields
        self._nothing = package.has_id(set())

    def subset(self, subset: Subset) -> Any:
        ids = _require_id(self._package.has_id, subset.ids)
        named = self.any_of([ids, *map(self.condition, subset.conditions)])
        return self._not(named) if subset.excluded else named

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
                return self._match(field_path(field), self._models.MatchSubstring(substring=value))
            case Op.CONTAINS:
                return self._equals(field, value)
            case Op.EXISTS:
                empty = self._package.is_empty(field_path(field))
                return self._not(empty) if value else empty
            case op:
                return self._range(field, op, value)

    def any_of(self, conditions: list[Any]) -> Any:
        return self._models.Filter(should=conditions)

    def _not(self, condition: Any) -> Any:
        return self._models.Filter(must_not=[condition])

    def _match(self, path: str, match: Any) -> Any:
        return self._models.FieldCondition(key=path, match=match)

    def _equals(self, field: str, value: Any) -> Any:
        if is_number(value):
            return self._number_range(field, {"gte": float(value), "lte": float(value)})
        path = field_path(field)
        if isinstance(value, bool) and self._package.has_flags:
            path, value = FLAGS_FIELD, _flag(path, value)
        return self._match(path, self._models.MatchValue(value=value))

    def _one_of(self, field: str, values: Sequence[Any]) -> Any:
        strings = [v for v in values if isinstance(v, str)]
        choices = [self._equals(field, v) for v in values if not isinstance(v, str)]
        if strings:
            choices.append(self._match(field_path(field), self._models.MatchAny(any=strings)))
        return self.any_of(choices) if choices else self._nothing

    def _range(self, field: str, op: Op, value: Any) -> Any:
        if is_number(value):
            return self._number_range(field, {op.value: float(value)})
        instant = parse_moment(value)
        if instant is None or self._fields.get(field) in {FieldType.INTEGER, FieldType.FLOAT}:
            return self._nothing
        bounds, ours = self._package.date_range(**{op.value: _to_utc(instant)}), f"{DATES_FIELD}.{field_path(field)}"
        parsed_by_qdrant = self._models.FieldCondition(key=field_path(field), range=bounds)
        only_by_qdrant = self._models.Filter(must=[self._package.is_empty(ours), parsed_by_qdrant])
        return self.any_of([only_by_qdrant, self._models.FieldCondition(key=ours, range=bounds)])

    def _number_range(self, field: str, bounds: dict[str, float]) -> Any:
        # Qdrant stores dates as numbers: a number must not match a date.
        if self._fields.get(field) is FieldType.DATETIME:
            return self._nothing
        return self._models.FieldCondition(key=field_path(field), range=self._package.number_range(**bounds))


def _list_flags(payload: Payload) -> list[str]:
    values = ((f, v) for f, value in payload.items() for v in (value if isinstance(value, list | tuple) else [value]))
    return sorted({_flag(field_path(field), value) for field, value in values if isinstance(value, bool)})


def _flag(path: str, value: bool) -> str:
    return f"{path}={value}"


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
