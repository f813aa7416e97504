"""What both Qdrant indexes share: points, searches and reads. `edge.py` and `server.py` send the requests."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np

from toolscript.adapters.qdrant.filters import (
    DATES_FIELD,
    FLAGS_FIELD,
    ID_FIELD,
    QdrantPackage,
    build_dates_field,
    build_flags_field,
    field_path,
    point_id,
    translate_filter,
)
from toolscript.domain.filters import EVERYTHING, Filter, Payload
from toolscript.domain.search import Candidate, Collection, Point, Terms, Vector, sort_candidates
from toolscript.ports.indexes import Fields, VectorIndex

DENSE = "dense"
TERMS = "terms"
SCROLL_PAGE = 1000


class QdrantIndex(VectorIndex):
    """A vector index on either Qdrant package."""

    package: QdrantPackage
    upsert_batch: int
    vectors_page: int
    _open: dict[str, Collection]

    @abstractmethod
    async def _write(self, name: str, points: Sequence[Any]) -> None: ...

    @abstractmethod
    async def _delete(self, name: str, ids: Sequence[Any]) -> None: ...

    @abstractmethod
    async def _query(
        self, name: str, query: Any, using: str, conditions: Any, limit: int, floor: float | None, fields: Fields
    ) -> list[Candidate]: ...

    @abstractmethod
    async def _count(self, name: str, conditions: Any) -> int: ...

    @abstractmethod
    async def _scroll(self, name: str, conditions: Any, offset: Any, fields: Fields) -> tuple[Sequence[Any], Any]:
        """One page of records, and where the next begins."""

    @abstractmethod
    async def _retrieve(
        self, name: str, ids: Sequence[Any], payload: bool | list[str], *, vectors: bool = False
    ) -> Sequence[Any]: ...

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        for start in range(0, len(points), self.upsert_batch):
            await self._write(name, [self._to_point(p) for p in points[start : start + self.upsert_batch]])
            await asyncio.sleep(0)

    async def delete(self, name: str, ids: Sequence[str]) -> None:
        if ids:
            await self._delete(name, [point_id(i) for i in ids])

    async def dense(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        floor: float | None = None,
        fields: Fields = None,
    ) -> list[Candidate]:
        return await self._search(name, vector.tolist(), DENSE, where, limit, floor, fields)

    async def lexical(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, limit: int, fields: Fields = None
    ) -> list[Candidate]:
        if not terms.ids:
            return []
        found = await self._search(name, self._to_sparse(terms), TERMS, where, limit, None, fields)
        return [c for c in found if c.score > 0]

    async def count(self, name: str, where: Filter = EVERYTHING) -> int:
        return await self._count(name, self._translate(name, where))

    async def scroll(self, name: str, *, where: Filter = EVERYTHING, fields: Fields = None) -> list[Candidate]:
        conditions = self._translate(name, where)
        found: list[Candidate] = []
        offset: Any = None
        while True:
            page, offset = await self._scroll(name, conditions, offset, fields)
            found += [self._to_candidate(r.payload) for r in page]
            if offset is None:
                return sort_candidates(found)
            await asyncio.sleep(0)

    async def payloads(self, name: str, ids: Sequence[str], fields: Fields = None) -> dict[str, Payload]:
        records = self._retrieve_pages(name, ids, SCROLL_PAGE, select_payload(fields))
        found = [self._to_candidate(record.payload) async for record in records]
        return {c.id: c.payload for c in found}

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        own_ids = {point_id(i): i for i in ids}
        found: dict[str, Vector] = {}
        async for record in self._retrieve_pages(name, ids, self.vectors_page, False, vectors=True):
            vectors = record.vector  # read once: the embedded engine converts it at every access
            values = vectors.get(DENSE) if isinstance(vectors, dict) else None
            if values is not None:
                found[own_ids[str(record.id)]] = np.fromiter(values, np.float32, len(values))
        return found

    def _translate(self, name: str, where: Filter) -> Any:
        return translate_filter(where, self.package, self._open[name].fields if name in self._open else {})

    async def _search(
        self, name: str, query: Any, using: str, where: Filter, limit: int, floor: float | None, fields: Fields
    ) -> list[Candidate]:
        """The best `limit` candidates, equal scores by id, also where the engine cuts its list among equal scores."""
        conditions, wanted = self._translate(name, where), limit + 1
        while True:
            found = await self._query(name, query, using, conditions, wanted, floor, fields)
            if len(found) < wanted or found[-1].score < found[limit - 1].score:
                return sort_candidates(found)[:limit]
            wanted *= 2

    async def _retrieve_pages(
        self, name: str, ids: Sequence[str], page: int, payload: bool | list[str], *, vectors: bool = False
    ) -> AsyncIterator[Any]:
        for start in range(0, len(ids), page):
            wanted = [point_id(i) for i in ids[start : start + page]]
            for record in await self._retrieve(name, wanted, payload, vectors=vectors):
                yield record
            await asyncio.sleep(0)

    def _to_sparse(self, terms: Terms) -> Any:
        return self.package.models.SparseVector(indices=list(terms.ids), values=list(terms.weights))

    def _to_point(self, point: Point) -> Any:
        vectors: dict[str, Any] = {}
        if point.vector is not None:
            vectors[DENSE] = point.vector.tolist()
        if point.terms.ids:
            vectors[TERMS] = self._to_sparse(point.terms)
        payload = {**point.payload, ID_FIELD: point.id, **build_dates_field(point.payload)}
        if self.package.has_flags:
            payload |= build_flags_field(point.payload)
        return self.package.point(id=point_id(point.id), vector=vectors, payload=payload)

    def _to_candidate(self, payload: Payload | None, score: float = 0.0) -> Candidate:
        """A point's payload without the fields that `_to_point` adds."""
        fields = dict(payload or {})
        fields.pop(DATES_FIELD, None)
        if self.package.has_flags:
            fields.pop(FLAGS_FIELD, None)
        return Candidate(str(fields.pop(ID_FIELD)), score, fields)


def select_payload(fields: Fields) -> bool | list[str]:
    """Qdrant's `with_payload`: the whole payload, or the id and the named fields."""
    return True if fields is None else [ID_FIELD, *map(field_path, fields)]
