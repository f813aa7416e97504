"""Graphs for approximate search in PostgreSQL, built beside the searches once a collection has grown large."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import psycopg

from toolscript.adapters.pgvector.connections import Connection, Connections, rows
from toolscript.adapters.pgvector.tables import SCHEMA, Held
from toolscript.domain.errors import ToolscriptError

MOST_DIMENSIONS = 2000
MEMORY = "512MB"
CANCEL_AGAIN_SECONDS = 0.2

log = logging.getLogger(__name__)


class Graphs:
    """The graphs that this process is building, by the number of their collection."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._at_work: dict[int, Connection] = {}

    def start(self, held: Held, when_done: Callable[[], None]) -> None:
        """Starts building, unless that is under way or has failed before."""
        if held.number not in self._tasks and held.collection.dimensions <= MOST_DIMENSIONS:
            self._tasks[held.number] = asyncio.create_task(self._run(held, when_done))

    async def stop(self, numbers: Sequence[int] | None = None) -> None:
        """Gives up the graphs of those collections (of all)."""
        chosen = [*self._tasks] if numbers is None else [n for n in numbers if n in self._tasks]
        for number in chosen:
            task = self._tasks.pop(number)
            while not task.done():
                if number in self._at_work:
                    await asyncio.to_thread(self._at_work[number].cancel_safe)
                await asyncio.wait([task], timeout=CANCEL_AGAIN_SECONDS)

    async def wait_until_idle(self) -> None:
        await asyncio.gather(*self._tasks.values())

    async def _run(self, held: Held, when_done: Callable[[], None]) -> None:
        """Never fails a caller: what goes wrong is told once, and searches stay exact."""
        try:
            await asyncio.to_thread(self._build, held)
        except (psycopg.Error, ToolscriptError) as error:
            if held.number in self._tasks:
                log.warning("graph_not_built", extra={"collection": held.collection.name, "reason": str(error)[:500]})
        else:
            self._tasks.pop(held.number, None)
            when_done()

    def _build(self, held: Held) -> None:
        with self._connections.connect() as connection:
            self._at_work[held.number] = connection
            try:
                _build(connection, held)
            finally:
                del self._at_work[held.number]


def _build(connection: Connection, held: Held) -> None:
    """Builds the graph while others read and write, unless another process is at it: it has the lock."""
    lock = "SELECT pg_try_advisory_lock(hashtext('toolscript graphs'), %s)"
    if rows(connection, lock, [held.number]) != [(True,)]:
        return
    # One worker: in some builds of pgvector several crash the server.
    settings = ("statement_timeout = 0", "max_parallel_maintenance_workers = 0", f"maintenance_work_mem = '{MEMORY}'")
    for setting in settings:
        rows(connection, f"SET {setting}")
    # What an interrupted build has left would never be used.
    rows(connection, f"DROP INDEX CONCURRENTLY IF EXISTS {SCHEMA}.{held.graph}")
    rows(connection, f"CREATE INDEX CONCURRENTLY {held.graph} ON {held.table} USING hnsw (vector vector_ip_ops)")
