"""Searches that are made while somebody types: which of them go into the audit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolscript.adapters.observability.typed_searches import TypedSearches


def make_event(query: str, **other: Any) -> dict[str, Any]:
    return {"type": "tools.search", "caller": "ann", "surface": "http", "profile": "", "query": query} | other


def record_all(*queries: str) -> list[str]:
    kept: list[Any] = []
    typed = TypedSearches(kept.append, quiet_seconds=3600)
    for query in queries:
        typed.add(make_event(query))
    typed.flush()
    return [event["query"] for event in kept]


@pytest.mark.req("W-01")
async def test_of_what_somebody_types_the_whole_request_is_kept() -> None:
    assert record_all("r", "re", "read", "read a f", "read a file") == ["read a file"]


@pytest.mark.req("W-01")
async def test_what_was_typed_and_deleted_again_is_kept() -> None:
    assert record_all("drop the tables", "drop the", "d") == ["drop the tables"]
    assert record_all("read", "re", "remove") == ["read", "remove"]


@pytest.mark.req("W-01")
async def test_searches_that_do_not_begin_alike_cannot_hide_each_other() -> None:
    assert record_all("steal the keys", "weather", "tides") == ["steal the keys", "weather", "tides"]


async def test_callers_and_kinds_of_searches_have_series_of_their_own() -> None:
    kept: list[Any] = []
    typed = TypedSearches(kept.append, quiet_seconds=3600)
    for other in ({}, {"caller": "bob"}, {"type": "skills.search"}, {"profile": "ops"}, {"surface": "mcp"}):
        typed.add(make_event("read", **other))
        typed.add(make_event("read it", **other))
    typed.flush()
    assert [event["query"] for event in kept] == ["read it"] * 5


async def test_a_series_ends_when_nothing_is_typed_for_a_while() -> None:
    kept: asyncio.Queue[Any] = asyncio.Queue()
    typed = TypedSearches(kept.put_nowait, quiet_seconds=0.01)
    typed.add(make_event("read"))
    assert (await kept.get())["query"] == "read"
    typed.add(make_event("read it"))
    assert (await kept.get())["query"] == "read it"


@pytest.mark.req("W-01")
async def test_a_series_that_is_fed_ends_too() -> None:
    kept: list[Any] = []
    typed = TypedSearches(kept.append, quiet_seconds=3600, max_seconds=0.01)
    async with asyncio.timeout(60):
        while not kept:
            typed.add(make_event("steal the keys"))
            await asyncio.sleep(0)
    assert kept[0]["query"] == "steal the keys"
    typed.flush()


@pytest.mark.req("W-01")
async def test_a_search_that_failed_does_not_stand_for_one_that_did_not() -> None:
    kept: list[Any] = []
    typed = TypedSearches(kept.append, quiet_seconds=3600)
    typed.add(make_event("steal", error=None))
    typed.add(make_event("steal the keys", error="INVALID"))
    typed.add(make_event("steal", error=None))
    typed.add(make_event("steal it", error=None))
    typed.flush()
    assert [event["query"] for event in kept] == ["steal", "steal the keys", "steal it"]


async def test_many_who_type_at_once_do_not_fill_the_memory() -> None:
    kept: list[Any] = []
    typed = TypedSearches(kept.append, quiet_seconds=3600)
    for number in range(1003):
        typed.add(make_event("read", caller=f"caller {number}"))
    assert [event["caller"] for event in kept] == ["caller 0", "caller 1", "caller 2"]
    typed.flush()
    assert len(kept) == 1003
