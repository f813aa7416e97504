"""One code path to SQLite and PostgreSQL: plain SQL that both understand, whole transactions in worker threads.

A unit of work is a plain function of a `Session`. It takes one hop to a thread however many statements it has. What
differs between the two databases is in `sql_sqlite.py` and `sql_postgres.py`. Why not a toolkit:
docs/decisions/0003.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from string import Template
from typing import TypeVar

from toolscript.adapters.sql.session import Row, Session
from toolscript.domain.errors import Forbidden, Invalid, Unavailable

T = TypeVar("T")

WORKERS = 8


class Database:
    """A migrated database. Each worker thread keeps a connection of its own."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        """With `read_only` nothing can be written through it, and the tables must be there already.

        Raises Invalid for a URL that is neither SQLite nor PostgreSQL, or that is to be read and in memory;
        Unavailable when it cannot be opened.
        """
        self._connect, workers = _connector(url, read_only=read_only)
        self._read_only = read_only
        self._in_memory = workers == 1
        self._workers = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="sql")
        self._own = threading.local()
        self._all: list[Session] = []
        self._closed = False
        try:
            self._workers.submit(self._work, require_migrated if read_only else migrate, not read_only).result()
        except BaseException:
            self._shut()
            raise

    async def read(self, work: Callable[[Session], T]) -> T:
        """Runs a function that only reads."""
        return await self._in_thread(work, writing=False)

    async def write(self, work: Callable[[Session], T]) -> T:
        """Runs a function as one transaction: all of what it writes, or nothing. Raises Forbidden where the database
        is open for reading only."""
        if self._read_only:
            raise Forbidden("the store is open for reading only", details={"store": "sql"})
        return await self._in_thread(work, writing=True)

    async def ping(self) -> None:
        """Raises Unavailable when the database does not answer."""
        await self.read(lambda session: session.rows("SELECT 1 AS one"))

    async def close(self) -> None:
        await asyncio.to_thread(self._shut)

    async def _in_thread(self, work: Callable[[Session], T], *, writing: bool) -> T:
        if self._closed:
            raise Unavailable("the store is closed", details={"store": "sql"})
        return await asyncio.get_running_loop().run_in_executor(self._workers, self._work, work, writing)

    def _shut(self) -> None:
        self._closed = True
        self._workers.shutdown()
        for session in self._all:
            session.close()

    def _work(self, work: Callable[[Session], T], writing: bool) -> T:
        session = self._begun(writing)
        try:
            done = work(session)
            session.commit()
        except session.refusals as error:
            session.rollback()
            raise Invalid(f"the store refuses a value: {_first_line(error)}", details={"store": "sql"}) from error
        except session.faults as error:
            self._forget(session)
            raise Unavailable(f"the store does not answer: {_first_line(error)}", details={"store": "sql"}) from error
        except BaseException:
            session.rollback()
            raise
        return done

    def _begun(self, writing: bool) -> Session:
        """This thread's session in a new transaction; a connection that has died meanwhile is replaced once."""
        held: Session | None = getattr(self._own, "session", None)
        if held is not None:
            try:
                held.begin(writing=writing)
            except held.faults:
                self._forget(held)
            else:
                return held
        session = self._own.session = self._connect()
        self._all.append(session)
        try:
            session.begin(writing=writing)
        except session.faults as error:
            self._forget(session)
            raise Unavailable(f"the store is busy: {_first_line(error)}", details={"store": "sql"}) from error
        return session

    def _forget(self, session: Session) -> None:
        """Drops a connection that failed; what is in memory only would go with it, so that one is kept."""
        if self._in_memory:
            session.rollback()
            return
        session.close()
        self._all.remove(session)
        del self._own.session


def migrate(session: Session) -> None:
    """Brings the tables to the newest version, in order, inside one transaction."""
    session.lock("migration")
    for statement in session.schemas:
        session.run(statement)
    session.run("CREATE TABLE IF NOT EXISTS toolscript_migrations (version INTEGER PRIMARY KEY)")
    done = {row["version"] for row in session.rows("SELECT version FROM toolscript_migrations")}
    for version, text in migrations():
        if version not in done:
            for statement in Template(text).substitute(session.words).split(";\n"):
                if statement.strip():
                    session.run(statement)
            session.run("INSERT INTO toolscript_migrations (version) VALUES (:version)", version=version)


def require_migrated(session: Session) -> None:
    """Raises Unavailable when the tables are not there, or of an earlier version."""
    found = session.rows("SELECT version FROM toolscript_migrations") if session.has("toolscript_migrations") else []
    held, needed = max((row["version"] for row in found), default=0), migrations()[-1][0]
    if held < needed:
        raise Unavailable(
            f"the store's tables are {f'of version {held}' if held else 'not there yet'}, and version {needed} is "
            "needed to read it: run a command of this version that may write once, such as `toolscript sync`; it "
            "brings them up to date",
            details={"store": "sql", "version": held, "needed": needed},
        )


def migrations() -> list[tuple[int, str]]:
    """The migrations' numbers and texts, oldest first."""
    folder = resources.files("toolscript").joinpath("adapters/sql/migrations")
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


def _connector(url: str, *, read_only: bool) -> tuple[Callable[[], Session], int]:
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from toolscript.adapters.sql.sqlite import SqliteSession

        file = url.removeprefix("sqlite:///") if url != "sqlite://" else ""
        if file == url or "?" in file or file == ":memory:":
            raise _unusable(url)
        if read_only and not file:
            raise Invalid(
                "TOOLSCRIPT_STORE sqlite:// is in the memory of one process and cannot be opened for reading only: "
                "give sqlite:///FILE or postgresql://USER@HOST/NAME",
                details={"field": "TOOLSCRIPT_STORE", "allowed": ["sqlite:///FILE", "postgresql://…"]},
            )
        # A database in memory belongs to one connection, hence to one thread.
        return (lambda: SqliteSession(file, read_only=read_only)), WORKERS if file else 1
    if scheme in {"postgresql", "postgres"}:
        try:
            from toolscript.adapters.sql.postgres import PostgresSession
        except ImportError as error:
            raise Invalid(
                "TOOLSCRIPT_STORE needs an extra that is not installed: pip install 'toolscript[postgres]'",
                details={"field": "TOOLSCRIPT_STORE", "extra": "postgres"},
            ) from error
        return (lambda: PostgresSession(url, read_only=read_only)), WORKERS
    raise _unusable(url)


def _unusable(url: str) -> Invalid:
    shown = url.rpartition("@")[2]
    return Invalid(
        f"TOOLSCRIPT_STORE {shown!r} is not usable: give sqlite:///FILE, sqlite:// (memory) or "
        "postgresql://USER@HOST/NAME",
        details={"field": "TOOLSCRIPT_STORE", "allowed": ["sqlite:///FILE", "sqlite://", "postgresql://…"]},
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
