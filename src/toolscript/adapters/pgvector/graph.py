"""Builds graphs for approximate search in PostgreSQL, in the background, once a collection is large."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import psycopg

from toolscript.adapters.pgvector.connections import Connections, run_sql
from toolscript.adapters.pgvector.tables import SCHEMA, CollectionTable
from toolscript.adapters.storage.postgres import READ_SECONDS, Connection
from toolscript.domain.errors import ToolscriptError

MAX_DIMENSIONS = 2000
MEMORY = "512MB"
CANCEL_AGAIN_SECONDS = 0.2

log = logging.getLogger(__name__)


class Graphs:
    """The graphs that this process is building, by the number of the collection."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._connections_in_use: dict[int, Connection] = {}

    def start(self, table: CollectionTable, when_done: Callable[[], None]) -> None:
        """Starts building, unless it is already running or has failed before."""
        if table.number not in self._tasks and table.collection.dimensions <= MAX_DIMENSIONS:
            self._tasks[table.number] = asyncio.create_task(self._run(table, when_done))

    async def stop(self, numbers: Sequence[int] | None = None) -> None:
        """Cancels building the graphs of these collections (None: of all)."""
        selected = [*self._tasks] if numbers is None else [n for n in numbers if n in self._tasks]
        for number in selected:
            task = self._tasks.pop(number)
            while not task.done():
                if connection := self._connections_in_use.get(number):
                    connection.max_silence = READ_SECONDS  # so that this ends although the server is stopped
                    await asyncio.to_thread(connection.cancel_safe, timeout=READ_SECONDS)
                await asyncio.wait([task], timeout=CANCEL_AGAIN_SECONDS)

    async def wait_until_idle(self) -> None:
        await asyncio.gather(*self._tasks.values())

    async def _run(self, table: CollectionTable, when_done: Callable[[], None]) -> None:
        """Logs errors instead of raising them: without a graph, searches stay exact."""
        try:
            await asyncio.to_thread(self._build, table)
        except (psycopg.Error, ToolscriptError) as error:
            if table.number in self._tasks:
                log.warning("graph_not_built", extra={"collection": table.collection.name, "reason": str(error)[:500]})
        else:
            self._tasks.pop(table.number, None)
            when_done()

    def _build(self, table: CollectionTable) -> None:
        with self._connections.connect() as connection:
            self._connections_in_use[table.number] = connection
            try:
                _build_graph(connection, table)
            finally:
                del self._connections_in_use[table.number]


def _build_graph(connection: Connection, table: CollectionTable) -> None:
    """Builds the graph while others read and write, unless another process is building it (it has the lock)."""
    lock = "SELECT pg_try_advisory_lock(hashtext('toolscript graphs'), %s)"
    if run_sql(connection, lock, [table.number]) != [(True,)]:
        return
    # One worker: in some builds of pgvector several crash the server.
    settings = ("statement_timeout = 0", "max_parallel_maintenance_workers = 0", f"maintenance_work_mem = '{MEMORY}'")
    for setting in settings:
        run_sql(connection, f"SET {setting}")
    # An interrupted build leaves an index that is never used.
    run_sql(connection, f"DROP INDEX CONCURRENTLY IF EXISTS {SCHEMA}.{table.graph}")
    run_sql(connection, f"CREATE INDEX CONCURRENTLY {table.graph} ON {table.name} USING hnsw (vector vector_ip_ops)")
