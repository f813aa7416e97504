"""The cache with a maximum size, against a plain list of what was used, newest last."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.domain.lru_cache import LruCache

KEYS = st.sampled_from("abcdef")
STEPS = st.lists(st.one_of(KEYS, st.tuples(KEYS, st.integers(0, 9))), max_size=60)


@settings(max_examples=scale_examples(300), deadline=None)
@given(st.integers(0, 4), STEPS)
def test_a_full_cache_drops_the_value_that_was_used_first(size: int, steps: list[str | tuple[str, int]]) -> None:
    cache: LruCache[str, int] = LruCache(size)
    used: list[tuple[str, int]] = []
    lookups: list[bool] = []
    for step in steps:
        if isinstance(step, tuple):
            cache.keep(*step)
            used = [*(pair for pair in used if pair[0] != step[0]), step]
            used = used[max(len(used) - size, 0) :]
        else:
            expected = dict(used).get(step)
            assert cache.find(step) == expected
            used.sort(key=lambda pair: pair[0] == step)
            lookups.append(expected is not None)
    assert (cache.hits, cache.misses) == (lookups.count(True), lookups.count(False))
