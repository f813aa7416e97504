"""Tools that are near, but not as sure as the threshold: the closest ones."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import choose, scale_examples
from tests.unit.services.tools.test_hybrid_search import searching
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.models.batching_embedder import BatchingEmbedder
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.domain.catalog import Item
from toolscript.domain.search import MAX_CLOSEST
from toolscript.retrieval.learned_ranking import LEARNED
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.tools.hybrid_search import ToolSearch

pytestmark = [pytest.mark.slow, pytest.mark.req("Q-06", "Q-07", "S-06")]

QUERIES = [
    "list",
    "file",
    "read a file",
    "create an issue and send a message",
    "weather",
    "query the database",
    "hello",
]


@pytest.fixture(scope="module")
async def demo(tool_model: OnnxEmbedder) -> AsyncIterator[ToolSearch]:
    async with searching(BatchingEmbedder(tool_model, similarity=tool_model.similarity), load_demo_items()) as search:
        yield search


@pytest.mark.parametrize("query", choose(QUERIES, "list", "create an issue and send a message", "hello"))
async def test_an_answer_is_the_beginning_of_every_longer_one(demo: ToolSearch, query: str) -> None:
    complete = (await demo.search(query, limit=100, threshold=0)).hits
    for limit in (1, 3, 5, 20):
        found = (await demo.search(query, limit=limit, threshold=0)).hits
        assert [(hit.id, hit.confidence) for hit in found] == [(hit.id, hit.confidence) for hit in complete[:limit]]


@settings(max_examples=scale_examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(QUERIES), st.integers(1, 8), st.sampled_from([0.0, 0.2, 0.35, 0.6, 0.9, 1.0]), st.integers(0, 3))
async def test_the_closest_follow_in_the_same_order_and_together_are_no_more_than_the_limit(
    demo: ToolSearch, query: str, limit: int, threshold: float, closest: int
) -> None:
    everything = (await demo.search(query, limit=100, threshold=0)).hits
    found = await demo.search(query, limit=limit, threshold=threshold, closest=closest)
    plain = await demo.search(query, limit=limit, threshold=threshold)
    assert plain.closest == []
    assert [hit.id for hit in found.hits] == [hit.id for hit in plain.hits]
    assert len(found.closest) <= min(closest, limit - len(found.hits))
    assert all(LEARNED.noise <= hit.confidence < threshold for hit in found.closest)
    below = [hit.id for hit in everything if LEARNED.noise <= hit.confidence < threshold]
    assert [hit.id for hit in found.closest] == below[: min(closest, limit - len(found.hits))]


async def test_noise_has_neither_tools_nor_closest_ones(demo: ToolSearch) -> None:
    for query in ("zzyzx qwrtp", "asdf jkl", "you are so funny haha"):
        found = await demo.search(query, closest=MAX_CLOSEST)
        assert (found.hits, found.closest) == ([], [])


async def test_what_cannot_be_called_is_not_among_the_closest() -> None:
    items = [Item("a", f"feed_{n}", "Feed the zebra", quarantine="changed" if n % 2 else "") for n in range(4)]
    async with searching(HashedEmbedder(64), items) as search:
        found = await search.search("zebra house", threshold=1, limit=5, closest=3)
    assert {hit.id for hit in found.closest} <= {"a__feed_0", "a__feed_2"}
