"""Runs the index's statements in worker threads on pooled connections, and translates the driver's errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import psycopg
from pgvector.psycopg import register_vector

from toolscript.adapters.storage.outages import Outage
from toolscript.adapters.storage.postgres import (
    FAULTS,
    READ_SECONDS,
    WRITE_SECONDS,
    Connection,
    PostgresPool,
)
from toolscript.adapters.workers.threads import WorkerThreads
from toolscript.domain.errors import Invalid
from toolscript.domain.limits import current_limits

T = TypeVar("T")

WORKERS = 4

_FIELD = {"field": "TOOLSCRIPT_INDEX"}


class Connections:
    """Runs functions of a connection to the index's server."""

    def __init__(self, url: str) -> None:
        """Does not connect. Raises Invalid for an unusable URL."""
        self._pool = PostgresPool(
            url,
            part="index",
            size=WORKERS,
            settings=f"-c statement_timeout={current_limits().statement * 1000} -c jit=off",
            prepare_threshold=None,  # so that every statement is planned for its filter
        )
        self.connect = self._pool.connect
        self._threads = WorkerThreads("index", WORKERS)

    async def run(self, work: Callable[[Connection], T], *, writing: bool = False) -> T:
        """Runs a function and returns its result; a second time where a pooled connection turns out to be dead. Raises
        Unavailable when the server cannot do the work in time, Invalid when it rejects a value."""
        return await self._threads.run(partial(self._work, work, WRITE_SECONDS if writing else READ_SECONDS))

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.close)
        await asyncio.to_thread(self._pool.close)

    def _work(self, work: Callable[[Connection], T], max_silence: float) -> T:
        reason, address = self._pool.reason, self._pool.address
        try:
            return self._attempt(work, max_silence)
        except psycopg.DataError as error:
            raise Invalid(f"the index rejects a value: {reason(error)}", details=_FIELD) from error
        except psycopg.errors.QueryCanceled as error:
            raise Outage(
                f"the index {address} did not answer within {current_limits().statement:g} seconds: {reason(error)}",
                details=_FIELD,
            ) from error
        except FAULTS as error:
            raise Outage(
                f"the index {address} does not answer: {reason(error)}; check TOOLSCRIPT_INDEX and the server",
                details=_FIELD,
            ) from error

    def _attempt(self, work: Callable[[Connection], T], max_silence: float) -> T:
        with self._pool.connection() as connection:
            connection.max_silence = max_silence
            try:
                return work(connection)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                if not connection.closed or connection.has_timed_out:
                    raise
        self._pool.drop_idle()
        with self._pool.connection() as connection:
            connection.max_silence = max_silence
            return work(connection)


def run_sql(connection: Connection, sql: str, parameters: Sequence[Any] = (), *, binary: bool = False) -> list[Any]:
    """The rows that a statement returns. Statements are written in this package; what callers give comes as
    parameters."""
    with connection.cursor(binary=binary) as cursor:
        cursor.execute(sql.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def register_types(connection: Connection) -> None:
    """Registers pgvector's types with a connection. The database must have the extension."""
    if connection.adapters.types.get("vector") is None:
        register_vector(connection)
