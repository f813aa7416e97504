"""Tool search on real data: the defaults answer well, and a tool is always found by its name."""

from __future__ import annotations

import gzip
import json
import random
import string
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.databases import open_memory_database
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.domain.catalog import Item
from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.domain.search import Candidate, Point, Terms, Vector, sort_candidates
from toolscript.evaluation.datasets import ToolSet, demo_folder, read_set
from toolscript.evaluation.metrics import mean, score_by_group
from toolscript.ports.models import Embedder
from toolscript.retrieval.retriever import Retriever
from toolscript.services.catalogue.demo import parse_item
from toolscript.services.catalogue.item_points import tools_collection
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.sync import Sync
from toolscript.services.tools.hybrid_search import ToolSearch
from toolscript.services.tools.ranking import ToolRanking

SEED = 11
TYPOS = 400
# Names that are searched among all 5 792 tools: every third, and of the ids every fifteenth.
EVERY_NAME, EVERY_ID = 3, 15


class QuickIndex(MemoryIndex):
    """The memory index for thousands of tools, with vectors and postings prepared once."""

    _ids: list[str] | None = None

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        await super().upsert(name, points)
        self._ids = None

    def _prepare(self, name: str) -> None:
        points = list(self._points(name).values())
        self._ids = [p.id for p in points]
        self._payloads = [p.payload for p in points]
        self._vectors = np.array([p.vector for p in points])
        postings: dict[int, list[tuple[int, float]]] = {}
        for row, point in enumerate(points):
            for term, weight in zip(point.terms.ids, point.terms.weights, strict=True):
                postings.setdefault(term, []).append((row, weight))
        self._postings = {t: tuple(np.array(column) for column in zip(*of, strict=True)) for t, of in postings.items()}

    async def dense(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        fields: Sequence[str] | None = None,
    ) -> list[Candidate]:
        return self._best(name, lambda: self._vectors @ vector, limit, minimum=-1.0)

    async def lexical(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, limit: int, fields: Sequence[str] | None = None
    ) -> list[Candidate]:
        def scores() -> Vector:
            found = np.zeros(len(self._payloads), np.float32)
            for term, query_weight in zip(terms.ids, terms.weights, strict=True):
                if term in self._postings:
                    rows, weights = self._postings[term]
                    found[rows] += query_weight * weights
            return found

        return self._best(name, scores, limit, minimum=1e-9)

    def _best(self, name: str, scores: Callable[[], Vector], limit: int, minimum: float) -> list[Candidate]:
        if self._ids is None:
            self._prepare(name)
        assert self._ids is not None
        found = scores()
        rows = np.argpartition(-found, limit)[:limit] if limit < len(found) else range(len(found))
        return sort_candidates(
            [Candidate(self._ids[r], float(found[r]), self._payloads[r]) for r in rows if found[r] >= minimum]
        )


@asynccontextmanager
async def searching(embedder: Embedder, items: Sequence[Item]) -> AsyncIterator[ToolSearch]:
    database, index = open_memory_database(), QuickIndex()
    item_store, skill_store = SqlItems(database), SqlSkills(database)
    await index.open(tools_collection(embedder.model, embedder.dimensions))
    await Sync(item_store, skill_store, index, embedder).run(items)
    retriever = Retriever(embedder, index)
    snapshots = CatalogueSnapshots(item_store, index, retriever.similarity)
    yield ToolSearch(ToolRanking(retriever, snapshots.capabilities), snapshots)
    await database.close()


@pytest.mark.req("S-01")
@pytest.mark.parametrize(
    ("name", "min_recall", "min_answered", "min_left_empty"),
    # Recall at 5 is 0.979, 0.992 and 0.872 on ARM, 0.957, 0.992 and 0.862 on x86-64: the model computes with 8 bits.
    # One query of 47 is 0.021; the margins are one to two queries below the lower figure.
    [
        pytest.param("mcpproxy_golden", 0.93, 0.95, None, marks=pytest.mark.extended),
        pytest.param("ironclaw_toolsearch", 0.97, 0.95, 0.7, marks=pytest.mark.extended),
        ("demo", 0.84, 0.85, 0.7),
    ],
)
async def test_the_default_threshold_separates_answerable_from_unanswerable_queries(
    tool_model: OnnxEmbedder,
    shared_data: Path,
    name: str,
    min_recall: float,
    min_answered: float,
    min_left_empty: float | None,
) -> None:
    tools = read_set(demo_folder() if name == "demo" else shared_data / "tools" / name)
    assert isinstance(tools, ToolSet)
    set_ids = {item.id: own for own, item in tools.items.items()}
    async with searching(tool_model, list(tools.items.values())) as search:
        found = [(await search.search(q.text, limit=10, threshold=0)).hits for q in tools.queries]
        scores = [
            score_by_group(q, [set_ids[h.id] for h in hits]) for q, hits in zip(tools.queries, found, strict=True)
        ]
        answered = [bool((await search.search(q.text)).hits) for q in tools.queries]
        empty = [not (await search.search(text)).hits for text in tools.unanswerable]
    assert mean(scores)["r@5"] >= min_recall
    assert sum(answered) / len(answered) >= min_answered
    if min_left_empty is not None:
        assert sum(empty) / len(empty) >= min_left_empty


@pytest.fixture(scope="module")
async def large(shared_data: Path) -> AsyncIterator[tuple[list[Item], ToolSearch]]:
    """5,792 tools of hundreds of servers, with a model that knows nothing about their names."""
    lines = gzip.decompress((shared_data / "tools" / "mcp_catalog_A" / "tools.jsonl.gz").read_bytes()).decode()
    items = [parse_item(json.loads(line)) for line in lines.splitlines()]
    async with searching(HashedEmbedder(16), items) as search:
        yield items, search


@pytest.mark.extended
@pytest.mark.req("S-02")
async def test_each_of_thousands_of_tools_is_first_by_its_name(large: tuple[list[Item], ToolSearch]) -> None:
    items, search = large
    firsts = [(item, (await search.search(item.name, limit=1)).hits[0]) for item in items[::EVERY_NAME]]
    assert [item.id for item, first in firsts if first.name != item.name] == []


@pytest.mark.extended
@pytest.mark.req("S-02")
async def test_a_tool_is_first_by_its_id_even_if_others_share_its_name(large: tuple[list[Item], ToolSearch]) -> None:
    items, search = large
    firsts = [(item, (await search.search(item.id, limit=1)).hits[0]) for item in items[::EVERY_ID]]
    assert [item.id for item, first in firsts if first.id != item.id] == []


@pytest.mark.extended
@pytest.mark.req("S-02")
async def test_a_name_with_one_typo_is_among_the_first_three(large: tuple[list[Item], ToolSearch]) -> None:
    items, search = large
    rng = random.Random(SEED)
    names = [item.name for item in items if sum(map(str.isalpha, item.name)) >= 5]
    typos = [(name, _add_typo(name, rng)) for name in rng.sample(names, TYPOS)]
    missed = [(n, t) for n, t in typos if n not in [h.name for h in (await search.search(t)).hits]]
    assert len(missed) <= 0.02 * TYPOS, missed


def _add_typo(name: str, rng: random.Random) -> str:
    at, letter = rng.randrange(len(name) - 1), rng.choice(string.ascii_lowercase)
    edits = [
        name[:at] + letter + name[at:],
        name[:at] + name[at + 1 :],
        name[:at] + letter + name[at + 1 :],
        name[:at] + name[at + 1] + name[at] + name[at + 2 :],
    ]
    return rng.choice(edits)
