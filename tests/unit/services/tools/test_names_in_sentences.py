"""A tool's name inside a sentence brings its tool first; an ordinary word that is also a name does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.real_servers import load_real_tools
from tests.unit.services.tools.test_hybrid_search import searching
from toolscript.domain.catalog import Item
from toolscript.retrieval.text.words import words

pytestmark = [pytest.mark.slow, pytest.mark.req("S-02", "Q-07")]

OWN = [
    Item("store", "lrem", "Remove elements from a list."),
    Item("store", "search", "Search the keys of the store."),
    Item("store", "delete", "Delete a key."),
    Item("papers", "find_papers", "Search papers by their topic, and list their authors."),
    Item("shop", "search", "Search the products of the shop."),
]


@pytest.mark.parametrize("query", ["use lrem please", "Could LREM drop the first two?", "what does lrem(key, 2) do"])
async def test_a_rare_name_inside_a_sentence_is_the_first_hit(query: str) -> None:
    async with searching(None, OWN) as search:
        (hit, *_) = (await search.search(query)).hits
    assert (hit.id, hit.reason) == ("store__lrem", "Exact name")


async def test_an_ordinary_word_that_is_a_name_does_not_take_over_a_sentence() -> None:
    async with searching(None, OWN) as search:
        hits = (await search.search("search papers by topic", limit=10, threshold=0)).hits
        assert hits[0].id == "papers__find_papers"
        assert "Exact name" not in {hit.reason for hit in hits}
        named = (await search.search("use search to find papers", limit=10, threshold=0)).hits
    assert {hit.id for hit in named if hit.reason == "Exact name"} == {"store__search", "shop__search"}


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("use lrem please", "redis-mcp-server__lrem"),
        ("use servicefabric please", "azure-mcp__servicefabric"),
        ("I think that hgetall would do", "redis-mcp-server__hgetall"),
        ("use the delete tool of redis", "redis-mcp-server__delete"),
    ],
)
async def test_names_of_real_servers_inside_sentences_come_first(shared_data: Path, query: str, first: str) -> None:
    items = load_real_tools(shared_data, "redis-mcp-server", "azure__mcp", "mysql-mcp-server")
    async with searching(None, items) as search:
        assert (await search.search(query)).hits[0].id == first


@pytest.mark.parametrize(
    "query",
    [
        "set a key in redis",
        "list my storage accounts",
        "get the type of a value",
        "query the mysql database",
        "search for a container with grafana",
        "delete the role of a user",
        "what is the pricing policy of compute",
    ],
)
async def test_words_of_requests_to_real_servers_are_no_names(shared_data: Path, query: str) -> None:
    async with searching(None, load_real_tools(shared_data)) as search:
        hits = (await search.search(query, limit=20, threshold=0)).hits
    assert [hit.id for hit in hits if hit.reason == "Exact name"] == []


@pytest.mark.extended
async def test_every_real_name_that_a_sentence_marks_comes_first(shared_data: Path) -> None:
    items = load_real_tools(shared_data)
    names = sorted({item.name for item in items if len(words(item.name)) > 0})
    async with searching(None, items) as search:
        for sentence in ("use {} please", "what does `{}` do?", "call the {} tool"):
            for name in names:
                best = (await search.search(sentence.format(name))).hits[0]
                assert words(best.name) == words(name), sentence.format(name)
