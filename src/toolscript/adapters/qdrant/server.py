"""The index on a Qdrant server or cluster, by URL and key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from qdrant_client import AsyncQdrantClient
from qdrant_client import models as qm
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from toolscript.adapters.qdrant.filters import QdrantPackage, field_path
from toolscript.adapters.qdrant.index import DENSE, SCROLL_PAGE, TERMS, QdrantIndex, select_payload
from toolscript.domain.errors import Invalid, NotFound, Unavailable
from toolscript.domain.search import Candidate, Collection, FieldType, require_same_model
from toolscript.ports.indexes import Fields

_PACKAGE = QdrantPackage(
    models=qm,
    point=qm.PointStruct,
    number_range=qm.Range,
    date_range=qm.DatetimeRange,
    is_empty=lambda path: qm.IsEmptyCondition(is_empty=qm.PayloadField(key=path)),
    nothing=qm.HasIdCondition(has_id=[]),
    has_flags=False,
)


class QdrantServerIndex(QdrantIndex):
    """A vector index on a server, which several processes can share."""

    package = _PACKAGE
    upsert_batch = 256
    vectors_page = 500

    def __init__(self, client: AsyncQdrantClient) -> None:
        self._client = client
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
        async with _translate_errors():
            if not await self._client.collection_exists(name):
                return None
            config = (await self._client.get_collection(name)).config
        vectors = config.params.vectors
        size = vectors[DENSE].size if isinstance(vectors, dict) else 0
        metadata = config.metadata or {}
        return Collection(name, str(metadata.get("model", "unknown")), size, exact=bool(metadata.get("exact", False)))

    async def open(self, collection: Collection) -> None:
        self._open[collection.name] = collection
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

    async def _write(self, name: str, points: Sequence[Any]) -> None:
        async with _translate_errors(name):
            await self._client.upsert(name, points, wait=True)

    async def _delete(self, name: str, ids: Sequence[Any]) -> None:
        async with _translate_errors(name):
            await self._client.delete(name, qm.PointIdsList(points=[*ids]), wait=True)

    async def _query(
        self, name: str, query: Any, using: str, conditions: Any, limit: int, floor: float | None, fields: Fields
    ) -> list[Candidate]:
        is_exact = using == DENSE and name in self._open and self._open[name].exact
        async with _translate_errors(name):
            found = await self._client.query_points(
                name,
                query,
                using=using,
                query_filter=conditions,
                search_params=qm.SearchParams(exact=True) if is_exact else None,
                limit=limit,
                score_threshold=floor,
                with_payload=select_payload(fields),
            )
        return [self._to_candidate(p.payload, p.score) for p in found.points]

    async def _count(self, name: str, conditions: Any) -> int:
        async with _translate_errors(name):
            return (await self._client.count(name, conditions, exact=True)).count

    async def _scroll(self, name: str, conditions: Any, offset: Any, fields: Fields) -> tuple[Sequence[Any], Any]:
        payload = select_payload(fields)
        async with _translate_errors(name):
            return await self._client.scroll(name, conditions, SCROLL_PAGE, offset=offset, with_payload=payload)

    async def _retrieve(
        self, name: str, ids: Sequence[Any], payload: bool | list[str], *, vectors: bool = False
    ) -> Sequence[Any]:
        async with _translate_errors(name):
            with_vectors = [DENSE] if vectors else False
            return await self._client.retrieve(name, ids, with_payload=payload, with_vectors=with_vectors)

    async def close(self) -> None:
        await self._client.close()


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
