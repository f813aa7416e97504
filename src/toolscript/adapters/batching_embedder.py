"""What stands before an embedder in a server: repeated queries are remembered, queries that arrive together are
embedded as the embedder does most of them in a second, and the same query asked twice at once is embedded once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Similarity, Vector
from toolscript.ports.models import Embedder

REMEMBERED = 4096


class GatheringEmbedder(Embedder, Protocol):
    """An embedder that can take several queries."""

    @property
    def together(self) -> int:
        """How many queries in one call it gains from."""

    @property
    def at_once(self) -> int:
        """How many calls at a time it gains from."""

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]: ...


class GatheredEmbedder:
    """A decorator: the same vectors, sooner."""

    def __init__(
        self, inner: GatheringEmbedder, *, similarity: Similarity | None, remembered: int = REMEMBERED
    ) -> None:
        self._inner = inner
        self._similarity = similarity
        self._room = remembered
        self._known: OrderedDict[str, Vector] = OrderedDict()
        self._waiting: dict[str, list[asyncio.Future[Vector]]] = {}
        self._queue: list[str] = []
        self._workers: set[asyncio.Task[None] | None] = set()

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def dimensions(self) -> int:
        return self._inner.dimensions

    @property
    def similarity(self) -> Similarity | None:
        return self._similarity

    @property
    def window(self) -> int:
        return self._inner.window

    def count_tokens(self, text: str) -> int:
        return self._inner.count_tokens(text)

    async def embed_query(self, text: str) -> Vector:
        known = self._known.get(text)
        if known is not None:
            self._known.move_to_end(text)
            return known
        answer: asyncio.Future[Vector] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(text, [])
        waiting.append(answer)
        if len(waiting) == 1:
            self._queue.append(text)
            if len(self._workers) < self._inner.at_once:
                self._workers.add(asyncio.create_task(self._work()))
        return await answer

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        return await self._inner.embed_documents(texts)

    async def close(self) -> None:
        await asyncio.gather(*filter(None, self._workers), return_exceptions=True)
        await self._inner.close()

    async def _work(self) -> None:
        try:
            while self._queue:
                together = self._inner.together
                texts, self._queue = self._queue[:together], self._queue[together:]
                await self._embed(texts)
        finally:  # in the same breath as the last look at the queue: nobody may take it for a worker after that
            self._workers.discard(asyncio.current_task())

    async def _embed(self, texts: Sequence[str]) -> None:
        try:
            vectors = await self._inner.embed_queries(texts)
            for text, vector in zip(texts, vectors, strict=True):
                self._remember(text, vector)
                for answer in self._waited_for(text):
                    answer.set_result(vector)
        except BaseException as error:  # whatever it is belongs to those who asked
            for text in texts:
                self._fail(text, error)
            if not isinstance(error, Exception):
                raise

    def _fail(self, text: str, error: BaseException) -> None:
        for answer in self._waited_for(text):
            answer.set_exception(error if isinstance(error, Exception) else Unavailable("the embedder was closed"))
            answer.exception()  # those who gave up waiting need not hear of it

    def _waited_for(self, text: str) -> list[asyncio.Future[Vector]]:
        """The answers that somebody still waits for."""
        return [answer for answer in self._waiting.pop(text, ()) if not answer.done()]

    def _remember(self, text: str, vector: Vector) -> None:
        self._known[text] = vector
        if len(self._known) > self._room:
            self._known.popitem(last=False)
