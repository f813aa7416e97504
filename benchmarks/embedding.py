"""Times the embedder and the batching embedder beside a bare ONNX Runtime session with the same file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

from benchmarks.texts import make_documents, make_queries
from benchmarks.timing import Row, Sample, Table, compare_table, measure_seconds, side_by_side
from toolscript.adapters.batching_embedder import BatchingEmbedder
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.onnx.model_folders import PACKAGED, ModelFolder, find_locally
from toolscript.domain.search import Vector

BARE = "bare session"
CLIENTS = 16
BATCH = 32
SHORT_WORDS, LONG_WORDS = 11, 186
NOTE = (
    f"The reference is an ONNX Runtime session with the packaged model ({PACKAGED}, quantised) and nothing around "
    "it: tokenize, run, average, one text at a time. Documents are embedded in calls of "
    f"{BATCH} and reported per text; the rate with {CLIENTS} clients is by the wall clock, its p50 and p95 are the "
    "waiting times of the clients."
)


class BareSession:
    """The minimal code that turns a text into a vector."""

    def __init__(self, folder: ModelFolder) -> None:
        self._session = ort.InferenceSession(str(folder.onnx), providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(folder.tokenizer))
        self._tokenizer.enable_truncation(folder.card.window)
        self._tokenizer.no_padding()

    async def embed(self, text: str) -> Vector:
        ids = np.array([self._tokenizer.encode(text).ids])
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean = self._session.run(None, feeds)[0][0].mean(axis=0)
        return np.asarray(mean / np.linalg.norm(mean), dtype=np.float32)

    def tokens(self, texts: Sequence[str]) -> int:
        """The mean number of tokens of these texts."""
        return round(float(np.mean([len(self._tokenizer.encode(t).ids) for t in texts])))


def find_packaged_model() -> ModelFolder:
    """The model that comes with the package."""
    folder = find_locally(PACKAGED, Path("nowhere"))
    assert folder is not None
    return folder


async def run(quick: bool) -> list[Table]:
    """One query at a time, many clients at once, repeated queries, short and long documents."""
    folder = find_packaged_model()
    bare, embedder = BareSession(folder), OnnxEmbedder(folder, device="cpu")
    batching = BatchingEmbedder(embedder, similarity=folder.card.similarity)
    count = 80 if quick else 400
    for text in make_queries(20, seed=0):
        await embedder.embed_query(text)
        await bare.embed(text)
    await embedder.embed_documents(make_documents(4, SHORT_WORDS, seed=0))
    rows = [
        await _single(embedder, bare, make_queries(count, seed=1)),
        await _concurrent(batching, bare, make_queries(2 * count, seed=2)),
        await _repeat(batching, bare, make_queries(20, seed=2) * (count // 20)),
        await _documents(embedder, bare, "short", make_documents(2 * count, SHORT_WORDS, seed=3)),
        await _documents(embedder, bare, "long", make_documents(count // 2, LONG_WORDS, seed=4)),
    ]
    await batching.close()
    return [compare_table("Queries and documents", rows, NOTE)]


async def _single(embedder: OnnxEmbedder, bare: BareSession, queries: list[str]) -> Row:
    ours, beside = await side_by_side(queries, embedder.embed_query, bare.embed)
    return Row("New queries, 1 client", f"{bare.tokens(queries)} tokens", ours, BARE, beside)


async def _concurrent(batching: BatchingEmbedder, bare: BareSession, queries: list[str]) -> Row:
    quarter = len(queries) // 4
    before = [await measure_seconds(bare.embed, q) for q in queries[:quarter]]
    left = iter(queries)
    waited: list[float] = []

    async def client() -> None:
        waited.extend([await measure_seconds(batching.embed_query, query) for query in left])

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    ours = Sample(waited, rate=len(queries) / (time.perf_counter() - started))
    after = [await measure_seconds(bare.embed, q) for q in queries[quarter : 2 * quarter]]
    beside = Sample([*before, *after])
    return Row(f"New queries, {CLIENTS} clients", f"{bare.tokens(queries)} tokens", ours, BARE, beside)


async def _repeat(batching: BatchingEmbedder, bare: BareSession, queries: list[str]) -> Row:
    ours, beside = await side_by_side(queries, batching.embed_query, bare.embed)
    return Row("Repeated queries, 1 client", f"{bare.tokens(queries)} tokens", ours, BARE, beside)


async def _documents(embedder: OnnxEmbedder, bare: BareSession, kind: str, texts: list[str]) -> Row:
    mine: list[float] = []
    theirs: list[float] = []
    for start in range(0, len(texts) - BATCH + 1, BATCH):
        batch = texts[start : start + BATCH]
        mine.append(await measure_seconds(embedder.embed_documents, batch) / BATCH)
        theirs += [await measure_seconds(bare.embed, text) for text in batch]
    return Row(f"Documents, {kind}", f"{bare.tokens(texts)} tokens", Sample(mine), BARE, Sample(theirs))
