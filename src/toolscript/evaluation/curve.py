"""The effect of thresholds on answers, and the reliability of confidences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

STEPS = 20
BUCKETS = 10


@dataclass(frozen=True, slots=True)
class AtThreshold:
    """The share of answerable queries with any answer, and of unanswerable queries without one; None if there are no
    such queries."""

    threshold: float
    answered: float | None
    left_empty: float | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """The queries whose first hit has a confidence in a range: their number, and the share whose first hit is right."""

    low: float
    high: float
    queries: int
    precision: float


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
