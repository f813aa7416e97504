"""Embeds with any API that speaks OpenAI's embeddings protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import openai

from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.search import Vector
from toolscript.ports import Similarity

BATCH = 128
AT_ONCE = 4


class OpenAiEmbedder:
    """A model behind a base URL. Rate limits and passing faults are retried by the client library."""

    def __init__(self, client: openai.AsyncOpenAI, model: str, dimensions: int) -> None:
        self._client = client
        self._model = model
        self._dimensions = dimensions
        self._at_once = asyncio.Semaphore(AT_ONCE)

    @classmethod
    async def at(cls, url: str, key: str | None, model: str, *, timeout_seconds: float = 10.0) -> OpenAiEmbedder:
        """Connects and learns the model's dimensions. Raises Invalid or Unavailable, naming the URL."""
        client = openai.AsyncOpenAI(base_url=url, api_key=key or "none", timeout=timeout_seconds, max_retries=2)
        embedder = cls(client, model, 0)
        try:
            embedder._dimensions = len(await embedder.embed_query("ready"))
        except BaseException:
            await client.close()
            raise
        return embedder

    @property
    def model(self) -> str:
        return self._model

    @property
    def dimensions(self) -> int:
        return self._dimensions

    @property
    def similarity(self) -> Similarity | None:
        return None

    async def embed_query(self, text: str) -> Vector:
        return (await self._embed([text]))[0]

    async def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        return await self.embed_documents(texts)

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        pieces = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
        return [v for piece in await asyncio.gather(*map(self._embed, pieces)) for v in piece]

    async def close(self) -> None:
        await self._client.close()

    async def _embed(self, texts: Sequence[str]) -> list[Vector]:
        # An API refuses empty input; a space embeds as well as anything else that says nothing.
        said = [text or " " for text in texts]
        try:
            async with self._at_once:
                answer = await self._client.embeddings.create(model=self._model, input=said, encoding_format="float")
        except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as error:
            raise Invalid(
                f"the embeddings API at {self._client.base_url} refuses model {self._model!r}: {error.message}",
                details={"setting": "TOOLSCRIPT_EMBEDDINGS_URL", "model": self._model},
            ) from error
        except openai.OpenAIError as error:
            raise Unavailable(
                f"the embeddings API at {self._client.base_url} does not answer: {error}",
                details={"setting": "TOOLSCRIPT_EMBEDDINGS_URL"},
            ) from error
        rows = sorted(answer.data, key=lambda row: row.index)
        if len(rows) != len(said):
            raise Unavailable(
                f"the embeddings API at {self._client.base_url} sent {len(rows)} vectors for {len(said)} texts",
                details={"setting": "TOOLSCRIPT_EMBEDDINGS_URL"},
            )
        return [_unit(row.embedding) for row in rows]


def _unit(values: Sequence[float]) -> Vector:
    vector = np.asarray(values, dtype=np.float32)
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-12), dtype=np.float32)
