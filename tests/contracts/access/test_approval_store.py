"""What every store of approvals promises: each counts once, however many gateways try at a time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from toolscript.adapters.sql.access.approvals import SqlApprovals
from toolscript.adapters.sql.database import Database
from toolscript.domain.access import PendingCall, PendingState
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


def build_call(call_id: str, binding: str = "b", caller: str = "key ada", at: float = 1.0) -> PendingCall:
    profile, tool = "careful", "disk__write"
    return PendingCall(call_id, binding, caller, profile, tool, "disk", '{"a": "\u202e"}', at, at + 900.0)


async def test_a_call_that_waits_is_stored_once_and_found(store: ApprovalStore) -> None:
    call = build_call("aaaaaa")
    assert await store.submit(call, limit=20) == call
    assert await store.submit(build_call("bbbbbb", at=2.0), limit=20) == call
    assert await store.list_waiting(now=2.0) == [call]
    assert await store.find_call("aaaaaa", now=2.0) == call
    assert await store.find_call("bbbbbb", now=2.0) is None
    assert await store.submit(build_call("aaaaaa", binding="c"), limit=20) is None


async def test_calls_of_other_callers_profiles_and_bindings_are_others(store: ApprovalStore) -> None:
    others = [
        build_call("a"),
        build_call("b", binding="c"),
        build_call("c", caller="key ben"),
        replace(build_call("d"), profile=""),
    ]
    for call in others:
        assert await store.submit(call, limit=20) == call
    assert await store.list_waiting(now=2.0) == others


async def test_a_decision_counts_once_even_of_many_at_a_time(store: ApprovalStore, database: Database) -> None:
    gateways = [store, SqlApprovals(database)]
    await store.submit(build_call("aaaaaa"), limit=20)
    states = [PendingState.APPROVED, PendingState.DECLINED]
    decisions = await asyncio.gather(
        *(gateways[n % 2].decide("aaaaaa", states[n % 2], now=2.0, expires_at=600.0) for n in range(8))
    )
    assert sorted(decisions) == [False] * 7 + [True]
    assert await store.list_waiting(now=2.0) == []
    assert not await store.decide("nobody", PendingState.APPROVED, now=2.0, expires_at=600.0)


@pytest.mark.parametrize("state", [PendingState.APPROVED, PendingState.DECLINED])
async def test_one_of_many_repetitions_gets_the_decision(
    store: ApprovalStore, database: Database, state: PendingState
) -> None:
    gateways = [store, SqlApprovals(database)]
    call = build_call("aaaaaa")
    await store.submit(call, limit=20)
    assert await store.decide("aaaaaa", state, now=2.0, expires_at=600.0)
    repeated = [build_call(f"id{number}", at=3.0) for number in range(8)]
    answers = await asyncio.gather(*(gateways[n % 2].submit(each, limit=20) for n, each in enumerate(repeated)))
    assert [each for each in answers if each and each.id == "aaaaaa"] == [replace(call, state=state, expires_at=600.0)]
    assert len(await store.list_waiting(now=3.0)) == 1


async def test_calls_expire_and_the_first_of_a_caller_gives_way(store: ApprovalStore, database: Database) -> None:
    for number in range(3):
        await store.submit(build_call(f"id{number}", binding=str(number), at=float(number)), limit=2)
    await store.submit(build_call("other", caller="key ben", at=3.0), limit=2)
    assert [call.id for call in await store.list_waiting(now=3.0)] == ["id1", "id2", "other"]
    assert [call.id for call in await store.list_waiting(now=902.0)] == ["other"]
    assert await store.find_call("id2", now=902.0) is None
    assert not await store.decide("id2", PendingState.APPROVED, now=902.0, expires_at=2000.0)
    await store.submit(build_call("last", at=902.0), limit=2)
    rows = await database.read(lambda session: session.rows("SELECT id FROM pending_calls ORDER BY id"))
    assert [row["id"] for row in rows] == ["last", "other"]
