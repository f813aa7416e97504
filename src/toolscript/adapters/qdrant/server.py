"""The index on a Qdrant server or cluster, by URL and key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
from qdrant_client import AsyncQdrantClient
from qdrant_client import models as qm
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from toolscript.adapters.qdrant.filters import (
    DATES_FIELD,
    DENSE,
    ID_FIELD,
    TERMS,
    build_dates_field,
    fetch_with_ties,
    field_path,
    point_id,
    select_payload,
    translate_filter,
)
from toolscript.domain.errors import Invalid, NotFound, Unavailable
from toolscript.domain.filters import EVERYTHING, Filter, Payload
from toolscript.domain.search import (
    Candidate,
    Collection,
    FieldType,
    Point,
    Terms,
    Vector,
    require_same_model,
)
from toolscript.ports.indexes import VectorIndex

UPSERT_BATCH = 256
SCROLL_PAGE = 1000
VECTORS_PAGE = 500


class QdrantServerIndex(VectorIndex):
    """A vector index on a server, which several processes can share."""

    def __init__(self, client: AsyncQdrantClient) -> None:
        self._client = client
        self._fields: dict[str, Mapping[str, FieldType]] = {}
        self._exact: set[str] = set()

    @classmethod
    def at(cls, url: str, api_key: str | None = None, *, timeout_seconds: int = 10) -> QdrantServerIndex:
        """An index on the server at a URL; connects on first use. Raises Invalid."""
        try:
            client = AsyncQdrantClient(url=url, api_key=api_key, timeout=timeout_seconds, check_compatibility=False)
        except Exception as error:  # the client's parsers raise many classes
            raise Invalid(
                f"TOOLSCRIPT_INDEX {url!r} is not a usable address: {error}", details={"field": "TOOLSCRIPT_INDEX"}
            ) from error
        return cls(client)

    async def describe(self, name: str) -> Collection | None:
        async with _translate_errors():
            if not await self._client.collection_exists(name):
                return None
            config = (await self._client.get_collection(name)).config
        vectors = config.params.vectors
        size = vectors[DENSE].size if isinstance(vectors, dict) else 0
        metadata = config.metadata or {}
        return Collection(name, str(metadata.get("model", "unknown")), size, exact=bool(metadata.get("exact", False)))

    async def open(self, collection: Collection) -> None:
        self._fields[collection.name] = collection.fields
        (self._exact.add if collection.exact else self._exact.discard)(collection.name)
        existing = await self.describe(collection.name)
        if not existing:
            await self._create(collection)
            existing = await self.describe(collection.name)
        require_same_model(existing or collection, collection)
        async with _translate_errors():
            for field, kind in collection.fields.items():
                await self._client.create_payload_index(collection.name, field_path(field), _FIELD_INDEXES[kind])

    async def _create(self, collection: Collection) -> None:
        """Creates the collection, unless another process did so in the meantime."""
        async with _translate_errors():
            try:
                await self._client.create_collection(
                    collection.name,
                    vectors_config={DENSE: qm.VectorParams(size=collection.dimensions, distance=qm.Distance.COSINE)},
                    sparse_vectors_config={TERMS: qm.SparseVectorParams()},
                    hnsw_config=qm.HnswConfigDiff(m=0, payload_m=0) if collection.exact else None,
                    metadata={"model": collection.model, "exact": collection.exact},
                )
            except UnexpectedResponse as error:
                if error.status_code != httpx.codes.CONFLICT:
                    raise

    async def drop(self, name: str) -> None:
        async with _translate_errors():
            await self._client.delete_collection(name)

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        async with _translate_errors(name):
            for start in range(0, len(points), UPSERT_BATCH):
                batch = [_to_point(p) for p in points[start : start + UPSERT_BATCH]]
                await self._client.upsert(name, batch, wait=True)

    async def delete(self, name: str, ids: Sequence[str]) -> None:
        if ids:
            async with _translate_errors(name):
                await self._client.delete(name, qm.PointIdsList(points=[point_id(i) for i in ids]), wait=True)

    async def dense(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        floor: float | None = None,
        fields: Sequence[str] | None = None,
    ) -> list[Candidate]:
        return await self._search(name, vector.tolist(), DENSE, where, limit, floor, fields)

    async def lexical(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, limit: int, fields: Sequence[str] | None = None
    ) -> list[Candidate]:
        if not terms.ids:
            return []
        query = qm.SparseVector(indices=list(terms.ids), values=list(terms.weights))
        return [c for c in await self._search(name, query, TERMS, where, limit, None, fields) if c.score > 0]

    async def count(self, name: str, where: Filter = EVERYTHING) -> int:
        async with _translate_errors(name):
            return (await self._client.count(name, self._translate(name, where), exact=True)).count

    async def scroll(
        self, name: str, *, where: Filter = EVERYTHING, fields: Sequence[str] | None = None
    ) -> list[Candidate]:
        payload = select_payload(fields)
        found: list[Candidate] = []
        offset: Any = None
        async with _translate_errors(name):
            while True:
                page, offset = await self._client.scroll(
                    name, self._translate(name, where), limit=SCROLL_PAGE, offset=offset, with_payload=payload
                )
                found += [_to_candidate(r.payload, 0.0) for r in page]
                if offset is None:
                    return sorted(found, key=lambda c: c.id)

    async def payloads(self, name: str, ids: Sequence[str], fields: Sequence[str] | None = None) -> dict[str, Payload]:
        wanted: list[Any] = [point_id(i) for i in ids]
        found: dict[str, Payload] = {}
        async with _translate_errors(name):
            for start in range(0, len(wanted), SCROLL_PAGE):
                page = wanted[start : start + SCROLL_PAGE]
                for record in await self._client.retrieve(name, page, with_payload=select_payload(fields)):
                    candidate = _to_candidate(record.payload, 0.0)
                    found[candidate.id] = candidate.payload
        return found

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        own_ids = {point_id(i): i for i in ids}
        wanted: list[Any] = [*own_ids]
        found: dict[str, Vector] = {}
        async with _translate_errors(name):
            for start in range(0, len(wanted), VECTORS_PAGE):
                page = wanted[start : start + VECTORS_PAGE]
                for record in await self._client.retrieve(name, page, with_payload=False, with_vectors=[DENSE]):
                    values = record.vector.get(DENSE) if isinstance(record.vector, dict) else None
                    if values is not None:
                        found[own_ids[str(record.id)]] = np.asarray(values, np.float32)
        return found

    async def close(self) -> None:
        await self._client.close()

    def _translate(self, name: str, where: Filter) -> Any:
        return translate_filter(where, _CONDITIONS, self._fields.get(name, {}))

    async def _search(
        self,
        name: str,
        query: Any,
        using: str,
        where: Filter,
        limit: int,
        floor: float | None,
        fields: Sequence[str] | None,
    ) -> list[Candidate]:
        conditions, payload = self._translate(name, where), select_payload(fields)
        params = qm.SearchParams(exact=True) if using == DENSE and name in self._exact else None

        async def fetch(wanted: int) -> list[Candidate]:
            found = await self._client.query_points(
                name,
                query,
                using=using,
                query_filter=conditions,
                search_params=params,
                limit=wanted,
                score_threshold=floor,
                with_payload=payload,
            )
            return [_to_candidate(p.payload, p.score) for p in found.points]

        async with _translate_errors(name):
            return await fetch_with_ties(fetch, limit)


class _ServerConditions:
    """Builds qdrant_client's filters and conditions."""

    def combine(self, must: list[Any], should: list[Any], must_not: list[Any]) -> Any:
        return qm.Filter(must=must or None, should=should or None, must_not=must_not or None)

    def equals(self, path: str, value: str | bool) -> Any:
        return qm.FieldCondition(key=path, match=qm.MatchValue(value=value))

    def any_of(self, path: str, values: list[str]) -> Any:
        return qm.FieldCondition(key=path, match=qm.MatchAny(any=values))

    def substring(self, path: str, value: str) -> Any:
        return qm.FieldCondition(key=path, match=qm.MatchSubstring(substring=value))

    def number_range(self, path: str, bounds: dict[str, float]) -> Any:
        return qm.FieldCondition(key=path, range=qm.Range(**bounds))

    def date_range(self, path: str, bounds: dict[str, str]) -> Any:
        return qm.FieldCondition(key=path, range=qm.DatetimeRange.model_validate(bounds))

    def is_empty(self, path: str) -> Any:
        return qm.IsEmptyCondition(is_empty=qm.PayloadField(key=path))

    def nothing(self) -> Any:
        return qm.HasIdCondition(has_id=[])


_CONDITIONS = _ServerConditions()

_FIELD_INDEXES: dict[FieldType, Any] = {
    FieldType.KEYWORD: qm.PayloadSchemaType.KEYWORD,
    FieldType.TENANT: qm.KeywordIndexParams(type=qm.KeywordIndexType.KEYWORD, is_tenant=True),
    FieldType.INTEGER: qm.PayloadSchemaType.INTEGER,
    FieldType.FLOAT: qm.PayloadSchemaType.FLOAT,
    FieldType.BOOL: qm.PayloadSchemaType.BOOL,
    FieldType.DATETIME: qm.PayloadSchemaType.DATETIME,
}


_DETAILS = {"field": "TOOLSCRIPT_INDEX"}


@asynccontextmanager
async def _translate_errors(collection: str | None = None) -> AsyncIterator[None]:
    """Turns the client's exceptions into ours."""
    try:
        yield
    except UnexpectedResponse as error:
        if error.status_code == httpx.codes.NOT_FOUND:
            raise NotFound(f"collection {collection!r} is not open", details={"collection": collection}) from error
        raise Unavailable(f"Qdrant refused the request: {error}; check TOOLSCRIPT_INDEX", details=_DETAILS) from error
    except ResponseHandlingException as error:
        raise Unavailable(f"Qdrant does not answer: {error}; check TOOLSCRIPT_INDEX", details=_DETAILS) from error
    except ValueError as error:
        if "not found" in str(error):
            raise NotFound(f"collection {collection!r} is not open", details={"collection": collection}) from error
        raise


def _to_point(point: Point) -> qm.PointStruct:
    vectors: dict[str, Any] = {}
    if point.vector is not None:
        vectors[DENSE] = point.vector.tolist()
    if point.terms.ids:
        vectors[TERMS] = qm.SparseVector(indices=list(point.terms.ids), values=list(point.terms.weights))
    payload = {**point.payload, ID_FIELD: point.id, **build_dates_field(point.payload)}
    return qm.PointStruct(id=point_id(point.id), vector=vectors, payload=payload)


def _to_candidate(payload: dict[str, Any] | None, score: float) -> Candidate:
    fields = dict(payload or {})
    fields.pop(DATES_FIELD, None)
    return Candidate(str(fields.pop(ID_FIELD)), score, fields)
