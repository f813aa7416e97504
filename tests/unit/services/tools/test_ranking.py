"""One ranking for every tool search: direct search gives the tools and the confidences of hybrid search."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.tools.hierarchical_search import HierarchicalQuery, Strategy
from toolscript.settings import load_settings

pytestmark = [pytest.mark.req("S-01", "H-01"), pytest.mark.slow]

TASK = (
    "The build of the website has been failing since this morning and nobody knows it yet. Look at the logs of "
    "the web container to see what went wrong. Then open an issue on GitHub that describes the error. Afterwards send "
    "an email to ada@example.com with a summary, and find a free slot in my calendar for a meeting about it."
)


@asynccontextmanager
async def open_filled(folder: Path, items: list[Item], **settings: str) -> AsyncIterator[App]:
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(open_app(load_settings(variables={}, data_dir=folder, **settings)))
        await app.catalogue.sync.run(items)
        yield app


@pytest.fixture(scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    servers = {"filesystem", "git", "github", "docker", "email", "calendar", "weather"}
    items = [item for item in load_demo_items() if item.server in servers]
    async with open_filled(tmp_path_factory.mktemp("demo"), items) as app:
        yield app


@pytest.mark.parametrize(
    "query",
    ["is it going to rain in Lisbon?", "git_commit", "raed_fil", "commit my changes to git", "quantum banana", TASK],
)
async def test_direct_search_gives_the_tools_and_confidences_of_hybrid_search(demo: App, query: str) -> None:
    hybrid = await demo.tools.search.search(query, limit=5, threshold=0.3)
    request = HierarchicalQuery(query, limit=5, tool_threshold=0.3, strategy=Strategy.DIRECT)
    direct = await demo.tools.hierarchical_search.search(request)
    assert [(hit.id, hit.score) for hit in direct.tools] == [(hit.id, hit.confidence) for hit in hybrid.hits]


async def test_an_exact_name_is_first_inside_its_skill_and_absent_outside(demo: App) -> None:
    search = demo.tools.hierarchical_search
    inside = await search.find_tools(HierarchicalQuery("git_commit"), ["source_control"])
    assert (inside[0].id, inside[0].score) == ("git__git_commit", 1.0)
    outside = await search.find_tools(HierarchicalQuery("git_commit", tool_threshold=0.0), ["email"])
    assert "git__git_commit" not in {hit.id for hit in outside}


async def test_a_mistyped_name_beyond_the_candidates_is_found_by_every_search(tmp_path: Path) -> None:
    many = [Item("crowd", f"zebra_{n}", "reconcile the books of the month") for n in range(120)]
    wanted = Item("odd", "zyxvwut_reconcile", "Something else altogether")
    async with open_filled(tmp_path, [*many, wanted], search_model="hashed-64") as app:
        assert (await app.tools.search.search("zyxvwut_rceoncile")).hits[0].id == wanted.id
        request = HierarchicalQuery("zyxvwut_rceoncile", strategy=Strategy.DIRECT)
        assert (await app.tools.hierarchical_search.search(request)).tools[0].id == wanted.id
