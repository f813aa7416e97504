"""The cache of search results: bounded, least recently used results are dropped first."""

from __future__ import annotations

from typing import NamedTuple

from toolscript.domain.search import SearchReport
from toolscript.services.support.result_cache import ResultCache


class Result(NamedTuple):
    text: str
    report: SearchReport = SearchReport()


def test_a_result_is_found_by_its_key_alone() -> None:
    cache: ResultCache[tuple[int, str], Result] = ResultCache()
    cache.keep((1, "query"), Result("result"))
    assert cache.find((1, "query")) == Result("result")
    assert cache.find((2, "query")) is None


def test_a_full_cache_drops_results_in_the_order_of_their_last_use() -> None:
    cache: ResultCache[str, Result] = ResultCache(size=2)
    cache.keep("a", Result("1"))
    cache.keep("b", Result("2"))
    assert cache.find("a") == Result("1")
    cache.keep("c", Result("3"))
    assert [cache.find(key) for key in "abc"] == [Result("1"), None, Result("3")]
