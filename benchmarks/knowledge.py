"""Times knowledge search at the size of a library, with either store, and ingest beside embedding alone."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.client import Client
from benchmarks.embedding import find_packaged_model
from benchmarks.gateway import start_gateway
from benchmarks.texts import make_documents, make_queries
from benchmarks.timing import Sample, Table, format_duration, format_number, side_by_side
from tests.servers.mongo import run_mongo
from toolscript.adapters.files.reader import FileBooks
from toolscript.adapters.models.batching_embedder import BatchingEmbedder
from toolscript.adapters.mongo.knowledge import MongoKnowledge
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.knowledge import SqlKnowledge
from toolscript.domain.knowledge import Chunk, Extraction, Position, Source, derive_id
from toolscript.domain.search import Point, Terms, Vector
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.stores import KnowledgeStore
from toolscript.services.ingest.runner import FILES_AT_ONCE
from toolscript.services.knowledge.ingest import IngestKnowledge
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS, SourceDrafter, knowledge_collection

SOURCES = 50
CHUNKS_EACH, EXTRACTIONS_EACH = 1_000, 200
CHUNK_WORDS, EXTRACTION_WORDS = 150, 30
INGESTED = 240
ROUNDS = 3
WHEN = "2026-01-01T00:00:00Z"
SEARCH_NOTE = (
    "`POST /search_knowledge` over HTTP with the defaults (ten results, chunks and extractions together, with their "
    "sources), new queries, one client, no rate limit. Beside embedding the same queries and nothing else; the two "
    "take turns. The index is the embedded one both times; MongoDB here is a server that speaks its protocol, on the "
    "same machine."
)
INGEST_NOTE = (
    "`IngestKnowledge.ingest` of a new book in Markdown into a fresh store and index: read, cut, embedded, stored, "
    "indexed. Beside `embed_documents` of the same texts, chunks with their headings. The two sides take turns."
)


async def run(quick: bool) -> list[Table]:
    """Searches with either store, then ingest."""
    shelf = list(_shelf(quick))
    with TemporaryDirectory() as folder:
        place = Path(folder)
        await _fill_embedded(place / ".toolscript", shelf)
        count = 40 if quick else 300
        rows = [await _searches(place, "embedded (bar 40 ms at p95)", {}, count)]
        with run_mongo() as uri:
            store = MongoKnowledge.at(uri)
            await _store(store, shelf)
            await store.close()
            rows.append(await _searches(place, "MongoDB", {"TOOLSCRIPT_KNOWLEDGE": uri}, count))
    with TemporaryDirectory() as folder:
        ingest = await _ingest(Path(folder), 40 if quick else INGESTED)
    chunks, extractions = (sum(len(getattr(s, part)) for s in shelf) for part in ("chunks", "extractions"))
    columns = ("Store", "p50", "p95", "Per second", "Embedding alone, p50", "p95", "Time ÷ embedding")
    title = f"Knowledge, {chunks:,} chunks and {extractions:,} extractions of {len(shelf)} sources"
    return [
        Table(title, columns, rows, SEARCH_NOTE),
        Table(
            "Getting a book in",
            ("What", "Chunks per second", "Embedder alone, per second", "Ratio"),
            ingest,
            INGEST_NOTE,
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Book:
    source: Source
    chunks: list[Chunk]
    extractions: list[Extraction]


def _shelf(quick: bool) -> Iterator[_Book]:
    for number in range(4 if quick else SOURCES):
        source = Source(derive_id("source", number), "book", f"Book {number}", ("An Author",), f"{number}.md", WHEN)
        texts = make_documents(CHUNKS_EACH, CHUNK_WORDS, seed=2000 + number)
        chunks = [
            Chunk(
                derive_id(source.id, n), source.id, text, Position(f"Chapter {n // 50}", f"Section {n}", n), CHUNK_WORDS
            )
            for n, text in enumerate(texts)
        ]
        lessons = make_documents(EXTRACTIONS_EACH, EXTRACTION_WORDS, seed=3000 + number)
        extractions = [
            Extraction(
                derive_id(source.id, "e", n),
                source.id,
                chunks[5 * n].id,
                "decision",
                {"decision": text},
                ("tools",),
                WHEN,
            )
            for n, text in enumerate(lessons)
        ]
        yield _Book(source, chunks, extractions)


async def _store(store: KnowledgeStore, shelf: list[_Book]) -> None:
    for each in shelf:
        await store.replace(each.source, each.chunks, each.extractions)


async def _fill_embedded(data: Path, shelf: list[_Book]) -> None:
    """Stores everything and indexes it with random vectors: filling is not timed."""
    embedder = OnnxEmbedder(find_packaged_model(), device="cpu")
    model, dimensions = embedder.model, embedder.dimensions
    await embedder.close()
    database, index = Database(f"sqlite:///{data / 'toolscript.db'}"), QdrantEdgeIndex(data / "index")
    await _store(SqlKnowledge(database), shelf)
    await index.open(knowledge_collection(CHUNKS, model, dimensions))
    await index.open(knowledge_collection(EXTRACTIONS, model, dimensions))
    for each in shelf:
        await _index(index, each, dimensions)
    await index.wait_until_idle()
    await index.close()
    await database.close()


async def _index(index: VectorIndex, each: _Book, dimensions: int) -> None:
    source = each.source.id
    payload = {"source_id": source, "topics": ["tools"]}
    await index.upsert(
        CHUNKS,
        [
            Point(c.id, _random_vector(c.id, dimensions), Terms(), payload | {"chunk_id": c.id, "type": "chunk"})
            for c in each.chunks
        ],
    )
    await index.upsert(
        EXTRACTIONS,
        [
            Point(e.id, _random_vector(e.id, dimensions), Terms(), payload | {"chunk_id": e.chunk_id, "type": e.type})
            for e in each.extractions
        ],
    )


def _random_vector(text: str, dimensions: int) -> Vector:
    made = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(dimensions, dtype=np.float32)
    return np.asarray(made / np.linalg.norm(made), np.float32)


async def _searches(place: Path, store: str, settings: dict[str, str], count: int) -> tuple[str, ...]:
    embedder = BatchingEmbedder(OnnxEmbedder(find_packaged_model(), device="cpu"), similarity=None)
    with start_gateway(place, 0, settings={"TOOLSCRIPT_KNOWLEDGE_RATE": "0", **settings}) as gateway:
        client = Client(gateway.url, "/search_knowledge")
        for query in make_queries(20, seed=60):
            assert len((await client.search(query))["results"]) == 10
            await embedder.embed_query(query)
        ours, alone = await side_by_side(make_queries(count, seed=61), client.search, embedder.embed_query)
        client.close()
    await embedder.close()
    return (
        store,
        *_format_times(ours),
        format_duration(alone.p50),
        format_duration(alone.p95),
        format_number(ours.p50 / alone.p50),
    )


def _format_times(sample: Sample) -> tuple[str, ...]:
    return format_duration(sample.p50), format_duration(sample.p95), format_number(sample.per_second)


async def _ingest(place: Path, count: int) -> list[tuple[str, ...]]:
    """One book, then several at once, as a job does it."""
    embedder = BatchingEmbedder(OnnxEmbedder(find_packaged_model(), device="cpu"), similarity=None)
    database, index = Database(f"sqlite:///{place / 'toolscript.db'}"), QdrantEdgeIndex(place / "index")
    store = SqlKnowledge(database)
    ingest = IngestKnowledge(store, index, embedder, FileBooks(), None)
    await embedder.embed_documents(make_documents(20, CHUNK_WORDS, seed=1))
    rows = []
    for books in (1, FILES_AT_ONCE):
        ours, theirs = [], []
        for number in range(ROUNDS):
            files = [_write_book(place, count, f"{books}-{number}-{each}") for each in range(books)]
            began = time.perf_counter()
            done = await asyncio.gather(*map(ingest.ingest, files))
            ours.append(sum(each.chunks for each in done) / (time.perf_counter() - began))
            texts = [text for each in done for text in await _read_texts(store, embedder, each.source)]
            began = time.perf_counter()
            await embedder.embed_documents(texts)
            theirs.append(len(texts) / (time.perf_counter() - began))
        ratio = float(np.median(np.array(ours) / np.array(theirs)))
        what = f"a book of {count} sections" if books == 1 else f"{books} such books at once, as a job does (bar 0.95)"
        rows.append((what, *(format_number(float(np.median(each))) for each in (ours, theirs)), format_number(ratio)))
    await index.close()
    await asyncio.gather(database.close(), embedder.close())
    return rows


async def _read_texts(store: KnowledgeStore, embedder: Embedder, source: Source) -> list[str]:
    """What was embedded of a source."""
    chunks, extractions = await store.get_contents(source.id)
    return [draft.text for draft in SourceDrafter(source, embedder).draft_chunks(chunks, extractions)]


def _write_book(place: Path, count: int, name: str) -> Path:
    book = place / f"{name}.md"
    texts = make_documents(count, CHUNK_WORDS, seed=zlib.crc32(name.encode()))
    book.write_text("\n\n".join(f"## Section {n}\n\n{text}" for n, text in enumerate(texts)), encoding="utf-8")
    return book
