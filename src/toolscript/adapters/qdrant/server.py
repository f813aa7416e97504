"""The index on a Qdrant server or cluster, by URL and key."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from qdrant_client import AsyncQdrantClient
from qdrant_client import models as qm
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from toolscript.adapters.qdrant.conversion import DENSE, ID_FIELD, TERMS, QdrantPackage, field_path, to_candidate
from toolscript.adapters.qdrant.index import SCROLL_PAGE, QdrantCollection, QdrantIndex, Selection
from toolscript.adapters.storage.outages import Outage, OutageWatch
from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.search import Candidate, Collection, FieldType, require_same_model

T = TypeVar("T")

_PACKAGE = QdrantPackage(
    models=qm,
    point=qm.PointStruct,
    number_range=qm.Range,
    date_range=qm.DatetimeRange,
    is_empty=lambda path: qm.IsEmptyCondition(is_empty=qm.PayloadField(key=path)),
    has_id=lambda ids: qm.HasIdCondition(has_id=[*ids]),
    has_flags=False,
)


class QdrantServerIndex(QdrantIndex):
    """A vector index on a server. Several processes can share it."""

    package = _PACKAGE
    upsert_batch = 256
    vectors_page = 500

    def __init__(self, client: AsyncQdrantClient) -> None:
        self._client = client
        self._outages = OutageWatch("index")
        self._open: dict[str, Collection] = {}

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
        if not await _send(self._client.collection_exists(name), self._outages):
            return None
        config = (await _send(self._client.get_collection(name), self._outages)).config
        vectors = config.params.vectors
        size = vectors[DENSE].size if isinstance(vectors, dict) else 0
        metadata = config.metadata or {}
        return Collection(name, str(metadata.get("model", "unknown")), size, exact=bool(metadata.get("exact", False)))

    async def open(self, collection: Collection) -> None:
        self._open[collection.name] = collection
        existing = await self.describe(collection.name)
        if not existing:
            await _send(self._create(collection), self._outages)
            existing = await self.describe(collection.name)
        require_same_model(existing or collection, collection)
        for field, kind in collection.fields.items():
            creation = self._client.create_payload_index(collection.name, field_path(field), _FIELD_INDEXES[kind])
            await _send(creation, self._outages)

    async def _create(self, collection: Collection) -> None:
        """Creates the collection, unless another process did so in the meantime."""
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
        await _send(self._client.delete_collection(name), self._outages)

    async def close(self) -> None:
        await self._client.close()

    def _collection(self, name: str) -> QdrantCollection:
        collection = self._open.get(name) or Collection(name, "unknown", 0)
        return _ServerCollection(self._client, name, collection, self._outages)


@dataclass(frozen=True, slots=True)
class _ServerCollection:
    client: AsyncQdrantClient
    name: str
    collection: Collection
    outages: OutageWatch

    async def upsert(self, points: list[Any]) -> None:
        await _send(self.client.upsert(self.name, points, wait=True), self.outages, self.name)

    async def delete(self, ids: list[Any]) -> None:
        await _send(self.client.delete(self.name, qm.PointIdsList(points=ids), wait=True), self.outages, self.name)

    async def query(self, query: Any, using: str, conditions: Any, limit: int, payload: Selection) -> list[Any]:
        request = self.client.query_points(
            self.name,
            query,
            using=using,
            query_filter=conditions,
            search_params=qm.SearchParams(exact=True) if using == DENSE and self.collection.exact else None,
            limit=limit,
            with_payload=payload,
        )
        return (await _send(request, self.outages, self.name)).points

    def to_candidates(self, points: Sequence[Any], payload: Selection) -> list[Candidate]:  # noqa: ARG002
        return [to_candidate(p.payload, p.score) for p in points]

    async def read_ids(self, points: Sequence[Any]) -> list[str | None]:
        records = await self.retrieve([p.id for p in points], [ID_FIELD])
        own_ids = {str(record.id): str(record.payload[ID_FIELD]) for record in records if record.payload}
        return [own_ids.get(str(p.id)) for p in points]

    async def count(self, conditions: Any) -> int:
        return (await _send(self.client.count(self.name, conditions, exact=True), self.outages, self.name)).count

    async def scroll(self, conditions: Any, offset: Any, payload: Selection) -> tuple[list[Any], Any]:
        request = self.client.scroll(self.name, conditions, SCROLL_PAGE, offset=offset, with_payload=payload)
        return await _send(request, self.outages, self.name)

    async def retrieve(self, ids: list[Any], payload: Selection, *, vectors: bool = False) -> list[Any]:
        with_vectors: Any = [DENSE] if vectors else False
        request = self.client.retrieve(self.name, ids, with_payload=payload, with_vectors=with_vectors)
        return await _send(request, self.outages, self.name)


_FIELD_INDEXES: dict[FieldType, Any] = {
    FieldType.KEYWORD: qm.PayloadSchemaType.KEYWORD,
    FieldType.TENANT: qm.KeywordIndexParams(type=qm.KeywordIndexType.KEYWORD, is_tenant=True),
    FieldType.INTEGER: qm.PayloadSchemaType.INTEGER,
    FieldType.FLOAT: qm.PayloadSchemaType.FLOAT,
    FieldType.BOOL: qm.PayloadSchemaType.BOOL,
    FieldType.DATETIME: qm.PayloadSchemaType.DATETIME,
}


_DETAILS = {"field": "TOOLSCRIPT_INDEX"}


async def _send(request: Awaitable[T], outages: OutageWatch, collection: str | None = None) -> T:
    """Awaits a request to the server. Raises NotFound or Unavailable instead of the client's errors."""
    with outages.watch():
        try:
            return await request
        except UnexpectedResponse as error:
            if error.status_code == httpx.codes.NOT_FOUND:
                raise _not_open(collection) from error
            raise Outage(f"Qdrant refused the request: {error}; check TOOLSCRIPT_INDEX", details=_DETAILS) from error
        except ResponseHandlingException as error:
            raise Outage(f"Qdrant does not answer: {error}; check TOOLSCRIPT_INDEX", details=_DETAILS) from error
        except ValueError as error:
            if "not found" in str(error):
                raise _not_open(collection) from error
            raise


def _not_open(collection: str | None) -> NotFound:
    return NotFound(f"collection {collection!r} is not open", details={"collection": collection})
