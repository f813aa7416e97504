"""Times the fusion of two rankings beside the library ranx."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

from benchmarks.timing import Row, Table, compare_table, side_by_side
from toolscript.domain.search import Candidate, sort_candidates
from toolscript.retrieval.fusion import RRF_K, rrf, sort_scores, sum_weighted, zscore

Rankings = list[list[Candidate]]

WEIGHTS = (0.7, 0.3)
OURS: dict[str, Callable[[Rankings], dict[str, float]]] = {
    "rrf": rrf,
    "zscore": zscore,
    "weighted": lambda rankings: sum_weighted(
        [(w, {c.id: c.score for c in ranking}) for w, ranking in zip(WEIGHTS, rankings, strict=True)]
    ),
}
THEIRS: dict[str, dict[str, Any]] = {
    "rrf": {"method": "rrf", "norm": None, "params": {"k": RRF_K}},
    "zscore": {"method": "sum", "norm": "zmuv"},
    "weighted": {"method": "wsum", "norm": None, "params": {"weights": list(WEIGHTS)}},
}
NOTE = (
    "Two rankings, half of each in the other, fused and put in order; one query per call, as a search does it. "
    "ranx compiles its functions at the first call: that first call and building its own objects from the rankings "
    "are left out of its times. ranx is made for batches of queries, so a call with one query is its worst case."
)


async def run(quick: bool) -> list[Table]:
    """Every fusion at two depths; a quick run has no time for ranx to compile more than one."""
    methods = ["rrf"] if quick else list(OURS)
    rows = [await _row(method, size, 60 if quick else 400) for method in methods for size in (100, 1000)]
    return [compare_table("Two rankings into one", rows, NOTE)]


async def _row(method: str, size: int, count: int) -> Row:
    rankings = _rankings(size)
    ranx_fuse = _ranx(method, rankings)

    async def ours(_: int) -> object:
        return sort_scores(OURS[method](rankings))

    async def theirs(_: int) -> object:
        return ranx_fuse()

    with warnings.catch_warnings(action="ignore"):  # numba warns about ranx's code
        await theirs(0)
        mine, beside = await side_by_side(range(count), ours, theirs)
    return Row(f"{method}, 2 rankings", f"{size:,} candidates each", mine, f"ranx, {method}", beside)


def _ranx(method: str, rankings: Rankings) -> Callable[[], object]:
    from ranx import Run, fuse

    runs = [Run({"query": {c.id: c.score for c in ranking}}) for ranking in rankings]
    return lambda: fuse(runs, **THEIRS[method])


def _rankings(size: int) -> Rankings:
    chance = random.Random(size)
    starts = (0, size // 2)
    # Ids of one length: ranx compiles again for every length.
    return [sort_candidates([Candidate(f"tool-{i:06d}", chance.random()) for i in range(s, s + size)]) for s in starts]
