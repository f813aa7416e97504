"""Outages of a store or an index: what is logged, what callers learn, and how long they wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.fixtures.limits import set_limits
from toolscript.adapters.storage.outages import Outage, OutageWatch
from toolscript.adapters.workers.threads import WorkerThreads
from toolscript.domain.errors import DiskFull, NotFound, Unavailable

pytestmark = pytest.mark.req("X-07")

DOWN = Outage("the store postgresql://db.internal/tools cannot be opened: refused")


def attempt(watch: OutageWatch, error: Exception | None = None) -> None:
    with watch.watch():
        if error:
            raise error


def test_before_the_first_success_the_person_who_starts_it_learns_everything() -> None:
    with pytest.raises(Outage, match=r"db\.internal"):
        attempt(OutageWatch("store"), DOWN)


def test_later_callers_learn_no_details_and_the_log_has_them_once_per_outage(caplog: pytest.LogCaptureFixture) -> None:
    watch = OutageWatch("store")
    for _ in range(2):
        attempt(watch)
        for _ in range(3):
            with pytest.raises(Unavailable) as raised:
                attempt(watch, DOWN)
            assert raised.value.to_envelope()["error"] == {
                "code": "UNAVAILABLE",
                "message": "the store is not available right now",
                "details": {"adapter": "store"},
            }
    events = [(r.message, getattr(r, "reason", None)) for r in caplog.records]
    assert events == [("not_available", DOWN.message), ("available_again", None), ("not_available", DOWN.message)]


def test_errors_that_are_no_outage_pass_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    watch = OutageWatch("index")
    attempt(watch)
    for error in (NotFound("no such collection"), Unavailable("run `toolscript index rebuild`")):
        with pytest.raises(type(error), match=error.message):
            attempt(watch, error)
    assert not caplog.records
    with pytest.raises(DiskFull, match="disk full: 3 MB free, 16 MB needed"):
        attempt(watch, DiskFull(3 * 2**20, 16 * 2**20))
    assert [r.message for r in caplog.records] == ["not_available"]


async def test_work_that_no_thread_begins_in_time_fails_and_later_work_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, has_begun, may_end = WorkerThreads("store", 1), threading.Event(), threading.Event()

    def occupy() -> bool:
        has_begun.set()
        return may_end.wait(60)

    first = asyncio.create_task(threads.run(occupy))
    assert await asyncio.to_thread(has_begun.wait, 60)
    set_limits(monkeypatch, free_thread=0.05)
    late: list[str] = []
    async with asyncio.timeout(30):
        with pytest.raises(Unavailable, match="the store was busy"):
            await asyncio.create_task(threads.run(lambda: late.append("begun")))
    assert not first.done()  # the thread is still busy
    may_end.set()
    assert await first
    set_limits(monkeypatch, free_thread=60.0)
    assert await threads.run(lambda: "done") == "done"
    assert late == []
    threads.close()
    with pytest.raises(Unavailable, match="the store is closed"):
        await threads.run(lambda: "after the end")
