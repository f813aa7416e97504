"""Times the embedder and the batching embedder beside a bare ONNX Runtime session with the same file.

`python -m benchmarks.embedding FOLDER` times a million texts on a GPU, with the model in a folder, beside the model
alone.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from benchmarks.texts import make_documents, make_queries
from benchmarks.timing import Row, Sample, Table, compare_table, measure_seconds, side_by_side
from toolscript.adapters.models.batching_embedder import BatchingEmbedder
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.onnx.model_folders import PACKAGED, ModelFolder, find_locally
from toolscript.adapters.onnx.runtime import onnxruntime as ort
from toolscript.adapters.onnx.session import GPU_BATCH, GPU_TOKENS, cut_batches
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


# --- a million texts on a GPU ---

BULK_WORDS = {"tools": 26, "passages": 112}
DIFFERENT = 50_000
CALLS_AT_ONCE = 2


async def run_bulk(folder: Path, count: int, device: str) -> None:
    """Prints how fast texts are embedded, beside the model alone."""
    found = find_locally(str(folder), folder.parent)
    assert found is not None
    embedder = OnnxEmbedder(found, device=device)
    print("| texts | tokens | seconds | per second | the model alone, per second | ratio |\n|---|---|---|---|---|---|")
    for kind, words in BULK_WORDS.items():
        texts = make_documents(min(count, DIFFERENT), words, seed=words)
        rows = [each.ids for each in embedder._tokenizer.encode_batch(texts)]
        await embedder.embed_documents(texts[:1000])
        began = time.perf_counter()
        await _embed_bulk(embedder, texts, count)
        seconds = time.perf_counter() - began
        alone = _run_alone(embedder._background._session, rows, min(count, 6 * DIFFERENT), device)
        tokens = round(float(np.mean([*map(len, rows)])))
        rate = count / seconds
        print(f"| {count:,} {kind} | {tokens} | {seconds:.1f} | {rate:,.0f} | {alone:,.0f} | {rate / alone:.2f} |")
    await embedder.close()


async def _embed_bulk(embedder: OnnxEmbedder, texts: Sequence[str], count: int) -> None:
    """Embeds that many different texts in calls of the embedder's size."""

    def split() -> Iterator[list[str]]:
        for start in range(0, count, embedder.batch_size):
            numbers = range(start, min(start + embedder.batch_size, count))
            yield [f"{n} {texts[n % len(texts)]}" for n in numbers]

    calls = split()

    async def work() -> None:
        for call in calls:
            await embedder.embed_documents(call)

    await asyncio.gather(*(work() for _ in range(CALLS_AT_ONCE)))


def _run_alone(session: ort.InferenceSession, rows: Sequence[list[int]], count: int, device: str) -> float:
    """Texts per second of the model with tokenized texts in the best batches, whose results stay on the GPU."""
    batches = []
    for numbers in cut_batches([*map(len, rows)], GPU_BATCH, GPU_TOKENS):
        ids = np.zeros((len(numbers), max(len(rows[n]) for n in numbers)), np.int64)
        mask = np.zeros_like(ids)
        for place, number in enumerate(numbers):
            ids[place, : len(rows[number])] = rows[number]
            mask[place, : len(rows[number])] = 1
        batches.append((ids, mask, np.zeros_like(ids)))

    def forward(batch: Sequence[NDArray[np.int64]]) -> int:
        binding = session.io_binding()
        for name, each in zip(("input_ids", "attention_mask", "token_type_ids"), batch, strict=True):
            binding.bind_cpu_input(name, each)
        binding.bind_output(session.get_outputs()[0].name, "cuda" if device == "gpu" else "cpu")
        session.run_with_iobinding(binding)
        return len(batch[0])

    for batch in (*batches[:3], *batches[-3:]):
        forward(batch)
    done, began = 0, time.perf_counter()
    while done < count:
        for batch in batches:
            done += forward(batch)
    return done / (time.perf_counter() - began)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=run_bulk.__doc__ or __doc__)
    parser.add_argument("folder", type=Path, help="a model in full or half precision: a quantised one is not for GPUs")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    given = parser.parse_args()
    asyncio.run(run_bulk(given.folder, given.count, given.device))
