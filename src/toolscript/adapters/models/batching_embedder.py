"""Caches query vectors and batches concurrent queries in front of an embedder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from toolscript.domain.errors import Unavailable
from toolscript.domain.lru_cache import LruCache
from toolscript.domain.search import SimilarityRange, Vector
from toolscript.ports.models import Embedder

CACHED_QUERIES = 4096


class MultiQueryEmbedder(Embedder, Protocol):
    """An embedder that takes several queries in one call."""

    @property
    def query_batch_size(self) -> int:
        """The number of queries in one call beyond which a larger call gains nothing."""

    @property
    def max_concurrent_calls(self) -> int:
        """The number of concurrent calls beyond which more calls gain nothing."""

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]: ...


class BatchingEmbedder:
    """A decorator that returns the same vectors sooner: it remembers recent queries, embeds waiting queries in batches,
    and embeds a query once when several callers want it at the same time."""

    def __init__(
        self, inner: MultiQueryEmbedder, *, similarity: SimilarityRange | None, cached_queries: int = CACHED_QUERIES
    ) -> None:
        self._inner = inner
        self.model = inner.model
        self.dimensions = inner.dimensions
        self.similarity = similarity
        self.cache: LruCache[str, Vector] = LruCache(cached_queries)
        self._waiting: dict[str, list[asyncio.Future[Vector]]] = {}
        self._queue: list[str] = []
        self._workers: set[asyncio.Task[None] | None] = set()

    @property
    def window(self) -> int:
        return self._inner.window

    @property
    def batch_size(self) -> int:
        return self._inner.batch_size

    def count_tokens(self, text: str) -> int:
        return self._inner.count_tokens(text)

    async def embed_query(self, text: str) -> Vector:
        cached = self.cache.find(text)
        if cached is not None:
            return cached
        result: asyncio.Future[Vector] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(text, [])
        waiting.append(result)
        if len(waiting) == 1:
            self._queue.append(text)
            if len(self._workers) < self._inner.max_concurrent_calls:
                self._workers.add(asyncio.create_task(self._work()))
        return await result

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        return await self._inner.embed_documents(texts)

    async def close(self) -> None:
        await asyncio.gather(*filter(None, self._workers), return_exceptions=True)
        await self._inner.close()

    async def _work(self) -> None:
        try:
            while self._queue:
                size = self._inner.query_batch_size
                texts, self._queue = self._queue[:size], self._queue[size:]
                await self._embed(texts)
        finally:  # without an await since the last look at the queue: a new query must not count on this worker
            self._workers.discard(asyncio.current_task())

    async def _embed(self, texts: Sequence[str]) -> None:
        try:
            vectors = await self._inner.embed_queries(texts)
            for text, vector in zip(texts, vectors, strict=True):
                self.cache.keep(text, vector)
                for result in self._pop_waiting(text):
                    result.set_result(vector)
        except BaseException as error:  # every error belongs to the callers of these queries
            reason = error if isinstance(error, Exception) else Unavailable("the embedder was closed")
            for result in (each for text in texts for each in self._pop_waiting(text)):
                result.set_exception(reason)
                result.exception()  # marks it as retrieved: a caller may have stopped waiting
            if not isinstance(error, Exception):
                raise

    def _pop_waiting(self, text: str) -> list[asyncio.Future[Vector]]:
        """Removes and returns the results that a caller still waits for."""
        return [result for result in self._waiting.pop(text, ()) if not result.done()]
