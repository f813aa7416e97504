"""The index in PostgreSQL with pgvector, so that one PostgreSQL can carry everything.

Exact up to tens of thousands of points, a graph beyond. See docs/decisions/0010.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from psycopg.errors import UndefinedTable

from toolscript.adapters.pgvector import tables
from toolscript.adapters.pgvector.connections import Connections
from toolscript.adapters.pgvector.graph import Graphs
from toolscript.adapters.pgvector.points import Points
from toolscript.adapters.pgvector.tables import CollectionTable
from toolscript.adapters.storage.postgres import Connection
from toolscript.domain.errors import NotFound
from toolscript.domain.filters import EVERYTHING, Filter, Payload
from toolscript.domain.search import Candidate, Collection, Point, TermMatches, Terms, Vector, require_same_model
from toolscript.ports.indexes import Fields, VectorIndex

T = TypeVar("T")

# Number of points from which a graph is built. Below, comparing with every point takes a few milliseconds.
GRAPH_FROM = 50_000
# A filter that keeps no more points than this is searched exactly even where there is a graph.
EXACT_UP_TO = 20_000
ANALYZE_EVERY = 2_000
CACHED_SECONDS = 60.0


@dataclass(slots=True)
class _CachedTable:
    """A collection's table, when it was read, and how many points were written since the last ANALYZE."""

    table: CollectionTable
    at: float
    written: int = 0


class PgVectorIndex(VectorIndex):
    """A vector index in the schema `toolscript_index` of a database; several processes may share it."""

    def __init__(self, url: str, *, graph_from: int = GRAPH_FROM, exact_up_to: int = EXACT_UP_TO) -> None:
        """Does not connect. Raises Invalid for an unusable URL."""
        self._connections = Connections(url)
        self._graphs = Graphs(self._connections)
        self._graph_from = graph_from
        self._exact_up_to = exact_up_to
        self._opened: dict[str, Collection] = {}
        self._cached: dict[str, _CachedTable] = {}

    async def describe(self, name: str) -> Collection | None:
        found = await self._connections.run(lambda connection: tables.find(connection, name))
        return found.collection if found else None

    async def open(self, collection: Collection) -> None:
        table = await self._connections.run(lambda connection: tables.create(connection, collection), writing=True)
        self._opened[collection.name] = table.collection
        self._cached[collection.name] = _CachedTable(table, time.monotonic())

    async def drop(self, name: str) -> None:
        self._opened.pop(name, None)
        cached = self._cached.pop(name, None)
        if cached:
            await self._graphs.stop([cached.table.number])
        await self._connections.run(lambda connection: tables.drop(connection, name), writing=True)

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        """Writes all points in one transaction."""
        newest = [*{p.id: p for p in points}.values()]
        if not newest:
            return
        if await self._run(name, lambda stored: stored.write(newest), writing=True):
            self._invalidate(name)
        cached = self._cached.get(name)
        if cached:
            cached.written += len(newest)
            if cached.written >= min(ANALYZE_EVERY, self._graph_from):
                cached.written = 0
                await self._maintain(name, cached)

    async def delete(self, name: str, ids: Sequence[str]) -> None:
        if ids:
            await self._run(name, lambda stored: stored.delete(ids), writing=True)

    async def dense(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        fields: Fields = None,
    ) -> list[Candidate]:
        def work(stored: Points) -> list[Candidate]:
            if self._is_exact(stored, where):
                return stored.find_nearest(vector, where, limit, fields)
            return stored.find_nearest_by_graph(vector, where, limit, fields)

        return await self._run(name, work)

    async def lexical(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, limit: int, fields: Fields = None
    ) -> list[Candidate]:
        if not terms.ids:
            return []
        found = await self._run(name, lambda stored: stored.find_by_terms(terms, where, limit, fields))
        return [c for c in found if c.score > 0]

    async def match(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, start: int = 0, end: int, max_total: int
    ) -> TermMatches:
        if not terms.ids:
            return TermMatches([], 0)
        return await self._run(name, lambda stored: stored.match_terms(terms, where, start, end, max_total))

    async def count(self, name: str, where: Filter = EVERYTHING) -> int:
        return await self._run(name, lambda stored: stored.count(where))

    async def scroll(self, name: str, *, where: Filter = EVERYTHING, fields: Fields = None) -> list[Candidate]:
        return await self._run(name, lambda stored: stored.scroll(where, fields))

    async def payloads(self, name: str, ids: Sequence[str], fields: Fields = None) -> dict[str, Payload]:
        return await self._run(name, lambda stored: stored.read_payloads(ids, fields))

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        return await self._run(name, lambda stored: stored.read_vectors(ids))

    async def close(self) -> None:
        await self._graphs.stop()
        await self._connections.close()

    async def wait_until_idle(self) -> None:
        """Waits until no graph is being built (for benchmarks and tests)."""
        await self._graphs.wait_until_idle()

    async def _run(self, name: str, work: Callable[[Points], T], *, writing: bool = False) -> T:
        """Runs statements on a collection's table; on the new table where another process has replaced it."""

        def attempt(connection: Connection) -> T:
            try:
                return work(Points(connection, self._find(connection, name)))
            except UndefinedTable:
                self._cached.pop(name, None)
                return work(Points(connection, self._find(connection, name)))

        return await self._connections.run(attempt, writing=writing)

    def _find(self, connection: Connection, name: str) -> CollectionTable:
        cached = self._cached.get(name)
        if cached and time.monotonic() - cached.at < CACHED_SECONDS:
            return cached.table
        table = tables.find(connection, name)
        if table is None:
            raise NotFound(f"collection {name!r} is not open", details={"collection": name})
        if name in self._opened:
            require_same_model(table.collection, self._opened[name])
        self._cached[name] = _CachedTable(table, time.monotonic(), cached.written if cached else 0)
        return table

    def _is_exact(self, stored: Points, where: Filter) -> bool:
        """Whether a search compares every point: where it must, where there is no graph, or the filter keeps few."""
        table, limit = stored.table, self._exact_up_to
        return table.collection.exact or not table.has_graph or stored.count(where, limit + 1) <= limit

    async def _maintain(self, name: str, cached: _CachedTable) -> None:
        """Updates the planner's statistics, and starts building a graph for a large collection."""
        points = await self._run(name, Points.analyze, writing=True)
        if points >= self._graph_from and not cached.table.has_graph and not cached.table.collection.exact:
            self._graphs.start(cached.table, lambda: self._invalidate(name))

    def _invalidate(self, name: str) -> None:
        cached = self._cached.get(name)
        if cached:
            cached.at = float("-inf")
