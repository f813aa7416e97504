"""A small library in real adapters, to be searched: two books with chunks and what was read out of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.house import Events
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.mongo import MongoKnowledge
from toolscript.adapters.sql_database import Database
from toolscript.adapters.sql_knowledge import SqlKnowledge
from toolscript.app import App, open_app
from toolscript.domain.knowledge import Chunk, Extraction, Position, Source, own_id, told
from toolscript.domain.search import Point, Terms
from toolscript.ports import KnowledgeStore, VectorIndex
from toolscript.retrieval.retriever import Retriever
from toolscript.services.knowledge_points import CHUNKS, EXTRACTIONS, chunks_collection, extractions_collection
from toolscript.services.knowledge_search import KnowledgeSearch
from toolscript.settings import load_settings

WHEN = "2025-01-02T03:04:05+00:00"
TIDES = Source(own_id("tides"), "book", "Of Tides", ("A. Moon", "B. Sea"), "tides.pdf", WHEN)
GARDENS = Source(own_id("gardens"), "book", "Gardens", ("C. Rose",), "gardens.md", WHEN)


def chunk(source: Source, text: str, *position: Any) -> Chunk:
    """A chunk of that source that says this, in that chapter, section, page."""
    return Chunk(own_id(source.id, text), source.id, text, Position(*position), len(text.split()))


def extraction(of: Chunk, kind: str, topics: Sequence[str], **content: Any) -> Extraction:
    """Something of that type that was read out of a chunk."""
    return Extraction(own_id(of.id, kind, content), of.source_id, of.id, kind, content, tuple(topics), WHEN)


MOON = chunk(TIDES, "the moon pulls the sea twice a day", "1 Causes", "1.2 The moon", 12)
HARBOUR = chunk(TIDES, "ships enter the harbour at high water", "2 Harbours", "", 40)
ROSES = chunk(GARDENS, "roses are cut in early spring", "Roses", "Cutting")
WARNING = extraction(HARBOUR, "warning", ["ships", "safety"], warning="never enter the harbour at low water")
DECISION = extraction(ROSES, "decision", ["roses"], decision="cut roses in spring", reason="frost is over")
BOOKS = [(TIDES, [MOON, HARBOUR], [WARNING]), (GARDENS, [ROSES], [DECISION])]


@dataclass
class Library:
    """Store, index and model, and the search in them."""

    store: KnowledgeStore = field(default_factory=lambda: SqlKnowledge(Database("sqlite://")))
    index: VectorIndex = field(default_factory=MemoryIndex)
    embedder: Any = field(default_factory=HashedEmbedder)
    events: Events = field(default_factory=Events)

    @property
    def search(self) -> KnowledgeSearch:
        """A search that nobody has asked yet."""
        return KnowledgeSearch(Retriever(self.embedder, self.index), self.index, self.store, self.events)

    async def open(self) -> None:
        """Makes the collections."""
        for make in (chunks_collection, extractions_collection):
            await self.index.open(make(self.embedder.model, self.embedder.dimensions))

    async def put(self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> None:
        """Makes a source be in the store and in the index."""
        await self.store.replace(source, chunks, extractions)
        await self.index.upsert(CHUNKS, [await self.chunk_point(each, extractions) for each in chunks])
        await self.index.upsert(EXTRACTIONS, [await self.extraction_point(each) for each in extractions])

    async def chunk_point(self, each: Chunk, extractions: Sequence[Extraction] = ()) -> Point:
        """What the index holds of a chunk."""
        topics = sorted({topic for e in extractions if e.chunk_id == each.id for topic in e.topics})
        return await self._point(each.id, each.content, each.source_id, each.id, "chunk", topics)

    async def extraction_point(self, each: Extraction) -> Point:
        """What the index holds of an extraction."""
        return await self._point(
            each.id, told(each.content), each.source_id, each.chunk_id, each.type, list(each.topics)
        )

    async def _point(self, own: str, text: str, source_id: str, chunk_id: str, kind: str, topics: list[str]) -> Point:
        (vector,) = await self.embedder.embed_documents([text])
        payload = {"source_id": source_id, "chunk_id": chunk_id, "type": kind, "topics": topics}
        return Point(own, vector, Terms(), payload)


async def filled(**parts: Any) -> Library:
    """A library with both books."""
    library = Library(**parts)
    await library.open()
    for book in BOOKS:
        await library.put(*book)
    return library


async def stock_mongo(uri: str) -> None:
    """Puts both books into a database of MongoDB, and into no index."""
    store = MongoKnowledge.at(uri)
    try:
        for book in BOOKS:
            await store.replace(*book)
    finally:
        await store.close()


@asynccontextmanager
async def stocked(data: Path) -> AsyncIterator[App]:
    """An application that serves both books from that folder, as often as it is asked. They are put there as the
    pipeline would: through a handle of its own."""
    settings = load_settings(variables={}, data_dir=data, search_model="hashed-64", port=0, knowledge_rate=0)
    async with open_app(settings, serving=True) as app:
        store = SqlKnowledge(Database(f"sqlite:///{data / 'toolscript.db'}"))
        try:
            await filled(store=store, index=app.index, embedder=app.model.embedder)
        finally:
            await store.close()
        yield app
