"""One code path to SQLite and PostgreSQL: plain SQL that both understand, whole transactions in worker threads.

A unit of work is a plain function of a `Session`. It takes one hop to a thread however many statements it has. What
differs between the two databases is in `sqlite.py` and `postgres.py`. Why not a toolkit: docs/decisions/0003.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import resources
from string import Template
from typing import NamedTuple, TypeVar

from toolscript.adapters.sql.session import Row, Session, Sessions, get_first_line
from toolscript.adapters.workers.threads import WorkerThreads
from toolscript.domain.errors import Forbidden, Invalid, Unavailable

T = TypeVar("T")

WORKERS = 8


class Tables(NamedTuple):
    """A set of tables that is migrated on its own: the folder of its migrations, and the table of its versions."""

    folder: str
    versions: str


CATALOGUE = Tables("migrations", "toolscript_migrations")
AUDIT = Tables("audit_migrations", "toolscript_audit_migrations")


class Database:
    """A migrated database."""

    def __init__(self, url: str, *, read_only: bool = False, tables: Tables = CATALOGUE) -> None:
        """With `read_only` nothing can be written, and the tables must exist.

        Raises Invalid for a URL that is neither SQLite nor PostgreSQL, or for `read_only` with a database in memory;
        Unavailable when the database cannot be opened.
        """
        # A database in memory belongs to one connection, hence to one thread.
        self._threads = WorkerThreads("store", 1 if url == "sqlite://" else WORKERS)
        self._sessions = _open_sessions(url, read_only=read_only)
        self._read_only = read_only
        try:
            self._work(partial(require_migrated if read_only else migrate, tables=tables), not read_only)
        except BaseException:
            self._close()
            raise

    @classmethod
    async def open(cls, url: str, *, read_only: bool = False) -> Database:
        """Opens a database in a thread, and raises what `__init__` raises. If the caller is cancelled meanwhile, the
        database is closed again."""
        opening = asyncio.ensure_future(asyncio.to_thread(cls, url, read_only=read_only))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait([opening])
            if opening.exception() is None:
                await opening.result().close()
            raise

    async def read(self, work: Callable[[Session], T]) -> T:
        """Runs a function that only reads."""
        return await self._threads.run(partial(self._work, work, False))

    async def write(self, work: Callable[[Session], T]) -> T:
        """Runs a function as one transaction: all of what it writes, or nothing. Raises Forbidden where the database
        is open for reading only."""
        if self._read_only:
            raise Forbidden("the store is open for reading only", details={"store": "sql"})
        return await self._threads.run(partial(self._work, work, True))

    def write_and_wait(self, work: Callable[[Session], T]) -> T:
        """As `write`, for a thread that waits."""
        return self._threads.run_and_wait(partial(self._work, work, True))

    async def ping(self) -> None:
        """Raises Unavailable when the database does not answer."""
        await self.read(lambda session: session.rows("SELECT 1 AS one"))

    @property
    def can_listen(self) -> bool:
        """Whether processes can be notified of changes."""
        return self._sessions.dialect.notify is not None

    async def listen(self, channel: str, when_notified: Callable[[], object]) -> None:
        """Calls `when_notified` for every `Session.notify` of this channel, of any process, until the connection is
        lost or the task is cancelled."""
        with suppress(Unavailable, *self._sessions.dialect.faults):
            await self._sessions.listen(channel, when_notified)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.close()
        self._sessions.close()

    def _work(self, work: Callable[[Session], T], writing: bool) -> T:
        dialect, failed = self._sessions.dialect, False
        try:
            session = self._sessions.begin(writing=writing)
        except dialect.faults as error:
            raise self._sessions.explain(error) from error
        try:
            result = work(session)
            session.connection.execute("COMMIT")
        except dialect.rejections as error:
            raise Invalid(f"the store rejects a value: {get_first_line(error)}", details={"store": "sql"}) from error
        except dialect.faults as error:
            failed = True
            raise self._sessions.explain(error) from error
        finally:
            self._sessions.give_back(session, failed=failed)
        return result


def migrate(session: Session, tables: Tables = CATALOGUE) -> None:
    """Brings the tables to the newest version, in order, inside one transaction. Raises Unavailable when a newer
    version of Toolscript has written them, or one before the first migration."""
    session.lock("migration")
    for statement in session.dialect.schemas:
        session.run(statement)
    session.run(f"CREATE TABLE IF NOT EXISTS {tables.versions} (version INTEGER PRIMARY KEY)")
    done = {row["version"] for row in session.rows(f"SELECT version FROM {tables.versions}")}
    _refuse_unknown(max(done, default=0), tables)
    for version, text in migrations(tables):
        if version not in done:
            for statement in Template(text).substitute(session.dialect.words).split(";\n"):
                if statement.strip():
                    session.run(statement)
            session.run(f"INSERT INTO {tables.versions} (version) VALUES (:version)", version=version)


def require_migrated(session: Session, tables: Tables = CATALOGUE) -> None:
    """Raises Unavailable when the tables are missing, or of an earlier or newer version."""
    exists = session.has_table(tables.versions)
    rows = session.rows(f"SELECT version FROM {tables.versions}") if exists else []
    version, needed = max((row["version"] for row in rows), default=0), migrations(tables)[-1][0]
    _refuse_unknown(version, tables)
    if version < needed:
        raise Unavailable(
            f"the store's tables {f'have version {version}' if version else 'do not exist yet'}, and reading needs "
            f"version {needed}: run a command of this version that writes, such as `toolscript sync`, to update them",
            details={"store": "sql", "version": version, "needed": needed},
        )


def _refuse_unknown(version: int, tables: Tables) -> None:
    first, supported = migrations(tables)[0][0], migrations(tables)[-1][0]
    if 0 < version < first:
        raise Unavailable(
            f"the store's tables have version {version}, from before the first release, and this version of Toolscript "
            f"reads {first} and later: choose another data folder (--data-dir) or store, run `toolscript sync`, and "
            "ingest your files again; nothing in this one was changed",
            details={"store": "sql", "version": version, "supported": supported},
        )
    if version > supported:
        raise Unavailable(
            f"the store's tables have version {version}, and this version of Toolscript knows up to {supported}: "
            "install a newer version of Toolscript, or choose another data folder or store",
            details={"store": "sql", "version": version, "supported": supported},
        )


@cache
def migrations(tables: Tables = CATALOGUE) -> Sequence[tuple[int, str]]:
    """The numbers and texts of all migrations, in order."""
    folder = resources.files("toolscript").joinpath(f"adapters/sql/{tables.folder}")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [(int(f.name.partition("_")[0]), f.read_text(encoding="utf-8")) for f in files]


def upsert(session: Session, table: str, rows: Sequence[Row], keys: Sequence[str]) -> None:
    """Inserts rows; where the keys exist already, replaces the other columns. Tables and columns are our own words."""
    if not rows:
        return
    columns = list(rows[0])
    replaced = [f"{c} = excluded.{c}" for c in columns if c not in keys] + ["updated_at = CURRENT_TIMESTAMP"]
    session.run_many(
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{c}' for c in columns)}) "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(replaced)}",
        rows,
    )


def _open_sessions(url: str, *, read_only: bool) -> Sessions:
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from toolscript.adapters.sql.sqlite import SqliteSessions

        file = url.removeprefix("sqlite:///") if url != "sqlite://" else ""
        if file == url or "?" in file or file == ":memory:":
            raise _unusable(url)
        if read_only and not file:
            raise Invalid(
                "TOOLSCRIPT_STORE sqlite:// is in the memory of one process and cannot be opened for reading only: "
                "give sqlite:///FILE or postgresql://USER@HOST/NAME",
                details={"field": "TOOLSCRIPT_STORE", "allowed": ["sqlite:///FILE", "postgresql://…"]},
            )
        return SqliteSessions(file, read_only=read_only)
    if scheme in {"postgresql", "postgres"}:
        try:
            from toolscript.adapters.sql.postgres import PostgresSessions
        except ImportError as error:
            raise Invalid(
                "TOOLSCRIPT_STORE needs an extra that is not installed: pip install 'toolscript[postgres]'",
                details={"field": "TOOLSCRIPT_STORE", "extra": "postgres"},
            ) from error
        return PostgresSessions(url, size=WORKERS, read_only=read_only)
    raise _unusable(url)


def _unusable(url: str) -> Invalid:
    shown = url.rpartition("@")[2]
    return Invalid(
        f"TOOLSCRIPT_STORE {shown!r} is not usable: give sqlite:///FILE, sqlite:// (memory) or "
        "postgresql://USER@HOST/NAME",
        details={"field": "TOOLSCRIPT_STORE", "allowed": ["sqlite:///FILE", "sqlite://", "postgresql://…"]},
    )
