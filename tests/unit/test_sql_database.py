"""What happens to transactions and connections when things go wrong, on both databases."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from toolscript.adapters import sql_database
from toolscript.adapters.sql_catalog import SqlCatalog
from toolscript.adapters.sql_database import Database, migrations
from toolscript.adapters.sql_session import Session
from toolscript.domain.catalog import Skill, Suggestion
from toolscript.domain.errors import Unavailable

pytestmark = pytest.mark.req("H-15")

COUNT = "SELECT count(*) AS n FROM skill_categories"
INSERT = "INSERT INTO skill_categories (id, name, description, keywords, examples) VALUES (:id, 'n', '', :w, :w)"


@pytest.fixture(params=["sqlite", "postgres"])
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


async def test_opening_twice_migrates_once_and_keeps_what_is_there(url: str) -> None:
    first = Database(url)
    await first.write(lambda session: session.run(INSERT, id="a", w=["x"]))
    second = Database(url)
    assert await second.read(count) == 1
    versions = await second.read(lambda session: session.rows("SELECT version FROM toolscript_migrations"))
    assert [v["version"] for v in versions] == [number for number, _ in migrations()]
    await first.close()
    await second.close()


async def test_processes_that_start_together_take_turns(url: str) -> None:
    opened = await asyncio.gather(*(asyncio.to_thread(Database, url) for _ in range(4)))
    assert [await database.read(count) for database in opened] == [0, 0, 0, 0]
    for database in opened:
        await database.close()


async def test_a_closed_store_says_so(url: str) -> None:
    database = Database(url)
    await database.close()
    with pytest.raises(Unavailable, match="closed"):
        await database.read(count)


async def test_a_catalogue_of_an_earlier_version_is_brought_along(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    item = "INSERT INTO tools (item_id, server, type, name, description, terms) VALUES ('a', 's', 'tool', 'n', '', :b)"
    with monkeypatch.context() as then:
        then.setattr(sql_database, "migrations", lambda: migrations()[:2])
        earlier = Database(url)
        await earlier.write(lambda session: (session.run(INSERT, id="a", w=["x"]), session.run(item, b=b"")))
        await earlier.close()
    database = Database(url)
    catalog = SqlCatalog(database)
    (mark,) = await catalog.marks()
    assert (mark.id, mark.classified) == ("a", "")
    assert await catalog.skills() == [Skill("a", "n", keywords=("x",), examples=("x",))]
    assert await catalog.seed_skills("later", [])
    assert len(await catalog.skills()) == 1
    assert (await catalog.suggest(Suggestion("New", source_item_id="a"))).number == 1
    await database.close()


def test_migrations_are_numbered_in_order() -> None:
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


async def test_a_connection_that_died_meanwhile_is_replaced(postgres: str) -> None:
    database, other = Database(postgres), Database(postgres)
    await asyncio.gather(*(database.read(count) for _ in range(20)))
    await other.write(
        lambda session: session.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
        )
    )
    assert await asyncio.gather(*(database.read(count) for _ in range(20))) == [0] * 20
    await database.close()
    await other.close()


async def test_a_connection_that_dies_in_the_middle_is_a_clear_error_and_the_next_call_works(postgres: str) -> None:
    database = Database(postgres)

    def work(session: Session) -> None:
        session.run(INSERT, id="half", w=[])
        session.rows("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(Unavailable, match="does not answer"):
        await database.write(work)
    assert await database.read(count) == 0
    await database.close()


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, only some notes that someone keeps here" * 20, encoding="utf-8")
    with pytest.raises(Unavailable, match=r"notes\.txt cannot be opened"):
        Database(f"sqlite:///{file}")
    assert file.read_text(encoding="utf-8").startswith("not a database")
