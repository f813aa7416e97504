"""The version of the catalogue in SQL. The transaction that changes the catalogue increases it and, on PostgreSQL,
notifies every process that listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Session
from toolscript.adapters.sql.terms import write_scope

T = TypeVar("T")

SCOPE = "catalogue"
CHANNEL = "toolscript_catalogue"


async def write_catalogue(database: Database, work: Callable[[Session], T]) -> T:
    """Runs a transaction that changes the catalogue, and increases its version."""

    def work_and_count(session: Session) -> T:
        result = work(session)
        _increase(session)
        return result

    return await write_scope(database, SCOPE, work_and_count)


def _increase(session: Session) -> None:
    session.run("UPDATE catalogue_version SET version = version + 1")
    session.notify(CHANNEL)


class SqlCatalogueVersion:
    """The version of the catalogue of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    async def read(self) -> int:
        statement = "SELECT version FROM catalogue_version"
        return int((await self._database.read(lambda session: session.rows(statement)))[0]["version"])

    async def increase(self) -> None:
        await self._database.write(_increase)

    async def wait_for_change(self, seconds: float) -> None:
        if self._database.can_listen and (self._listening is None or self._listening.done()):
            self._listening = asyncio.create_task(self._database.listen(CHANNEL, self._changed.set))
        # Not `wait_for`, which before Python 3.12 forgets a cancellation that comes together with the change.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
