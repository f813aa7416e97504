"""Hybrid tool search over the demo catalogue with the packaged model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures.databases import open_memory_database
from tests.fixtures.real_servers import load_real_tools
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.models.batching_embedder import BatchingEmbedder
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.search import Vector
from toolscript.ports.models import Embedder
from toolscript.retrieval.retriever import Retriever
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.catalogue.item_points import tools_collection
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.sync import Sync
from toolscript.services.tools.hybrid_search import ToolSearch
from toolscript.services.tools.ranking import Blend, ToolRanking

pytestmark = pytest.mark.slow


@asynccontextmanager
async def searching(embedder: Embedder | None, items: Sequence[Item], alpha: float = 0.7) -> AsyncIterator[ToolSearch]:
    database, index = open_memory_database(), MemoryIndex()
    item_store, skill_store = SqlItems(database), SqlSkills(database)
    await index.open(tools_collection(embedder.model if embedder else "none", embedder.dimensions if embedder else 1))
    retriever = Retriever(embedder, index)
    snapshots = CatalogueSnapshots(item_store, index, retriever.similarity)
    search = ToolSearch(ToolRanking(retriever, snapshots.capabilities, alpha=alpha), snapshots)
    sync = Sync(item_store, skill_store, index, embedder, on_change=snapshots.advance)
    await sync.run(items)
    yield search
    await database.close()


@pytest.fixture(scope="module")
async def demo(tool_model: OnnxEmbedder) -> AsyncIterator[ToolSearch]:
    async with searching(BatchingEmbedder(tool_model, similarity=tool_model.similarity), load_demo_items()) as search:
        yield search


async def test_while_many_tools_lack_their_vectors_searches_go_by_words() -> None:
    """The first tools with vectors would be ahead of the right one, which has none yet."""
    seen: list[tuple[str, bool]] = []

    class Searching(HashedEmbedder):
        async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
            found = await search.search("feed the zebras", threshold=0)
            seen.append((found.hits[0].id, "embed" in found.report.timings_ms))
            return await super().embed_documents(texts)

    database, index, embedder = open_memory_database(), MemoryIndex(), Searching(64)
    await index.open(tools_collection(embedder.model, embedder.dimensions))
    items, retriever = SqlItems(database), Retriever(embedder, index)
    snapshots = CatalogueSnapshots(items, index, retriever.similarity)
    sync = Sync(items, SqlSkills(database), index, embedder, on_change=snapshots.advance)
    ranking = ToolRanking(retriever, snapshots.capabilities)
    search = ToolSearch(ranking, snapshots, count_lacking_vectors=sync.count_lacking_vectors)
    await sync.run([*(Item("a", f"open_{n}", f"Open door {n}") for n in range(199)), Item("b", "feed_zebras", "Feed")])
    assert seen[:-1] == [("b__feed_zebras", False)] * (len(seen) - 1)
    assert [is_embedded for _, is_embedded in seen][-1:] == [True]
    assert (await search.search("feed the zebras")).hits[0].id == "b__feed_zebras"
    await database.close()


async def test_items_of_one_type_are_found_behind_those_of_others() -> None:
    prompts = [Item("a", f"zebra_{n}", "Feed the zebra", type=ItemType.PROMPT) for n in range(10)]
    tools = [Item("b", f"feed_{n}", f"Feed the zebra or the giraffe in house {n}") for n in range(3)]
    async with searching(HashedEmbedder(64), [*prompts, *tools]) as search:
        assert {hit.type for hit in (await search.search("feed the zebra", limit=2, threshold=0)).hits} == {"prompt"}
        found = await search.search("feed the zebra", limit=2, threshold=0, item_type=ItemType.TOOL)
    assert [hit.type for hit in found.hits] == ["tool", "tool"]
    assert found.report.counts["returned"] == 2


@pytest.mark.req("S-01")
async def test_a_deprecated_tool_of_a_real_server_is_behind_its_successor(
    tool_model: OnnxEmbedder, shared_data: Path
) -> None:
    items = load_real_tools(shared_data, "modelcontextprotocol__server-filesystem")
    async with searching(BatchingEmbedder(tool_model, similarity=tool_model.similarity), items) as search:
        for query in ("read the contents of a file", "show me what is in notes.txt"):
            found = [hit.name for hit in (await search.search(query, limit=20, threshold=0)).hits]
            assert found.index("read_text_file") < found.index("read_file")
        assert (await search.search("use read_file please")).hits[0].name == "read_file"


@pytest.mark.req("S-01")
async def test_a_tool_is_before_a_prompt_with_the_same_words() -> None:
    prompt = Item("a", "feed_zebra", "Feed the zebra", type=ItemType.PROMPT)
    async with searching(HashedEmbedder(64), [prompt, replace(prompt, server="b", type=ItemType.TOOL)]) as search:
        hits = (await search.search("give the zebra some hay to feed it", threshold=0)).hits
    assert [hit.type for hit in hits] == ["tool", "prompt"]


@pytest.mark.req("S-01")
async def test_a_task_in_plain_words_finds_its_tool_with_confidence_and_reason(demo: ToolSearch) -> None:
    found = await demo.search("what's the forecast for Lisbon this weekend?")
    assert found.hits[0].server == "weather"
    assert "Semantic similarity" in found.hits[0].reason
    assert all(0.35 <= h.confidence <= 1 for h in found.hits)
    assert [h.confidence for h in found.hits] == sorted((h.confidence for h in found.hits), reverse=True)
    assert len(found.hits) <= 3


@pytest.mark.req("S-02")
@pytest.mark.parametrize("query", ["read_fil", "raed_file", "readfile", "ReadFile", "read-file", "READ_FILE"])
async def test_a_name_written_any_way_and_mistyped_is_found_first(demo: ToolSearch, query: str) -> None:
    assert (await demo.search(query)).hits[0].id == "filesystem__read_file"


@pytest.mark.req("S-02")
async def test_a_name_with_a_typo_in_each_word_is_found_first(demo: ToolSearch) -> None:
    assert (await demo.search("reed a fil")).hits[0].id == "filesystem__read_file"


@pytest.mark.req("S-02")
async def test_a_name_of_a_real_server_with_a_typo_in_each_word_is_found_first(shared_data: Path) -> None:
    async with searching(None, load_real_tools(shared_data)) as search:
        assert (await search.search("reed a fil")).hits[0].name == "read_file"
        assert (await search.search("lst isues")).hits[0].name == "list_issues"


@pytest.mark.extended
@pytest.mark.req("S-02")
async def test_every_exact_name_and_id_is_found_first(demo: ToolSearch) -> None:
    for item in load_demo_items():
        for query in (item.name, item.id, f"please call {item.id} for me"):
            best = (await demo.search(query)).hits[0]
            assert (best.name, best.confidence, best.reason) == (item.name, 1.0, "Exact name"), query


@pytest.mark.req("S-01")
async def test_a_query_that_no_tool_fits_gets_no_hits(demo: ToolSearch) -> None:
    assert (await demo.search("quantum banana telescope")).hits == []


@pytest.mark.req("S-01")
async def test_results_keep_threshold_and_limit(demo: ToolSearch) -> None:
    many = await demo.search("work with files", limit=10, threshold=0.0)
    assert len(many.hits) == 10
    strict = await demo.search("work with files", limit=10, threshold=many.hits[2].confidence)
    assert strict.hits == many.hits[:3]


@pytest.mark.req("S-01")
async def test_alpha_weighs_meaning_against_words(tool_model: OnnxEmbedder) -> None:
    items = [Item("a", "fetch_page", "Obtain a web site"), Item("b", "words", "get hold of internet document things")]
    query = "get hold of things"
    async with searching(tool_model, items, alpha=0.0) as by_words:
        assert (await by_words.search(query, threshold=0)).hits[0].id == "b__words"
    query = "download the contents of a URL"
    async with searching(tool_model, items, alpha=1.0) as by_meaning:
        assert (await by_meaning.search(query, threshold=0)).hits[0].id == "a__fetch_page"


@pytest.mark.req("S-01", "Q-04")
async def test_a_reason_names_the_words_that_matched(tool_model: OnnxEmbedder) -> None:
    async with searching(tool_model, [Item("zoo", "feed", "Feed the zebras")], alpha=0.3) as search:
        (hit,) = (await search.search("zebras need feeding", threshold=0)).hits
    assert hit.reason.startswith("Keyword match (zebras, feeding)")


@pytest.mark.req("S-01", "Q-04")
async def test_the_reason_of_the_best_tool_of_a_real_server_names_the_shared_words(
    tool_model: OnnxEmbedder, shared_data: Path
) -> None:
    items = load_real_tools(shared_data, "mcp-server-git")
    async with searching(BatchingEmbedder(tool_model, similarity=tool_model.similarity), items) as search:
        for query in ("list the branches", "list all git branches"):
            first, *_ = (await search.search(query, threshold=0)).hits
            assert first.name == "git_branch"
            assert "Keyword match (list," in first.reason, first.reason


@pytest.mark.req("S-01", "Q-04")
async def test_a_reason_names_the_words_that_only_a_parameter_has() -> None:
    schema = {"type": "object", "properties": {"zebraName": {"type": "string"}}}
    async with searching(None, [Item("zoo", "feed", "Feeds.", input_schema=schema), Item("a", "b", "C.")]) as search:
        (hit,) = (await search.search("feed the zebra", threshold=0.0)).hits
    assert hit.reason == "Keyword match (feed, zebra)"


@pytest.mark.req("S-01", "Q-04")
async def test_a_reason_names_no_word_that_the_tool_has_only_by_its_stem() -> None:
    schema = {"type": "object", "properties": {"name_contains": {"type": "string"}}}
    items = [Item("a", "list_rows", "List the rows.", input_schema=schema), Item("b", "c", "Rows of containers.")]
    async with searching(None, items) as search:
        hits = (await search.search("list the containers", limit=5, threshold=0.0)).hits
    assert {hit.id: hit.reason for hit in hits} == {
        "a__list_rows": "Keyword match (list)",
        "b__c": "Keyword match (containers)",
    }


@pytest.mark.req("S-08")
async def test_without_a_model_words_and_names_find_tools() -> None:
    async with searching(None, load_demo_items()) as search:
        found = await search.search("read the text of a file")
        assert found.hits[0].name.startswith("read")
        assert found.report.degraded == ["embedder"]
        assert (await search.search("read_fil")).hits[0].id == "filesystem__read_file"


@pytest.mark.req("S-08")
async def test_if_the_model_fails_the_search_ranks_by_words(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(HashedEmbedder):
        async def embed_query(self, text: str) -> Vector:
            raise Unavailable("out of memory")

    async with searching(Failing(16), load_demo_items()) as search:
        found = await search.search("read the text of a file")
    assert found.hits
    assert found.report.degraded == ["embedder"]
    assert "query_not_embedded" in caplog.text


@pytest.mark.parametrize("blend", list(Blend))
async def test_every_blend_ranks_the_plain_case_right(demo: ToolSearch, blend: Blend) -> None:
    found = await demo.search("show the commit history of the repository", threshold=0, blend=blend)
    assert found.hits[0].server == "git"
    assert all(0 <= h.confidence <= 1 for h in found.hits)


async def test_an_empty_catalogue_finds_nothing() -> None:
    async with searching(HashedEmbedder(8), []) as search:
        assert (await search.search("anything", threshold=0)).hits == []


async def test_a_search_reports_its_stages_and_counts(demo: ToolSearch) -> None:
    report = (await demo.search("send a message to the team")).report
    assert {"embed", "rank", "total"} <= report.timings_ms.keys()
    assert report.counts["returned"] <= report.counts["candidates"] <= 56
    assert report.degraded == []


@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    ("query", "wrong", "message"),
    [
        ("", {}, "blank"),
        (" \t?! ", {}, "blank"),
        ("x" * 8001, {}, "8001 characters, at most 8000"),
        ("x", {"limit": 0}, "limit 0 is out of range"),
        ("x", {"threshold": 1.5}, "threshold 1.5 is out of range: give 0 to 1"),
    ],
)
async def test_an_invalid_request_is_refused_with_the_allowed_values(
    demo: ToolSearch, query: str, wrong: dict[str, float], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        await demo.search(query, **wrong)  # type: ignore[arg-type]


TASK = (
    "The build of the website has been failing since this morning and nobody knows it yet. Look at the logs of "
    "the web container to see what went wrong. Then open an issue on GitHub that describes the error. Afterwards send "
    "an email to ada@example.com with a summary, and find a free slot in my calendar for a meeting about it."
)


@pytest.mark.req("S-01", "Q-02")
async def test_every_need_of_a_task_has_its_tool_and_each_hit_names_its_need(demo: ToolSearch) -> None:
    hits = (await demo.search(TASK, limit=5, threshold=0.25)).hits
    found = {hit.id: hit.need or "" for hit in hits}
    assert "logs of the web container" in found["docker__container_logs"]
    assert "open an issue" in found["github__create_issue"]
    assert any("send an email" in need for tool, need in found.items() if tool.startswith("email__"))
    assert "free slot" in found["calendar__find_free_slot"]
    assert [hit.confidence for hit in hits] == sorted((hit.confidence for hit in hits), reverse=True)


@pytest.mark.req("S-01")
async def test_a_task_of_8000_characters_is_searched(demo: ToolSearch) -> None:
    text = "\n".join(["Think about what the weather may do to our plans for the garden party."] * 120)[:7800]
    hits = (await demo.search(f"{text} Show me the daily forecast for Lisbon.", limit=3)).hits
    assert hits[0].server == "weather"


@pytest.mark.req("S-01", "Q-02")
async def test_a_short_request_has_no_needs(demo: ToolSearch) -> None:
    assert {hit.need for hit in (await demo.search("read a file and mail it")).hits} == {None}


@pytest.mark.req("Q-02")
async def test_every_need_of_a_short_request_to_real_servers_has_its_tool(
    tool_model: OnnxEmbedder, shared_data: Path
) -> None:
    names = ("modelcontextprotocol__server-filesystem", "antv__mcp-server-chart", "modelcontextprotocol__server-slack")
    items = load_real_tools(shared_data, *names, "mcp-atlassian")
    async with searching(BatchingEmbedder(tool_model, similarity=tool_model.similarity), items) as search:
        task = "read report.csv, make a bar chart, post it to slack and open a jira ticket"
        hits = (await search.search(task, limit=6)).hits
    found = {hit.name: hit.need for hit in hits}
    assert found["generate_bar_chart"] == "make a bar chart"
    assert found["slack_post_message"] == "post it to slack"
    assert found["jira_create_issue"] == "open a jira ticket"
    assert any(need == "read report.csv" for need in found.values())
