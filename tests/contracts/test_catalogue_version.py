"""What the version of the catalogue promises: SQLite in a file, SQLite in memory, PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.contracts.catalogue_items import READ, TERMS
from toolscript.adapters.sql.catalogue_version import SqlCatalogueVersion
from toolscript.adapters.sql.database import Database
from toolscript.domain.catalog import Assignment, Skill, Suggestion, SuggestionStatus
from toolscript.ports.stores import CatalogueVersion, ItemStore, SkillStore

pytestmark = pytest.mark.req("X-02", "H-14")


@pytest.fixture
async def version(database: Database) -> AsyncIterator[CatalogueVersion]:
    opened = SqlCatalogueVersion(database)
    yield opened
    await opened.close()


async def test_every_write_increases_it(
    version: CatalogueVersion, item_store: ItemStore, skill_store: SkillStore
) -> None:
    skill = Skill("reading", "Reading")
    seen = [await version.read()]
    for write in (
        lambda: item_store.save_items([(READ, TERMS)]),
        lambda: skill_store.seed_skills("digest", [Skill("writing", "Writing")]),
        lambda: skill_store.add_skill(skill),
        lambda: skill_store.assign(READ.id, [Assignment("reading", 1.0, True)]),
        lambda: skill_store.add_suggestion(Suggestion("Papers", "", READ.id)),
        lambda: skill_store.review_suggestion(1, SuggestionStatus.REJECTED),
        lambda: skill_store.delete_skill("reading"),
        lambda: item_store.deactivate([READ.id]),
        version.increase,
    ):
        await write()
        seen.append(await version.read())
    assert seen == sorted(set(seen))


async def test_reading_and_writes_that_fail_or_change_nothing_leave_it(
    version: CatalogueVersion, item_store: ItemStore, skill_store: SkillStore
) -> None:
    await skill_store.seed_skills("digest", [])
    before = await version.read()
    await item_store.get_items()
    await skill_store.seed_skills("digest", [])
    with pytest.raises(Exception, match="no such skill"):
        await skill_store.delete_skill("nothing")
    assert await version.read() == before


async def test_waiting_ends_after_the_time_given(version: CatalogueVersion) -> None:
    async with asyncio.timeout(60):
        for _ in range(2):
            await version.wait_for_change(0.05)


async def test_on_postgresql_waiting_ends_with_a_write_of_another_process(postgres: str) -> None:
    one, other = Database(postgres), Database(postgres)
    waiting, writing = SqlCatalogueVersion(one), SqlCatalogueVersion(other)
    try:
        async with asyncio.timeout(60):
            await waiting.wait_for_change(30)  # returns once it listens
            for _ in range(3):
                waited = asyncio.create_task(waiting.wait_for_change(1000))
                await writing.increase()
                await waited
    finally:
        await waiting.close()
        await one.close()
        await other.close()


async def test_after_a_lost_connection_postgresql_is_listened_to_again(postgres: str) -> None:
    import psycopg

    database = Database(postgres)
    version = SqlCatalogueVersion(database)
    try:
        async with asyncio.timeout(60):
            await version.wait_for_change(30)
            with psycopg.connect(postgres, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND query LIKE 'LISTEN %'"
                )
            assert version._listening is not None
            await asyncio.wait([version._listening])
            await version.wait_for_change(30)  # listens again, and returns
            await database.write(lambda session: session.notify("toolscript_catalogue"))
            await version.wait_for_change(1000)
    finally:
        await version.close()
        await database.close()
