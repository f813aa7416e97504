"""The index in PostgreSQL with pgvector, so that one PostgreSQL can carry everything.

Exact up to tens of thousands of points, a graph beyond. See docs/decisions/0010.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from psycopg.errors import UndefinedTable

from toolscript.adapters.pgvector import points as held_points
from toolscript.adapters.pgvector import tables
from toolscript.adapters.pgvector.connections import Connection, Connections
from toolscript.adapters.pgvector.graph import Graphs
from toolscript.adapters.pgvector.tables import Held
from toolscript.domain.errors import NotFound
from toolscript.domain.filters import EVERYTHING, Filter, Payload
from toolscript.domain.search import Candidate, Collection, Point, Terms, Vector, require_same_model

P = ParamSpec("P")
T = TypeVar("T")

# From here on a graph is built. Before, looking at every point takes a few milliseconds and misses none.
WORTH_A_GRAPH = 50_000
# A filter that keeps no more than this is searched exactly even where there is a graph.
EXACT_UP_TO = 20_000
ANALYSE_EVERY = 2_000
KNOWN_FOR_SECONDS = 60.0


@dataclass(slots=True)
class _Known:
    """What was found out about a collection, when, and how many points were written since the planner was told."""

    held: Held
    at: float
    written: int = 0


class PgVectorIndex:
    """A vector index in the schema `toolscript_index` of a database; several processes may share it."""

    def __init__(self, url: str, *, worth_a_graph: int = WORTH_A_GRAPH, exact_up_to: int = EXACT_UP_TO) -> None:
        """Contacts nobody yet. Raises Invalid for a URL that cannot be read."""
        self._connections = Connections(url)
        self._graphs = Graphs(self._connections)
        self._worth_a_graph = worth_a_graph
        self._exact_up_to = exact_up_to
        self._opened: dict[str, Collection] = {}
        self._known: dict[str, _Known] = {}

    async def describe(self, name: str) -> Collection | None:
        found = await self._connections.run(lambda connection: tables.find(connection, name))
        return found.collection if found else None

    async def open(self, collection: Collection) -> None:
        held = await self._connections.run(lambda connection: tables.create(connection, collection))
        self._opened[collection.name] = held.collection
        self._known[collection.name] = _Known(held, time.monotonic())

    async def drop(self, name: str) -> None:
        self._opened.pop(name, None)
        known = self._known.pop(name, None)
        if known:
            await self._graphs.stop([known.held.number])
        await self._connections.run(lambda connection: tables.drop(connection, name))

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        """All of the points appear at once."""
        newest = [*{p.id: p for p in points}.values()]
        if not newest:
            return
        await self._on(name, held_points.write, newest)
        known = self._known.get(name)
        if known:
            known.written += len(newest)
            if known.written >= min(ANALYSE_EVERY, self._worth_a_graph):
                known.written = 0
                await self._look_after(name, known)

    async def delete(self, name: str, ids: Sequence[str]) -> None:
        if ids:
            await self._on(name, held_points.delete, ids)

    async def dense(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        floor: float | None = None,
        fields: Sequence[str] | None = None,
    ) -> list[Candidate]:
        found = await self._on(name, self._nearest, vector, where, limit, fields)
        return [c for c in found if floor is None or c.score >= floor]

    async def nearest(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        floor: float,
        count_to: int,
        fields: Sequence[str] | None = None,
    ) -> tuple[list[Candidate], int]:
        found = await self.dense(name, vector, where=where, limit=count_to, floor=floor, fields=())
        told = await self.payloads(name, [c.id for c in found[:limit]], fields)
        return [Candidate(c.id, c.score, told[c.id]) for c in found[:limit] if c.id in told], len(found)

    async def lexical(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, limit: int, fields: Sequence[str] | None = None
    ) -> list[Candidate]:
        if not terms.ids:
            return []
        found = await self._on(name, held_points.sharing_terms, terms, where, limit, fields)
        return [c for c in found if c.score > 0]

    async def count(self, name: str, where: Filter = EVERYTHING) -> int:
        return await self._on(name, held_points.count, where)

    async def scroll(
        self, name: str, *, where: Filter = EVERYTHING, fields: Sequence[str] | None = None
    ) -> list[Candidate]:
        return await self._on(name, held_points.scroll, where, fields)

    async def payloads(self, name: str, ids: Sequence[str], fields: Sequence[str] | None = None) -> dict[str, Payload]:
        return await self._on(name, held_points.payloads, ids, fields)

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        return await self._on(name, held_points.vectors, ids)

    async def close(self) -> None:
        await self._graphs.stop()
        await self._connections.close()

    async def wait_until_idle(self) -> None:
        """Waits until no graph is being built (benchmarks and tests want to know when)."""
        await self._graphs.wait_until_idle()

    async def _on(
        self, name: str, work: Callable[Concatenate[Connection, Held, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Does the work on a collection's table. Where that is gone, another process has made the index anew, and the
        work is done on the new table."""

        def attempt(connection: Connection) -> T:
            try:
                return work(connection, self._find(connection, name), *args, **kwargs)
            except UndefinedTable:
                self._known.pop(name, None)
                return work(connection, self._find(connection, name), *args, **kwargs)

        return await self._connections.run(attempt)

    def _find(self, connection: Connection, name: str) -> Held:
        known = self._known.get(name)
        if known and time.monotonic() - known.at < KNOWN_FOR_SECONDS:
            return known.held
        held = tables.find(connection, name)
        if held is None:
            raise NotFound(f"collection {name!r} is not open", details={"collection": name})
        if name in self._opened:
            require_same_model(held.collection, self._opened[name])
        self._known[name] = _Known(held, time.monotonic(), known.written if known else 0)
        return held

    def _nearest(
        self,
        connection: Connection,
        held: Held,
        vector: Vector,
        where: Filter,
        limit: int,
        fields: Sequence[str] | None,
    ) -> list[Candidate]:
        if held.collection.exact or not held.has_graph or self._keeps_few(connection, held, where):
            return held_points.nearest(connection, held, vector, where, limit, fields)
        return held_points.nearest_by_graph(connection, held, vector, where, limit, fields)

    def _keeps_few(self, connection: Connection, held: Held, where: Filter) -> bool:
        return held_points.count(connection, held, where, self._exact_up_to + 1) <= self._exact_up_to

    async def _look_after(self, name: str, known: _Known) -> None:
        """Lets the planner know what was written, and starts a graph when it pays."""
        points = await self._on(name, held_points.analyse)
        if points >= self._worth_a_graph and not known.held.has_graph and not known.held.collection.exact:
            self._graphs.start(known.held, lambda: self._look_again(name))

    def _look_again(self, name: str) -> None:
        known = self._known.get(name)
        if known:
            known.at = float("-inf")
