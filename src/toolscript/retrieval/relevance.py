"""Estimates the probability that a document or passage is relevant to the query, from its similarity and from the words
that it shares with the query. `python -m training relevance` fits the curves; docs/decisions/0029 explains them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple

from toolscript.domain.search import SimilarityRange
from toolscript.retrieval.calibration import position
from toolscript.retrieval.learned_ranking import squash

FILE = "data/relevance.toml"
# Relevances are rounded before they are compared with a threshold, which so applies to the value that is shown.
DIGITS = 4


class RelevanceSignals(NamedTuple):
    """What is known of a hit: its similarity (0 for unrelated texts, 1 for paraphrases) and the share of the query's
    words that it covers, rare words most."""

    similarity: float
    coverage: float


@dataclass(frozen=True, slots=True)
class RelevanceCurve:
    """A logistic curve over the signals."""

    base: float
    similarity: float
    coverage: float

    def estimate(self, signals: RelevanceSignals) -> float:
        """The probability that the hit is relevant."""
        return squash(self.base + self.similarity * signals.similarity + self.coverage * signals.coverage)


@dataclass(frozen=True, slots=True)
class LearnedRelevance:
    """The content of the file: one curve for each way to search, because a signal that is missing is not a low one. A
    hit with a relevance below `threshold` most likely is not relevant."""

    threshold: float
    hybrid: RelevanceCurve
    meaning: RelevanceCurve
    words: RelevanceCurve


def parse_learned_relevance(table: Mapping[str, Any]) -> LearnedRelevance:
    """Builds the numbers from the file's tables."""
    curves = {name: RelevanceCurve(**table[name]) for name in ("hybrid", "meaning", "words")}
    return LearnedRelevance(table["threshold"], **curves)


def _load() -> LearnedRelevance:
    text = resources.files("toolscript").joinpath(FILE).read_text(encoding="utf-8")
    return parse_learned_relevance(tomllib.loads(text))


LEARNED = _load()


@dataclass(frozen=True, slots=True)
class LegScores:
    """The scores of one ranking by id. A hit that it lacks has `absent`: 0, or the last score if the ranking is cut."""

    scores: Mapping[str, float]
    absent: float = 0.0


def build_relevances(
    similarity: SimilarityRange, full_score: float, cosines: LegScores | None, words: LegScores | None
) -> Relevances | None:
    """The relevances of a search: by words alone for a model that they were not fitted with; None if it has no words
    either."""
    usable = cosines if similarity.has_relevance else None
    if usable is None and (words is None or full_score <= 0):
        return None
    return Relevances(similarity, full_score, usable, words)


@dataclass(frozen=True, slots=True)
class Relevances:
    """The relevance of the hits of one search. `cosines` or `words` (BM25) is None if the search has no such ranking;
    `full_score` is the BM25 score of a text of average length with every word of the query."""

    similarity: SimilarityRange
    full_score: float
    cosines: LegScores | None
    words: LegScores | None
    learned: LearnedRelevance = field(default=LEARNED)

    def estimate(self, hit_id: str) -> float:
        """The relevance of a hit, from 0 to 1, rounded."""
        return self._weigh(*self._find_scores(hit_id))

    def estimate_absent(self) -> float:
        """The highest relevance of a text that is in no ranking."""
        cosine, shared = (leg.absent if leg else 0.0 for leg in (self.cosines, self.words))
        return self._weigh(cosine, shared)

    def reach(self, min_relevance: float) -> bool:
        """Whether any hit has this relevance."""
        legs = [leg for leg in (self.cosines, self.words) if leg]
        # Nonsense is decided by the bound, without a look at a thousand hits.
        return self.estimate_bound() >= min_relevance and any(
            self.estimate(hit_id) >= min_relevance for leg in legs for hit_id in leg.scores
        )

    def estimate_bound(self) -> float:
        """A relevance that no hit exceeds: the relevance of a hit that is first in every ranking."""
        legs = (self.cosines, self.words)
        cosine, shared = (max(leg.scores.values(), default=leg.absent) if leg else 0.0 for leg in legs)
        return self._weigh(cosine, shared)

    def signals(self, hit_id: str) -> RelevanceSignals:
        """What is known of a hit; 0 for what is not."""
        return RelevanceSignals(*self._measure(*self._find_scores(hit_id)))

    def _find_scores(self, hit_id: str) -> tuple[float, float]:
        cosines, words = self.cosines, self.words
        cosine = cosines.scores.get(hit_id, cosines.absent) if cosines is not None else 0.0
        return cosine, words.scores.get(hit_id, words.absent) if words is not None else 0.0

    def _measure(self, cosine: float, shared: float) -> tuple[float, float]:
        full = self.full_score
        return position(cosine, self.similarity), (shared / full if shared < full else 1.0) if full > 0 else 0.0

    def _weigh(self, cosine: float, shared: float) -> float:
        """The rounded estimate. Plain numbers, because a minimum relevance makes a search estimate two thousand."""
        curve = self._curve
        similarity, coverage = self._measure(cosine, shared)
        return round(squash(curve.base + curve.similarity * similarity + curve.coverage * coverage), DIGITS)

    @property
    def _curve(self) -> RelevanceCurve:
        if self.cosines is None:
            return self.learned.words
        return self.learned.hybrid if self.words is not None and self.full_score > 0 else self.learned.meaning
