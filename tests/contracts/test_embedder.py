"""What every embedder promises: unit vectors, in order, each independent of the other texts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from tests.fixtures.http_services import EmbeddingsApi
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.models.batching_embedder import BatchingEmbedder, MultiQueryEmbedder
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.openai_api.embedder import OpenAiEmbedder
from toolscript.ports.models import Embedder

pytestmark = pytest.mark.req("X-02")

TEXTS = [
    "Read a file from disk",
    "",
    "Commit the changes " * 200,
    "日本語のテキスト",
    "a",
    "Send an email to the whole team about tomorrow's meeting",
]


@pytest.fixture(params=["onnx", "onnx-for-tools", "hashed", "openai", "batching-onnx", "batching-openai"])
async def embedder(
    request: pytest.FixtureRequest, minilm: OnnxEmbedder, tool_model: OnnxEmbedder
) -> AsyncIterator[Embedder]:
    kind = request.param
    if "openai" in kind:
        with EmbeddingsApi() as api:
            remote: MultiQueryEmbedder = await OpenAiEmbedder.at(api.url, "key", "some-model")
            yield BatchingEmbedder(remote, similarity=None) if "batching" in kind else remote
            await remote.close()
    elif kind == "onnx-for-tools":
        yield tool_model
    elif kind == "hashed":
        yield HashedEmbedder(64)
    else:
        yield BatchingEmbedder(minilm, similarity=None) if "batching" in kind else minilm


async def test_vectors_are_of_length_one_and_of_the_declared_size(embedder: Embedder) -> None:
    vectors = [*await embedder.embed_documents(TEXTS), await embedder.embed_query(TEXTS[0])]
    assert {v.shape for v in vectors} == {(embedder.dimensions,)}
    assert {v.dtype for v in vectors} == {np.dtype(np.float32)}
    assert [float(np.linalg.norm(v)) for v in vectors] == pytest.approx([1.0] * len(vectors), abs=1e-5)


async def test_tokens_of_a_text_of_any_length_are_counted(embedder: Embedder) -> None:
    assert embedder.window >= 128
    assert embedder.count_tokens("") == 0
    assert embedder.count_tokens("word " * 3000) >= 3000
    counts = [embedder.count_tokens(text) for text in TEXTS if text]
    assert min(counts) >= 1


async def test_text_beyond_the_window_is_ignored(minilm: OnnxEmbedder) -> None:
    text = "harbour " * minilm.window
    assert minilm.count_tokens(text) == minilm.window
    whole, more, less = await minilm.embed_documents(
        [text, text + "entirely different", text.replace("harbour", "a", 1)]
    )
    assert np.array_equal(whole, more)
    assert not np.array_equal(whole, less)


async def test_a_vector_depends_only_on_its_own_text(embedder: Embedder) -> None:
    together = await embedder.embed_documents(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        (alone,) = await embedder.embed_documents([text])
        assert np.array_equal(alone, vector)
    reversed_order = await embedder.embed_documents(TEXTS[::-1])
    assert all(np.array_equal(a, b) for a, b in zip(together, reversed_order[::-1], strict=True))


async def test_concurrent_queries_have_the_same_vectors_as_single_ones(embedder: Embedder) -> None:
    texts = [f"query number {n % 7}" for n in range(20)]
    at_once = await asyncio.gather(*(embedder.embed_query(t) for t in texts))
    for text, vector in zip(texts, at_once, strict=True):
        assert np.allclose(await embedder.embed_query(text), vector, atol=1e-6)


async def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert await embedder.embed_documents([]) == []


async def test_similar_texts_are_nearer_than_others(embedder: Embedder) -> None:
    query = await embedder.embed_query("read a file")
    near, far = await embedder.embed_documents(["read a text file", "weather forecast for tomorrow"])
    assert query @ near > query @ far


async def test_an_embedder_names_its_model(embedder: Embedder) -> None:
    assert embedder.model
