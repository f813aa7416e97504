"""Rate limits that gateways share in PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from tests.fixtures.limits import set_limits
from toolscript.adapters.sql.access import rate_buckets as module
from toolscript.adapters.sql.access.rate_buckets import PostgresBuckets
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Session
from toolscript.services.access.rates import Buckets

pytestmark = [pytest.mark.req("D-12", "K-03"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def _wait_for_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, rate_bucket=60.0)  # a busy machine must not count alone


@pytest.fixture
async def two(postgres: str) -> AsyncIterator[tuple[PostgresBuckets, PostgresBuckets]]:
    """The buckets of two gateways on one database."""
    databases = Database(postgres), Database(postgres)
    yield PostgresBuckets(databases[0], Buckets()), PostgresBuckets(databases[1], Buckets())
    for database in databases:
        await database.close()


async def test_two_gateways_count_together(two: tuple[PostgresBuckets, PostgresBuckets]) -> None:
    waits = [await two[n % 2].take("acme", 4) for n in range(6)]
    assert waits[:4] == [0.0] * 4
    assert all(0 < wait <= 15 for wait in waits[4:])
    assert await two[0].take("other", 4) == 0.0


async def test_requests_at_the_same_time_are_all_counted(two: tuple[PostgresBuckets, PostgresBuckets]) -> None:
    waits = await asyncio.gather(*(two[n % 2].take("acme", 10) for n in range(30)))
    assert waits.count(0.0) == 10


async def test_full_buckets_are_deleted(
    two: tuple[PostgresBuckets, PostgresBuckets], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = two[0]._database
    await database.write(lambda session: session.run("INSERT INTO rate_buckets VALUES ('old', 1)"))
    monkeypatch.setattr(module, "CLEAN_UP_EVERY", 1)
    await two[0].take("acme", 4)
    rows = await database.read(lambda session: session.rows("SELECT name FROM rate_buckets"))
    assert [row["name"] for row in rows] == ["acme"]


async def test_without_the_database_each_gateway_counts_alone(postgres: str) -> None:
    database = Database(postgres)
    await database.close()
    alone = PostgresBuckets(database, Buckets())
    assert [await alone.take("acme", 1) > 0 for _ in range(2)] == [False, True]


@pytest.mark.req("X-05")
async def test_a_database_that_does_not_answer_is_tried_once_in_a_while_and_nobody_waits_for_it(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, now, tries = Database(postgres), 0.0, 0

    async def count_tries(work: Callable[[Session], float]) -> float:
        nonlocal tries
        tries += 1
        return await Database.write(database, work)

    monkeypatch.setattr(database, "write", count_tries)
    buckets = PostgresBuckets(database, Buckets(clock=lambda: now), monotonic=lambda: now)
    assert await buckets.take("acme", 1) == 0.0
    set_limits(monkeypatch, rate_bucket=0.05)
    with psycopg.connect(postgres) as other:
        other.execute("LOCK TABLE mcp.rate_buckets")
        assert [await buckets.take("acme", 1) > 0 for _ in range(3)] == [False, True, True]  # by its own count
        assert tries == 2
        now += module.RETRY_SECONDS
        waits = await asyncio.gather(*(buckets.take("acme", 1) for _ in range(10)))
        assert (tries, all(wait > 0 for wait in waits)) == (3, True)
    set_limits(monkeypatch, rate_bucket=60.0)
    now += module.RETRY_SECONDS
    assert await buckets.take("other", 1) == 0.0
    assert await buckets.take("other", 1) > 0
    assert tries == 5
    await database.close()
