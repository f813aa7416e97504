"""Retrieval metrics per query, their means and intervals over many queries, and the effect of thresholds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolscript.evaluation.datasets import JudgedQuery

NAMES = ("hit@1", "r@5", "r@10", "ndcg@10", "c@10", "mrr")
RESAMPLES = 2000
SEED = 20_240
# Thresholds from 0 to 1, and ranges of confidences.
STEPS, BUCKETS = 20, 10

Scores = dict[str, float]
Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AtThreshold:
    """The share of answerable queries with any answer, and of unanswerable queries without one; None if there are no
    such queries."""

    threshold: float
    answered: float | None
    left_empty: float | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """The queries with a first hit of a confidence in a range: their number, and the share of right first hits."""

    low: float
    high: float
    queries: int
    precision: float


def score_by_group(judged: JudgedQuery, ranking: Sequence[str]) -> Scores:
    """Computes the metrics for tools: one member of every group must be found, and each group counts once."""
    return score_hits(judged, [(found,) for found in ranking])


def score_hits(judged: JudgedQuery, hits: Sequence[Sequence[str]]) -> Scores:
    """Computes the same metrics for hits with several ids, because equal tools of several servers are one hit. Whoever
    gets it has found them all, at its rank."""
    return _score(judged, hits, judged.groups, lambda _: 1.0)


def score_by_grade(judged: JudgedQuery, ranking: Sequence[str]) -> Scores:
    """Computes the metrics for documents, with grades as gains."""
    relevant = [frozenset({i}) for i, grade in judged.grades.items() if grade > 0]
    return _score(judged, [(found,) for found in ranking], relevant, judged.grades.__getitem__)


def _score(
    judged: JudgedQuery, hits: Sequence[Sequence[str]], groups: Sequence[frozenset[str]], gain: Callable[[str], float]
) -> Scores:
    left = list(groups)
    gains, counts, best = [], [], []
    for ids in hits:
        # A single id is in at most one group that counts, as always; several ids are several tools.
        served = [g for i in dict.fromkeys(ids) if (g := _take_group(left, i))]
        gains.append(sum(max(gain(i) for i in ids if i in g) for g in served))
        counts.append(len(served))
        if served:
            best.append(sum(max(map(gain, g)) for g in served))
    ideal = sorted([*best, *(max(map(gain, group)) for group in left)], reverse=True)
    return {
        "hit@1": float(any(counts[:1])),
        "r@5": sum(counts[:5]) / len(groups),
        "r@10": sum(counts[:10]) / len(groups),
        "ndcg@10": _discount(gains[:10]) / _discount(ideal[:10]),
        "c@10": float(sum(counts[:10]) == len(groups)),
        "mrr": _reciprocal_rank(judged, hits),
    }


def _take_group(groups: list[frozenset[str]], found: str) -> frozenset[str] | None:
    """Takes the first group with that member out of the list."""
    group = next((g for g in groups if found in g), None)
    if group is not None:
        groups.remove(group)
    return group


def mean(scores: Sequence[Scores]) -> Scores:
    """The mean of each metric."""
    return {name: float(np.mean([s[name] for s in scores])) for name in NAMES}


def intervals(*sets: Sequence[Scores]) -> Mapping[str, Interval]:
    """The mean of each metric with its bootstrap interval, with the same resamples for every metric. Each of several
    sets has the same weight, whatever its number of queries, and is resampled separately."""
    tables = [np.array([[s[name] for name in NAMES] for s in scores]) for scores in sets]
    rng = np.random.default_rng(SEED)
    means = np.mean([_resample_means(values, rng) for values in tables], axis=0)
    middle = np.mean([values.mean(axis=0) for values in tables], axis=0)
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return {n: Interval(float(middle[i]), float(low[i]), float(high[i])) for i, n in enumerate(NAMES)}


def difference(*pairs: tuple[Sequence[Scores], Sequence[Scores]]) -> Mapping[str, Interval]:
    """The difference between two results for a set, query by query; for several sets, their mean. An interval above
    zero is a significant gain."""
    return intervals(
        *([{n: a[n] - b[n] for n in NAMES} for a, b in zip(ours, theirs, strict=True)] for ours, theirs in pairs)
    )


def curve(answerable: Sequence[float], unanswerable: Sequence[float]) -> list[AtThreshold]:
    """Computes the shares at every threshold from the confidence of each query's first hit (0 without a hit)."""
    thresholds = [step / STEPS for step in range(STEPS + 1)]
    return [AtThreshold(t, share_answered(answerable, t), share_left_empty(unanswerable, t)) for t in thresholds]


def reliability(confidences: Sequence[float], is_right: Sequence[bool]) -> list[Bucket]:
    """Computes how often the first hit is right, by its confidence. For an unanswerable query it never is."""
    found: list[list[bool]] = [[] for _ in range(BUCKETS)]
    for confidence, right in zip(confidences, is_right, strict=True):
        found[min(int(confidence * BUCKETS), BUCKETS - 1)].append(right)
    return [
        Bucket(number / BUCKETS, (number + 1) / BUCKETS, len(each), sum(each) / len(each))
        for number, each in enumerate(found)
        if each
    ]


def share_answered(confidences: Sequence[float], threshold: float) -> float | None:
    """The share of queries with any answer at a threshold; None without queries."""
    return sum(0 < c >= threshold for c in confidences) / len(confidences) if confidences else None


def share_left_empty(confidences: Sequence[float], threshold: float) -> float | None:
    """The share of queries without an answer at a threshold; None without queries."""
    answered = share_answered(confidences, threshold)
    return None if answered is None else 1 - answered


def _resample_means(values: Table, rng: np.random.Generator) -> Table:
    draws = rng.integers(0, len(values), size=(RESAMPLES, len(values)))
    return np.stack([values[draw].mean(axis=0) for draw in draws])


def _discount(gains: Sequence[float]) -> float:
    return sum(g / math.log2(i + 2) for i, g in enumerate(gains))


def _reciprocal_rank(judged: JudgedQuery, hits: Sequence[Sequence[str]]) -> float:
    right = (r for r, ids in enumerate(hits[:100], start=1) if any(judged.grades.get(i, 0) > 0 for i in ids))
    return next((1 / rank for rank in right), 0.0)
