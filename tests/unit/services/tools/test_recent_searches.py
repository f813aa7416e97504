"""The memory of searches: per caller, for minutes, and bounded."""

from __future__ import annotations

from tests.fixtures.clock import Clock
from toolscript.domain.access import Caller
from toolscript.services.tools.recent_searches import MAX_CALLERS, MAX_SEARCHES, SECONDS, RecentSearches

ADA, BEN = Caller(key="ada"), Caller(address="192.0.2.7")


def test_the_newest_search_that_found_the_tool_counts() -> None:
    recent = RecentSearches()
    recent.add(ADA, "first", ["a", "b"])
    recent.add(ADA, "second", ["a"])
    assert (recent.find(ADA, "a"), recent.find(ADA, "b"), recent.find(ADA, "c")) == ("second", "first", None)


def test_a_search_of_another_caller_counts_nothing() -> None:
    recent = RecentSearches()
    recent.add(ADA, "first", ["a"])
    assert recent.find(BEN, "a") is None
    assert recent.find(Caller(address="ada"), "a") is None


def test_a_search_counts_for_minutes_only() -> None:
    clock = Clock()
    recent = RecentSearches(clock)
    recent.add(ADA, "first", ["a"])
    clock.now += SECONDS
    assert recent.find(ADA, "a") == "first"
    clock.now += 1
    assert recent.find(ADA, "a") is None


def test_the_memory_is_bounded() -> None:
    recent = RecentSearches()
    for number in range(MAX_SEARCHES + 1):
        recent.add(ADA, f"query {number}", [f"tool {number}"])
    assert recent.find(ADA, "tool 0") is None
    assert recent.find(ADA, "tool 1") == "query 1"
    for number in range(MAX_CALLERS):
        recent.add(Caller(key=str(number)), "query", ["a"])
    assert recent.find(ADA, "tool 1") is None
