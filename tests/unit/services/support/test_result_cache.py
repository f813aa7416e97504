"""The cache of search results: bounded, least recently used results are dropped first."""

from __future__ import annotations

from toolscript.services.support.result_cache import ResultCache


def test_a_result_is_found_by_its_key_alone() -> None:
    cache: ResultCache[tuple[int, str], str] = ResultCache()
    cache.keep((1, "query"), "result")
    assert cache.find((1, "query")) == "result"
    assert cache.find((2, "query")) is None


def test_a_full_cache_drops_results_in_the_order_of_their_last_use() -> None:
    cache: ResultCache[str, int] = ResultCache(size=2)
    cache.keep("a", 1)
    cache.keep("b", 2)
    assert cache.find("a") == 1
    cache.keep("c", 3)
    assert [cache.find(key) for key in "abc"] == [1, None, 3]
