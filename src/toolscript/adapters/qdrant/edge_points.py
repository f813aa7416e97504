"""Points and filters in the embedded engine's own classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import qdrant_edge as qe

from toolscript.adapters.qdrant.filters import DENSE, ID_FIELD, MOMENTS_FIELD, TERMS, key, moments_of, point_id
from toolscript.domain.search import Candidate, Point

# Holds every true and false of a point as text: the engine's Python binding takes True for the number 1, and then
# matches no boolean.
FLAGS_FIELD = "_flags"


class _EdgeWords:
    """qdrant_edge's classes."""

    def all_any_none(self, must: list[Any], should: list[Any], must_not: list[Any]) -> Any:
        return qe.Filter(must=must or None, should=should or None, must_not=must_not or None)

    def equals(self, key: str, value: str | bool) -> Any:
        if isinstance(value, bool):
            return qe.FieldCondition(key=FLAGS_FIELD, match=qe.MatchValue(_flag(key, value)))
        return qe.FieldCondition(key=key, match=qe.MatchValue(value))

    def any_of(self, key: str, values: list[str]) -> Any:
        return qe.FieldCondition(key=key, match=qe.MatchAny(values))

    def substring(self, key: str, value: str) -> Any:
        return qe.FieldCondition(key=key, match=qe.MatchSubstring(value))

    def number_range(self, key: str, bounds: dict[str, float]) -> Any:
        return qe.FieldCondition(key=key, range=qe.RangeFloat(**bounds))

    def date_range(self, key: str, bounds: dict[str, str]) -> Any:
        return qe.FieldCondition(key=key, range=qe.RangeDateTime(**bounds))

    def is_empty(self, key: str) -> Any:
        return qe.IsEmptyCondition(key)

    def nothing(self) -> Any:
        return qe.HasIdCondition(set())


WORDS = _EdgeWords()


def edge_point(point: Point) -> qe.Point:
    """A point as the engine takes it."""
    vectors: dict[str, Any] = {}
    if point.vector is not None:
        vectors[DENSE] = point.vector.tolist()
    if point.terms.ids:
        vectors[TERMS] = qe.SparseVector(list(point.terms.ids), list(point.terms.weights))
    ours = {ID_FIELD: point.id, FLAGS_FIELD: _flags(point.payload), **moments_of(point.payload)}
    payload = {**point.payload, **ours}
    return qe.Point(id=point_id(point.id), vector=vectors, payload=payload)


def _flags(payload: Mapping[str, Any]) -> list[str]:
    held = ((f, v) for f, value in payload.items() for v in (value if isinstance(value, list | tuple) else [value]))
    return sorted({_flag(key(field), value) for field, value in held if isinstance(value, bool)})


def _flag(path: str, value: bool) -> str:
    return f"{path}={value}"


def candidate(payload: dict[str, Any] | None, score: float) -> Candidate:
    """A hit as we tell it."""
    told = payload or {}
    told.pop(FLAGS_FIELD, None)
    told.pop(MOMENTS_FIELD, None)
    return Candidate(told.pop(ID_FIELD), score, told)
