"""Caching and batching change how often the model runs, never the vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.models.batching_embedder import BatchingEmbedder
from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Vector


class Watched(HashedEmbedder):
    """Records its calls, and can be made to wait or to fail."""

    def __init__(self) -> None:
        super().__init__(8)
        self.calls: list[list[str]] = []
        self.busy = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken = False

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        self.calls.append(list(texts))
        self.busy.set()
        await self.gate.wait()
        if self.broken:
            raise Unavailable("the model is gone")
        return await super().embed_queries(texts)


async def test_a_repeated_query_is_embedded_once() -> None:
    inner = Watched()
    embedder = BatchingEmbedder(inner, similarity=None)
    first, second = await embedder.embed_query("a"), await embedder.embed_query("a")
    assert np.array_equal(first, second)
    assert inner.calls == [["a"]]


async def test_concurrent_equal_queries_are_embedded_once() -> None:
    inner = Watched()
    embedder = BatchingEmbedder(inner, similarity=None)
    await asyncio.gather(*(embedder.embed_query("a") for _ in range(100)))
    assert inner.calls == [["a"]]


async def test_queries_that_arrive_while_the_model_is_busy_form_batches() -> None:
    inner = Watched()
    inner.gate.clear()
    embedder = BatchingEmbedder(inner, similarity=None)
    first = asyncio.create_task(embedder.embed_query("first"))
    await inner.busy.wait()
    others = [asyncio.create_task(embedder.embed_query(f"q{n}")) for n in range(40)]
    await asyncio.sleep(0)
    inner.gate.set()
    vectors = await asyncio.gather(first, *others)
    assert [len(c) for c in inner.calls] == [1, 32, 8]
    expected = await HashedEmbedder(8).embed_queries(["first", *(f"q{n}" for n in range(40))])
    assert all(np.array_equal(a, b) for a, b in zip(vectors, expected, strict=True))


async def test_only_recent_queries_are_cached() -> None:
    inner = Watched()
    embedder = BatchingEmbedder(inner, similarity=None, cached_queries=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await embedder.embed_query(text)
    assert inner.calls == [["a"], ["b"], ["c"], ["b"]]


async def test_an_error_reaches_every_caller_and_is_not_cached() -> None:
    inner = Watched()
    inner.broken = True
    embedder = BatchingEmbedder(inner, similarity=None)
    answers = await asyncio.gather(embedder.embed_query("a"), embedder.embed_query("b"), return_exceptions=True)
    assert [type(a) for a in answers] == [Unavailable, Unavailable]
    inner.broken = False
    assert (await embedder.embed_query("a")).shape == (8,)


async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    inner = Watched()
    inner.gate.clear()
    embedder = BatchingEmbedder(inner, similarity=None)
    impatient, patient = (asyncio.create_task(embedder.embed_query("a")) for _ in range(2))
    await inner.busy.wait()
    impatient.cancel()
    inner.gate.set()
    assert (await patient).shape == (8,)
    with pytest.raises(asyncio.CancelledError):
        await impatient
    await embedder.close()


async def test_a_wrong_number_of_vectors_is_an_error() -> None:
    class Short(HashedEmbedder):
        async def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
            return []

    embedder = BatchingEmbedder(Short(8), similarity=None)
    for _ in range(2):
        with pytest.raises(ValueError, match="shorter"):
            await asyncio.wait_for(embedder.embed_query("a"), timeout=60)


async def test_a_query_that_arrives_as_the_last_one_finishes_is_embedded() -> None:
    embedder = BatchingEmbedder(HashedEmbedder(8), similarity=None)

    async def ask_then_ask_again(number: int) -> None:
        await embedder.embed_query(f"first {number}")
        await asyncio.wait_for(embedder.embed_query(f"second {number}"), timeout=60)

    for number in range(20):
        await ask_then_ask_again(number)
        await asyncio.gather(*(ask_then_ask_again(1000 * number + each) for each in range(5)))


async def test_an_embedder_with_concurrent_calls_gets_them() -> None:
    class TwoLanes(Watched):
        query_batch_size = 1
        max_concurrent_calls = 2

    inner = TwoLanes()
    inner.gate.clear()
    embedder = BatchingEmbedder(inner, similarity=None)
    queries = [asyncio.create_task(embedder.embed_query(f"q{n}")) for n in range(4)]
    await inner.busy.wait()
    await asyncio.sleep(0)
    assert inner.calls == [["q0"], ["q1"]]
    inner.gate.set()
    await asyncio.gather(*queries)
    assert inner.calls == [["q0"], ["q1"], ["q2"], ["q3"]]
