"""What every store of used approvals promises: each counts once, however many gateways try at a time."""

from __future__ import annotations

import asyncio

import pytest

from toolscript.adapters.sql.access.approvals import SqlApprovals
from toolscript.adapters.sql.database import Database
from toolscript.ports.access import ApprovalStore

pytestmark = pytest.mark.req("G-13", "X-02")


@pytest.fixture
def store(database: Database) -> ApprovalStore:
    return SqlApprovals(database)


async def test_a_ticket_is_used_once_even_by_many_at_a_time(store: ApprovalStore, database: Database) -> None:
    gateways = [store, SqlApprovals(database)]
    results = await asyncio.gather(*(gateways[n % 2].use("a", now=1.0, expires_at=600.0) for n in range(8)))
    assert sorted(results) == [False] * 7 + [True]
    assert await store.use("b", now=2.0, expires_at=600.0)
    assert not await store.use("b", now=599.0, expires_at=600.0)


async def test_expired_tickets_are_forgotten(store: ApprovalStore, database: Database) -> None:
    for number in range(5):
        assert await store.use(str(number), now=1.0, expires_at=100.0 + number)
    assert await store.use("last", now=103.0, expires_at=700.0)
    rows = await database.read(lambda session: session.rows("SELECT ticket FROM used_approvals ORDER BY ticket"))
    assert [row["ticket"] for row in rows] == ["4", "last"]
