"""Adapters that keep everything in memory, exact and deterministic. Contract tests compare every engine with the index;
the embedder lets tests run without a model."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from toolscript.domain.errors import NotFound
from toolscript.domain.filters import EVERYTHING, Filter, Payload, matches
from toolscript.domain.search import (
    Candidate,
    Collection,
    Point,
    SimilarityRange,
    TermMatches,
    Terms,
    Vector,
    require_same_model,
    round_scores,
    sort_candidates,
)
from toolscript.ports.indexes import Fields, VectorIndex


class MemoryIndex(VectorIndex):
    """A vector index that compares every point."""

    def __init__(self) -> None:
        self._collections: dict[str, tuple[Collection, dict[str, Point]]] = {}

    async def describe(self, name: str) -> Collection | None:
        existing = self._collections.get(name)
        return existing[0] if existing else None

    async def open(self, collection: Collection) -> None:
        existing, points = self._collections.get(collection.name, (None, {}))
        if existing:
            require_same_model(existing, collection)
            collection = replace(existing, exact=collection.exact)
        self._collections[collection.name] = collection, points

    async def drop(self, name: str) -> None:
        self._collections.pop(name, None)

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        self._points(name).update((p.id, p) for p in points)

    async def delete(self, name: str, ids: Sequence[str]) -> None:
        points = self._points(name)
        for point_id in ids:
            points.pop(point_id, None)

    async def dense(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        fields: Fields = None,
    ) -> list[Candidate]:
        matching = [p for p in self._points(name).values() if p.vector is not None and matches(where, p.payload, p.id)]
        if not matching:
            return []
        # Not `@`: BLAS rounds a row differently by its position, and equal points must have equal scores.
        rows = np.stack([p.vector for p in matching if p.vector is not None])
        cosines = np.einsum("ij,j->i", rows, vector)
        scored = [Candidate(p.id, float(s), _select(p, fields)) for p, s in zip(matching, cosines, strict=True)]
        return sort_candidates(scored)[:limit]

    async def lexical(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, limit: int, fields: Fields = None
    ) -> list[Candidate]:
        weights = dict(zip(terms.ids, terms.weights, strict=True))
        scored = [
            Candidate(p.id, _dot(weights, p.terms), _select(p, fields))
            for p in self._points(name).values()
            if not weights.keys().isdisjoint(p.terms.ids) and matches(where, p.payload, p.id)
        ]
        return sort_candidates([c for c in scored if c.score > 0])[:limit]

    async def match(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, start: int = 0, end: int, max_total: int
    ) -> TermMatches:
        found = await self.lexical(name, terms, where=where, limit=len(self._points(name)), fields=())
        scores = round_scores([c.score for c in found]).tolist()
        ranked = sort_candidates([c._replace(score=score) for c, score in zip(found, scores, strict=True)])
        return TermMatches(ranked[:max_total][start:end], min(len(ranked), max_total))

    async def count(self, name: str, where: Filter = EVERYTHING) -> int:
        return sum(matches(where, p.payload, p.id) for p in self._points(name).values())

    async def scroll(self, name: str, *, where: Filter = EVERYTHING, fields: Fields = None) -> list[Candidate]:
        return [
            Candidate(p.id, 0.0, _select(p, fields))
            for _, p in sorted(self._points(name).items())
            if matches(where, p.payload, p.id)
        ]

    async def payloads(self, name: str, ids: Sequence[str], fields: Fields = None) -> dict[str, Payload]:
        points = self._points(name)
        return {i: _select(points[i], fields) for i in ids if i in points}

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        points = self._points(name)
        found = ((i, points[i].vector) for i in ids if i in points)
        return {i: vector for i, vector in found if vector is not None}

    async def close(self) -> None:
        self._collections.clear()

    def _points(self, name: str) -> dict[str, Point]:
        if name not in self._collections:
            raise NotFound(f"collection {name!r} is not open", details={"collection": name})
        return self._collections[name][1]


class HashedEmbedder:
    """A deterministic stand-in for a model: texts that share words have similar vectors."""

    similarity = SimilarityRange(0.0, 1.0, has_relevance=True)
    batch_size = 32
    query_batch_size = 32
    max_concurrent_calls = 1
    window = 256

    def __init__(self, dimensions: int = 64) -> None:
        self.model = f"hashed-{dimensions}"
        self.dimensions = dimensions

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def embed_query(self, text: str) -> Vector:
        return self._embed(text)

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        return [self._embed(t) for t in texts]

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        return [self._embed(t) for t in texts]

    async def close(self) -> None:
        return None

    def _embed(self, text: str) -> Vector:
        vector = np.zeros(self.dimensions, np.float32)
        for word in text.casefold().split() or [""]:
            vector += _embed_word(word, self.dimensions)
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


@lru_cache(maxsize=20_000)
def _embed_word(word: str, dimensions: int) -> Vector:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(dimensions, dtype=np.float32)


def _select(point: Point, fields: Fields) -> Payload:
    return point.payload if fields is None else {f: point.payload[f] for f in fields if f in point.payload}


def _dot(weights: dict[int, float], terms: Terms) -> float:
    return sum(weights[t] * w for t, w in zip(terms.ids, terms.weights, strict=True) if t in weights)
