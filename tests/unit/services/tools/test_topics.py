"""Topics: every tool is in exactly one, the nearest ones are searched, and a tool that is newer than they are is found
all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.catalogue import FILES, MAIL, MONEY, SyncedCatalogue
from tests.fixtures.examples import scale_examples
from tests.fixtures.requests import as_request
from toolscript.domain.catalog import Assignment, Item, ItemType, Origin
from toolscript.domain.profiles import ItemRules, Profile
from toolscript.domain.search import Candidate, SimilarityRange
from toolscript.retrieval.capabilities import load_capabilities
from toolscript.retrieval.retriever import Retriever
from toolscript.retrieval.skill_map import SkillMap
from toolscript.services.catalogue.snapshot import CatalogueSnapshots, Change
from toolscript.services.catalogue.visibility import View, Visibility, count_everything, see_everything
from toolscript.services.tools.hierarchical_search import HierarchicalQuery, HierarchicalResults, HierarchicalSearch
from toolscript.services.tools.ranking import ToolRanking
from toolscript.services.tools.topics import MIN_TOOLS, SHARE, VisibleTopics

pytestmark = pytest.mark.req("H-18", "H-03")

PLAIN = SimilarityRange(0.0, 1.0)
SKILLS = [FILES, MAIL, MONEY]
NOUNS = ["file", "folder", "email", "message", "payment", "invoice", "zebra", "moon"]
VERBS = ["read", "send", "list", "remove", "copy", "print"]
# About which words a tool is, and in which skills a person has put it, the first one primary; None: nobody has.
KINDS = st.tuples(
    st.sampled_from(NOUNS),
    st.sampled_from(VERBS),
    st.none() | st.lists(st.sampled_from([s.id for s in SKILLS]), min_size=1, max_size=3, unique=True),
)


def make_tool(number: int, noun: str, verb: str) -> Item:
    return Item("s", f"t{number:03}_{verb}_{noun}", f"{verb} a {noun}")


def build_search(
    catalogue: SyncedCatalogue, snapshots: CatalogueSnapshots, visibility: Visibility | None = None
) -> HierarchicalSearch:
    retriever = Retriever(catalogue.embedder, catalogue.index)
    find_view = visibility.find_view if visibility else see_everything
    count_by_skill = visibility.count_by_skill if visibility else count_everything
    ranking = ToolRanking(retriever, load_capabilities(), find_view=find_view)
    return HierarchicalSearch(ranking, snapshots, count_by_skill=count_by_skill)


def make_snapshots(catalogue: SyncedCatalogue) -> CatalogueSnapshots:
    return CatalogueSnapshots(catalogue.item_store, catalogue.index, PLAIN)


@asynccontextmanager
async def open_catalogue(items: Sequence[Item] = ()) -> AsyncIterator[SyncedCatalogue]:
    catalogue = await SyncedCatalogue().open(*SKILLS)
    await catalogue.sync.run(items)
    yield catalogue
    await catalogue.close()


async def read_topics(catalogue: SyncedCatalogue) -> list[tuple[str, ...]]:
    return (await make_snapshots(catalogue).current().skill_map()).topics


async def assert_one_topic_each(catalogue: SyncedCatalogue) -> None:
    active = [s.id for s in await catalogue.item_store.get_fingerprints() if s.is_active]
    assert sorted(chain.from_iterable(await read_topics(catalogue))) == sorted(active)


@pytest.mark.slow
@settings(max_examples=scale_examples(40), deadline=None)
@given(st.lists(KINDS, max_size=24), st.integers(0, 24), st.sampled_from([s.id for s in SKILLS]))
async def test_every_tool_is_in_exactly_one_topic_whatever_changes(
    kinds: list[tuple[str, str, list[str] | None]], gone: int, inactive: str
) -> None:
    items = [make_tool(n, noun, verb) for n, (noun, verb, _) in enumerate(kinds)]
    async with open_catalogue(items) as catalogue:
        await assert_one_topic_each(catalogue)
        for item, (_, _, skills) in zip(items, kinds, strict=True):
            if skills:
                await catalogue.skills.assign(item.id, skills)
        await assert_one_topic_each(catalogue)
        skill = next(s for s in SKILLS if s.id == inactive)
        await catalogue.skills.replace(inactive, replace(skill, is_active=False))
        await assert_one_topic_each(catalogue)
        await catalogue.sync.run(items[gone:])
        await assert_one_topic_each(catalogue)


@pytest.mark.extended
async def test_topics_do_not_depend_on_the_order_of_tools() -> None:
    items = [make_tool(n, NOUNS[n % len(NOUNS)], VERBS[n // 7 % len(VERBS)]) for n in range(120)]
    async with open_catalogue(items) as one, open_catalogue(items[::-1]) as other:
        assert sorted(map(sorted, await read_topics(one))) == sorted(map(sorted, await read_topics(other)))


async def search(service: HierarchicalSearch, query: str, **fields: Any) -> HierarchicalResults:
    request = HierarchicalQuery(query, tool_threshold=0.0, skill_threshold=0.0, include_schemas=False, **fields)
    found = await service.search(request)
    assert found.report.degraded == []
    return found


async def test_a_small_part_of_a_catalogue_is_searched() -> None:
    items = [make_tool(n, NOUNS[n % len(NOUNS)], f"verb{n}") for n in range(400)]
    async with open_catalogue(items) as catalogue:
        service = build_search(catalogue, make_snapshots(catalogue))
        for noun, number in (("zebra", 198), ("email", 50)):
            found = await search(service, f"verb{number} a {noun}")
            assert found.tools[0].id == items[number].id
            assert found.candidates <= 0.2 * len(items)


@pytest.mark.parametrize("noun", ["zebra", "file"])
async def test_a_new_tool_is_found_before_there_is_a_topic_for_it(noun: str) -> None:
    """`zebra` has no skill; the new tool's only skill may be far from the query."""
    items = [make_tool(n, NOUNS[n % len(NOUNS)], f"verb{n}") for n in range(400)]
    new = Item("s", "brand_new", f"balance the {noun} on a pole")
    async with open_catalogue(items) as catalogue:
        snapshots = make_snapshots(catalogue)
        await snapshots.current().skill_map()
        service = build_search(catalogue, snapshots)
        await catalogue.sync.run([*items, new])
        snapshots.advance(Change.ITEMS | Change.POINTS)  # not its topics
        found = await search(service, f"balance the {noun} on a pole")
        assert found.tools[0].id == new.id
        assert len((await snapshots.current().skill_map()).skills_of) < 400
        snapshots.advance(Change.SKILLS)
        assert (await search(service, f"balance the {noun} on a pole")).tools[0].id == new.id


async def test_a_tool_that_left_its_skill_since_the_topics_were_made_is_not_found_through_it() -> None:
    items = [make_tool(n, "file", f"verb{n}") for n in range(30)]
    async with open_catalogue(items) as catalogue:
        snapshots = make_snapshots(catalogue)
        await snapshots.current().skill_map()
        moved = Assignment(MONEY.id, 1.0, is_primary=True, origin=Origin.HUMAN)
        await catalogue.skill_store.assign(items[7].id, [moved])
        await catalogue.sync.index_catalogue()
        service = build_search(catalogue, snapshots)
        found = await search(service, "verb7 a file", skill_limit=1, limit=50)
        assert found.skill_ids_used == ["files"]
        assert items[7].id not in {tool.id for tool in found.tools}
        snapshots.advance(Change.SKILLS)
        assert (await search(service, "verb7 a file")).tools[0].id == items[7].id


@pytest.mark.req("G-13")
async def test_only_visible_tools_count_for_a_profile() -> None:
    """One visible tool in a hundred is found although there are more tools than are searched that are nearer."""
    items = [Item("seen" if n % 100 == 0 else "hidden", f"t{n}", f"verb{n} a {NOUNS[n % 8]}") for n in range(800)]
    async with open_catalogue(items) as catalogue:
        snapshots = make_snapshots(catalogue)
        profile = Profile("few", allow=ItemRules(servers=("seen",)))
        visibility = Visibility(lambda _: profile, snapshots, catalogue.item_store)
        with as_request(profile="few"):
            found = await search(build_search(catalogue, snapshots, visibility), "verb1 a folder", limit=50)
        assert {tool.id for tool in found.tools} == {item.id for item in items if item.server == "seen"}
        assert found.candidates == 8


async def test_only_items_of_the_wanted_type_count() -> None:
    items = [make_tool(n, NOUNS[n % 8], f"verb{n}") for n in range(400)]
    prompts = [Item("s", f"p{n}", f"verb{n} nothing", type=ItemType.PROMPT) for n in range(4)]
    async with open_catalogue([*items, *prompts]) as catalogue:
        service = build_search(catalogue, make_snapshots(catalogue))
        found = await search(service, "verb9 an email", item_type=ItemType.PROMPT, limit=50)
        assert {tool.id for tool in found.tools} == {item.id for item in prompts}


def build_map(sizes: Sequence[int]) -> SkillMap:
    """Topics of these sizes in one skill, the first one nearest to (1, 0)."""
    points, vectors = [], {}
    for n, size in enumerate(sizes):
        tools = [f"{n}/{k}" for k in range(size)]
        about = {"skill_id": "x", "name": "X", "description": "", "tool_count": sum(sizes), "is_active": True}
        payload = {**about, "tightness": 1.0, "is_facet": True, "tools": tools}
        points.append(Candidate(f"x#{n:03}", 0.0, payload))
        angle = n / len(sizes)
        vectors[f"x#{n:03}"] = np.array([np.cos(angle), np.sin(angle)], np.float32)
    return SkillMap(points, vectors, PLAIN)


@pytest.mark.parametrize(
    ("sizes", "topics"),
    [
        ([3] * 3, 3),  # of few tools all
        ([4] * 10, 3),  # the first topics that have the minimum together
        ([7] * 100, round(SHARE * 100)),
        ([100] * 400, 20),  # ten times the square root of 40 000
        ([500, *[1] * 100], 1),  # a topic is never cut
    ],
)
def test_the_nearest_topics_are_chosen_until_they_have_enough_tools(sizes: list[int], topics: int) -> None:
    skill_map = build_map(sizes)
    visible = VisibleTopics(skill_map, None, View(), None)
    scores = skill_map.score_topics(skill_map.compare(np.array([1, 0], np.float32)))
    assert visible.choose_tools(scores) == set(chain.from_iterable(skill_map.topics[:topics]))
    assert MIN_TOOLS == 10
