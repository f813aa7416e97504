"""What a threshold costs and what it saves, and whether a confidence means what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

STEPS = 20
BUCKETS = 10


@dataclass(frozen=True, slots=True)
class AtThreshold:
    """The share of answerable queries that get any answer, and of unanswerable ones that rightly get none; None where
    there are no such queries."""

    threshold: float
    answered: float | None
    left_empty: float | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """Of the queries whose first hit was this sure, how many there are and the share whose first hit was right."""

    low: float
    high: float
    queries: int
    precision: float


def curve(answerable: Sequence[float], unanswerable: Sequence[float]) -> list[AtThreshold]:
    """From the confidence of each query's first hit (0 where there was none), the shares at every threshold."""
    thresholds = [step / STEPS for step in range(STEPS + 1)]
    return [AtThreshold(t, share_answered(answerable, t), share_left_empty(unanswerable, t)) for t in thresholds]


def reliability(confidences: Sequence[float], is_right: Sequence[bool]) -> list[Bucket]:
    """How often the first hit was right, by how sure it was. The first hit of an unanswerable query never is."""
    found: list[list[bool]] = [[] for _ in range(BUCKETS)]
    for confidence, right in zip(confidences, is_right, strict=True):
        found[min(int(confidence * BUCKETS), BUCKETS - 1)].append(right)
    return [
        Bucket(number / BUCKETS, (number + 1) / BUCKETS, len(each), sum(each) / len(each))
        for number, each in enumerate(found)
        if each
    ]


def share_answered(confidences: Sequence[float], threshold: float) -> float | None:
    """The share of queries that get any answer at a threshold; None of no queries."""
    return sum(0 < c >= threshold for c in confidences) / len(confidences) if confidences else None


def share_left_empty(confidences: Sequence[float], threshold: float) -> float | None:
    """The share of queries that get no answer at a threshold; None of no queries."""
    answered = share_answered(confidences, threshold)
    return None if answered is None else 1 - answered
