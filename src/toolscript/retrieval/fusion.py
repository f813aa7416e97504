"""Fuses several rankings into one. Engines' own fusions differ in their constants; the tests compare this one with the
library ranx. Sums do not depend on the order of their parts (`fsum`), so that equal scores are equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

RRF_K = 60
# The best candidate for a need is ahead of those for other needs that score more, up to twice as much.
MIN_SHARE = 0.5

Scores = dict[str, float]


class Scored(Protocol):
    """A candidate, or anything else with an id and a score."""

    @property
    def id(self) -> str: ...

    @property
    def score(self) -> float: ...


def rrf(rankings: Sequence[Sequence[Scored]], k: int = RRF_K) -> Scores:
    """Reciprocal rank fusion: the sum of 1 / (k + rank), with ranks from 1; absent candidates count 0."""
    parts: dict[str, list[float]] = {}
    for ranking in rankings:
        for rank, candidate in enumerate(ranking, start=1):
            parts.setdefault(candidate.id, []).append(1 / (k + rank))
    return {i: math.fsum(of) for i, of in parts.items()}


def zscore(rankings: Sequence[Sequence[Scored]]) -> Scores:
    """The sum of standard scores (population deviation) per ranking; absent candidates count the ranking's minimum. A
    ranking of equal scores gives 0 to each."""
    legs = [_standardise({c.id: c.score for c in ranking}) for ranking in rankings if ranking]
    lowest = [min(leg.values()) for leg in legs]
    ids = {i for leg in legs for i in leg}
    return {i: math.fsum(leg.get(i, low) for leg, low in zip(legs, lowest, strict=True)) for i in ids}


def sum_weighted(legs: Sequence[tuple[float, Mapping[str, float]]]) -> Scores:
    """The weighted sum of scores on the same scale; absent candidates count 0. Every tool search adds up two legs, and
    `fsum` would take five times as long for the same sums: with more legs their order may change the last bit."""
    total: Scores = {}
    for weight, leg in legs:
        for i, score in leg.items():
            total[i] = total.get(i, 0.0) + weight * score
    return total


FUSIONS: Mapping[str, Callable[[Sequence[Sequence[Scored]]], Scores]] = {"rrf": rrf, "zscore": zscore}


def sort_scores(scores: Mapping[str, float]) -> list[tuple[str, float]]:
    """Best first, equal scores by id."""
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def _standardise(scores: Scores) -> Scores:
    mean = math.fsum(scores.values()) / len(scores)
    deviation = math.sqrt(math.fsum((s - mean) ** 2 for s in scores.values()) / len(scores))
    if deviation <= 1e-9 * max(1.0, abs(mean)):
        return dict.fromkeys(scores, 0.0)
    return {i: (s - mean) / deviation for i, s in scores.items()}


def put_needs_first(ranked: Sequence[tuple[str, float]], needs: Mapping[str, str]) -> list[tuple[str, float]]:
    """The ranking with the best candidate of each need in front, behind the first candidate of all, if it scores at
    least half as much. The order is the same for every number of returned candidates."""
    if not needs:
        return list(ranked)
    front: list[tuple[str, float]] = list(ranked[:1])
    others: list[tuple[str, float]] = []
    served = {needs[i] for i, _ in front if i in needs}
    for i, score in ranked[1:]:
        need = needs.get(i)
        is_best = need is not None and need not in served and score >= MIN_SHARE * ranked[0][1]
        (front if is_best else others).append((i, score))
        if is_best and need:
            served.add(need)
    return [*front, *others]
