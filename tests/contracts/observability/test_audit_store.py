"""What every store of the audit promises: events come back newest first, by every filter, page by page, however many
there are; old ones go, some at a time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import pytest

from tests.contracts.conftest import STORES
from tests.fixtures.limits import set_limits
from toolscript.adapters.sql import audit as module
from toolscript.adapters.sql.audit import SqlAudit
from toolscript.domain.audit import UNIQUE_BITS, AuditEvent, AuditKind, AuditQuery, first_id
from toolscript.ports.observability import AuditStore
from toolscript.services.support.call_log import CallLog

pytestmark = pytest.mark.req("G-16")

START = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "sqlite-file":
            return f"sqlite:///{tmp_path / 'audit.db'}"
        case "sqlite-memory":
            return "sqlite://"
        case _:
            return str(request.getfixturevalue("postgres"))


@pytest.fixture
async def store(url: str) -> AsyncIterator[AuditStore]:
    opened = SqlAudit(url)
    yield opened
    await opened.close()


def make_event(number: int, **about: object) -> AuditEvent:
    values: dict[str, object] = {
        "id": first_id(START + number) | 7,
        "kind": AuditKind.CALLS,
        "tool": "git__log",
        "server": "git",
        "caller": "ci",
        "profile": "",
        "surface": "http",
        "outcome": "ok",
        "ms": 1.25,
        "bytes": 2**33,
        "hits": 0,
        "request_id": f"r{number}",
        "details": "sha256:12 ümlaut \U0001f600",
        "called_by": "workflows__sum_up",
    }
    return AuditEvent(**values | about)  # type: ignore[arg-type]


async def test_events_come_back_as_they_were_added_newest_first(store: AuditStore) -> None:
    assert (await store.list_events(AuditQuery())).events == []
    events = [make_event(n) for n in range(3)]
    store.add([events[1], events[0]])
    store.add([events[2]])
    page = await store.list_events(AuditQuery())
    assert page.events == [events[2], events[1], events[0]]
    assert page.next_before is None
    assert page.events[0].at == START + 2


async def test_every_filter_and_their_combinations_find_what_they_say(store: AuditStore) -> None:
    events = [
        make_event(n, kind=kind, tool=tool, server=tool[:3], caller=caller, outcome=outcome)
        for n, (kind, tool, caller, outcome) in enumerate(
            product(AuditKind, ("git__log", "sql__run"), ("ci", "owner"), ("ok", "TIMED_OUT", "NOT_FOUND"))
        )
    ]
    store.add(events)
    filters = product(AuditKind, (None, "git__log"), (None, "sql"), (None, "ci"), (None, "ok", "error", "TIMED_OUT"))
    for kind, tool, server, caller, outcome in filters:
        query = AuditQuery(kind, tool, server, caller, outcome, since=START + 2, until=START + 22, limit=100)
        found = await CallLog(store).list_events(query)
        assert found.events == [
            event
            for event in reversed(events)
            if event.kind is kind
            and tool in {None, event.tool}
            and server in {None, event.server}
            and caller in {None, event.caller}
            and (outcome in {None, event.outcome} or (outcome == "error" and event.outcome != "ok"))
            and START + 2 <= event.at < START + 22
        ], query


async def test_pages_have_every_event_once_while_others_are_added(
    store: AuditStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WINDOW", 7)
    events = [make_event(n, tool="rare" if n % 10 == 0 else "often", caller="ci") for n in range(100)]
    store.add(events)
    for query in (
        AuditQuery(limit=9),
        AuditQuery(caller="ci", tool="rare", limit=3),
        AuditQuery(outcome="ok", limit=9),
    ):
        found: list[AuditEvent] = []
        before = None
        while True:
            page = await store.list_events(
                AuditQuery(
                    query.kind, query.tool, caller=query.caller, outcome=query.outcome, before=before, limit=query.limit
                )
            )
            found += page.events
            before = page.next_before
            store.add([make_event(1000 + len(found), tool="rare")])
            if before is None:
                break
        found = [event for event in found if event.at < START + 1000]
        assert found == [e for e in reversed(events) if query.tool in {None, e.tool}]


async def test_one_query_looks_at_a_limited_number_of_events_and_the_log_goes_on(
    store: AuditStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WINDOW", 10)
    set_limits(monkeypatch, call_log_page=60.0)
    store.add([make_event(n, caller="ci" if n == 5 else "other") for n in range(100)])
    query = AuditQuery(tool="git__log", caller="ci")
    page = await store.list_events(query)
    assert page.events == []
    assert page.next_before is not None
    assert [event.at for event in (await CallLog(store).list_events(query)).events] == [START + 5]


async def test_events_that_are_too_old_are_deleted_some_at_a_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELETED_AT_ONCE", 10)
    monkeypatch.setattr(module, "MAX_DELETIONS", 2)
    set_limits(monkeypatch, audit_check=0.0)
    now = START
    store = SqlAudit(url, max_days=30, clock=lambda: now)
    old = [make_event(n) for n in range(50)]
    store.add(old)
    now = START + 30 * DAY + 40
    seen = []
    for n in range(3):
        store.add([make_event(int(30 * DAY) + n)])
        seen.append(len((await store.list_events(AuditQuery(until=START + DAY))).events))
    assert seen == [30, 10, 10]
    await store.close()


async def test_old_events_go_when_the_audit_is_too_large(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELETED_AT_ONCE", 100)
    set_limits(monkeypatch, audit_check=0.0)
    max_bytes = 300_000
    store = SqlAudit(url, max_bytes=max_bytes)
    deadline, number, size = time.monotonic() + 60, 0, 0
    while time.monotonic() < deadline:  # PostgreSQL's statistics follow within a second
        store.add([make_event(number + n, details="x" * 300) for n in range(200)])
        number += 200
        page = await store.list_events(AuditQuery(limit=100_000))
        size = len(page.events)
        if size < number:
            break
    await store.close()
    assert 0 < size < number
    newest = [int(event.at - START) for event in page.events]
    assert newest == list(range(number - 1, number - 1 - size, -1))


async def test_the_times_of_the_newest_events_are_those_of_a_summary(store: AuditStore) -> None:
    store.add([make_event(n, tool=f"git__{n % 2}", ms=float(n), outcome="ok" if n else "TIMED_OUT") for n in range(10)])
    store.add([make_event(20, kind=AuditKind.SEARCHES)])
    first, second = (await CallLog(store).summarize(AuditQuery())).rows
    assert (first.name, first.calls, first.errors, first.p50_ms, first.p95_ms) == ("git__0", 5, 1, 4.0, 8.0)
    assert (second.name, second.calls, second.errors) == ("git__1", 5, 0)
    (row,) = (await CallLog(store).summarize(AuditQuery(outcome="error"), by_server=True)).rows
    assert (row.name, row.calls, row.errors) == ("git", 1, 1)
    assert len(await store.list_times(AuditQuery(limit=4), by_server=True)) == 3


def test_ids_are_in_the_order_of_time_for_two_centuries() -> None:
    assert first_id(START) < first_id(START + 0.001) < first_id(8_000_000_000.0) < 2**63
    assert first_id(START) % 2**UNIQUE_BITS == 0
