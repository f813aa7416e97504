"""Waiting for a change of the catalogue can always be ended."""

from __future__ import annotations

import asyncio

import pytest

from tests.fixtures.databases import open_memory_database
from toolscript.adapters.sql.catalogue_version import SqlCatalogueVersion


@pytest.mark.req("H-14")
@pytest.mark.parametrize("turns", range(6))
async def test_a_wait_that_is_cancelled_while_a_change_comes_ends(turns: int) -> None:
    """However far the news has come: a task that forgot its cancellation would follow the catalogue for ever."""
    version = SqlCatalogueVersion(open_memory_database())
    waiting = asyncio.create_task(version.wait_for_change(60))
    for _ in range(5):
        await asyncio.sleep(0)
    version._changed.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    has_ended = waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() or has_ended
