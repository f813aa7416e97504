"""Transactions, connections and migrations after errors, on both databases."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from toolscript.adapters.sql import database as sql_database
from toolscript.adapters.sql.database import AUDIT, CATALOGUE, Database, Tables, migrations
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.session import Session
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.adapters.sql.workflows import SqlWorkflows
from toolscript.domain.catalog import Skill
from toolscript.domain.errors import Forbidden, Invalid, Unavailable
from toolscript.domain.programs import Language, Workflow

pytestmark = pytest.mark.req("H-15")

COUNT = "SELECT count(*) AS n FROM skill_categories"
INSERT = "INSERT INTO skill_categories (id, name, description, keywords, examples) VALUES (:id, 'n', '', :w, :w)"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'a' / 'b' / 'store.db'}"
    return str(request.getfixturevalue("postgres"))


def count(session: Session) -> int:
    return int(session.rows(COUNT)[0]["n"])


async def test_a_transaction_that_fails_leaves_nothing(url: str) -> None:
    database = Database(url)

    def work(session: Session) -> None:
        session.run(INSERT, id="half", w=[])
        raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="changed my mind"):
        await database.write(work)
    assert await database.read(count) == 0
    await database.close()


async def test_opening_twice_migrates_once_and_keeps_the_data(url: str) -> None:
    first = Database(url)
    await first.write(lambda session: session.run(INSERT, id="a", w=["x"]))
    second = Database(url)
    assert await second.read(count) == 1
    versions = await second.read(lambda session: session.rows("SELECT version FROM toolscript_migrations"))
    assert [v["version"] for v in versions] == [number for number, _ in migrations()]
    await first.close()
    await second.close()


async def test_concurrent_migrations_wait_for_each_other(url: str) -> None:
    opened = await asyncio.gather(*(asyncio.to_thread(Database, url) for _ in range(4)))
    assert [await database.read(count) for database in opened] == [0, 0, 0, 0]
    for database in opened:
        await database.close()


async def test_a_database_that_nobody_waits_for_any_more_is_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Database] = []
    close = Database._close

    def note_and_close(database: Database) -> None:
        closed.append(database)
        close(database)

    monkeypatch.setattr(Database, "_close", note_and_close)
    opening = asyncio.create_task(Database.open(url))
    await asyncio.sleep(0)  # the thread has begun
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert len(closed) == 1
    await (await Database.open(url)).close()


async def test_a_closed_store_is_unavailable(url: str) -> None:
    database = Database(url)
    await database.close()
    with pytest.raises(Unavailable, match="closed"):
        await database.read(count)


async def test_a_store_of_the_first_version_is_migrated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    item = "INSERT INTO tools (item_id, server, type, name, description, terms) VALUES ('a', 's', 'tool', 'n', '', :b)"
    with monkeypatch.context() as then:
        then.setattr(sql_database, "migrations", lambda *_: migrations()[:1])
        earlier = Database(url)
        await earlier.write(lambda session: (session.run(INSERT, id="a", w=["x"]), session.run(item, b=b"")))
        # The baseline is what the first 25 migrations made of an empty database: a store that has made them goes on.
        await earlier.write(
            lambda session: session.run_many(
                "INSERT INTO toolscript_migrations (version) VALUES (:n)", [{"n": n} for n in range(1, 25)]
            )
        )
        await earlier.close()
    database = Database(url)
    (fingerprint,) = await SqlItems(database).get_fingerprints()
    assert (fingerprint.id, fingerprint.classified) == ("a", "")
    assert await SqlSkills(database).list_skills() == [Skill("a", "n", keywords=("x",), examples=("x",))]
    versions = await database.read(lambda session: session.rows("SELECT version FROM toolscript_migrations"))
    assert {v["version"] for v in versions} == set(range(1, migrations()[-1][0] + 1))
    await database.close()


@pytest.mark.req("X-07")
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("tables", [CATALOGUE, AUDIT], ids=["catalogue", "audit"])
async def test_tables_from_before_the_first_version_are_refused_and_left_alone(
    url: str, tables: Tables, read_only: bool
) -> None:
    database = Database(url, tables=tables)
    older = migrations(tables)[0][0] - 1
    await database.write(lambda session: session.run(f"DELETE FROM {tables.versions} WHERE version > {older}"))
    await database.write(lambda session: session.run(f"INSERT INTO {tables.versions} (version) VALUES ({older})"))
    with pytest.raises(Unavailable, match=rf"version {older}, from before the first release, .*--data-dir"):
        Database(url, read_only=read_only, tables=tables)
    versions = await database.read(lambda session: session.rows(f"SELECT version FROM {tables.versions}"))
    assert [v["version"] for v in versions] == [older]
    await database.close()


async def test_of_a_workflow_with_versions_the_newest_stays(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = "name, version, description, language, source, parameters, cases, saved_at, saved_by"
    insert = f"INSERT INTO workflows ({columns}) VALUES ('w', :n, 'd', 'python', :s, '{{}}', '{{}}', 1.0, 'ann')"
    with monkeypatch.context() as then:
        then.setattr(sql_database, "migrations", lambda *_: [each for each in migrations() if each[0] < 30])
        earlier = Database(url)
        for number in (1, 10, 2):
            await earlier.write(lambda session, n=number: session.run(insert, n=n, s=f"return {n}"))  # type: ignore[misc]
        await earlier.close()
    database = Database(url)
    expected = Workflow("w", "d", Language.PYTHON, "return 10", {}, saved_at=1.0, saved_by="ann")
    assert await SqlWorkflows(database).list_all() == [expected]
    await database.close()


@pytest.mark.slow
async def test_a_connection_that_was_closed_while_idle_is_replaced(postgres: str) -> None:
    database, other = Database(postgres), Database(postgres)
    await asyncio.gather(*(database.read(count) for _ in range(20)))
    await other.write(
        lambda session: session.rows(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    )
    assert await asyncio.gather(*(database.read(count) for _ in range(20))) == [0] * 20
    await database.close()
    await other.close()


@pytest.mark.slow
async def test_a_connection_closed_during_a_transaction_is_an_error_and_the_next_call_works(postgres: str) -> None:
    database = Database(postgres)

    def work(session: Session) -> None:
        session.run(INSERT, id="half", w=[])
        session.rows("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(Unavailable, match="the store does not answer"):
        await database.write(work)
    assert await database.read(count) == 0
    await database.close()


async def test_the_error_names_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, only some notes that someone keeps here" * 20, encoding="utf-8")
    with pytest.raises(Unavailable, match=r"notes\.txt cannot be opened"):
        Database(f"sqlite:///{file}")
    assert file.read_text(encoding="utf-8").startswith("not a database")


@pytest.mark.req("K-05")
async def test_a_read_only_database_reads_and_cannot_write(url: str) -> None:
    database = Database(url)
    await database.write(lambda session: session.run(INSERT, id="a", w=["x"]))
    reading = Database(url, read_only=True)
    assert await reading.read(count) == 1
    with pytest.raises(Forbidden, match="reading only"):
        await reading.write(count)
    for statement in ("DELETE FROM skill_categories", "CREATE TABLE mine (id INTEGER)", "DROP TABLE tools"):
        with pytest.raises(Unavailable) as raised:
            await reading.read(lambda session, statement=statement: session.run(statement))  # type: ignore[misc]
        assert re.search("read-?only", str(raised.value.__cause__))
    await database.write(lambda session: session.run(INSERT, id="b", w=[]))
    assert await reading.read(count) == 2
    await reading.close()
    await database.close()


@pytest.mark.req("K-05")
async def test_a_read_only_database_does_not_migrate_tables_of_an_earlier_version(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, newest = migrations()[0][0], migrations()[-1][0]
    with monkeypatch.context() as then:
        then.setattr(sql_database, "migrations", lambda *_: migrations()[:1])
        await Database(url).close()
    for _ in range(2):
        with pytest.raises(
            Unavailable, match=rf"have version {first}, and reading needs version {newest}: run a command"
        ):
            Database(url, read_only=True)
    await Database(url).close()
    await Database(url, read_only=True).close()


@pytest.mark.slow
@pytest.mark.req("X-07")
@pytest.mark.parametrize("read_only", [False, True])
async def test_tables_of_a_newer_version_are_refused_and_left_alone(
    url: str, read_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(url)
    await database.write(lambda session: session.run(INSERT, id="a", w=["x"]))
    newest = migrations()[-1][0]
    with monkeypatch.context() as then:
        then.setattr(sql_database, "migrations", lambda *_: migrations()[:-1])
        with pytest.raises(
            Unavailable, match=rf"version {newest}, and this version of Toolscript knows up to {newest - 1}: install"
        ):
            Database(url, read_only=read_only)
    assert await database.read(count) == 1
    await database.close()


@pytest.mark.slow
@pytest.mark.req("K-05")
async def test_a_read_only_postgresql_database_creates_no_tables(postgres: str) -> None:
    for _ in range(2):
        with pytest.raises(Unavailable, match="tables do not exist yet"):
            Database(postgres, read_only=True)


@pytest.mark.req("K-05")
def test_a_read_only_database_creates_no_file_and_no_folder(tmp_path: Path) -> None:
    missing = tmp_path / "a folder" / "store.db"
    with pytest.raises(Unavailable, match=r"store\.db does not exist: nothing has been stored yet"):
        Database(f"sqlite:///{missing}", read_only=True)
    assert not missing.parent.exists()
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(Unavailable, match="tables do not exist yet"):
        Database(f"sqlite:///{empty}", read_only=True)
    assert empty.stat().st_size == 0
    notes = tmp_path / "notes.txt"
    notes.write_text("not a database, only some notes that someone keeps here" * 20, encoding="utf-8")
    with pytest.raises(Unavailable, match=r"notes\.txt cannot be opened"):
        Database(f"sqlite:///{notes}", read_only=True)


@pytest.mark.req("K-05")
def test_a_database_in_memory_cannot_be_read_only() -> None:
    with pytest.raises(Invalid, match="cannot be opened for reading only"):
        Database("sqlite://", read_only=True)


# Begins a change, prints a line, and commits when its input ends.
WRITER = """
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None)
store.execute("BEGIN IMMEDIATE")
store.execute("DELETE FROM skill_categories")
print("begun", flush=True)
sys.stdin.read()
store.execute("COMMIT")
"""


@pytest.mark.slow
@pytest.mark.req("K-05")
async def test_a_file_can_be_read_while_another_process_writes_to_it(tmp_path: Path) -> None:
    file = tmp_path / "a b#c%20ü.db"
    database = Database(f"sqlite:///{file}")
    await database.write(lambda session: session.run(INSERT, id="a", w=[]))
    await database.close()
    reading = Database(f"sqlite:///{file}", read_only=True)
    command = [sys.executable, "-I", "-c", WRITER, str(file)]
    writer = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert writer.stdout is not None
    assert await writer.stdout.readline() == b"begun\n"
    assert await asyncio.gather(*(reading.read(count) for _ in range(20))) == [1] * 20
    later = Database(f"sqlite:///{file}", read_only=True)
    assert await later.read(count) == 1
    await writer.communicate(b"")
    assert writer.returncode == 0
    assert (await reading.read(count), await later.read(count)) == (0, 0)
    await reading.close()
    await later.close()


@pytest.mark.slow
@pytest.mark.req("K-05")
async def test_a_user_without_write_permission_can_open_a_read_only_database(postgres: str) -> None:
    database = Database(postgres)
    await database.write(lambda session: session.run(INSERT, id="a", w=[]))

    def let_in(session: Session) -> None:
        session.run("CREATE ROLE only_reads LOGIN PASSWORD 'x'")
        for schema in ("mcp", "documents", "knowledge"):
            session.run(f"GRANT USAGE ON SCHEMA {schema} TO only_reads")
            session.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO only_reads")

    await database.write(let_in)
    reading = Database(f"{postgres}{'&' if '?' in postgres else '?'}user=only_reads&password=x", read_only=True)
    assert await reading.read(lambda session: session.rows("SELECT user AS me")) == [{"me": "only_reads"}]
    assert await reading.read(count) == 1
    await reading.close()
    await database.write(lambda session: (session.run("DROP OWNED BY only_reads"), session.run("DROP ROLE only_reads")))
    await database.close()


async def test_a_database_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'notes.db'}")

    def work(session: Session) -> None:
        session.connection.execute("PRAGMA query_only=ON")  # the error of a file without the permission to write
        session.run("CREATE TABLE notes (text TEXT)")

    try:
        with pytest.raises(Unavailable, match=r"notes\.db cannot be written: .*--data-dir"):
            await database.write(work)
    finally:
        await database.close()
