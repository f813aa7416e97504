"""What Qdrant in-process and Qdrant by URL have in common: how our ids, filters and ties are said to either.

The two packages name the same things with different classes; each adapter brings its own `QdrantWords`.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from toolscript.domain.filters import Condition, Filter, Op, is_number, moment
from toolscript.domain.search import Candidate, in_order

DENSE = "dense"
TERMS = "terms"
ID_FIELD = "_id"

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


def key(field: str) -> str:
    """A payload field as a path: quoted, so that dots and spaces in it are part of the name."""
    return field if field.replace("_", "a").isalnum() and field.isascii() else f'"{field}"'


def translated(where: Filter, words: QdrantWords) -> Any | None:
    """The filter in Qdrant's words; None for a filter that lets everything pass."""
    if not (where.must or where.should or where.must_not):
        return None
    must = [_condition(c, words) for c in where.must]
    if where.should:
        must.append(words.all_any_none([], [_condition(c, words) for c in where.should], []))
    return words.all_any_none(must, [], [_condition(c, words) for c in where.must_not])


async def with_ties(fetch: Callable[[int], Awaitable[list[Candidate]]], limit: int) -> list[Candidate]:
    """The best `limit`, equal scores by id even where the engine's own cut falls among equals."""
    wanted = limit + 1
    while True:
        found = await fetch(wanted)
        if len(found) < wanted or found[-1].score < found[limit - 1].score:
            return in_order(found)[:limit]
        wanted *= 2


def _condition(condition: Condition, words: QdrantWords) -> Any:
    path, value = key(condition.field), condition.value
    match condition.op:
        case Op.EQ:
            return _equals(path, value, words)
        case Op.NE:
            return words.all_any_none([], [], [_equals(path, value, words)])
        case Op.IN:
            return _one_of(path, value, words)
        case Op.NIN:
            return words.all_any_none([], [], [_one_of(path, value, words)])
        case Op.CONTAINS:
            return words.substring(path, value) if isinstance(value, str) else _equals(path, value, words)
        case Op.EXISTS:
            empty = words.is_empty(path)
            return words.all_any_none([], [], [empty]) if value else empty
        case _:
            return _range(path, {condition.op.value: value}, words)


def _equals(path: str, value: Any, words: QdrantWords) -> Any:
    if is_number(value):
        return words.number_range(path, {"gte": float(value), "lte": float(value)})
    return words.equals(path, value)


def _one_of(path: str, values: Sequence[Any], words: QdrantWords) -> Any:
    texts = [v for v in values if isinstance(v, str)]
    others = [_equals(path, v, words) for v in values if not isinstance(v, str)]
    choices = [*([words.any_of(path, texts)] if texts else []), *others]
    return words.all_any_none([], choices, []) if choices else words.nothing()


def _range(path: str, bounds: dict[str, Any], words: QdrantWords) -> Any:
    (op, value), *_ = bounds.items()
    if is_number(value):
        return words.number_range(path, {op: float(value)})
    instant = moment(value)
    return words.date_range(path, {op: instant.isoformat() if instant else value})
