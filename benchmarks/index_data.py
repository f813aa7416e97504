"""Synthetic points for the index benchmark, and the exact searches over them that the index is compared with."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.domain.search import Point, Terms, Vector

DIMENSIONS = 384
GROUPS = 10
VOCABULARY = 20_000
TERMS_PER_POINT, TERMS_PER_QUERY = 30, 5
PER_CLUSTER = 200
# The spread within a cluster: two of its points have a cosine of about 0.67, points of two clusters 0.
SPREAD = 0.7
ONE_GROUP = Filter(must=(Condition("group", Op.EQ, "g3"),))

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Data:
    """Points of which every tenth is in the same group, and queries made in the same way."""

    kind: str
    points: list[Point]
    matrix: Vector
    queries: Vector
    term_queries: list[Terms]

    @cached_property
    def exact(self) -> Exact:
        return Exact(self.matrix)

    @cached_property
    def exact_terms(self) -> ExactTerms:
        return ExactTerms([p.terms for p in self.points])

    def rows(self, where: Filter) -> Rows | None:
        """The rows that pass a filter; None for all."""
        return None if where == EVERYTHING else np.arange(3, len(self.points), GROUPS)


class Exact:
    """Exact search: the dot product of every row with the query."""

    def __init__(self, matrix: Vector) -> None:
        self._matrix = matrix

    def search(self, query: Vector, rows: Rows | None, limit: int) -> Rows:
        """The best rows, in no order."""
        scores = (self._matrix if rows is None else self._matrix[rows]) @ query
        best = np.argpartition(-scores, limit - 1)[:limit]
        return best if rows is None else rows[best]


class ExactTerms:
    """Exact lexical search in a few array operations: for every term the rows that contain it."""

    def __init__(self, terms: Sequence[Terms]) -> None:
        self._count = len(terms)
        sizes = [len(t.ids) for t in terms]
        numbers = np.concatenate([np.asarray(t.ids) for t in terms])
        order = np.argsort(numbers, kind="stable")
        self._rows = np.repeat(np.arange(len(terms)), sizes)[order]
        self._weights = np.concatenate([np.asarray(t.weights) for t in terms])[order]
        self._starts = np.searchsorted(numbers[order], np.arange(VOCABULARY + 1))

    def search(self, query: Terms, rows: Rows | None, limit: int) -> Rows:
        """The best rows, in no order."""
        scores = np.zeros(self._count)
        for number, weight in zip(query.ids, query.weights, strict=True):
            rows_of_term = slice(self._starts[number], self._starts[number + 1])
            scores[self._rows[rows_of_term]] += weight * self._weights[rows_of_term]
        chosen = scores if rows is None else scores[rows]
        best = np.argpartition(-chosen, limit - 1)[:limit]
        return best if rows is None else rows[best]


def make_clusters(size: int, queries: int) -> Data:
    """Points around centres, like texts about the same subjects, with rare and common words."""
    rng = np.random.default_rng(size)
    centres = _units(rng.standard_normal((max(size // PER_CLUSTER, 5), DIMENSIONS)))
    terms = _terms(rng, size, TERMS_PER_POINT)
    points, near_queries = _near(rng, centres, size), _near(rng, centres, queries)
    return _data("clustered", points, terms, near_queries, _terms(rng, queries, TERMS_PER_QUERY))


@dataclass(slots=True)
class PointStream:
    """As many points as wanted, like those of `make_clusters`, a block at a time: a million do not fit in memory as
    objects. Queries have the idf of the terms so far."""

    size: int
    _counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(VOCABULARY + 1, np.int64))

    def blocks(self, length: int) -> Iterator[list[Point]]:
        centres = self._centres()
        for start in range(0, self.size, length):
            rng = np.random.default_rng([self.size, start])
            count = min(length, self.size - start)
            terms = _terms(rng, count, TERMS_PER_POINT)
            for each in terms:
                self._counts[list(each.ids)] += 1
            matrix = _near(rng, centres, count)
            yield [
                Point(f"p{start + i}", matrix[i], terms[i], {"group": f"g{i % GROUPS}", "name": f"tool {start + i}"})
                for i in range(count)
            ]

    def make_queries(self, count: int) -> list[tuple[Vector, Terms]]:
        rng = np.random.default_rng(1)
        vectors, terms = _near(rng, self._centres(), count), _terms(rng, count, TERMS_PER_QUERY)
        rarity = np.log(1 + (self.size - self._counts + 0.5) / (self._counts + 0.5))
        return [(v, Terms(t.ids, tuple(rarity[list(t.ids)].tolist()))) for v, t in zip(vectors, terms, strict=True)]

    def _centres(self) -> Vector:
        rng = np.random.default_rng(self.size)
        return _units(rng.standard_normal((max(self.size // PER_CLUSTER, 5), DIMENSIONS)))


def _near(rng: np.random.Generator, centres: Vector, count: int) -> Vector:
    noise = rng.standard_normal((count, DIMENSIONS)) * SPREAD / np.sqrt(DIMENSIONS)
    return _units(centres[rng.integers(0, len(centres), count)] + noise)


def make_random(size: int, queries: int) -> Data:
    """Random points: no two are near, which is the worst case for a graph of neighbours."""
    rng = np.random.default_rng(size)
    matrix, query_vectors = (_units(rng.standard_normal((n, DIMENSIONS))) for n in (size, queries))
    return _data("random", matrix, [Terms()] * size, query_vectors, [])


def write_to_sqlite(file: Path, points: Sequence[Point]) -> None:
    """The same points as rows of a table, in one transaction: what storing them costs without an index."""
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS points (id TEXT PRIMARY KEY, vector BLOB, payload TEXT)")
        connection.executemany(
            "INSERT INTO points VALUES (?, ?, ?)",
            [(p.id, p.vector.tobytes(), json.dumps(dict(p.payload))) for p in points if p.vector is not None],
        )
    connection.close()


def _data(kind: str, matrix: Vector, terms: list[Terms], queries: Vector, term_queries: list[Terms]) -> Data:
    points = [
        Point(f"p{i}", matrix[i], terms[i], {"group": f"g{i % GROUPS}", "name": f"tool {i}"})
        for i in range(len(matrix))
    ]
    return Data(kind, points, matrix, queries, term_queries)


def _units(rows: NDArray[np.float64]) -> Vector:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def _terms(rng: np.random.Generator, count: int, each: int) -> list[Terms]:
    """Terms by Zipf's law, the weights of BM25's size."""
    share = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
    drawn = np.searchsorted(share / share[-1], rng.random((count, each)))
    found = (np.unique(row).tolist() for row in drawn)
    return [Terms(tuple(ids), tuple(rng.uniform(0.3, 2.2, len(ids)).tolist())) for ids in found]
