"""Documents on their way in: the service with all it works on, and texts long enough to be cut."""

from __future__ import annotations

from typing import Any

from tests.house import CountingEmbedder, Fuse, Near
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.sql_database import Database
from toolscript.adapters.sql_documents import SqlDocuments
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import Terms
from toolscript.ports import DocumentStore, Embedder, VectorIndex
from toolscript.retrieval.texts import document_frequencies
from toolscript.services.document_points import DOCUMENTS, doc_of, documents_collection, of_tenant
from toolscript.services.ingest_documents import IngestDocuments

LOOKED_AT = 40


def sentences(*numbers: int) -> str:
    """A paragraph of some 600 characters for each number: two fit no passage."""
    return "\n\n".join(" ".join(f"Fact {n} of paragraph {p} is true." for n in range(19)) for p in numbers)


class Ingest:
    """The service and what it works on. Another is made of the same store and index as another process would."""

    def __init__(
        self,
        store: DocumentStore | None = None,
        index: VectorIndex | None = None,
        embedder: Embedder | None = None,
        fuse: Fuse | None = None,
    ) -> None:
        self.store = store or SqlDocuments(Database("sqlite://"))
        self.index = index or MemoryIndex()
        self.embedder = embedder or CountingEmbedder()
        around = (fuse or Fuse()).around
        self.service = IngestDocuments(around(self.store), around(self.index), around(self.embedder))

    async def opened(self) -> Ingest:
        await self.index.open(documents_collection(self.embedder.model, self.embedder.dimensions))
        return self

    async def contents(self) -> dict[str, Any]:
        """What store and index hold, the vectors but for their last digit."""
        found = await self.index.scroll(DOCUMENTS)
        vectors = await self.index.vectors(DOCUMENTS, [c.id for c in found])
        points = {c.id: (c.payload, Near([vectors[c.id].tolist()])) for c in found}
        tenants = await self.store.tenants()
        return {"points": points, "documents": {t: await self.store.documents(t) for t in tenants}}

    async def assert_whole(self) -> None:
        """Nothing waits, and an index made anew of the store would be the same."""
        assert await self.store.waiting() == {}
        fresh = await Ingest(self.store, embedder=HashedEmbedder(self.embedder.dimensions)).opened()
        await fresh.service.index_all()
        assert await self.contents() == await fresh.contents()
        for tenant in await self.store.tenants():
            for document in (await self.store.documents(tenant))[:LOOKED_AT]:
                terms = document_frequencies(document)
                where = Filter(must=(of_tenant(tenant), Condition("doc_id", Op.EQ, document.id)))
                found = await self.index.lexical(DOCUMENTS, asked_for(terms), where=where, limit=9)
                assert [doc_of(c.id) for c in found] == ([(document.id, 0)] if terms else [])


def asked_for(terms: dict[int, int]) -> Terms:
    return Terms(tuple(sorted(terms)), (1.0,) * len(terms))
