"""Hierarchical search, rule by rule: skills first, then their tools, then the schemas of what is returned.

Docstrings name the business rule or the edge case of the contract that a test holds. Where a score matters, a text says
itself how near it is to the query (`@0.5`) and which skills it belongs to (`#mail`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.databases import open_memory_database
from tests.fixtures.examples import scale_examples
from tests.fixtures.limits import set_limits
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.domain.catalog import Assignment, Classification, Item, ItemType, Origin, Schemas, Skill
from toolscript.domain.errors import InvalidArguments, Unavailable
from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.domain.limits import Limits
from toolscript.domain.search import Candidate, Point, SimilarityRange, Terms, Vector
from toolscript.ports.models import Embedder
from toolscript.retrieval.capabilities import load_capabilities
from toolscript.retrieval.learned_ranking import LEARNED
from toolscript.retrieval.retriever import Retriever
from toolscript.retrieval.skill_map import MIDDLE, STEEPNESS
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.catalogue.item_points import TOOLS, tools_collection
from toolscript.services.catalogue.skill_points import SKILLS, skills_collection
from toolscript.services.catalogue.snapshot import CatalogueSnapshots, Change
from toolscript.services.catalogue.sync import Sync
from toolscript.services.tools.hierarchical_search import (
    HierarchicalQuery,
    HierarchicalResults,
    HierarchicalSearch,
    Strategy,
)
from toolscript.services.tools.ranking import ToolRanking
from toolscript.surfaces.json.hierarchical import build_hierarchical_response

pytestmark = pytest.mark.req("H-01")

MAIL = Skill("mail", "Mail", "Letters")
FILES = Skill("files", "Files", "Papers")
WEB = Skill("web", "Web", "Pages")
PLANTS = Skill("plants", "Plants", "Nothing yet @1.0")

SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}}
SEND = Item("s", "send", "Send a letter #mail @0.75", input_schema=SCHEMA, output_schema={"type": "string"})
ATTACH = Item("s", "attach", "Attach a file to a letter #files #mail @0.625", annotations={"readOnlyHint": False})
READ = Item("s", "read", "Read a file #files @0.5")
FETCH = Item("s", "fetch", "Fetch a page #web @0.375")
LOOSE = Item("s", "loose", "In no skill @0.875")
ASK_NICELY = Item("s", "nicely", "How to write #mail @0.6875", type=ItemType.PROMPT)
INBOX = Item("s", "mail://inbox", "All letters #mail @0.5625", type=ItemType.RESOURCE)
EVERY = (SEND, ATTACH, READ, FETCH, LOOSE, ASK_NICELY, INBOX)
NEAREST = {
    skill: round(1 / (1 + math.exp(STEEPNESS * (MIDDLE - cosine))), 4)
    for skill, cosine in {"mail": 0.75, "files": 0.625, "web": 0.375}.items()
}


def at(cosine: float) -> Vector:
    """A vector with that cosine to every query."""
    return np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float32)


class AngledEmbedder(HashedEmbedder):
    """Every query has the same vector; a text with `@0.5` has that cosine to it, others have 0. Counts calls."""

    def __init__(self) -> None:
        super().__init__(2)
        self.queries = 0

    async def embed_query(self, text: str) -> Vector:
        self.queries += 1
        return at(1.0)

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        matches = (re.search(r"@(-?[\d.]+)", text) for text in texts)
        return [at(float(m[1]) if m else 0.0) for m in matches]


class Labels:
    """Assigns the skills that the description names, the first one primary."""

    async def classify(
        self, items: Sequence[tuple[Item, Vector]], skills: Sequence[Skill]
    ) -> list[Classification | None]:
        known = {s.id for s in skills}
        labels = [[i for i in re.findall(r"#(\w+)", item.description) if i in known] for item, _ in items]
        return [
            Classification(tuple(Assignment(i, 0.9 - n / 10, n == 0, Origin.EMBEDDING) for n, i in enumerate(each)))
            for each in labels
        ]


class WatchedItems(SqlItems):
    """Records whose schemas are read; can be made to refuse that, or to read items at all."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.read: list[list[str]] = []
        self.is_closed_to_readers = False
        self.is_without_facts = False

    async def get_items(self, *args: Any, **kwargs: Any) -> Any:
        if self.is_without_facts:
            raise Unavailable("the store does not answer")
        return await super().get_items(*args, **kwargs)

    async def get_schemas(self, item_ids: Sequence[str]) -> dict[str, Schemas]:
        if self.is_closed_to_readers:
            raise AssertionError("the store was read")
        self.read.append(list(item_ids))
        return await super().get_schemas(item_ids)


class WatchedIndex(MemoryIndex):
    """Records the filters of searches."""

    def __init__(self) -> None:
        super().__init__()
        self.searched: list[Filter] = []

    async def dense(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        fields: Sequence[str] | None = None,
    ) -> list[Candidate]:
        self.searched.append(where)
        return await super().dense(name, vector, where=where, limit=limit, fields=fields)


# Every first hit is as sure as it may be, and the others are as much less sure as their scores are lower.
PLAIN = replace(LEARNED, beneath=0.0, hybrid=replace(LEARNED.hybrid, base=100.0, tie=100.0))


def rank_with(retriever: Retriever) -> ToolRanking:
    return ToolRanking(retriever, load_capabilities(), learned=PLAIN)


class Library:
    """A catalogue, its index and the search, connected as in the application."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        database = open_memory_database()
        self.item_store, self.skill_store = WatchedItems(database), SqlSkills(database)
        self.index = WatchedIndex()
        self.snapshots = self.build_snapshots()
        self.sync = Sync(
            self.item_store,
            self.skill_store,
            self.index,
            embedder,
            classifier=Labels(),
            on_change=self.snapshots.advance,
        )
        self.service = HierarchicalSearch(rank_with(Retriever(embedder, self.index)), self.snapshots)

    def build_snapshots(self) -> CatalogueSnapshots:
        similarity = self.embedder.similarity or SimilarityRange(0.0, 1.0)
        return CatalogueSnapshots(self.item_store, self.index, similarity)

    async def search(self, query: str = "anything", **fields: Any) -> HierarchicalResults:
        return await self.service.search(HierarchicalQuery(query, **fields))

    async def hold(self, items: Sequence[Item], skills: Sequence[Skill]) -> None:
        await self.index.open(tools_collection(self.embedder.model, self.embedder.dimensions))
        await self.index.open(skills_collection(self.embedder.model, self.embedder.dimensions))
        await self.skill_store.save_skills(skills)
        await self.sync.run(items)
        await self.sync.index_catalogue()
        self.item_store.read.clear()


@asynccontextmanager
async def library(
    *items: Item, skills: Sequence[Skill] = (MAIL, FILES, WEB), embedder: Embedder | None = None
) -> AsyncIterator[Library]:
    opened = Library(embedder or AngledEmbedder())
    await opened.hold(items, skills)
    yield opened
    await opened.item_store.close()


@pytest.fixture
async def every() -> AsyncIterator[Library]:
    async with library(*EVERY) as opened:
        yield opened


def names(found: HierarchicalResults) -> list[str]:
    return [tool.payload["name"] for tool in found.tools]


def render(found: HierarchicalResults) -> dict[str, Any]:
    """The results without their times."""
    answer = build_hierarchical_response(found, with_schemas=True)
    return {**answer, "metadata": {k: v for k, v in answer["metadata"].items() if not k.endswith("_ms")}}


async def test_the_skills_come_first_then_their_tools_then_the_schemas(every: Library) -> None:
    """BR-001."""
    found = await every.search(skill_limit=2, limit=6)
    assert [hit.skill.id for hit in found.skills] == ["mail", "files"]
    assert found.skill_ids_used == ["mail", "files"]
    assert [t.id for t in found.tools] == [
        "s__loose",
        "s__send",
        "s__prompt:nicely",
        "s__attach",
        "s__resource:mail://inbox",
        "s__read",
    ]
    assert found.tools[0].score > found.tools[1].score > found.tools[2].score
    assert (found.tools[1].input_schema, found.tools[1].output_schema) == (SCHEMA, {"type": "string"})
    assert found.tools[3].annotations == {"readOnlyHint": False}
    assert found.report.degraded == []


async def test_every_tool_belongs_to_a_matched_skill_or_to_none(every: Library) -> None:
    """BR-001: the invariant."""
    for skill_limit in (1, 2, 3, 10):
        found = await every.search(skill_limit=skill_limit, skill_threshold=0.0, tool_threshold=0.0, limit=50)
        used = set(found.skill_ids_used or ())
        assert used == {hit.skill.id for hit in found.skills}
        assert len(used) == min(skill_limit, 3)
        assert all(used & set(tool.payload["skill_ids"]) for tool in found.tools if tool.payload["skill_ids"])


async def test_a_matched_skill_scores_as_the_best_tool_found_in_it(every: Library) -> None:
    """BR-002: or as its nearest part, if that is nearer."""
    found = await every.search(limit=50)
    for hit in found.skills:
        best = max(tool.score for tool in found.tools if hit.skill.id in tool.payload["skill_ids"])
        assert hit.score == max(best, NEAREST[hit.skill.id])


async def test_a_skill_whose_parts_are_far_is_matched_by_a_tool_that_the_words_find(every: Library) -> None:
    """BR-002: meaning alone would leave it below the threshold."""
    assert "fetch" not in names(await every.search(skill_threshold=0.45))
    found = await every.search("fetch a page", skill_threshold=0.45)
    assert "fetch" in names(found)
    assert "web" in {hit.skill.id for hit in found.skills}


async def test_the_query_is_embedded_once_whatever_the_strategy(every: Library) -> None:
    """BR-001: the embedding is reused."""
    assert isinstance(every.embedder, AngledEmbedder)
    for times, strategy in enumerate(Strategy, start=1):
        await every.search(f"query {times}", strategy=strategy)
        assert every.embedder.queries == times


@pytest.mark.req("H-03")
async def test_skills_are_ranked_by_similarity_alone(every: Library) -> None:
    """BR-002: the number of a skill's tools is returned and does not affect the ranking."""
    found = await every.search(skill_threshold=0.0)
    assert [(h.skill.id, h.skill.tool_count) for h in found.skills] == [("mail", 4), ("files", 2), ("web", 1)]
    more = [Item("t", f"more{n}", "Fetch another page #web @0.375") for n in range(20)]
    await every.sync.run([*EVERY, *more])
    found = await every.search(skill_threshold=0.0)
    assert [(h.skill.id, h.skill.tool_count) for h in found.skills] == [("mail", 4), ("files", 2), ("web", 21)]
    nearest = await every.service.find_skills("anything", threshold=0.0)
    assert [(h.skill.id, h.score) for h in nearest] == [*NEAREST.items()]


async def test_an_inactive_skill_is_not_matched(every: Library) -> None:
    """BR-002: only active skills, even if the index is stale."""
    await every.skill_store.save_skills([replace(MAIL, is_active=False)])
    await every.sync.index_catalogue()
    assert [h.skill.id for h in (await every.search()).skills] == ["files", "web"]
    (point,) = [p for p in await every.index.scroll(SKILLS) if p.id == "files"]
    opened = await every.index.vectors(SKILLS, ["files"])
    await every.index.drop(SKILLS)
    await every.index.open(skills_collection(every.embedder.model, 2))
    await every.index.upsert(SKILLS, [Point("files", opened["files"], Terms(), {**point.payload, "is_active": False})])
    every.snapshots.advance(Change.SKILLS)
    assert (await every.search()).skills == []


@pytest.mark.parametrize(
    ("threshold", "matched"),
    [
        (NEAREST["mail"], ["mail"]),
        (NEAREST["mail"] + 0.0001, []),
        (0.0, ["mail", "files", "web"]),
    ],
)
async def test_a_skill_at_the_threshold_is_found_and_one_below_is_not(
    every: Library, threshold: float, matched: list[str]
) -> None:
    """BR-002."""
    assert [h.skill.id for h in await every.service.find_skills("anything", threshold=threshold)] == matched


async def test_a_returned_score_as_a_skill_threshold_keeps_the_skill(every: Library) -> None:
    """BR-002."""
    skills = (await every.search(skill_threshold=0.1)).skills
    assert len(skills) == 3
    for hit in skills:
        threshold = min(hit.score, NEAREST["mail"])  # above it, no skill is near, and everything is searched
        assert hit.skill.id in {h.skill.id for h in (await every.search(skill_threshold=threshold)).skills}


async def test_the_best_skills_are_kept_when_all_match(every: Library) -> None:
    """BR-002, EC-002."""
    for limit in (1, 2, 3):
        found = await every.search(skill_threshold=0.0, skill_limit=limit)
        assert [h.skill.id for h in found.skills] == ["mail", "files", "web"][:limit]


@pytest.mark.req("H-03")
async def test_a_tool_counts_by_any_of_its_skills_not_only_the_primary(every: Library) -> None:
    """BR-003."""
    found = await every.search(skill_limit=1)
    assert found.skill_ids_used == ["mail"]
    attach = next(t for t in found.tools if t.id == ATTACH.id)
    assert (attach.payload["skill_ids"], attach.payload["primary_skill_id"]) == (["files", "mail"], "files")
    assert "read" not in names(found)


@pytest.mark.req("H-03")
async def test_vanished_tools_are_not_found(every: Library) -> None:
    """BR-003: is_active, even if the index is stale."""
    payload = {**(await every.index.payloads(TOOLS, [SEND.id]))[SEND.id], "is_active": False}
    await every.index.upsert(TOOLS, [Point(SEND.id, at(0.75), Terms(), payload)])
    for strategy in Strategy:
        assert "send" not in names(await every.search(strategy=strategy))


async def test_a_tool_at_the_threshold_is_found_and_one_below_is_not(every: Library) -> None:
    """BR-003: a returned score, given as a threshold, keeps its tool."""
    tools = (await every.search()).tools
    assert len(tools) == 5
    for place, tool in enumerate(tools):
        kept = await every.search(tool_threshold=tool.score)
        assert [t.id for t in kept.tools] == [t.id for t in tools[: place + 1]]
        fewer = await every.search(tool_threshold=tool.score + 0.0001)
        assert [t.id for t in fewer.tools] == [t.id for t in tools[:place]]


async def test_a_returned_score_as_a_threshold_keeps_its_tool() -> None:
    """BR-003: thresholds are compared with the returned, rounded scores."""
    odd = [Item("s", f"t{n}", f"One of many #mail @{0.3 + n / 137:.9f}") for n in range(40)]
    async with library(*odd) as opened:
        for tool in (await opened.search(limit=50)).tools:
            again = await opened.search(limit=50, tool_threshold=tool.score)
            assert tool.id in {t.id for t in again.tools}
            assert all(t.score >= tool.score for t in again.tools)


async def test_equal_scores_are_ordered_by_id() -> None:
    """BR-001: the order is deterministic."""
    alike = [Item("s", name, "Alike #mail @0.5") for name in ("c", "a", "d", "b")]
    skills = [Skill(i, i) for i in ("zoo", "ant", "mail")]
    in_all = Item("s", "e", "Alike #zoo #ant #mail @0.5")
    async with library(*alike, in_all, skills=skills) as opened:
        found = await opened.search(skill_threshold=0.1)
        assert names(found) == ["a", "b", "c", "d", "e"]
        assert [h.skill.id for h in found.skills] == ["ant", "mail", "zoo"]
        assert names(await opened.search(limit=2)) == ["a", "b"]


@pytest.mark.req("H-05")
async def test_schemas_are_read_once_and_only_for_returned_tools(every: Library) -> None:
    """BR-004, where the catalogue is not in memory."""
    every.item_store.is_without_facts = True
    await every.search(limit=2)
    assert every.item_store.read == [[LOOSE.id, SEND.id]]


@pytest.mark.req("H-05")
async def test_a_known_schema_is_not_read_again(every: Library) -> None:
    """BR-004: cached while the tool does not change."""
    every.item_store.is_without_facts = True
    await every.search(limit=2)
    found = await every.search("something else", limit=3)
    assert every.item_store.read == [[LOOSE.id, SEND.id], [ASK_NICELY.id]]
    assert found.tools[1].input_schema == SCHEMA
    await every.search("a third thing", limit=3)
    assert len(every.item_store.read) == 2


@pytest.mark.req("H-05")
async def test_without_schemas_the_store_is_not_read(every: Library) -> None:
    """BR-004."""
    every.item_store.is_closed_to_readers = True
    for strategy in Strategy:
        found = await every.search(include_schemas=False, strategy=strategy)
        assert found.tools
        assert found.report.degraded == []
        assert {t.input_schema is None for t in found.tools} == {True}
        assert "schema_load" not in found.report.timings_ms


@pytest.mark.req("H-05")
async def test_a_tool_that_the_store_does_not_know_has_no_schema(every: Library) -> None:
    """BR-004: missing schemas are null."""
    payload = {**(await every.index.payloads(TOOLS, [SEND.id]))[SEND.id], "name": "ghost"}
    await every.index.upsert(TOOLS, [Point("s__ghost", at(0.8), Terms(), payload)])
    found = await every.search(strategy=Strategy.DIRECT)
    assert [(t.id, t.input_schema) for t in found.tools[1:3]] == [("s__ghost", None), (SEND.id, SCHEMA)]
    assert found.report.degraded == ["schemas"]


@pytest.mark.slow
@pytest.mark.req("H-03")
@pytest.mark.parametrize("strategy", list(Strategy))
async def test_a_type_restricts_the_results(every: Library, strategy: Strategy) -> None:
    """BR-005."""
    for item_type in (None, *ItemType):
        found = await every.search(item_type=item_type, strategy=strategy, limit=50)
        types = {tool.payload["type"] for tool in found.tools}
        offered = {"tool", "prompt", "resource"}
        assert types == (offered & {item_type.value} if item_type else offered)
        assert found.candidates == len(found.tools)


@pytest.mark.req("H-04")
async def test_without_a_matching_skill_the_search_is_unfiltered_and_says_so(
    every: Library, caplog: pytest.LogCaptureFixture
) -> None:
    """BR-006."""
    with caplog.at_level(logging.WARNING):
        found = await every.search(skill_threshold=0.9)
    assert "No skills matched, falling back to unfiltered search" in caplog.text
    assert (found.skills, found.skill_ids_used, found.strategy) == ([], None, Strategy.HIERARCHICAL)
    direct = await every.search(strategy=Strategy.DIRECT)
    assert [(t.id, t.score) for t in found.tools] == [(t.id, t.score) for t in direct.tools]
    assert found.report.degraded == []


@pytest.mark.req("H-04")
async def test_without_any_skill_the_search_is_unfiltered(caplog: pytest.LogCaptureFixture) -> None:
    """BR-006, EC-001."""
    async with library(*EVERY, skills=()) as opened:
        found = await opened.search(limit=50, skill_threshold=0.0)
    assert (len(found.tools), found.skill_ids_used, found.report.degraded) == (7, None, [])
    assert "No skills matched" in caplog.text


@pytest.mark.req("H-06")
async def test_the_results_have_times_counts_strategy_and_skills(every: Library) -> None:
    """BR-007."""
    found = await every.search(limit=2)
    metadata: dict[str, Any] = {**build_hierarchical_response(found, with_schemas=True)["metadata"]}
    times = {name: metadata.pop(name) for name in list(metadata) if name.endswith("_ms")}
    assert metadata == {
        "strategy_used": "hierarchical",
        "skill_ids_used": ["mail", "files", "web"],
        "stage1_skill_count": 3,
        "stage2_candidate_count": 7,
        "final_count": 2,
        "degraded": [],
    }
    stages = {"query_embedding", "skill_search", "tool_search", "schema_load"}
    assert times.keys() == {f"{name}_time_ms" for name in (*stages, "total")}
    assert all(value > 0 for value in times.values())
    assert sum(times[f"{name}_time_ms"] for name in stages) <= times["total_time_ms"] + 0.01


@pytest.mark.req("H-06")
async def test_candidates_are_counted_before_the_limit(every: Library) -> None:
    """BR-007."""
    searches = [every.search(strategy=strategy, limit=limit) for strategy in Strategy for limit in (1, 3, 50)]
    assert [(await search).candidates for search in searches] == [7] * len(searches)


async def test_a_direct_search_ignores_skills(every: Library) -> None:
    """BR-008."""
    await every.index.drop(SKILLS)
    every.snapshots.advance(Change.SKILLS)
    found = await every.search(strategy=Strategy.DIRECT)
    assert names(found) == ["loose", "send", "nicely", "attach", "mail://inbox"]
    assert (found.skills, found.skill_ids_used, found.strategy) == ([], None, Strategy.DIRECT)
    assert found.report.degraded == []
    assert "skill_search" not in found.report.timings_ms


@pytest.mark.req("H-03")
async def test_the_hybrid_strategy_gives_the_best_of_both(every: Library) -> None:
    found = await every.search(strategy=Strategy.HYBRID, limit=50)
    assert names(found) == ["loose", "send", "nicely", "attach", "mail://inbox", "read", "fetch"]
    assert found.skill_ids_used == ["mail", "files", "web"]
    assert len({t.id for t in found.tools}) == len(found.tools)
    inside, everywhere = every.index.searched
    assert inside.within is not None
    assert inside.within.ids == {item.id for item in EVERY}
    assert everywhere.within is None


@pytest.mark.req("H-06")
async def test_all_tools_that_were_compared_are_counted_whatever_the_limit() -> None:
    """BR-007."""
    crowd = [Item("s", f"t{n:03}", "One of many #mail @0.5") for n in range(130)]
    async with library(*crowd) as opened:
        for strategy in Strategy:
            found = await opened.search(strategy=strategy, limit=20)
            assert (found.candidates, len(found.tools)) == (len(crowd), 20)


@pytest.mark.req("H-06")
async def test_a_tool_just_below_the_threshold_is_not_counted(every: Library) -> None:
    """BR-007."""
    best = (await every.search()).tools[0].score
    found = await every.search(tool_threshold=best + 0.00005)
    assert (list(found.tools), found.candidates) == ([], 0)


def build_points(vectors: Mapping[str, Vector], **payload: Any) -> list[Point]:
    return [
        Point(i, v, Terms(), {**payload, "name": i, "description": "", "is_active": True}) for i, v in vectors.items()
    ]


DIMENSIONS = 4
NUMBER = st.floats(-1, 1, width=32).filter(lambda n: n == 0 or abs(n) > 1e-3)
VECTOR = (
    st.lists(NUMBER, min_size=DIMENSIONS, max_size=DIMENSIONS)
    .map(lambda v: np.array(v, dtype=np.float32))
    .filter(lambda v: bool(np.linalg.norm(v) > 0.01))
    .map(lambda v: np.asarray(v / np.linalg.norm(v), dtype=np.float32))
)
SHARE = st.floats(0, 1)


class FixedEmbedder(HashedEmbedder):
    """Gives every query the same vector; the range of cosines is an argument."""

    def __init__(self, vector: Vector, similarity: SimilarityRange) -> None:
        super().__init__(DIMENSIONS)
        self._vector, self.similarity = vector, similarity

    async def embed_query(self, text: str) -> Vector:
        return self._vector


@pytest.mark.slow
@given(
    query=VECTOR,
    tools=st.lists(VECTOR, max_size=12),
    skills=st.lists(VECTOR, max_size=5),
    calibration=st.tuples(st.floats(-0.5, 0.5), st.floats(0.05, 1.0)),
    thresholds=st.tuples(SHARE, SHARE),
    limits=st.tuples(st.integers(1, 50), st.integers(1, 10)),
    strategy=st.sampled_from(Strategy),
)
@settings(max_examples=scale_examples(120), deadline=None)
async def test_scores_are_shares_in_order_and_never_below_the_threshold(
    query: Vector,
    tools: list[Vector],
    skills: list[Vector],
    calibration: tuple[float, float],
    thresholds: tuple[float, float],
    limits: tuple[int, int],
    strategy: Strategy,
) -> None:
    """BR-009, BR-002, BR-003: for all vectors, models and thresholds."""
    index = MemoryIndex()
    await index.open(tools_collection("m", DIMENSIONS))
    await index.open(skills_collection("m", DIMENSIONS))
    ids = [f"s{n}" for n in range(len(skills))]
    for n, vector in enumerate(skills):
        tools_of = [f"t{k}" for k in range(len(tools)) if k % 3 == n]
        own = {"skill_id": ids[n], "tool_count": 1, "tightness": 1.0, "is_facet": False, "tools": tools_of}
        await index.upsert(SKILLS, build_points({ids[n]: vector}, **own))
    for n, vector in enumerate(tools):
        await index.upsert(
            TOOLS, build_points({f"t{n}": vector}, type="tool", db_id=n, skill_ids=ids[n % 3 : n % 3 + 1])
        )
    floor, width = calibration
    embedder = FixedEmbedder(query, SimilarityRange(floor, floor + width))
    database = open_memory_database()
    service = HierarchicalSearch(
        rank_with(Retriever(embedder, index)),
        CatalogueSnapshots(SqlItems(database), index, embedder.similarity),
    )
    found = await service.search(
        HierarchicalQuery(
            "q",
            limit=limits[0],
            skill_limit=limits[1],
            skill_threshold=thresholds[0],
            tool_threshold=thresholds[1],
            include_schemas=False,
            strategy=strategy,
        )
    )
    await database.close()
    assert set(found.report.degraded) <= {"schemas"}
    for hits, low, high in ((found.skills, thresholds[0], limits[1]), (found.tools, thresholds[1], limits[0])):
        scores = [hit.score for hit in hits]
        assert all(low <= score <= 1 for score in scores)
        assert scores == sorted(scores, reverse=True)
        assert len(scores) <= high
    assert found.candidates >= len(found.tools)
    if strategy is Strategy.HIERARCHICAL and found.skill_ids_used is not None:
        used = set(found.skill_ids_used)
        assert all(used & set(tool.payload["skill_ids"]) for tool in found.tools)


async def test_a_skill_without_tools_gives_an_empty_list() -> None:
    """EC-003."""
    far = replace(FETCH, description="Fetch a page #web @-0.5")
    async with library(far, skills=[PLANTS, WEB]) as opened:
        found = await opened.search(tool_threshold=0.0, skill_threshold=0.1)
    assert [(h.skill.id, h.skill.tool_count) for h in found.skills] == [("plants", 0)]
    assert (list(found.tools), found.skill_ids_used) == ([], ["plants"])
    assert found.report.degraded == []


@pytest.mark.req("H-02", "X-03")
async def test_a_query_may_have_a_thousand_characters_and_not_one_more(every: Library) -> None:
    """EC-004."""
    assert (await every.search("x" * 1000)).tools
    with pytest.raises(InvalidArguments, match="1001 characters, at most 1000"):
        await every.search("x" * 1001)
    assert isinstance(every.embedder, AngledEmbedder)
    assert every.embedder.queries == 1


@pytest.mark.req("H-02", "X-03")
@pytest.mark.parametrize(
    ("name", "low", "high", "beyond"),
    [
        ("limit", 1, 50, (0, 51, -1, 10**30)),
        ("skill_limit", 1, 10, (0, 11)),
        ("skill_threshold", 0.0, 1.0, (-0.01, 1.01, float("nan"), float("inf"))),
        ("tool_threshold", 0.0, 1.0, (-0.01, 1.01, float("nan"))),
    ],
)
async def test_values_out_of_range_are_refused_naming_field_and_range(
    every: Library, name: str, low: float, high: float, beyond: tuple[float, ...]
) -> None:
    for allowed in (low, high):
        await every.search("anything", **{name: allowed})
    for wrong in beyond:
        with pytest.raises(InvalidArguments, match=f"{name} .* is out of range: give") as caught:
            await every.search("anything", **{name: wrong})
        assert caught.value.details["field"] == name


SPECIAL_CHARACTERS = [
    "'; DROP TABLE tools; --",
    "<script>alert(1)</script>",
    "${jndi:ldap://x} {{7*7}} %s %n",
    "📅🗓️👩‍👩‍👧",
    "نظّم اجتماعًا \u202e غدًا",
    "nul \0 in the middle",
    "half a pair \ud83d",
    "\ufeff\u200bmeeting",
]


@pytest.mark.slow
@pytest.mark.req("H-02")
async def test_special_characters_are_text(tool_model: OnnxEmbedder) -> None:
    """EC-005."""
    async with library(*load_demo_items()[:3], embedder=tool_model) as opened:
        for query in SPECIAL_CHARACTERS:
            found = await opened.search(query, tool_threshold=0.0)
            assert len(found.tools) == 3, query
            assert found.query == query.encode("utf-8", "replace").decode()
            assert len(await opened.item_store.get_items()) == 3


async def test_concurrent_equal_queries_get_the_same_results(every: Library) -> None:
    """EC-006."""
    answers = await asyncio.gather(*(every.search() for _ in range(50)))
    assert all(render(a) == render(answers[0]) for a in answers)


class Waiting(AngledEmbedder):
    """Answers after an event is set."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: asyncio.Queue[str] = asyncio.Queue()
        self.may_answer = asyncio.Event()

    async def embed_query(self, text: str) -> Vector:
        self.fields.put_nowait(text)
        await self.may_answer.wait()
        return await super().embed_query(text)


@pytest.fixture
async def waiting() -> AsyncIterator[tuple[Library, Waiting]]:
    embedder = Waiting()
    async with library(*EVERY, embedder=embedder) as opened:
        yield opened, embedder


async def test_concurrent_equal_queries_are_searched_once(waiting: tuple[Library, Waiting]) -> None:
    opened, embedder = waiting
    first = asyncio.create_task(opened.search())
    await embedder.fields.get()
    others = [asyncio.create_task(opened.search()) for _ in range(9)]
    await asyncio.sleep(0)
    embedder.may_answer.set()
    answers = await asyncio.gather(first, *others)
    assert all(render(a) == render(answers[0]) for a in answers)
    assert (len(answers[0].tools), embedder.queries) == (5, 1)


async def test_when_the_first_caller_is_cancelled_the_others_get_results(
    waiting: tuple[Library, Waiting],
) -> None:
    opened, embedder = waiting
    first = asyncio.create_task(opened.search())
    await embedder.fields.get()
    second, third = asyncio.create_task(opened.search()), asyncio.create_task(opened.search())
    await asyncio.sleep(0)
    first.cancel()
    await embedder.fields.get()
    third.cancel()
    embedder.may_answer.set()
    assert len((await second).tools) == 5
    for gone in (first, third):
        with pytest.raises(asyncio.CancelledError):
            await gone
    assert embedder.queries == 1


async def test_a_stale_index_of_skills_still_works(every: Library) -> None:
    """EC-007: a skill map that was built before the tools changed still finds them."""
    stale = every.build_snapshots()
    await stale.current().skill_map()
    await every.sync.run([*EVERY, Item("s", "reply", "Answer a letter #mail @0.9375")])
    service = HierarchicalSearch(rank_with(Retriever(every.embedder, every.index)), stale)
    found = await service.search(HierarchicalQuery("anything"))
    assert names(found)[0] == "reply"
    assert next(h for h in found.skills if h.skill.id == "mail").skill.tool_count == 4


@pytest.mark.req("H-03")
@pytest.mark.req("H-18")
@pytest.mark.parametrize("strategy", list(Strategy))
async def test_a_tool_in_no_skill_is_found(every: Library, strategy: Strategy) -> None:
    """EC-008."""
    assert names(await every.search(strategy=strategy))[0] == "loose"


@pytest.mark.req("H-04")
async def test_a_slow_model_is_awaited_until_its_timeout(every: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """EC-009."""

    slow = Waiting()
    service = HierarchicalSearch(rank_with(Retriever(slow, every.index)), every.snapshots)
    with monkeypatch.context() as patch:
        set_limits(patch, tool_embedding=0.05)
        found = await service.search(HierarchicalQuery("anything"))
    assert (list(found.tools), found.report.degraded) == ([], ["embedder"])
    waiting = asyncio.create_task(service.search(HierarchicalQuery("anything")))
    slow.may_answer.set()
    assert len((await waiting).tools) == 5
    assert Limits().tool_embedding == 10.0


async def test_results_are_cached_while_nothing_changes(every: Library) -> None:
    assert isinstance(every.embedder, AngledEmbedder)
    first, second = await every.search(), await every.search()
    assert render(first) == render(second)
    assert (every.embedder.queries, len(every.index.searched)) == (1, 1)
    assert first.report is not second.report
    for other in ({"limit": 4}, {"strategy": Strategy.DIRECT}, {"include_schemas": False}, {"tool_threshold": 0.31}):
        await every.search(**other)
    assert every.embedder.queries == 5


async def test_cached_results_end_with_any_change(every: Library) -> None:
    await every.search()
    changed = replace(SEND, input_schema={"type": "object"}, description="Send two letters #mail @0.75")
    await every.sync.run([changed, *EVERY[1:]])
    first = (await every.search()).tools[1]
    assert (first.input_schema, first.payload["description"]) == ({"type": "object"}, changed.description)
    await every.sync.run(EVERY[1:])
    assert "send" not in names(await every.search())
    await every.skill_store.assign(LOOSE.id, [Assignment("mail", 1.0, is_primary=True, origin=Origin.HUMAN)])
    await every.sync.index_catalogue()
    found = await every.search()
    assert (names(found)[0], found.skills[0].skill.tool_count) == ("loose", 4)


async def test_cached_results_end_with_an_interrupted_sync() -> None:
    """The model fails when half of the tools are replaced."""

    class GivingUp(AngledEmbedder):
        left = 1000

        async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
            self.left -= len(texts)
            if self.left < 0:
                raise Unavailable("out of memory")
            return await super().embed_documents(texts)

    embedder = GivingUp()
    many = [Item("s", f"t{n:03}", "One of many #mail @0.5") for n in range(100)]
    async with library(*many, embedder=embedder) as opened:
        assert {t.payload["description"] for t in (await opened.search(limit=50)).tools} == {"One of many #mail @0.5"}
        embedder.left = 64
        with pytest.raises(Unavailable):
            await opened.sync.run([replace(item, description="Another #mail @0.75") for item in many])
        assert {t.payload["description"] for t in (await opened.search(limit=50)).tools} == {"Another #mail @0.75"}


async def test_results_computed_during_a_change_are_not_cached(every: Library) -> None:
    class Interrupted(AngledEmbedder):
        async def embed_query(self, text: str) -> Vector:
            every.snapshots.advance(Change.SKILLS)
            return await super().embed_query(text)

    embedder = Interrupted()
    service = HierarchicalSearch(rank_with(Retriever(embedder, every.index)), every.snapshots)
    for _ in range(2):
        await service.search(HierarchicalQuery("anything"))
    assert embedder.queries == 2


@pytest.mark.req("H-04")
async def test_degraded_results_are_not_cached(every: Library) -> None:
    class Moody(AngledEmbedder):
        async def embed_query(self, text: str) -> Vector:
            if self.queries == 0:
                self.queries += 1
                raise Unavailable("out of memory")
            return await super().embed_query(text)

    service = HierarchicalSearch(rank_with(Retriever(Moody(), every.index)), every.snapshots)
    assert (await service.search(HierarchicalQuery("anything"))).report.degraded == ["embedder"]
    again = await service.search(HierarchicalQuery("anything"))
    assert (len(again.tools), again.report.degraded) == (5, [])


@pytest.mark.req("H-08")
async def test_each_stage_can_run_alone(every: Library) -> None:
    hits = await every.service.find_skills("anything", limit=50, threshold=NEAREST["web"])
    assert [(h.skill.id, h.score) for h in hits] == [*NEAREST.items()]
    within = await every.service.find_tools(HierarchicalQuery("anything"), ["web", "no_such_skill"])
    assert [t.id for t in within] == [FETCH.id]
    assert (await every.service.find_tools(HierarchicalQuery("anything", limit=1)))[0].id == LOOSE.id
    assert await every.service.find_tools(HierarchicalQuery("anything"), ["no_such_skill"]) == []
    assert every.item_store.read == []


@pytest.mark.slow
async def test_a_paraphrase_finds_the_right_skill(tool_model: OnnxEmbedder) -> None:
    """BR-001 with a real model: query and tools share no words."""
    skills = [
        Skill("calendar", "Calendar", "Meetings, events and free time"),
        Skill("storage", "Storage", "Files and folders on a disk"),
    ]
    items = [
        Item("cal", "create_event", "Schedule an event in the calendar and invite people #calendar"),
        Item("cal", "free_slots", "Find free time of several people #calendar"),
        Item("disk", "copy_file", "Copy a file to another folder #storage"),
        Item("disk", "remove_folder", "Remove a folder and all that is in it #storage"),
    ]
    async with library(*items, skills=skills, embedder=tool_model) as opened:
        found = await opened.search("schedule a meeting with John tomorrow")
    assert found.skills[0].skill.id == "calendar"
    assert found.tools[0].id == "cal__create_event"
