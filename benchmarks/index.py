"""Times the embedded index, with and without filter and graph, beside exact searches in numpy; measures its recall."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.embedding import find_packaged_model
from benchmarks.index_data import (
    DIMENSIONS,
    ONE_GROUP,
    Data,
    PointStream,
    make_clusters,
    make_random,
    write_to_sqlite,
)
from benchmarks.texts import make_queries
from benchmarks.timing import (
    Row,
    Sample,
    Table,
    compare_table,
    format_duration,
    format_number,
    measure_seconds,
    side_by_side,
)
from tests.servers.postgres import run_postgres
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.pgvector.index import PgVectorIndex
from toolscript.adapters.qdrant.edge import OPTIMISE_FROM, QdrantEdgeIndex
from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.domain.search import Collection, FieldType, Point, Terms, Vector

NAME = "benchmark"
COLLECTION = Collection(NAME, "synthetic", DIMENSIONS, {"group": FieldType.KEYWORD})
LIMIT = 10
CALL = 1000
PAUSE = 0.1
BAR_SIZE, BAR_P95, BAR_RECALL = 100_000, 0.010, 0.99
FILTERS = {"all": EVERYTHING, "filter keeps 10 %": ONE_GROUP}
RECALL_COLUMNS = ("Vectors", "Size", "State", "Filter", "Recall")
GRAPH_COLUMNS = ("Vectors", "Size", "Graph built in", "Searches meanwhile: p50", "p95", "Longest wait")
BAR_COLUMNS = ("Vectors", "State", "p95, at most 10 ms", "Recall@10, at smallest_p95 0.99", "Met")
NOTE = (
    f"Unit vectors of {DIMENSIONS} dimensions in clusters, 30 terms by Zipf's law, one keyword field of ten values; "
    f"a search returns {LIMIT} points with their payloads. References: for dense search numpy's matrix product and "
    "`argpartition`; for lexical search numpy over lists of the points that contain each term; for building, the same "
    f"points inserted into SQLite, both in calls of {CALL:,} and reported per point."
)
GRAPH_NOTE = (
    f"From {OPTIMISE_FROM:,} points without a graph on, the index builds one in a child process while searches go "
    f"on, here one every {PAUSE * 1000:.0f} ms. The longest wait is the maximum time that such a search waited for the "
    "event loop, its own time included."
)


GROWTH_COLUMNS = (
    "Index", "Points", "Loaded, per second", "Graph after", "On disk", "Memory, own", "files",
    "By meaning: p50", "p95", "By words: p50", "p95", "Both, p95", "Times the smaller",
    "With embedding, p95", "Times the smaller",
)  # fmt: skip
GROWTH_NOTE = (
    "Points as above, the terms of queries with their idf, 10 results with payloads; loaded in calls of "
    f"{CALL:,}, the graph of the embedded index built once after them; then searched in a process of its own, where "
    "the index is opened for the first time. *Memory, own* is what belongs to that process, Python and its libraries "
    "included; *files* are pages of the index that the system keeps and takes back. *Both* is a search by meaning and "
    "one by words after it; *with embedding*, after embedding a query of natural length, as a search does: the bar for "
    "its growth is 3. PostgreSQL builds its graph in one process and keeps its memory to itself."
)


@dataclass(slots=True)
class Findings:
    """The measurements so far."""

    speed: list[Row] = field(default_factory=list)
    recall: list[list[str]] = field(default_factory=list)
    graphs: list[list[str]] = field(default_factory=list)
    bar: list[list[str]] = field(default_factory=list)


async def run(quick: bool) -> list[Table]:
    """Clustered points of every size; random points of the largest, for recall."""
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    count = 60 if quick else 200
    found = Findings()
    for size in sizes:
        await _measure(found, make_clusters(size, count))
    await _measure(found, make_random(sizes[-1], count))
    tables = [
        compare_table("Building and searching", found.speed, NOTE),
        Table("Recall@10 of dense search against exact", RECALL_COLUMNS, found.recall),
    ]
    if found.graphs:
        tables.append(Table("Optimisation in the background", GRAPH_COLUMNS, found.graphs, GRAPH_NOTE))
    if found.bar:
        tables.append(Table("The bar: 100,000 points, dense query, filter keeping 10 %", BAR_COLUMNS, found.bar))
    return tables


async def run_growth(quick: bool) -> list[Table]:
    """From thousands of points to a million in the embedded index, and as many as can be built in PostgreSQL."""
    rows: list[list[str]] = []
    with TemporaryDirectory() as folder:
        sizes = (1_000, 10_000) if quick else (10_000, 1_000_000)
        rows += await _grow("embedded", [(f"{folder}/{size}", size) for size in sizes])
    with run_postgres() as uri:
        sizes = (1_000, 10_000) if quick else (10_000, 200_000)
        rows += await _grow("PostgreSQL", [(uri, size) for size in sizes])
    return [Table("A million points", GROWTH_COLUMNS, rows, GROWTH_NOTE)]


async def _grow(engine: str, places: Sequence[tuple[str, int]]) -> list[list[str]]:
    """A row for each size, the last column beside the first size."""
    rows: list[list[str]] = []
    smallest = 0.0, 0.0
    for place, size in places:
        points = PointStream(size)
        per_second, graph = await _load(place, points)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            searched = await asyncio.get_running_loop().run_in_executor(
                pool, search_in_process, place, points.make_queries(300)
            )
        p95 = searched.both.p95, searched.whole.p95
        smallest = smallest if rows else p95
        rows.append(
            [
                engine,
                f"{size:,}",
                format_number(per_second),
                format_duration(graph) if graph else "none",
                *(f"{number / 2**20:,.0f} MiB" if number else "" for number in searched.bytes),
                *(format_duration(t) for s in (searched.dense, searched.lexical) for t in (s.p50, s.p95)),
                *(
                    shown
                    for ours, smallest_p95 in zip(p95, smallest, strict=True)
                    for shown in _compare(ours, smallest_p95)
                ),
            ]
        )
    return rows


def _compare(seconds: float, smallest_p95: float) -> tuple[str, str]:
    return format_duration(seconds), format_number(seconds / smallest_p95)


def _open_place(place: str, optimise_from: int = OPTIMISE_FROM) -> QdrantEdgeIndex | PgVectorIndex:
    if place.startswith("postgres"):
        return PgVectorIndex(place)
    return QdrantEdgeIndex(Path(place), optimise_from=optimise_from)


async def _load(place: str, points: PointStream) -> tuple[float, float]:
    """Points per second, and the seconds that the graph takes afterwards: one graph of all points."""
    index = _open_place(place, max(points.size, OPTIMISE_FROM))
    await index.drop(NAME)
    await index.open(COLLECTION)
    seconds = 0.0
    for block in points.blocks(CALL):
        began = time.perf_counter()
        await index.upsert(NAME, block)
        seconds += time.perf_counter() - began
    began = time.perf_counter()
    await index.wait_until_idle()
    graph = time.perf_counter() - began
    await index.close()
    return points.size / seconds, graph if graph > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Searched:
    """The times of searches, and the bytes on disk, of the process alone, and of mapped files."""

    embedding: Sample
    dense: Sample
    lexical: Sample
    bytes: tuple[int, int, int]

    @property
    def both(self) -> Sample:
        return _add(self.dense, self.lexical)

    @property
    def whole(self) -> Sample:
        return _add(self.embedding, self.both)


def _add(one: Sample, other: Sample) -> Sample:
    """Of searches that do both, one after the other."""
    return Sample([a + b for a, b in zip(one.seconds, other.seconds, strict=True)])


def search_in_process(place: str, queries: list[tuple[Vector, Terms]]) -> Searched:
    """Searches an index that was filled before."""
    return asyncio.run(_search_place(place, queries))


async def _search_place(place: str, queries: list[tuple[Vector, Terms]]) -> Searched:
    index = _open_place(place)
    await index.open(COLLECTION)

    async def by_meaning(query: tuple[Vector, Terms]) -> object:
        return await index.dense(NAME, query[0], limit=LIMIT)

    async def by_words(query: tuple[Vector, Terms]) -> object:
        return await index.lexical(NAME, query[1], limit=LIMIT)

    for query in queries[:20]:
        await by_meaning(query)
        await by_words(query)
    dense, lexical = [Sample([await measure_seconds(s, q) for q in queries]) for s in (by_meaning, by_words)]
    own, files = read_memory()
    await index.close()
    on_disk = _measure_disk(place)
    sizes = (on_disk, own, files) if on_disk else (0, 0, 0)
    return Searched(await _time_embedding(len(queries)), dense, lexical, sizes)


async def _time_embedding(count: int) -> Sample:
    embedder = OnnxEmbedder(find_packaged_model(), device="cpu")
    for query in make_queries(20, seed=70):
        await embedder.embed_query(query)
    sample = Sample([await measure_seconds(embedder.embed_query, q) for q in make_queries(count, seed=71)])
    await embedder.close()
    return sample


def _measure_disk(place: str) -> int:
    """The bytes of an index in a folder; 0 for a server's."""
    return sum(f.stat().st_blocks * 512 for f in Path(place).rglob("*"))


def read_memory() -> tuple[int, int]:
    """Bytes of this process: its own, and of mapped files. Zeros where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.is_file() else []
    kilobytes = {
        name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if "Rss" in name
    }
    return kilobytes.get("RssAnon", 0) * 1024, kilobytes.get("RssFile", 0) * 1024


async def _measure(found: Findings, data: Data) -> None:
    with TemporaryDirectory() as folder:
        async with _open_index(Path(folder), optimise_from=len(data.points) + 1) as index:
            found.speed.append(await _build(index, data, Path(folder) / "points.db"))
            await _search(found, index, data, "no graph")
        if len(data.points) < OPTIMISE_FROM:
            return
        async with _open_index(Path(folder), optimise_from=OPTIMISE_FROM) as index:
            if await _optimise(found, index, data):
                await _search(found, index, data, "graph")


@asynccontextmanager
async def _open_index(folder: Path, *, optimise_from: int) -> AsyncIterator[QdrantEdgeIndex]:
    index = QdrantEdgeIndex(folder / "index", optimise_from=optimise_from)
    await index.open(COLLECTION)
    yield index
    await index.close()


async def _build(index: QdrantEdgeIndex, data: Data, database: Path) -> Row:
    async def ours(points: list[Point]) -> None:
        await index.upsert(NAME, points)

    async def reference(points: list[Point]) -> None:
        write_to_sqlite(database, points)

    calls = [data.points[start : start + CALL] for start in range(0, len(data.points), CALL)]
    mine, theirs = await side_by_side(calls, ours, reference)
    per_point = [Sample([s / CALL for s in sample.seconds]) for sample in (mine, theirs)]
    return Row(f"Build, {data.kind}", f"{len(data.points):,}", per_point[0], "SQLite", per_point[1])


async def _search(found: Findings, index: QdrantEdgeIndex, data: Data, state: str) -> None:
    size = f"{len(data.points):,}"
    for filtered, where in FILTERS.items():
        what = f"{data.kind}, {state}, {filtered}"
        dense = await _dense(index, data, where)
        found.speed.append(Row(f"Dense, {what}", size, dense[0], "numpy, exact", dense[1]))
        recall = await _recall(index, data, where)
        found.recall.append([data.kind, size, state, filtered, f"{recall:.3f}"])
        if data.term_queries:
            lexical = await _lexical(index, data, where)
            found.speed.append(Row(f"Lexical, {what}", size, lexical[0], "numpy, exact", lexical[1]))
        if where == ONE_GROUP and len(data.points) == BAR_SIZE:
            met = dense[0].p95 <= BAR_P95 and recall >= BAR_RECALL
            found.bar.append(
                [data.kind, state, format_duration(dense[0].p95), f"{recall:.3f}", "yes" if met else "**no**"]
            )


async def _dense(index: QdrantEdgeIndex, data: Data, where: Filter) -> tuple[Sample, Sample]:
    rows = data.rows(where)

    async def ours(query: Vector) -> object:
        return await index.dense(NAME, query, where=where, limit=LIMIT)

    async def reference(query: Vector) -> object:
        return data.exact.search(query, rows, LIMIT)

    await ours(data.queries[0])
    return await side_by_side(list(data.queries), ours, reference)


async def _lexical(index: QdrantEdgeIndex, data: Data, where: Filter) -> tuple[Sample, Sample]:
    rows = data.rows(where)

    async def ours(query: Terms) -> object:
        return await index.lexical(NAME, query, where=where, limit=LIMIT)

    async def reference(query: Terms) -> object:
        return data.exact_terms.search(query, rows, LIMIT)

    await ours(data.term_queries[0])
    return await side_by_side(data.term_queries, ours, reference)


async def _recall(index: QdrantEdgeIndex, data: Data, where: Filter) -> float:
    """The share of the exact ten best that the index finds."""
    shares: list[float] = []
    for query in data.queries:
        got = {c.id for c in await index.dense(NAME, query, where=where, limit=LIMIT)}
        wanted = {data.points[row].id for row in data.exact.search(query, data.rows(where), LIMIT)}
        shares.append(len(got & wanted) / LIMIT)
    return float(np.mean(shares))


async def _optimise(found: Findings, index: QdrantEdgeIndex, data: Data) -> bool:
    """Writes one point again, which starts the optimisation, and searches until it is done."""
    await index.upsert(NAME, data.points[:1])
    started = time.perf_counter()
    idle = asyncio.create_task(index.wait_until_idle())
    await asyncio.sleep(0)
    searches: list[float] = []
    max_wait = 0.0

    async def search(query: Vector) -> object:
        return await index.dense(NAME, query, limit=LIMIT)

    while not idle.done():
        turn = time.perf_counter()
        await asyncio.sleep(PAUSE)
        searches.append(await measure_seconds(search, data.queries[len(searches) % len(data.queries)]))
        max_wait = max(max_wait, time.perf_counter() - turn - PAUSE)
    row = [data.kind, f"{len(data.points):,}"]
    if not searches:
        found.graphs.append([*row, "did not start", "", "", ""])
        return False
    took, during = time.perf_counter() - started, Sample(searches)
    found.graphs.append(
        [
            *row,
            format_duration(took),
            format_duration(during.p50),
            format_duration(during.p95),
            format_duration(max_wait),
        ]
    )
    return True
