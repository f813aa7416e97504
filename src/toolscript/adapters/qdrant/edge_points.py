"""Points and conditions in the embedded engine's own classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import qdrant_edge as qe

from toolscript.adapters.qdrant.filters import (
    DATES_FIELD,
    DENSE,
    ID_FIELD,
    TERMS,
    build_dates_field,
    field_path,
    point_id,
)
from toolscript.domain.search import Candidate, Point

# Stores every boolean of a point as a string: the engine's Python binding passes True as the number 1, which matches
# no boolean.
FLAGS_FIELD = "_flags"


class EdgeConditions:
    """Builds qdrant_edge's filters and conditions."""

    def combine(self, must: list[Any], should: list[Any], must_not: list[Any]) -> Any:
        return qe.Filter(must=must or None, should=should or None, must_not=must_not or None)

    def equals(self, path: str, value: str | bool) -> Any:
        if isinstance(value, bool):
            return qe.FieldCondition(key=FLAGS_FIELD, match=qe.MatchValue(_flag(path, value)))
        return qe.FieldCondition(key=path, match=qe.MatchValue(value))

    def any_of(self, path: str, values: list[str]) -> Any:
        return qe.FieldCondition(key=path, match=qe.MatchAny(values))

    def substring(self, path: str, value: str) -> Any:
        return qe.FieldCondition(key=path, match=qe.MatchSubstring(value))

    def number_range(self, path: str, bounds: dict[str, float]) -> Any:
        return qe.FieldCondition(key=path, range=qe.RangeFloat(**bounds))

    def date_range(self, path: str, bounds: dict[str, str]) -> Any:
        return qe.FieldCondition(key=path, range=qe.RangeDateTime(**bounds))

    def is_empty(self, path: str) -> Any:
        return qe.IsEmptyCondition(path)

    def nothing(self) -> Any:
        return qe.HasIdCondition(set())


EDGE_CONDITIONS = EdgeConditions()


def to_edge_point(point: Point) -> qe.Point:
    """A point in the engine's class."""
    vectors: dict[str, Any] = {}
    if point.vector is not None:
        vectors[DENSE] = point.vector.tolist()
    if point.terms.ids:
        vectors[TERMS] = qe.SparseVector(list(point.terms.ids), list(point.terms.weights))
    extra = {ID_FIELD: point.id, FLAGS_FIELD: _list_flags(point.payload), **build_dates_field(point.payload)}
    return qe.Point(id=point_id(point.id), vector=vectors, payload={**point.payload, **extra})


def _list_flags(payload: Mapping[str, Any]) -> list[str]:
    values = ((f, v) for f, value in payload.items() for v in (value if isinstance(value, list | tuple) else [value]))
    return sorted({_flag(field_path(field), value) for field, value in values if isinstance(value, bool)})


def _flag(path: str, value: bool) -> str:
    return f"{path}={value}"


def to_candidate(payload: dict[str, Any] | None, score: float) -> Candidate:
    """A hit of the engine as a candidate, without the extra payload fields."""
    fields = payload or {}
    fields.pop(FLAGS_FIELD, None)
    fields.pop(DATES_FIELD, None)
    return Candidate(fields.pop(ID_FIELD), score, fields)
