"""Times document search at the size of a small service, and ingest beside embedding alone."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.client import Client
from benchmarks.embedding import find_packaged_model
from benchmarks.gateway import start_gateway
from benchmarks.texts import make_documents, make_queries
from benchmarks.timing import Sample, Table, format_duration, format_number, side_by_side
from toolscript.adapters.models.batching_embedder import BatchingEmbedder
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.app.app import local_token
from toolscript.domain.documents import Document
from toolscript.domain.search import SimilarityRange, Vector
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.points import documents_collection

TENANTS = 100
PASSAGES = 100_000
PARTS = 4
PASSAGE_WORDS = 150
INGESTED = 240
# Files that are ingested before searches beside the others are timed.
MIN_FILES = 20
ROUNDS = 3
SEARCH_NOTE = (
    f"`POST /search` over HTTP with a token, ten documents with snippets, new queries, one client; {TENANTS} tenants "
    "share the collection, one of them searches. Beside embedding the same queries and nothing else."
)
INGEST_NOTE = (
    "`IngestDocuments.put` of new documents of one passage each into a fresh store and index: split, embedded, stored, "
    "indexed. Beside `embed_documents` of the same texts. The two sides take turns."
)


async def run(quick: bool) -> list[Table]:
    """Searches of one tenant among many, then ingest."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        passages = 4_000 if quick else PASSAGES
        filled = await _fill(place / ".toolscript", passages)
        searches = await _searches(place, 40 if quick else 300)
    with TemporaryDirectory() as folder:
        ingest = await _ingest(Path(folder), 40 if quick else INGESTED)
    columns = ("What", "p50", "p95", "Per second", "Embedding alone, p50", "Time ÷ embedding")
    title = f"Documents, {passages:,} passages of {TENANTS} tenants"
    fill_note = f" Filling it with made-up vectors: {format_number(filled)} passages a second."
    return [
        Table(title, columns, searches, SEARCH_NOTE + fill_note),
        Table(
            "Getting documents in",
            ("What", "Documents per second", "Embedder alone, per second", "Ratio (bar 0.85)"),
            [ingest],
            INGEST_NOTE,
        ),
    ]


async def run_beside_ingest(quick: bool) -> list[Table]:
    """Searches while files are ingested, and without; the job is cancelled and resumed, so that the two take turns."""
    with TemporaryDirectory() as folder:
        place, files = Path(folder), Path(folder) / "files"
        files.mkdir()
        for number, text in enumerate(make_documents(200 if quick else 3_000, PASSAGE_WORDS * PARTS, seed=5)):
            (files / f"{number:05}.txt").write_text(text)
        with start_gateway(place, 0) as gateway:
            key = json.loads((place / ".toolscript" / "gateway.json").read_text())["key"]
            token = local_token(key, "default")
            rows = _time_beside_ingest(gateway.url, token, files, 30 if quick else 150)
    columns = ("Search", "Without, p50", "Without, p95", "Beside an ingest, p50", "p95", "p95 ÷ p95 without (bar 1.5)")
    note = "`POST /search` over HTTP while `POST /api/v1/ingest` works on a folder of texts of four passages each."
    return [Table("Searches beside an ingest", columns, rows, note)]


def _time_beside_ingest(url: str, token: str, files: Path, count: int) -> list[tuple[str, ...]]:
    def send(path: str, body: object = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{url}{path}", data, headers)) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    job = send("/api/v1/ingest", {"paths": [str(files)]})
    path = f"/api/v1/jobs/{job['id']}"
    while send(path)["files"].get("done", 0) < MIN_FILES:
        time.sleep(0.1)
    rows = []
    for search_type in ("hybrid", "keyword"):
        client = Client(url, "/search", token=token, search_type=search_type)
        queries = iter(make_queries(2 * count * ROUNDS + 20, seed=zlib.crc32(search_type.encode())))
        samples: dict[str, list[float]] = {"cancel": [], "resume": []}
        for query in islice(queries, 20):
            client.fetch(query)
        for _ in range(ROUNDS):
            for action, seconds in samples.items():
                send(f"{path}/{action}", {})
                time.sleep(1.0)
                seconds += [_time_call(client, query) for query in islice(queries, count)]
                assert action == "cancel" or send(path)["state"] == "running", "too few files"
        client.close()
        without, beside = Sample(samples["cancel"]), Sample(samples["resume"])
        times = (format_duration(each) for each in (without.p50, without.p95, beside.p50, beside.p95))
        rows.append((search_type, *times, format_number(beside.p95 / without.p95)))
    send(f"{path}/cancel", {})
    return rows


def _time_call(client: Client, query: str) -> float:
    began = time.perf_counter()
    client.fetch(query)
    return time.perf_counter() - began


class _RandomEmbedder:
    """The packaged model's name and dimensions with random vectors: filling an index does not measure embedding."""

    def __init__(self, inner: OnnxEmbedder) -> None:
        self.model = inner.model
        self.dimensions = inner.dimensions
        self.similarity: SimilarityRange | None = None
        self.window = inner.window
        self.batch_size = inner.batch_size
        self.count_tokens = inner.count_tokens

    async def embed_query(self, text: str) -> Vector:
        return self._embed(text)

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        return [self._embed(text) for text in texts]

    async def close(self) -> None:
        return None

    def _embed(self, text: str) -> Vector:
        vector = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(self.dimensions, dtype=np.float32)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


async def _fill(data: Path, passages: int) -> float:
    """Fills the index by the normal ingest; returns passages per second."""
    real = OnnxEmbedder(find_packaged_model(), device="cpu")
    embedder = _RandomEmbedder(real)
    await real.close()
    database, index = Database(f"sqlite:///{data / 'toolscript.db'}"), QdrantEdgeIndex(data / "index")
    store = SqlDocuments(database)
    await index.open(documents_collection(embedder.model, embedder.dimensions))
    ingest = IngestDocuments(store, index, embedder)
    each = passages // TENANTS // PARTS
    began = time.perf_counter()
    for tenant in range(TENANTS):
        texts = make_documents(each, PASSAGE_WORDS * PARTS, seed=1000 + tenant)
        await ingest.put(
            _tenant(tenant), [Document(f"d{n:04d}", text, f"Document {n}") for n, text in enumerate(texts)]
        )
    took = time.perf_counter() - began
    count = await index.count("documents")
    await index.wait_until_idle()
    await index.close()
    await database.close()
    return count / took


def _tenant(number: int) -> str:
    return f"tenant-{number:03d}"


async def _searches(place: Path, count: int) -> list[tuple[str, ...]]:
    embedder = BatchingEmbedder(OnnxEmbedder(find_packaged_model(), device="cpu"), similarity=None)
    rows = []
    with start_gateway(place, 0) as gateway:
        key = json.loads((place / ".toolscript" / "gateway.json").read_text())["key"]
        token = local_token(key, _tenant(42))
        for search_type in ("hybrid", "semantic", "keyword"):
            client = Client(gateway.url, "/search", token=token, search_type=search_type)
            rows.append(await _time_searches(client, embedder, search_type, count))
            client.close()
    await embedder.close()
    return rows


async def _time_searches(client: Client, embedder: BatchingEmbedder, search_type: str, count: int) -> tuple[str, ...]:
    queries = make_queries(count + 20, seed=zlib.crc32(search_type.encode()))
    for query in queries[:20]:
        await client.search(query)
        await embedder.embed_query(query)
    ours, alone = await side_by_side(queries[20:], client.search, embedder.embed_query)
    bar = " (bar 40 ms at p95)" if search_type == "hybrid" else ""
    times = (format_duration(ours.p50), format_duration(ours.p95), format_number(ours.per_second))
    return f"{search_type}{bar}", *times, format_duration(alone.p50), format_number(ours.p50 / alone.p50)


async def _ingest(place: Path, count: int) -> tuple[str, ...]:
    embedder = BatchingEmbedder(OnnxEmbedder(find_packaged_model(), device="cpu"), similarity=None)
    database, index = Database(f"sqlite:///{place / 'toolscript.db'}"), QdrantEdgeIndex(place / "index")
    await index.open(documents_collection(embedder.model, embedder.dimensions))
    ingest = IngestDocuments(SqlDocuments(database), index, embedder)
    await embedder.embed_documents(make_documents(20, PASSAGE_WORDS, seed=1))
    ours, theirs = [], []
    for number in range(ROUNDS):
        texts = make_documents(2 * count, PASSAGE_WORDS, seed=70 + number)
        documents = [Document(f"{number}-{n}", text) for n, text in enumerate(texts[:count])]
        began = time.perf_counter()
        await ingest.put("one", documents)
        ours.append(count / (time.perf_counter() - began))
        began = time.perf_counter()
        await embedder.embed_documents(texts[:count])
        theirs.append(count / (time.perf_counter() - began))
    await index.close()
    await asyncio.gather(database.close(), embedder.close())
    ratio = float(np.median(np.array(ours) / np.array(theirs)))
    return (
        f"{count} documents of {PASSAGE_WORDS} words",
        format_number(float(np.median(ours))),
        format_number(float(np.median(theirs))),
        format_number(ratio),
    )
