"""Fuses several rankings into one. Engines' own fusions differ in their constants; the tests compare this one with the
library ranx. Sums do not depend on the order of their parts (`fsum`), so that equal scores are equal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

RRF_K = 60
# The best candidate for a need may replace one for another need that scores more, up to twice as much.
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


def cover_needs(ranked: Sequence[tuple[str, float]], needs: Mapping[str, str], limit: int) -> list[tuple[str, float]]:
    """The best `limit` candidates of a ranking. While a need has none among them, its best candidate replaces the last
    one of a need that has several, if it scores at least half as much."""
    chosen = list(ranked[:limit])
    served = Counter(needs.get(i) for i, _ in chosen)
    for candidate in ranked[limit:] if needs else ():
        need = needs.get(candidate[0])
        last = next((at for at in reversed(range(limit)) if served[needs.get(chosen[at][0])] > 1), None)
        if last is None:
            break
        if need is not None and not served[need] and candidate[1] >= MIN_SHARE * chosen[last][1]:
            served[needs.get(chosen.pop(last)[0])] -= 1
            served[need] += 1
            chosen.append(candidate)
    return chosen
