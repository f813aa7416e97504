"""The vector index on Qdrant, the same for the engine in this process (`edge.py`) and for a server (`server.py`)."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import numpy as np

from toolscript.adapters.qdrant.conversion import (
    DENSE,
    ID_FIELD,
    TERMS,
    QdrantPackage,
    field_path,
    point_id,
    to_candidate,
    translate_filter,
)
from toolscript.domain.filters import EVERYTHING, Filter, Payload
from toolscript.domain.search import (
    Candidate,
    Collection,
    Point,
    TermMatches,
    Terms,
    Vector,
    round_scores,
    sort_candidates,
)
from toolscript.ports.indexes import Fields, VectorIndex

SCROLL_PAGE = 1000
# Points that are read beyond the last wanted one by words, because they may score alike.
MAX_TIES = 1000

Selection = bool | list[str]
"""Qdrant's `with_payload`: whether to read payloads, or which fields of them."""


class QdrantCollection(Protocol):
    """Sends the requests for one collection, in the classes of its package."""

    @property
    def collection(self) -> Collection: ...

    async def upsert(self, points: list[Any]) -> None: ...

    async def delete(self, ids: list[Any]) -> None: ...

    async def query(self, query: Any, using: str, conditions: Any, limit: int, payload: Selection) -> list[Any]:
        """The best points with their scores, best first."""

    def to_candidates(self, points: Sequence[Any], payload: Selection) -> list[Candidate]:
        """The candidates for points of a query with that `payload`."""

    async def read_ids(self, points: Sequence[Any]) -> list[str | None]:
        """Our ids of points of a query without payloads; None for one that was deleted since."""

    async def count(self, conditions: Any) -> int: ...

    async def scroll(self, conditions: Any, offset: Any, payload: Selection) -> tuple[list[Any], Any]:
        """One page of records, and where the next begins."""

    async def retrieve(self, ids: list[Any], payload: Selection, *, vectors: bool = False) -> list[Any]: ...


class QdrantIndex(VectorIndex):
    """A vector index on either package."""

    package: QdrantPackage
    upsert_batch: int
    vectors_page: int

    @abstractmethod
    def _collection(self, name: str) -> QdrantCollection: ...

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        collection = self._collection(name)
        for start in range(0, len(points), self.upsert_batch):
            await collection.upsert([*map(self.package.convert_point, points[start : start + self.upsert_batch])])
            await asyncio.sleep(0)

    async def delete(self, name: str, ids: Sequence[str]) -> None:
        if ids:
            await self._collection(name).delete([*map(point_id, ids)])

    async def dense(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        fields: Fields = None,
    ) -> list[Candidate]:
        return await self._search(name, vector.tolist(), DENSE, where, limit, fields, wanted=limit + 1)

    async def lexical(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, limit: int, fields: Fields = None
    ) -> list[Candidate]:
        if not terms.ids:
            return []
        query = self.package.sparse_vector(terms)
        # By words, the last candidates score alike for three of four queries among 5,792 tools.
        found = await self._search(name, query, TERMS, where, limit, fields, wanted=2 * limit)
        return [c for c in found if c.score > 0]

    async def match(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, start: int = 0, end: int, max_total: int
    ) -> TermMatches:
        """Reads the scores of all points that count, 1 µs each, and only the ids of points that may be on the page."""
        if not terms.ids:
            return TermMatches([], 0)
        collection, query = self._collection(name), self.package.sparse_vector(terms)
        conditions, wanted = self._translate(collection, where), max(max_total, end + MAX_TIES)
        while True:
            found = await collection.query(query, TERMS, conditions, wanted, False)
            scores = round_scores([p.score for p in found if p.score > 0])
            total = min(len(scores), max_total)
            first, last = min(start, total), min(end, total)
            if first == last:
                return TermMatches([], total)
            # Equal scores are ordered by id: those of the first and last place are read completely.
            lowest = np.searchsorted(-scores, -scores[first], side="left")
            highest = np.searchsorted(-scores, -scores[last - 1], side="right")
            if highest < len(found) or len(found) < wanted:
                break
            wanted *= 4
        ids = await collection.read_ids(found[lowest:highest])
        pairs = zip(ids, scores[lowest:highest].tolist(), strict=True)
        ranked = sort_candidates([Candidate(own_id, score) for own_id, score in pairs if own_id is not None])
        return TermMatches(ranked[first - lowest : last - lowest], total)

    async def count(self, name: str, where: Filter = EVERYTHING) -> int:
        collection = self._collection(name)
        return await collection.count(self._translate(collection, where))

    async def scroll(self, name: str, *, where: Filter = EVERYTHING, fields: Fields = None) -> list[Candidate]:
        collection = self._collection(name)
        conditions, payload = self._translate(collection, where), select_payload(fields)
        found: list[Candidate] = []
        offset: Any = None
        while True:
            page, offset = await collection.scroll(conditions, offset, payload)
            found += [to_candidate(record.payload) for record in page]
            if offset is None:
                return sort_candidates(found)
            await asyncio.sleep(0)

    async def payloads(self, name: str, ids: Sequence[str], fields: Fields = None) -> dict[str, Payload]:
        records = self._retrieve(name, ids, SCROLL_PAGE, select_payload(fields))
        found = [to_candidate(record.payload) async for record in records]
        return {c.id: c.payload for c in found}

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        own_ids = {point_id(i): i for i in ids}
        found: dict[str, Vector] = {}
        async for record in self._retrieve(name, ids, self.vectors_page, False, vectors=True):
            vectors = record.vector  # read once: the embedded engine converts it at every access
            values = vectors.get(DENSE) if isinstance(vectors, dict) else None
            if values is not None:
                found[own_ids[str(record.id)]] = np.fromiter(values, np.float32, len(values))
        return found

    async def _search(
        self, name: str, query: Any, using: str, where: Filter, limit: int, fields: Fields, *, wanted: int
    ) -> list[Candidate]:
        """The best `limit` candidates, equal scores by id, also where the engine cuts its list of the `wanted` best
        among equal scores."""
        collection, payload = self._collection(name), select_payload(fields)
        conditions = self._translate(collection, where)
        while True:
            found = await collection.query(query, using, conditions, wanted, payload)
            # More than the limit, where further points score like the last of them.
            last = found[limit - 1].score if limit < len(found) else None
            end = next((n for n in range(limit, len(found)) if found[n].score != last), len(found))
            if end < len(found) or len(found) < wanted:
                return sort_candidates(collection.to_candidates(found[:end], payload))[:limit]
            wanted *= 2

    async def _retrieve(
        self, name: str, ids: Sequence[str], page: int, payload: Selection, *, vectors: bool = False
    ) -> AsyncIterator[Any]:
        collection = self._collection(name)
        for start in range(0, len(ids), page):
            for record in await collection.retrieve(
                [*map(point_id, ids[start : start + page])], payload, vectors=vectors
            ):
                yield record
            await asyncio.sleep(0)

    def _translate(self, collection: QdrantCollection, where: Filter) -> Any:
        return translate_filter(where, self.package, collection.collection.fields)


def select_payload(fields: Fields) -> Selection:
    """The whole payload, or the id and the named fields."""
    return True if fields is None else [ID_FIELD, *map(field_path, fields)]
