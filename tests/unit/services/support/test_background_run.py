"""Requests for work in the background are neither lost nor carried out twice at a time."""

from __future__ import annotations

import asyncio
import logging

import pytest

from toolscript.services.support.background_run import BackgroundRun


async def test_a_request_during_a_run_leads_to_one_more_run() -> None:
    began, go_on, runs = asyncio.Semaphore(0), asyncio.Event(), 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        began.release()
        await go_on.wait()

    background = BackgroundRun(work, name="work", interval=0)
    background.start_soon()
    await began.acquire()
    background.start_soon()
    background.start_soon()
    assert runs == 1
    go_on.set()
    await began.acquire()
    await background.close()
    assert runs == 2


async def test_a_run_that_fails_is_logged_and_the_next_one_starts(caplog: pytest.LogCaptureFixture) -> None:
    ended, runs = asyncio.Semaphore(0), 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        ended.release()
        if runs == 1:
            raise LookupError("boom")

    background = BackgroundRun(work, name="work", interval=0)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            background.start_soon()
            await ended.acquire()
            await asyncio.sleep(0)
    await background.close()
    assert runs == 2
    assert [record.message for record in caplog.records] == ["background_run_failed"]


async def test_closing_ends_a_run_and_may_come_before_any() -> None:
    began = asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    background = BackgroundRun(work, name="work", interval=0)
    await background.close()
    background.start_soon()
    await began.wait()
    await background.close()
