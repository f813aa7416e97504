"""Boosts by capability: small, named in the reason, and below dedicated tools. Without the named cause the confidence
is lower."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.fixtures.databases import open_memory_database
from tests.fixtures.real_servers import load_real_tools
from tests.unit.services.tools.test_hybrid_search import searching
from toolscript.adapters.memory import MemoryIndex
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.domain.catalog import Item
from toolscript.ports.models import Embedder
from toolscript.retrieval.capabilities import Capabilities
from toolscript.retrieval.retriever import Retriever
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.catalogue.item_points import tools_collection
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.sync import Sync
from toolscript.services.tools.hybrid_search import ToolHit, ToolSearch
from toolscript.services.tools.ranking import ToolRanking

pytestmark = pytest.mark.slow

SHELLS = [
    Item("shell", "run_command", "Execute a command line on the local machine and return its output."),
    Item("desktop", "bash", "Run something in a persistent session."),
    Item("weather", "daily_forecast", "Predict the weather for the coming days."),
    Item("mail", "send_email", "Send an email right away."),
]
GIT = Item("git", "git_commit", "Record staged changes in the repository.")
QUERY = "commit my changes to git"
NONE = Capabilities({"domain": {}, "capability": {}})


class Catalogues:
    """One catalogue, searched with and without the packaged tables."""

    def __init__(self, packaged: ToolSearch, bare: ToolSearch) -> None:
        self.packaged, self.bare = packaged, bare

    async def both(self, query: str) -> list[tuple[ToolHit, float]]:
        """Every hit, with its confidence without the tables."""
        without = {h.id: h.confidence for h in (await self.bare.search(query, limit=100, threshold=0)).hits}
        return [(h, without.get(h.id, 0.0)) for h in (await self.packaged.search(query, limit=100, threshold=0)).hits]


@asynccontextmanager
async def catalogues(embedder: Embedder, items: Sequence[Item]) -> AsyncIterator[Catalogues]:
    database, index = open_memory_database(), MemoryIndex()
    item_store, skill_store = SqlItems(database), SqlSkills(database)
    await index.open(tools_collection(embedder.model, embedder.dimensions))
    await Sync(item_store, skill_store, index, embedder).run(items)
    retriever = Retriever(embedder, index)
    packaged = CatalogueSnapshots(item_store, index, retriever.similarity)
    bare = CatalogueSnapshots(item_store, index, retriever.similarity, capabilities=NONE)
    yield Catalogues(*(ToolSearch(ToolRanking(retriever, each.capabilities), each) for each in (packaged, bare)))
    await database.close()


@pytest.mark.req("S-03", "Q-04")
@pytest.mark.parametrize("query", [QUERY, "comit my chnages to git", "rebase my branch onto main"])
async def test_without_a_git_tool_a_git_query_finds_shells_with_the_reason(
    tool_model: OnnxEmbedder, query: str
) -> None:
    async with catalogues(tool_model, SHELLS) as search:
        hits = (await search.packaged.search(query)).hits
        assert {h.id for h in hits} == {"shell__run_command", "desktop__bash"}
        for hit in hits:
            assert hit.confidence >= 0.35
            assert "Capability inference (shell → git)" in hit.reason
        assert (await search.bare.search(query)).hits == []


@pytest.mark.req("S-03")
async def test_a_dedicated_tool_stays_ahead_of_a_boosted_shell(tool_model: OnnxEmbedder) -> None:
    async with catalogues(tool_model, [GIT, *SHELLS]) as search:
        hits = (await search.packaged.search(QUERY, limit=10, threshold=0)).hits
        assert hits[0].id == "git__git_commit"
        assert hits[0].reason.startswith("Semantic similarity (git)")
        raised = {h.id: (h.confidence, without) for h, without in await search.both(QUERY)}
        assert raised["shell__run_command"][0] > raised["shell__run_command"][1]


FILES = [
    Item(
        "filesystem", "edit_file", "Make line-based edits to a text file. Returns a git-style diff of the changes made."
    ),
    Item("filesystem", "list_directory", "List the contents of a directory."),
    Item("desktop", "get_config", "Get the configuration, with the blocked commands and the default shell."),
    Item("desktop", "shell_execute", "Execute a shell command and return its output."),
]


@pytest.mark.req("S-03", "Q-04")
@pytest.mark.parametrize("query", [QUERY, "put my changes into version control"])
async def test_no_tool_of_another_field_gets_the_reason_of_a_git_query(tool_model: OnnxEmbedder, query: str) -> None:
    for items in (FILES, [GIT, *FILES]):
        async with catalogues(tool_model, items) as search:
            hits = {h.id: h.reason for h in (await search.packaged.search(query, limit=10, threshold=0)).hits}
        assert "Capability inference (shell → git)" in hits["desktop__shell_execute"]
        for tool in ("filesystem__edit_file", "filesystem__list_directory", "desktop__get_config"):
            assert "(git)" not in hits.get(tool, "")
            assert "inference" not in hits.get(tool, "")


@pytest.mark.req("S-03", "Q-04")
async def test_among_all_tools_of_real_servers_only_shells_have_the_reason_of_shells(shared_data: Path) -> None:
    async with searching(None, load_real_tools(shared_data)) as search:
        hits = (await search.search(QUERY, limit=1000, threshold=0)).hits
    assert "git" in hits[0].server
    assert {hit.id for hit in hits if "inference" in hit.reason} == {
        "mcp-shell-server__shell_execute",
        "wonderwhy-er-desktop-commander__start_process",
    }
    assert all(hit.confidence >= 0.35 for hit in hits if "inference" in hit.reason)


@pytest.mark.req("S-03", "Q-04")
async def test_without_the_cause_that_a_reason_names_the_confidence_is_lower(tool_model: OnnxEmbedder) -> None:
    queries = [QUERY, "read file contents", "filesystem__raed_file", "will it rain tomorrow?", "install it with pip"]
    named = 0
    items = [item for item in load_demo_items() if item.server in {"filesystem", "git", "shell", "weather"}]
    async with catalogues(tool_model, items) as search:
        for query in queries:
            for hit, without in await search.both(query):
                if "(git)" in hit.reason or "domain boost" in hit.reason or "inference" in hit.reason:
                    assert hit.confidence > without, hit
                    named += 1
    assert named > 10


@pytest.mark.req("S-03")
async def test_a_mistyped_id_in_its_domain_is_a_fuzzy_match_with_a_domain_boost(tool_model: OnnxEmbedder) -> None:
    items = [item for item in load_demo_items() if item.server in {"filesystem", "git"}]
    async with catalogues(tool_model, items) as search:
        best = (await search.packaged.search("filesystem__raed_file")).hits[0]
    assert (best.id, best.reason) == ("filesystem__read_file", "Fuzzy match + domain boost")


@pytest.mark.req("S-03")
async def test_a_tool_that_merely_mentions_git_does_not_keep_a_shell_from_being_found(tool_model: OnnxEmbedder) -> None:
    mentions = Item("files", "edit_file", "Make changes to a text file. Returns a git-style diff of the changes.")
    async with catalogues(tool_model, [*SHELLS, mentions]) as found:
        hits = (await found.packaged.search(QUERY)).hits
    assert {"shell__run_command", "desktop__bash"} & {hit.id for hit in hits}
    assert any("Capability inference (shell → git)" in hit.reason for hit in hits)
    async with catalogues(tool_model, [*SHELLS, mentions, GIT]) as found:
        assert (await found.packaged.search(QUERY)).hits[0].id == GIT.id
