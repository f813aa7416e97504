"""Calls that wait for a person: once approved they count once, for the same caller, tool, definition and arguments."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest

from tests.fixtures.clock import Clock
from tests.fixtures.databases import open_memory_database
from tests.fixtures.requests import as_request
from toolscript.adapters.sql.access.approvals import SqlApprovals
from toolscript.domain.access import ApprovalPolicy, PendingState, ShareHolder
from toolscript.domain.catalog import Item
from toolscript.domain.errors import ApprovalDeclined, ApprovalRequired, Conflict, Forbidden, NotFound
from toolscript.domain.servers import NO_RELAY
from toolscript.services.tools.approval import MAX_PENDING_ARGUMENTS, Approvals, ApprovedCall
from toolscript.services.tools.pending_calls import APPROVED_SECONDS, MAX_WAITING, WAITING_SECONDS

pytestmark = pytest.mark.req("G-13", "X-04")

WRITER = Item("disk", "write")
ADMIN = "key admin"


class Gateway:
    """Approvals that every call needs, and callers who cannot be asked."""

    def __init__(self) -> None:
        self.clock = Clock()
        store = SqlApprovals(open_memory_database())
        visibility = Mock(find_profile=lambda _: None)
        self._approvals = Approvals(
            ApprovalPolicy.WRITES, lambda _: ApprovalPolicy.NEVER, visibility, store, self.clock
        )
        self.pending = self._approvals.pending

    async def call(self, arguments: dict[str, Any] | None = None, item: Item = WRITER) -> ApprovedCall:
        return await self._approvals.obtain(item, arguments or {}, NO_RELAY, lambda: ["configured-secret"])

    async def wait(self, arguments: dict[str, Any] | None = None, item: Item = WRITER) -> str:
        """The id under which a call waits."""
        with pytest.raises(ApprovalRequired) as required:
            await self.call(arguments, item)
        assert f"`toolscript approvals approve {required.value.details['approval']}`" in required.value.message
        return str(required.value.details["approval"])

    async def list_ids(self) -> list[str]:
        return [call.id for call in await self.pending.list_waiting()]


@contextmanager
def as_caller(name: str, profile: str | None = None) -> Iterator[None]:
    with as_request(share_holder=ShareHolder(name), profile=profile):
        yield


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


async def test_an_approved_call_goes_on_once(gateway: Gateway) -> None:
    call_id = await gateway.wait({"path": "a"})
    assert re.fullmatch("[2-9a-z]{6}", call_id)
    assert (await gateway.pending.decide(f" {call_id.upper()}\n", PendingState.APPROVED, decider=None)).id == call_id
    assert await gateway.list_ids() == []
    assert (await gateway.call({"path": "a"})).binding
    assert await gateway.wait({"path": "a"}) != call_id


async def test_many_repetitions_of_an_approved_call_get_one_approval(gateway: Gateway) -> None:
    await gateway.pending.decide(await gateway.wait(), PendingState.APPROVED, decider=None)
    results = await asyncio.gather(*(gateway.call() for _ in range(8)), return_exceptions=True)
    assert sorted(isinstance(each, ApprovedCall) for each in results) == [False] * 7 + [True]


async def test_the_same_call_waits_under_the_same_id_until_it_expires(gateway: Gateway) -> None:
    call_id = await gateway.wait({"b": 1, "a": 2})
    gateway.clock.now += WAITING_SECONDS - 1
    assert await gateway.wait({"a": 2, "b": 1}) == call_id
    gateway.clock.now += 1
    assert await gateway.list_ids() == []
    with pytest.raises(NotFound, match="has waited for more than 15 minutes, or the id is wrong"):
        await gateway.pending.decide(call_id, PendingState.APPROVED, decider=None)
    assert await gateway.wait({"a": 2, "b": 1}) != call_id


async def test_an_approval_expires_ten_minutes_after_the_decision(gateway: Gateway) -> None:
    early, late = await gateway.wait({"n": 1}), await gateway.wait({"n": 2})
    gateway.clock.now += WAITING_SECONDS - 1
    for call_id in (early, late):
        await gateway.pending.decide(call_id, PendingState.APPROVED, decider=None)
    gateway.clock.now += APPROVED_SECONDS - 1
    assert (await gateway.call({"n": 1})).binding
    gateway.clock.now += 1
    await gateway.wait({"n": 2})


async def test_a_declined_call_says_so_once(gateway: Gateway) -> None:
    call_id = await gateway.wait()
    await gateway.pending.decide(call_id, PendingState.DECLINED, decider=None)
    with pytest.raises(ApprovalDeclined, match="disk__write was not called: a person declined it"):
        await gateway.call()
    assert await gateway.wait() != call_id


async def test_an_approval_is_for_one_caller_profile_tool_definition_and_arguments(gateway: Gateway) -> None:
    with as_caller("key ada", "careful"):
        call_id = await gateway.wait({"path": "a"})
    await gateway.pending.decide(call_id, PendingState.APPROVED, decider=ADMIN)
    changed = Item("disk", "write", "Now it does something else")
    with as_caller("key ada", "careful"):
        for item, arguments in ((WRITER, {"path": "b"}), (changed, {"path": "a"}), (Item("x", "write"), {"path": "a"})):
            await gateway.wait(arguments, item)
    for name, profile in (("key ben", "careful"), ("address ada", "careful"), ("key ada", None)):
        with as_caller(name, profile):
            await gateway.wait({"path": "a"})
    with as_caller("key ada", "careful"):
        assert (await gateway.call({"path": "a"})).binding


async def test_who_made_a_call_cannot_decide_about_it(gateway: Gateway) -> None:
    with as_caller(ADMIN):
        call_id = await gateway.wait()
    for state in (PendingState.APPROVED, PendingState.DECLINED):
        with pytest.raises(Forbidden, match="cannot decide about its own calls"):
            await gateway.pending.decide(call_id, state, decider=ADMIN)
    assert await gateway.list_ids() == [call_id]
    await gateway.pending.decide(call_id, PendingState.APPROVED, decider=None)


async def test_a_decision_is_final(gateway: Gateway) -> None:
    call_id = await gateway.wait()
    await gateway.pending.decide(call_id, PendingState.DECLINED, decider=None)
    with pytest.raises(Conflict, match=f"{call_id} is declined already"):
        await gateway.pending.decide(call_id, PendingState.APPROVED, decider=None)
    with pytest.raises(NotFound, match="no such call: 'nope'"):
        await gateway.pending.decide("nope", PendingState.DECLINED, decider=None)


async def test_a_caller_has_twenty_calls_that_wait_and_the_first_gives_way(gateway: Gateway) -> None:
    with as_caller("key other"):
        first = await gateway.wait()
    ids = []
    for number in range(MAX_WAITING + 1):
        gateway.clock.now += 1
        ids.append(await gateway.wait({"n": number}))
    assert await gateway.list_ids() == [first, *ids[1:]]


async def test_an_id_that_is_taken_is_not_used_again(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = iter("aaaaaaaaaaaabbbbbb")
    monkeypatch.setattr(secrets, "choice", lambda _: next(letters))
    assert [await gateway.wait({"n": number}) for number in range(2)] == ["aaaaaa", "bbbbbb"]


async def test_a_person_reads_no_secrets_and_no_invisible_characters(gateway: Gateway) -> None:
    await gateway.wait(
        {"path": "a\u202eb", "password": "hunter2", "note": "use configured-secret", "lines": ["a b " * 99] * 99}
    )
    (call,) = await gateway.pending.list_waiting()
    assert r'"path": "a\u202eb"' in call.arguments
    assert "hunter2" not in call.arguments
    assert "configured-secret" not in call.arguments
    assert call.arguments.endswith(f"of which the first {MAX_PENDING_ARGUMENTS} are shown)")
    await gateway.wait({"all": ["\U000e0041" * 900] * 20})
    assert max(len(each.arguments.encode()) for each in await gateway.pending.list_waiting()) < 100_000
