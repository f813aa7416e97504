"""What every store of large results promises: each is for its owner, for a while, and all together are bounded."""

from __future__ import annotations

import asyncio

import pytest

from toolscript.adapters.sandbox.bounded_json import read_json, write_json
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.results import SqlResults
from toolscript.services.code.sessions import SessionResults

pytestmark = pytest.mark.req("G-18", "X-02")


@pytest.fixture
def store(database: Database) -> SqlResults:
    return SqlResults(database, max_total_bytes=4000, max_owner_rows=20)


async def test_a_result_comes_back_as_it_was_saved_for_its_owner_only(store: SqlResults) -> None:
    content = bytes(range(256))
    await store.save("r_1", '["ann", ""]', content, now=100.0, expires_at=200.0)
    assert await store.read("r_1", '["ann", ""]', now=199.0) == content
    assert await store.read("r_1", '["bob", ""]', now=199.0) is None
    assert await store.read("r_2", '["ann", ""]', now=199.0) is None


async def test_an_expired_result_is_not_read_and_deleted_with_the_next(store: SqlResults, database: Database) -> None:
    await store.save("r_1", "ann", b"one", now=100.0, expires_at=200.0)
    assert await store.read("r_1", "ann", now=200.0) is None
    await store.save("r_2", "ann", b"two", now=200.0, expires_at=300.0)
    rows = await database.read(lambda session: session.rows("SELECT handle FROM results"))
    assert [row["handle"] for row in rows] == ["r_2"]


async def list_owners(database: Database) -> list[str]:
    rows = await database.read(lambda session: session.rows("SELECT owner FROM results ORDER BY expires_at"))
    return [row["owner"] for row in rows]


async def test_an_owner_who_saves_much_deletes_no_result_of_another(store: SqlResults, database: Database) -> None:
    await store.save("r_ann", "ann", b"kept", now=100.0, expires_at=200.0)
    for number in range(30):
        await store.save(f"r_{number}", "bob", bytes(250), now=101.0, expires_at=201.0 + number)
    assert await store.read("r_ann", "ann", now=150.0) == b"kept"
    assert await list_owners(database) == ["ann", *["bob"] * 4]
    assert await store.read("r_26", "bob", now=150.0) is not None


async def test_an_owner_who_saves_many_small_results_keeps_the_last(store: SqlResults, database: Database) -> None:
    await store.save("r_ann", "ann", b"kept", now=100.0, expires_at=200.0)
    for number in range(30):
        await store.save(f"r_{number}", "bob", b"x", now=101.0, expires_at=201.0 + number)
    assert await list_owners(database) == ["ann", *["bob"] * 20]
    assert await store.read("r_10", "bob", now=150.0) is not None


async def test_the_first_of_all_go_when_many_owners_fill_the_room(store: SqlResults, database: Database) -> None:
    for number in range(6):
        await store.save(f"r_{number}", f"owner {number}", bytes(900), now=100.0, expires_at=200.0 + number)
    assert await list_owners(database) == [f"owner {number}" for number in range(2, 6)]


async def test_the_first_of_an_owner_go_when_together_they_are_too_large(store: SqlResults) -> None:
    for number in range(5):
        await store.save(f"r_{number}", "ann", bytes(300), now=100.0 + number, expires_at=200.0 + number)
    kept = [await store.read(f"r_{number}", "ann", now=150.0) is not None for number in range(5)]
    assert kept == [False, False, True, True, True]


async def test_a_result_that_takes_all_the_room_of_its_owner_is_kept_alone(store: SqlResults) -> None:
    await store.save("r_1", "ann", b"small", now=100.0, expires_at=200.0)
    await store.save("r_2", "ann", bytes(1000), now=101.0, expires_at=201.0)
    assert await store.read("r_1", "ann", now=150.0) is None
    assert await store.read("r_2", "ann", now=150.0) == bytes(1000)


async def test_many_gateways_save_at_a_time_and_stay_within_the_bound(store: SqlResults, database: Database) -> None:
    other = SqlResults(database, max_total_bytes=4000)
    saving = [
        each.save(f"r_{number}_{at}", "ann", bytes(400), now=100.0, expires_at=200.0 + number)
        for number in range(8)
        for at, each in enumerate((store, other))
    ]
    await asyncio.gather(*saving)
    rows = await database.read(lambda session: session.rows("SELECT bytes FROM results"))
    assert [row["bytes"] for row in rows] == [400, 400]


async def test_sessions_of_two_users_keep_results_of_one_name(store: SqlResults) -> None:
    sessions = SessionResults(store, lambda _: None, read_json, write_json, clock=lambda: 100.0)
    for user in ("ann", "bob"):
        await sessions.save("work", user, "list", [user])
    assert [await sessions.load("work", user, "list") for user in ("ann", "bob")] == [["ann"], ["bob"]]
    await sessions.save("work", "ann", "list", [])
    assert await sessions.load("work", "ann", "list") == []


async def test_the_name_of_a_result_fits_its_column(store: SqlResults, database: Database) -> None:
    await SessionResults(store, lambda _: None, read_json, write_json).save("s" * 200, "ann", "n" * 100, 1)
    (row,) = await database.read(lambda session: session.rows("SELECT handle FROM results"))
    assert len(row["handle"]) <= 32
