"""Random payloads, filters and queries: every engine finds what plain Python finds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.engines import INDEXES, SERVER_URL, open_index
from tests.fixtures.examples import scale_examples
from toolscript.adapters.memory import MemoryIndex
from toolscript.adapters.pgvector import points as pgvector_points
from toolscript.adapters.pgvector.index import PgVectorIndex
from toolscript.adapters.qdrant import shard as qdrant_shard
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op, Subset, matches
from toolscript.domain.search import Candidate, Collection, FieldType, Point, Terms
from toolscript.ports.indexes import VectorIndex

NAME = "congruence"
FIELDS = {
    "color": FieldType.KEYWORD,
    "size": FieldType.INTEGER,
    "price": FieldType.FLOAT,
    "sold": FieldType.BOOL,
    "day": FieldType.DATETIME,
}

COLORS = ["red", "green", "dark green", "", "Red"]
DAYS = [
    "2024-01-01",
    "2024-01-01T00:00:00Z",
    "2024-01-01T01:00:00+01:00",
    "2024-06-30T12:00:00.5Z",
    "2025-02-03 04:05:06",
    "2024-01-01T01:00:00.1234567891z",
    "2024-01-01T00:00:00.123456",
    "2024-01-01 01:00",
    "2024-01-01 02:30:00 +0130",
    "2023-12-31T14:00:00-10",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999-14:00",
]
NEARLY_DAYS = [
    "2024-W05-1",
    "20240101",
    "2024-01-01T10",
    "2024-01-01T10:00Z",
    "2024-01-01T10:00:00,5Z",
    "2024-01-01T10:00:00.Z",
    "2024-01-01_10:00:00",
    "2024-01-01T24:00:00",
    "2024-01-01T10:00:00+24:00",
    "2024-01-01T10:00:00+01:60",
    "2024-02-30",
    "2024-1-1",
    "+2024-01-01",
    "-2024-01-01",
    "0000-01-01",
    "99-01-01",
    " 2024-01-01",
    "2024-01-01t10:00:00z",
    "2024-01-01T10:00:00UTC",
    "2024-01-01T10:00:00Z ",
    "2024-01-01T10:00:00+00:00:30",
    "2024-01-01T23:59:60Z",
    "2024-01-01T1:2:3",
    "٢٠٢٤-01-01",
]
numbers = st.one_of(st.integers(-5, 5), st.sampled_from([0.5, -1.25, 3.0]))


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value, a list of values, or null."""
    return st.one_of(values, st.lists(values, max_size=3), st.none())


payloads = st.fixed_dictionaries(
    {},
    optional={
        "color": some(st.sampled_from(COLORS)),
        "size": some(st.integers(-5, 5)),
        "price": some(numbers),
        "sold": some(st.booleans()),
        "day": some(st.sampled_from([*DAYS, *NEARLY_DAYS])),
        "free form": some(
            st.one_of(st.sampled_from(COLORS), numbers, st.booleans(), st.sampled_from([*DAYS, *NEARLY_DAYS]))
        ),
    },
)
fields = st.sampled_from([*FIELDS, "free form", "missing"])
scalars = st.one_of(st.sampled_from([*COLORS, *DAYS, *NEARLY_DAYS, "re"]), numbers, st.booleans())
conditions = st.one_of(
    st.builds(Condition, fields, st.sampled_from([Op.EQ, Op.NE, Op.CONTAINS]), scalars),
    st.builds(
        Condition, fields, st.sampled_from([Op.LT, Op.LTE, Op.GT, Op.GTE]), st.one_of(numbers, st.sampled_from(DAYS))
    ),
    st.builds(Condition, fields, st.sampled_from([Op.IN, Op.NIN]), st.lists(scalars, max_size=3)),
    st.builds(Condition, fields, st.just(Op.EXISTS), st.booleans()),
)
groups = st.lists(conditions, max_size=2).map(tuple)
ids = st.frozensets(st.sampled_from(["p00", "p01", "p02", "p07", "gone"]))
subsets = st.one_of(st.none(), st.builds(Subset, ids, groups, st.booleans()))
filters = st.builds(Filter, groups, groups, groups, subsets)
weights = st.dictionaries(st.integers(0, 6), st.sampled_from([0.25, 0.5, 1.0, 2.0]), max_size=4)


def terms(of: dict[int, float]) -> Terms:
    return Terms(tuple(sorted(of)), tuple(of[t] for t in sorted(of)))


def same_ranking(found: list[Candidate], expected: list[Candidate]) -> None:
    """The same scores in the same order; ids too, where no other candidate is within float noise."""
    assert [c.score for c in found] == pytest.approx([c.score for c in expected], abs=1e-5)
    for position, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if ours.id != theirs.id:
            near = [c.id for c in expected if abs(c.score - ours.score) < 1e-5]
            assert ours.id in near, f"at {position}: {ours.id} for {theirs.id}"


@dataclass(frozen=True)
class Pair:
    """An engine and the oracle, emptied and filled again by each example."""

    engine: VectorIndex
    oracle: VectorIndex
    run: Callable[[Coroutine[Any, Any, None]], None]

    async def fill(self, points: list[Point]) -> None:
        for index in (self.engine, self.oracle):
            await index.delete(NAME, [c.id for c in await index.scroll(NAME)])
            await index.upsert(NAME, points)


@pytest.fixture(scope="module", params=[k for k in INDEXES if k != "memory"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with asyncio.Runner() as runner:
        engine = open_index(request.param, tmp_path_factory.mktemp("index"), request)
        made = Pair(engine, MemoryIndex(), runner.run)
        for index in (made.engine, made.oracle):
            runner.run(index.drop(NAME))
            runner.run(index.open(Collection(NAME, "random", 4, FIELDS)))
        yield made
        runner.run(made.engine.close())


@pytest.mark.skipif(not SERVER_URL, reason="no Qdrant server can be installed here: set TOOLSCRIPT_TEST_QDRANT_URL")
def test_the_engines_include_a_real_server() -> None:
    assert "qdrant-server" in INDEXES


@pytest.mark.req("D-03", "X-02")
@settings(max_examples=scale_examples(150), deadline=None)
@given(
    data=st.lists(st.tuples(payloads, weights, st.integers(0, 10_000)), min_size=1, max_size=25),
    wheres=st.lists(filters, min_size=1, max_size=6),
    query_weights=weights,
    limit=st.integers(1, 12),
)
def test_an_engine_agrees_with_the_oracle(
    pair: Pair,
    data: list[tuple[dict[str, Any], dict[int, float], int]],
    wheres: list[Filter],
    query_weights: dict[int, float],
    limit: int,
) -> None:
    points = [
        Point(f"p{n:02d}", _unit(seed), terms(weighted), payload) for n, (payload, weighted, seed) in enumerate(data)
    ]
    pair.run(pair.fill(points))
    for where in wheres:
        pair.run(_compare(pair.engine, pair.oracle, points, where, terms(query_weights), limit))


async def _compare(
    index: VectorIndex, oracle: VectorIndex, points: list[Point], where: Filter, query_terms: Terms, limit: int
) -> None:
    passing = [p.id for p in points if matches(where, p.payload, p.id)]
    assert [c.id for c in await index.scroll(NAME, where=where)] == passing
    assert await index.count(NAME, where) == len(passing)
    query = _unit(1)
    same_ranking(
        await index.dense(NAME, query, where=where, limit=limit),
        await oracle.dense(NAME, query, where=where, limit=limit),
    )
    same_ranking(
        await index.lexical(NAME, query_terms, where=where, limit=limit),
        await oracle.lexical(NAME, query_terms, where=where, limit=limit),
    )
    for start, end, max_total in ((0, limit, 1000), (limit // 2, 2 * limit, 1000), (limit, 2 * limit, 2 * limit)):
        page: dict[str, Any] = {"where": where, "start": start, "end": end, "max_total": max_total}
        assert await index.match(NAME, query_terms, **page) == await oracle.match(NAME, query_terms, **page)


def _unit(seed: int, dimensions: int = 4) -> np.ndarray[Any, np.dtype[np.float32]]:
    vector = np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


TENANTS = [f"t{n}" for n in range(4)]
EXACT = Collection("exact", "random", 32, {"tenant": FieldType.TENANT}, exact=True)


def _eager_index(kind: str, folder: Path, request: pytest.FixtureRequest) -> VectorIndex:
    """An index that searches approximately from few points on."""
    match kind:
        case "qdrant-edge":
            return QdrantEdgeIndex(folder, optimise_from=500)
        case "pgvector":
            return PgVectorIndex(request.getfixturevalue("postgres_server"), graph_from=500, exact_up_to=0)
        case _:
            return open_index(kind, folder, request)


@pytest.mark.extended
@pytest.mark.req("D-04", "X-02")
@pytest.mark.filterwarnings("ignore:Local mode performs exact")
@pytest.mark.parametrize("kind", [k for k in INDEXES if k != "memory"])
@pytest.mark.parametrize("had_a_graph", [False, True])
async def test_an_exact_collection_of_any_size_misses_nothing(
    kind: str, had_a_graph: bool, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for effort in ("FULL_SCAN_KILOBYTES", "GRAPH_FROM_KILOBYTES", "GRAPH_CANDIDATES"):
        monkeypatch.setattr(qdrant_shard, effort, 1)
    monkeypatch.setattr(pgvector_points, "GRAPH_CANDIDATES", 1)
    points = [
        Point(f"p{n:04d}", _unit(n, 32), Terms((n % 9,), (1.0,)), {"tenant": TENANTS[n % 4]}) for n in range(3_000)
    ]
    engine, oracle = _eager_index(kind, tmp_path, request), MemoryIndex()
    await engine.drop(EXACT.name)
    for index in (engine, oracle):
        await index.open(replace(EXACT, exact=not had_a_graph))
        await index.upsert(EXACT.name, points)
        if isinstance(index, QdrantEdgeIndex | PgVectorIndex):
            await index.wait_until_idle()
    if kind != "qdrant-client-local":  # which loses its points when it is closed
        await engine.close()
        engine = _eager_index(kind, tmp_path, request)
    await engine.open(EXACT)
    for where in (EVERYTHING, *(Filter(must=(Condition("tenant", Op.EQ, t),)) for t in TENANTS)):
        for seed in (9_001, 9_002, 9_003):
            query = _unit(seed, 32)
            expected = await oracle.dense(EXACT.name, query, where=where, limit=200)
            for limit in (3, 200):
                found = await engine.dense(EXACT.name, query, where=where, limit=limit)
                same_ranking(found, expected[:limit])
    await engine.drop(EXACT.name)
    await engine.close()


@pytest.mark.req("F-05")
@pytest.mark.filterwarnings("ignore:Local mode performs exact")
@pytest.mark.parametrize("kind", [k for k in INDEXES if k != "memory"])
async def test_rare_and_common_words_rank_as_in_plain_python(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    random = np.random.default_rng(7)
    collection = Collection("words", "random", 4, {})

    def make_points(start: int, max_weight: float) -> list[Point]:
        """Of 40 terms, the first is in half of the points, the last in one of eighty."""
        made = []
        for n in range(start, start + 600):
            ids = [t for t in range(40) if random.random() < 1 / (2 * t + 2)]
            weights = random.uniform(0.3, max_weight, len(ids)).tolist()
            made.append(Point(f"p{n:04d}", _unit(n), Terms(tuple(ids), tuple(weights)), {}))
        return made

    engine, oracle = open_index(kind, tmp_path, request), MemoryIndex()
    await engine.drop(collection.name)
    for index in (engine, oracle):
        await index.open(collection)
    for start, max_weight in ((0, 2.2), (600, 9.0)):
        points = make_points(start, max_weight)
        for index in (engine, oracle):
            await index.upsert(collection.name, points)
        for limit in (1, 10, 100):
            for _ in range(8):
                ids = sorted({int(i) for i in random.integers(0, 40, 5)})
                query = Terms(tuple(ids), tuple(float(np.log(2 + 2 * i)) for i in ids))
                expected = await oracle.lexical(collection.name, query, limit=limit)
                same_ranking(await engine.lexical(collection.name, query, limit=limit), expected)
    await engine.drop(collection.name)
    await engine.close()
