"""The vectors and payloads of a small collection in memory, beside the engine that keeps them.

The engine needs a millisecond for a filtered search among ten thousand points, most of it for the filter, and no
other thread runs meanwhile. Here the points that have a value lie side by side, so that a search for some values of a
keyword is a few products of small matrices. See docs/decisions/0012.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from toolscript.domain.filters import Condition, Filter, Op, Payload
from toolscript.domain.search import Candidate, Collection, FieldType, Point, Vector

# From here on a copy takes too much memory, and searching it too much time.
MOST_POINTS = 20_000
# What these fields may be asked for is few, so that each answer can be kept.
KEPT_FIELDS = frozenset({FieldType.KEYWORD, FieldType.BOOL})
KEPT_VALUES = (str, bool)
# A product's last digits depend on where a row lies: whatever is this near the last one is compared anew.
ROUNDING = 1e-5

Rows = NDArray[np.int64]
Copied = tuple[str, Vector | None, Payload]


@dataclass(slots=True)
class _Column:
    """The rows that have a value; what a search needs of them is gathered when it is asked for."""

    members: set[int] = field(default_factory=set)
    rows: Rows | None = None
    vectors: Vector | None = None
    has: NDArray[np.bool_] | None = None

    def tell(self, row: int, *, has: bool) -> None:
        """Takes a row in or out, or says that it has changed."""
        if has:
            self.members.add(row)
        else:
            self.members.discard(row)
        self.rows = self.vectors = self.has = None


class Copy:
    """Points by row. Whoever writes to the collection writes here too."""

    def __init__(self, collection: Collection) -> None:
        self._fields = {name for name, kind in collection.fields.items() if kind in KEPT_FIELDS}
        self._matrix: Vector = np.zeros((256, collection.dimensions), np.float32)
        self._alive = _Column()
        self._row_of: dict[str, int] = {}
        self._held: list[tuple[str, Payload] | None] = []
        self._places: Rows = np.empty(0, np.int64)
        self._free: list[int] = []
        self._told: dict[tuple[str, ...], dict[int, Payload]] = {}
        self._columns: dict[str, dict[str | bool, _Column]] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def put(self, points: Iterable[Copied]) -> None:
        """Adds points, or replaces them; one without a vector is not found here."""
        for own_id, vector, payload in points:
            self.drop([own_id])
            if vector is None:
                continue
            row = self._row_of[own_id] = self._free.pop() if self._free else self._next_row()
            self._matrix[row] = _unit(vector)
            self._held[row] = own_id, payload
            self._tell(row, payload, has=True)

    def drop(self, ids: Iterable[str]) -> None:
        """Removes points, where they are."""
        for own_id in ids:
            row = self._row_of.pop(own_id, None)
            if row is not None:
                held, self._held[row] = self._held[row], None
                self._free.append(row)
                self._tell(row, held[1] if held else {}, has=False)

    def can_say(self, where: Filter) -> bool:
        """Whether filters like this one are answered here."""
        return not where.should and not where.must_not and all(map(self._is_simple, where.must))

    def vectors(self, ids: Iterable[str]) -> dict[str, Vector]:
        """The vectors of those points that are here."""
        return {i: self._matrix[self._row_of[i]].copy() for i in ids if i in self._row_of}

    def payloads(self, ids: Iterable[str], fields: Sequence[str] | None) -> dict[str, Payload]:
        """What those points tell that are here."""
        held = ((i, self._held[self._row_of[i]]) for i in ids if i in self._row_of)
        return {i: _told(point[1], fields) for i, point in held if point}

    def nearest(
        self,
        vector: Vector,
        where: Filter,
        limit: int,
        floor: float | None,
        count_to: int,
        fields: Sequence[str] | None,
    ) -> tuple[list[Candidate], int]:
        """The best points, equal scores by id, with all of their payload or the named fields of it, and how many there
        are above the floor."""
        query = _unit(vector)
        rows, scores = self._scored(query, where, floor)
        count = min(len(rows), count_to)
        if len(rows) > limit:
            ordered = scores.copy()
            ordered.partition(len(rows) - limit)
            rows = rows.compress(scores >= ordered[len(rows) - limit] - ROUNDING)
        exact = np.vecdot(self._matrix.take(rows, axis=0), query).tolist()
        numbers = rows.tolist()
        held = map(self._held.__getitem__, numbers)
        found = sorted((-score, *point, row) for point, score, row in zip(held, exact, numbers, strict=True) if point)
        best = [Candidate(own_id, -less, self._tells(row, told, fields)) for less, own_id, told, row in found[:limit]]
        return best, count

    def _tells(self, row: int, payload: Payload, fields: Sequence[str] | None) -> Payload:
        """What a hit tells. Some fields of it are put together once, for all who ask for these."""
        if fields is None:
            return dict(payload)
        told = self._told.setdefault(tuple(fields), {})
        if row not in told:
            told[row] = _told(payload, fields)
        return told[row]

    def _scored(self, query: Vector, where: Filter, floor: float | None) -> tuple[Rows, Vector]:
        """The rows that pass, and their scores; those of the condition that fewest pass are looked at."""
        choices = [c for c in map(self._choice, where.must) if not self._is_everything(c)]
        choices.sort(key=_size)
        if choices and not choices[0]:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        driver: Sequence[_Column] = ()
        if not choices or _size(choices[0]) * 2 > len(self._row_of):
            rows = self._rows(self._alive)
            scores = (self._matrix[: len(self._held)] @ query).take(rows)
        else:
            driver = choices.pop(0)
            rows = np.concatenate([self._rows(c) for c in driver])
            scores = np.concatenate([self._vectors(c) @ query for c in driver])
        if floor is not None:
            above = (scores >= floor).nonzero()[0]
            rows, scores = rows.take(above), scores.take(above)
        tests = [reduce(np.logical_or, (self._has(c)[rows] for c in columns)) for columns in choices]
        if len(driver) > 1:
            tests.append(self._is_last(rows))
        for passes in tests[1:]:
            tests[0] &= passes
        return (rows.compress(tests[0]), scores.compress(tests[0])) if tests else (rows, scores)

    def _is_everything(self, columns: Sequence[_Column]) -> bool:
        return len(columns) == 1 and len(columns[0].members) == len(self._row_of)

    def _is_last(self, rows: Rows) -> NDArray[np.bool_]:
        """Of rows that are there several times, the last ones: each leaves its place, and finds the last one's."""
        if len(self._places) < len(self._held):
            self._places = np.empty(len(self._held), np.int64)
        places = np.arange(len(rows))
        self._places[rows] = places
        return np.asarray(self._places[rows] == places)

    def _rows(self, column: _Column) -> Rows:
        if column.rows is None:
            column.rows = np.fromiter(column.members, np.int64, len(column.members))
        return column.rows

    def _vectors(self, column: _Column) -> Vector:
        if column.vectors is None:
            column.vectors = self._matrix[self._rows(column)]
        return column.vectors

    def _has(self, column: _Column) -> NDArray[np.bool_]:
        if column.has is None or len(column.has) < len(self._held):
            column.has = np.zeros(len(self._held), bool)
            column.has[self._rows(column)] = True
        return column.has

    def _choice(self, condition: Condition) -> list[_Column]:
        columns = self._columns.get(condition.field)
        if columns is None:
            columns = self._columns[condition.field] = {}
            for row, point in enumerate(self._held):
                for value in _values(point[1], condition.field) if point else ():
                    columns.setdefault(value, _Column()).tell(row, has=True)
        values = condition.value if condition.op is Op.IN else [condition.value]
        return [columns[value] for value in dict.fromkeys(values) if value in columns]

    def _tell(self, row: int, payload: Payload, *, has: bool) -> None:
        self._alive.tell(row, has=has)
        for told in self._told.values():
            told.pop(row, None)
        for name, columns in self._columns.items():
            for value in _values(payload, name):
                columns.setdefault(value, _Column()).tell(row, has=has)

    def _is_simple(self, condition: Condition) -> bool:
        if condition.field not in self._fields:
            return False
        if condition.op is Op.IN:
            return len(condition.value) > 0 and all(isinstance(v, str) for v in condition.value)
        return condition.op is Op.EQ and isinstance(condition.value, KEPT_VALUES)

    def _next_row(self) -> int:
        row = len(self._held)
        self._held.append(None)
        if row == len(self._matrix):
            self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)])
        return row


class CopyKeeper:
    """Has a copy from the first point on, or else makes one beside the searches, once they keep coming; and keeps it
    true to what is written meanwhile."""

    def __init__(self, collection: Collection, searches_before: int | None, *, is_empty: bool) -> None:
        """With `searches_before` None there is none, nor of an exact collection: its last digits are not the engine's,
        and how many points there are must not show."""
        self._collection = collection
        self._searches_left = None if collection.exact else searches_before
        self._making: asyncio.Task[None] | None = None
        self._is_whole = is_empty and self._searches_left is not None
        self._copy = Copy(collection) if self._is_whole else None
        self._written: set[str] = set()

    def find(
        self, where: Filter, points: Callable[[], int], pages: Callable[[], AsyncIterator[list[Copied]]]
    ) -> Copy | None:
        """The copy, where it is whole and can answer. To be asked at every search: that is how it comes to be."""
        if self._copy is not None:
            return self._copy if self._is_whole and self._copy.can_say(where) else None
        if self._searches_left is not None:
            self._searches_left -= 1
            if self._searches_left < 0 and points() <= MOST_POINTS:
                self._copy, self._is_whole, self._written = Copy(self._collection), False, set()
                self._making = asyncio.create_task(self._make(self._copy, pages()))
        return None

    @property
    def whole(self) -> Copy | None:
        """The copy, where it is whole."""
        return self._copy if self._is_whole else None

    def put(self, points: Sequence[Point]) -> None:
        """To be told what was written, right after the engine was."""
        if self._copy is not None:
            self._copy.put((p.id, p.vector, _as_read(p.payload)) for p in points)
            self._note(p.id for p in points)
            if len(self._copy) > MOST_POINTS:
                self._copy = None

    def drop(self, ids: Sequence[str]) -> None:
        """To be told what was removed, right after the engine was."""
        if self._copy is not None:
            self._copy.drop(ids)
            self._note(ids)

    async def wait_until_idle(self) -> None:
        """Waits for the making."""
        if self._making is not None:
            await self._making

    async def close(self) -> None:
        """Ends the making."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    def _note(self, ids: Iterable[str]) -> None:
        if not self._is_whole:
            self._written.update(ids)

    async def _make(self, copy: Copy, pages: AsyncIterator[list[Copied]]) -> None:
        async for page in pages:
            if copy is not self._copy:
                return  # what was written meanwhile made it too large
            copy.put(point for point in page if point[0] not in self._written)
        if copy is self._copy:
            self._is_whole, self._written = True, set()


def _values(payload: Payload, name: str) -> list[str | bool]:
    """What a field holds, as the filter language takes it: a list is each of its values."""
    held = payload.get(name)
    return [v for v in (held if isinstance(held, list) else [held]) if isinstance(v, KEPT_VALUES)]


def _as_read(payload: Payload) -> Payload:
    """What reading it back would tell."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in payload.items()}


def _told(payload: Payload, fields: Sequence[str] | None) -> Payload:
    return dict(payload) if fields is None else {f: payload[f] for f in fields if f in payload}


def _unit(vector: Vector) -> Vector:
    squared = vector.dot(vector)
    return vector if abs(squared - 1) < ROUNDING / 10 or not squared else vector / np.float32(math.sqrt(squared))


def _size(columns: Sequence[_Column]) -> int:
    return sum(len(c.members) for c in columns)
