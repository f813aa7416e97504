"""Embeds with any OpenAI-compatible embeddings API."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import openai

from toolscript.adapters.outgoing.bounds import MAX_EMBEDDINGS_BYTES
from toolscript.adapters.outgoing.client import AnswerTooLarge, BoundedClient
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.search import SimilarityRange, Vector

BATCH = 128
# Such an API gives neither the window of a model nor its tokenizer. Nearly all models read this much, and few tokens
# are shorter than this on average.
WINDOW = 510
BYTES_PER_TOKEN = 3
MAX_CONCURRENT_CALLS = 4


class OpenAiEmbedder:
    """A model behind a base URL. The client library retries rate limits and temporary errors."""

    similarity: SimilarityRange | None = None
    window = WINDOW
    batch_size = BATCH * MAX_CONCURRENT_CALLS
    query_batch_size = BATCH
    max_concurrent_calls = MAX_CONCURRENT_CALLS

    def __init__(self, client: openai.AsyncOpenAI, model: str, dimensions: int) -> None:
        self._client = client
        self.model = model
        self.dimensions = dimensions
        self._limit = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    @classmethod
    async def at(cls, url: str, key: str | None, model: str, *, timeout_seconds: float = 10.0) -> OpenAiEmbedder:
        """Connects and reads the model's dimensions. Raises Invalid or Unavailable, naming the URL."""
        http = BoundedClient(max_bytes=MAX_EMBEDDINGS_BYTES, timeout=timeout_seconds, within=timeout_seconds)
        client = openai.AsyncOpenAI(
            base_url=url, api_key=key or "none", timeout=timeout_seconds, max_retries=2, http_client=http
        )
        embedder = cls(client, model, 0)
        try:
            embedder.dimensions = len(await embedder.embed_query("ready"))
        except BaseException:
            await client.close()
            raise
        return embedder

    def count_tokens(self, text: str) -> int:
        return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)

    async def embed_query(self, text: str) -> Vector:
        return (await self._embed([text]))[0]

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        return await self.embed_documents(texts)

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
        return [v for vectors in await asyncio.gather(*map(self._embed, batches)) for v in vectors]

    async def close(self) -> None:
        await self._client.close()

    async def _embed(self, texts: Sequence[str]) -> list[Vector]:
        inputs = [text or " " for text in texts]  # APIs refuse empty input
        try:
            async with self._limit:
                response = await self._client.embeddings.create(model=self.model, input=inputs, encoding_format="float")
        except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as error:
            raise Invalid(
                f"the embeddings API at {self._client.base_url} refuses model {self.model!r}: {error.message}",
                details={"field": "TOOLSCRIPT_EMBEDDINGS_URL", "model": self.model},
            ) from error
        except AnswerTooLarge as error:
            raise self._fail(f"sent an unusable response: {error}") from error
        except (openai.OpenAIError, ValueError) as error:
            raise self._fail(f"does not answer: {error} {error.__cause__ or ''}".strip()) from error
        return self._read_vectors(response, len(inputs))

    def _read_vectors(self, response: Any, count: int) -> list[Vector]:
        """The vectors of a response, normalised to length one. Raises Unavailable for an unusable response."""
        try:
            rows = sorted(response.data, key=lambda row: row.index)
            vectors = np.array([row.embedding for row in rows], dtype=np.float32).reshape(count, -1)
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            is_usable = bool(np.all(np.isfinite(lengths)) and np.all(lengths > 0))
        except (TypeError, ValueError, AttributeError) as error:
            raise self._fail(f"sent an unusable response: {error}") from error
        if not is_usable or (self.dimensions and vectors.shape[1] != self.dimensions):
            raise self._fail(f"sent an unusable response: vectors of {vectors.shape[1]} numbers, not all usable")
        return list(vectors / lengths)

    def _fail(self, what: str) -> Unavailable:
        return Unavailable(
            f"the embeddings API at {self._client.base_url} {what}", details={"field": "TOOLSCRIPT_EMBEDDINGS_URL"}
        )
