"""The numbers of tool search: how loud words are beside meaning (chosen), and how sure the first hit is (learned from
judged requests by `python -m training fit`). docs/decisions/0019 explains both."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

FILE = "data/ranking.toml"


class Signals(NamedTuple):
    """What is known of an answer before anybody judges it: the similarity of the nearest tool (0 for unrelated texts, 1
    for paraphrases), the share of the query that the best match by words covers, how far the first hit's score is ahead
    of the second's, and the size of the catalogue (the logarithm to base 10: among more tools, chance finds more)."""

    similarity: float
    coverage: float
    lead: float
    size: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Two logistic curves: the probability that any tool serves the request, from similarity, coverage and size, and
    the probability that the first hit is then the right one, from its lead."""

    base: float
    similarity: float
    coverage: float
    size: float
    tie: float
    lead: float

    def estimate(self, signals: Signals) -> float:
        """The probability that the first hit is right."""
        served = (
            self.base
            + self.similarity * signals.similarity
            + self.coverage * signals.coverage
            + self.size * signals.size
        )
        return squash(served) * squash(self.tie + self.lead * signals.lead)


@dataclass(frozen=True, slots=True)
class LearnedRanking:
    """The content of the file.

    `keyword` is the loudness of words: 1 would give the two sides of the formula the weights that alpha says.
    Candidates up to `beneath` less similar than unrelated texts still rank. What is less sure than `noise` is not worth
    showing: small talk and noise have candidates, too.
    """

    keyword: float
    beneath: float
    noise: float
    hybrid: Curve
    words: Curve
    """For searches by words alone, whose signals mean something else."""


def parse_learned_ranking(table: Mapping[str, Any]) -> LearnedRanking:
    """Builds the numbers from the file's tables."""
    return LearnedRanking(**table["score"], hybrid=Curve(**table["hybrid"]), words=Curve(**table["words"]))


def _load() -> LearnedRanking:
    text = resources.files("toolscript").joinpath(FILE).read_text(encoding="utf-8")
    return parse_learned_ranking(tomllib.loads(text))


def squash(value: float) -> float:
    """The logistic function, without overflow."""
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0  # noqa: PLR2004


LEARNED = _load()
