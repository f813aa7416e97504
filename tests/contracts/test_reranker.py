"""What every reranker promises: one score per passage, in order, each independent of the other passages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fixtures.examples import choose
from tests.fixtures.rerankers import WORDS, RerankApi, cross_encoder, share
from toolscript.adapters.models.http_reranker import HttpReranker
from toolscript.adapters.onnx.reranker import OnnxReranker, find_reranker
from toolscript.ports.models import Reranker

pytestmark = pytest.mark.req("D-12", "X-02")

QUERY = "the cat eats fish"
PASSAGES = ["the cat eats the fish", "a dog walks", "", "日本語", "fish " * 3000, "rain \ud800 and snow", "cat"]
KINDS = ["onnx", "onnx-two-classes", "http", "http-texts"]
# The others differ by what they send and how they read a score, which the order of scores shows.
with_one_of_each_adapter = pytest.mark.parametrize("reranker", choose(KINDS, "onnx", "http"), indirect=True)


@pytest.fixture(params=KINDS)
async def reranker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reranker]:
    kind = request.param
    if kind.startswith("onnx"):
        folder = cross_encoder(tmp_path / "model", classes=2 if kind.endswith("classes") else 1)
        local = OnnxReranker(find_reranker(str(folder), tmp_path, "http://127.0.0.1:9"), device="cpu")
        yield local
        await local.close()
    else:
        with RerankApi(takes_texts=kind.endswith("texts")) as api:
            remote = HttpReranker(api.root, "key", "some-model")
            yield remote
            await remote.close()


async def test_scores_come_in_the_order_of_the_passages(reranker: Reranker) -> None:
    scores = await reranker.scores(QUERY, PASSAGES)
    assert len(scores) == len(PASSAGES)
    assert scores[0] == pytest.approx(share(QUERY, PASSAGES[0]), abs=1e-6)
    assert scores[1] == pytest.approx(share(QUERY, PASSAGES[1]), abs=1e-6)
    assert scores[4] > scores[0] > scores[6] > scores[1] == pytest.approx(scores[2])
    assert await reranker.scores(QUERY, PASSAGES[::-1]) == pytest.approx(scores[::-1], abs=1e-6)


@with_one_of_each_adapter
async def test_a_score_depends_only_on_its_own_passage(reranker: Reranker) -> None:
    together = await reranker.scores(QUERY, PASSAGES)
    alone = [(await reranker.scores(QUERY, [passage]))[0] for passage in PASSAGES]
    assert alone == pytest.approx(together, abs=1e-6)


@with_one_of_each_adapter
async def test_thousands_of_passages_are_scored(reranker: Reranker) -> None:
    chosen = random.Random(5)
    passages = [" ".join(chosen.choices(WORDS, k=chosen.randrange(1, 30))) for _ in range(2000)]
    scores = await reranker.scores(QUERY, passages)
    assert scores == pytest.approx([share(QUERY, passage) for passage in passages], abs=1e-6)


@with_one_of_each_adapter
async def test_concurrent_queries_have_the_same_scores_as_single_ones(reranker: Reranker) -> None:
    queries = [f"the {word} of rain" for word in WORDS[:12]]
    at_once = await asyncio.gather(*(reranker.scores(query, PASSAGES) for query in queries))
    for query, scores in zip(queries, at_once, strict=True):
        assert await reranker.scores(query, PASSAGES) == pytest.approx(scores, abs=1e-6)


@with_one_of_each_adapter
async def test_a_query_of_any_length_is_accepted(reranker: Reranker) -> None:
    for query in ("", " ", "cat " * 5000, "\ud800", "🐈"):
        assert len(await reranker.scores(query, PASSAGES)) == len(PASSAGES)


async def test_no_passages_give_no_scores(reranker: Reranker) -> None:
    assert await reranker.scores(QUERY, []) == []


async def test_a_reranker_names_its_model(reranker: Reranker) -> None:
    assert reranker.model
