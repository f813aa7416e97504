"""Knowledge on its way in: the services with all they work on, and books to be brought in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.house import CountingEmbedder, Fuse, Near
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.sql_database import Database
from toolscript.adapters.sql_knowledge import SqlKnowledge
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Block, BlockKind, Book, Chunk, Extraction, Position, Source
from toolscript.ports import Embedder, KnowledgeStore, VectorIndex
from toolscript.services.extract import Extractor
from toolscript.services.ingest_knowledge import IngestKnowledge
from toolscript.services.knowledge_points import CHUNKS, EXTRACTIONS
from toolscript.services.knowledge_transfer import ImportKnowledge

HANDBOOK = Path("/books/handbook.md")


def facts(chapter: int, number: int = 0, of: int = 25) -> str:
    """Some 200 words about a chapter: two such paragraphs fit no chunk."""
    return " ".join(f"Fact {n} of chapter {chapter} is plainly true." for n in range(number, number + of))


def chapter(number: int, text: str | None = None, *, page: int | None = None) -> Block:
    return Block(text or facts(number), BlockKind.PROSE, Position(f"{number} Rivers", f"{number}.1 Water", page))


def book(*numbers: int, title: str = "The Handbook", authors: tuple[str, ...] = ("Ada Lovelace",)) -> Book:
    return Book(title, authors, tuple(map(chapter, numbers)))


class Drawer:
    """Books that were read already, by path."""

    def __init__(self, books: dict[Path, Book]) -> None:
        self.books = books

    async def read(self, path: Path) -> Book:
        if path not in self.books:
            raise Invalid("is not in the drawer")
        return self.books[path]


class Library:
    """The services and what they work on. Another is made of the same store and index as another process would."""

    def __init__(
        self,
        *,
        store: KnowledgeStore | None = None,
        index: VectorIndex | None = None,
        embedder: Embedder | None = None,
        extractor: Extractor | None = None,
        fuse: Fuse | None = None,
        books: dict[Path, Book] | None = None,
    ) -> None:
        self.store = store or SqlKnowledge(Database("sqlite://"))
        self.index = index or MemoryIndex()
        self.embedder = embedder or CountingEmbedder()
        self.drawer = Drawer(books or {HANDBOOK: book(1, 2)})
        around = (fuse or Fuse()).around
        ports = around(self.store), around(self.index), around(self.embedder)
        self.ingesting = IngestKnowledge(*ports, self.drawer, extractor)
        self.importing = ImportKnowledge(*ports)

    async def contents(self) -> dict[str, Any]:
        """What store and index hold."""
        return {"stored": await self.stored(), "points": await self.points()}

    async def stored(self) -> dict[str, tuple[Source, list[Chunk], list[Extraction]]]:
        """The sources by id, with their chunks and extractions."""
        return {source.id: (source, *await self.store.contents(source.id)) for source in await self.store.sources()}

    async def points(self) -> dict[str, Any]:
        """Collection, payload and vector of every point by id, the vectors but for their last digit."""
        held: dict[str, Any] = {}
        for name in (CHUNKS, EXTRACTIONS):
            found = await self.index.scroll(name)
            vectors = await self.index.vectors(name, [c.id for c in found])
            held |= {c.id: (name, c.payload, Near([vectors[c.id].tolist()])) for c in found}
        return held

    async def assert_whole(self) -> None:
        """All sources are ready, and an index made anew of the store would be the same."""
        assert {source.status for source in await self.store.sources()} <= {"ready"}
        fresh = Library(store=self.store, embedder=HashedEmbedder(self.embedder.dimensions))
        await fresh.ingesting.index_all()
        assert await self.points() == await fresh.points()
