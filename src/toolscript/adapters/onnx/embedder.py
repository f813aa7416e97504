"""Embeds texts with ONNX Runtime and the model's own tokenizer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from toolscript.adapters.onnx.model_folders import ModelFolder
from toolscript.adapters.onnx.session import BATCH, SPARE_WORKERS, THREADS, OnnxSession, read_tokenizer
from toolscript.domain.errors import Invalid
from toolscript.domain.search import Vector

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Of short words, so that batches that are cut by this estimate are seldom larger than meant.
CHARACTERS_PER_TOKEN = 3
# Texts of one call on a GPU: enough to sort by length, and to keep several batches in work.
GPU_CALL = 8192


class OnnxEmbedder:
    """An embedder over a model folder. Embeds in worker threads, never on the event loop.

    A single query uses every core. Concurrent queries use a second session, and documents a third session with threads
    of lower priority, so that a long ingest hardly delays a query.
    """

    def __init__(self, folder: ModelFolder, *, device: str = "auto", lazy: bool = False) -> None:
        """Loads the model at once or, if `lazy`, with the first text. Loading raises Invalid for a model that is not an
        embedding model, Unavailable for `gpu` without a GPU."""
        self._folder = folder
        self._device = device
        self._loading = threading.Lock()
        self._is_loaded = False
        self._running_queries = 0
        self.model = folder.card.name
        self.dimensions = folder.card.dimensions
        self.similarity = folder.card.similarity
        if not lazy:
            self._load()

    @property
    def batch_size(self) -> int:
        return GPU_CALL if self._is_loaded and self._single.is_on_gpu else BATCH

    @property
    def query_batch_size(self) -> int:
        return self._single.batch if self._is_loaded else 1

    @property
    def max_concurrent_calls(self) -> int:
        return 2 * (THREADS + SPARE_WORKERS) if self.query_batch_size == 1 else 1

    @cached_property
    def _concurrent(self) -> OnnxSession:
        return OnnxSession(self._folder.onnx, self._device)

    @cached_property
    def _background(self) -> OnnxSession:
        return OnnxSession(self._folder.onnx, self._device, background=True)

    @cached_property
    def _counter(self) -> Tokenizer:
        return read_tokenizer(self._folder.tokenizer)

    @cached_property
    def window(self) -> int:
        return self._folder.card.window - self._counter.num_special_tokens_to_add(is_pair=False)

    def count_tokens(self, text: str) -> int:
        return len(self._counter.encode(text, add_special_tokens=False))

    async def embed_query(self, text: str) -> Vector:
        await self._require_model()
        return await self._single.run(lambda: self._embed(self._single, [self._folder.card.prefix + text])[0])

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per query. A single query uses every core unless another call is running."""
        await self._require_model()
        is_alone = len(texts) == 1 and not self._running_queries
        self._running_queries += 1
        try:
            if is_alone:
                return [await self.embed_query(texts[0])]
            return await self._embed_batches(self._concurrent, [self._folder.card.prefix + text for text in texts])
        finally:
            self._running_queries -= 1

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        await self._require_model()
        return await self._embed_batches(self._background, texts)

    async def _embed_batches(self, session: OnnxSession, texts: Sequence[str]) -> list[Vector]:
        window = self._folder.card.window
        return await session.run_batches(
            lambda some: self._embed(session, some), texts, lambda text: min(len(text) // CHARACTERS_PER_TOKEN, window)
        )

    async def close(self) -> None:
        for session in ("_single", "_concurrent", "_background"):
            if session in self.__dict__:
                self.__dict__[session].close()

    async def _require_model(self) -> None:
        if not self._is_loaded:
            await asyncio.to_thread(self._load)

    def _load(self) -> None:
        with self._loading:
            if not self._is_loaded:
                self._single = OnnxSession(self._folder.onnx, self._device, single=True)
                self._tokenizer = read_tokenizer(self._folder.tokenizer, self._folder.card.window)
                self._check()
                self._is_loaded = True

    def _embed(self, session: OnnxSession, texts: Sequence[str]) -> list[Vector]:
        return list(self._forward(session, [each.ids for each in self._tokenizer.encode_batch(list(texts))]))

    def _forward(self, session: OnnxSession, rows: Sequence[Sequence[int]]) -> Vector:
        """Unit vectors for rows of token ids."""
        hidden, mask = session.forward(rows)
        pooled: np.ndarray[Any, Any]
        if hidden.ndim == 2:  # noqa: PLR2004  (texts and dimensions: the model has averaged its tokens)
            pooled = hidden.astype(np.float32, copy=False)
        elif self._folder.card.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            # A product of matrices, which makes no copy: averaging must keep up with a GPU.
            sums = mask[:, None, :].astype(np.float32) @ hidden.astype(np.float32, copy=False)
            pooled = sums[:, 0] / mask.sum(axis=1, keepdims=True)
        lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
        return np.asarray(pooled / np.maximum(lengths, 1e-12), dtype=np.float32)

    def _check(self) -> None:
        try:
            width = self._forward(self._single, [[0]]).shape[1]
        except Exception as error:
            raise Invalid(
                f"model {self.model} is not an embedding model: {error}", details={"model": self.model}
            ) from error
        if width != self.dimensions:
            raise Invalid(
                f"model {self.model} gives {width} dimensions, but its configuration declares {self.dimensions}",
                details={"model": self.model, "dimensions": width},
            )
