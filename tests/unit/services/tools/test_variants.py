"""Copies of one server, for other accounts: their equal tools are one hit, which names the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures.examples import choose
from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.tools.hierarchical_search import HierarchicalQuery, Strategy
from toolscript.services.tools.hybrid_search import ToolHit, ToolResults
from toolscript.settings import load_settings
from toolscript.surfaces.cli.commands.search import show
from toolscript.surfaces.json.hierarchical import build_tool_hit
from toolscript.surfaces.json.tools import build_search_response
from toolscript.surfaces.mcp.definitions import SearchToolsArguments
from toolscript.surfaces.mcp.search_tools import search_tools

DEMO = load_demo_items()
FEW = [item for item in DEMO if item.server in {"filesystem", "git", "email", "weather", "memory"}]
QUERIES = ("commit my changes", "weather forecast", "read a file", "send_email", "write notes")


def copy_servers(items: Sequence[Item], accounts: Sequence[str]) -> list[Item]:
    return [replace(item, server=f"{item.server}-{account}") for account in accounts for item in items]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    settings = load_settings(
        variables={}, data_dir=tmp_path, index="memory:", store="sqlite://", search_model="hashed-256"
    )
    async with open_app(settings) as app:
        yield app


@pytest.mark.slow
@pytest.mark.req("S-01")
async def test_copies_of_tools_are_one_hit_that_names_the_others(app: App) -> None:
    await app.catalogue.sync.run(copy_servers(FEW, ["home", "work", "club"]))
    for query in QUERIES:
        hits = (await app.tools.search.search(query, limit=5, threshold=0.0)).hits
        assert len(hits) == 5
        assert len({hit.name for hit in hits}) == 5
        for hit in hits:
            server = hit.server.rpartition("-")[0]
            assert sorted(hit.ids) == [f"{server}-{account}__{hit.name}" for account in ("club", "home", "work")]


@pytest.mark.extended
@pytest.mark.req("S-01")
async def test_copies_change_neither_the_first_tool_nor_the_number_of_hits(app: App) -> None:
    first: dict[int, list[str]] = {}
    confidences: dict[int, list[float]] = {}
    for copies in (1, 30):  # copies of two tools would fill a ranking
        await app.catalogue.sync.run(copy_servers(DEMO, [f"account{n}" for n in range(copies)]))
        found = [(await app.tools.search.search(query, limit=8, threshold=0.0)).hits for query in QUERIES]
        first[copies] = [hits[0].name for hits in found]
        confidences[copies] = [hits[0].confidence for hits in found]
        assert all(len(hits) == 8 for hits in found)
    assert first[1] == first[30]
    assert confidences[30] == pytest.approx(confidences[1], abs=0.15)


@pytest.mark.slow
@pytest.mark.req("S-01")
async def test_the_copy_that_the_query_names_is_the_hit(app: App) -> None:
    await app.catalogue.sync.run(copy_servers(FEW, ["home", "work", "club"]))
    for account in ("home", "work", "club"):
        hit = (await app.tools.search.search(f"git {account} commit changes", threshold=0.0)).hits[0]
        assert hit.server == f"git-{account}"


@pytest.mark.req("S-01")
async def test_tools_that_share_only_their_name_are_hits_of_their_own(app: App) -> None:
    items = [
        Item("a", "read", "Read a file"),
        Item("b", "read", "Read a file"),
        Item("c", "read", "Read a letter"),
        Item("d", "read", "Read a file", input_schema={"type": "object", "properties": {"path": {}}}),
        Item("e", "read", "Read a file", annotations={"readOnlyHint": True}),
    ]
    await app.catalogue.sync.run(items)
    hits = (await app.tools.search.search("read", limit=10, threshold=0.0)).hits
    assert {frozenset(hit.ids) for hit in hits} == {
        frozenset({"a__read", "b__read"}),
        frozenset({"c__read"}),
        frozenset({"d__read"}),
        frozenset({"e__read"}),
    }


@pytest.mark.slow
@pytest.mark.req("H-01")
@pytest.mark.parametrize("strategy", choose(Strategy, Strategy.HYBRID))
async def test_hierarchical_search_folds_copies_too(app: App, strategy: Strategy) -> None:
    await app.catalogue.sync.run(copy_servers(FEW, ["home", "work", "club"]))
    for query in QUERIES:
        request = HierarchicalQuery(query, limit=4, tool_threshold=0.0, strategy=strategy)
        tools = (await app.tools.hierarchical_search.search(request)).tools
        assert len({tool.payload["name"] for tool in tools}) == len(tools) > 0
        assert all(len(tool.variants) == 2 for tool in tools)
        assert all("input_schema" in build_tool_hit(tool, with_schemas=True) for tool in tools)
        assert build_tool_hit(tools[0], with_schemas=False)["variants"] == list(tools[0].variants)


@pytest.mark.req("S-01")
async def test_variants_are_in_the_order_of_the_configuration(app: App) -> None:
    await app.catalogue.sync.run([Item(server, "read", "Read a file") for server in "amz"])
    facts = await app.catalogue.snapshots.current().facts()
    assert facts.list_variants("m__read", ["z", "m", "a"].index) == ("z__read", "a__read")
    assert facts.fold_variants([("m__read", 0.6), ("a__read", 0.6), ("z__read", 0.5)]) == [("m__read", 0.6)]
    assert (facts.distinct, facts.max_variants) == (1, 3)


@pytest.mark.req("G-08", "G-09")
async def test_responses_name_the_variants(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    await app.catalogue.sync.run([Item(f"s{n:02}", "read", "Read a file") for n in range(12)])
    text = await search_tools(app, SearchToolsArguments.parse({"query": "read"}))
    assert text.count("Exact name") == 1
    assert "  same tool of other servers: s" in text
    assert text.endswith(" and 3 more")
    response = build_search_response(await app.tools.search.search("read"))
    assert response["totalResults"] == 1
    (result,) = response["results"]
    assert sorted([result["toolId"], *result["variants"]]) == [f"s{n:02}__read" for n in range(12)]
    assert result["variants"] == sorted(result["variants"])
    show(response)
    assert "Same tool" in capsys.readouterr().out
    single = ToolResults("x", [ToolHit("a__b", "a", "b", "tool", "", 0.5, "")], 0.3)
    assert "variants" not in build_search_response(single)["results"][0]
