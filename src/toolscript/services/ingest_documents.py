"""The write path of documents: compare digests, store (the truth), embed what changed, index."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from toolscript.domain.documents import Document, StoredDocument
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import Collection, FieldType, Point
from toolscript.ports import DocumentStore, Embedder, VectorIndex
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.texts import DOCUMENT_AVERAGE_LENGTH, document_frequencies, document_text

DOCUMENTS = "documents"
DOCUMENT_FIELDS = {"tenant": FieldType.TENANT, "doc_id": FieldType.KEYWORD}
BATCH = 64

Progress = Callable[[int, int], None]


def documents_collection(model: str, dimensions: int) -> Collection:
    """The collection of every tenant's documents."""
    return Collection(DOCUMENTS, model, dimensions, DOCUMENT_FIELDS)


def of_tenant(tenant: str) -> Condition:
    """What keeps a search inside one tenant."""
    return Condition("tenant", Op.EQ, tenant)


def metadata_field(name: str) -> str:
    """The payload field of a document's metadata field: apart from our own fields, whatever it is called."""
    return f"meta.{name}"


class IngestDocuments:
    """Brings a tenant's documents in. Unchanged ones are left alone, in the store and in the index."""

    def __init__(self, store: DocumentStore, index: VectorIndex, embedder: Embedder | None) -> None:
        self._store = store
        self._index = index
        self._embedder = embedder

    async def put(self, tenant: str, documents: Sequence[Document]) -> int:
        """Adds or replaces documents (of equal ids the last counts); returns how many were new or different."""
        given = list({d.id: d for d in documents}.values())
        put = 0
        for start in range(0, len(given), BATCH):
            batch = given[start : start + BATCH]
            stored = await self._store.digests(tenant, [d.id for d in batch])
            fresh = [d for d in batch if stored.get(d.id) != d.digest]
            await self._store.save_documents(
                tenant, [StoredDocument(d, frozenset(document_frequencies(d))) for d in fresh]
            )
            put += await self._index_stale(tenant, batch)
        return put

    async def delete(self, tenant: str, ids: Sequence[str]) -> int:
        """Removes documents; returns how many there were."""
        gone = await self._store.delete_documents(tenant, ids)
        await self._index.delete(DOCUMENTS, [_point_id(tenant, i) for i in ids])
        return gone

    async def index_all(self, progress: Progress | None = None) -> int:
        """Makes the index hold exactly the stored documents; returns how many it lacked."""
        tenants = await self._store.tenants()
        orphans = {c.id for c in await self._index.scroll(DOCUMENTS, fields=[])}
        written = 0
        for done, tenant in enumerate(tenants, start=1):
            documents = await self._store.documents(tenant)
            orphans -= {_point_id(tenant, d.id) for d in documents}
            for start in range(0, len(documents), BATCH):
                written += await self._index_stale(tenant, documents[start : start + BATCH])
            if progress:
                progress(done, len(tenants))
        await self._index.delete(DOCUMENTS, sorted(orphans))
        return written

    async def _index_stale(self, tenant: str, documents: Sequence[Document]) -> int:
        ids = [d.id for d in documents]
        where = Filter(must=(of_tenant(tenant), Condition("doc_id", Op.IN, ids)))
        found = await self._index.scroll(DOCUMENTS, where=where, fields=["doc_id", "digest"])
        held = {c.payload["doc_id"]: c.payload["digest"] for c in found}
        stale = [d for d in documents if held.get(d.id) != d.digest]
        texts = [document_text(d) for d in stale]
        vectors = await self._embedder.embed_documents(texts) if self._embedder else [None] * len(texts)
        points = [
            Point(
                id=_point_id(tenant, d.id),
                vector=vector,
                terms=document_terms(document_frequencies(d), DOCUMENT_AVERAGE_LENGTH),
                payload=_payload(tenant, d),
            )
            for d, vector in zip(stale, vectors, strict=True)
        ]
        await self._index.upsert(DOCUMENTS, points)
        return len(stale)


def _point_id(tenant: str, doc_id: str) -> str:
    return json.dumps([tenant, doc_id], ensure_ascii=False)


def _payload(tenant: str, document: Document) -> dict[str, Any]:
    told = {metadata_field(name): value for name, value in document.metadata.items()}
    return {**told, "tenant": tenant, "doc_id": document.id, "digest": document.digest}
