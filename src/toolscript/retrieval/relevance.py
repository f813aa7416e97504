"""Estimates the probability that a document or passage is relevant to the query, from its similarity and from the words
that it shares with the query. `python -m training relevance` fits the curves; docs/decisions/0029 explains them."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple

from toolscript.domain.search import SimilarityRange, Terms
from toolscript.retrieval.bm25 import QueryTerms
from toolscript.retrieval.calibration import position
from toolscript.retrieval.learned_ranking import squash

FILE = "data/relevance.toml"
# Relevances are rounded before they are compared with a threshold, which so applies to the value that is shown.
DIGITS = 4
# A word that carries this share of a query's weight is what the query is about: none of 1 600 queries about something
# else has a rare word like that in common with a text, 9 in 10 have some rare word (docs/decisions/0029).
MAIN_SHARE = 0.5
MAX_RARE = 5
"""The texts that may have a rare word."""


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


@dataclass(frozen=True, slots=True)
class RareMatches:
    """The hits that have a rare word which the query is mostly about, and its share of the query's weight."""

    ids: frozenset[str] = frozenset()
    share: float = 0.0


NO_RARE_MATCHES = RareMatches()


def select_main_terms(query: QueryTerms) -> Terms:
    """The terms of the query that carry at least MAIN_SHARE of its weight each. A text with one of them is a rare match
    if at most MAX_RARE texts have one."""
    terms = query.terms
    main = [pair for pair in zip(terms.ids, terms.weights, strict=True) if pair[1] >= MAIN_SHARE * query.full_score]
    return Terms(tuple(number for number, _ in main), tuple(weight for _, weight in main))


def build_rare_matches(query: QueryTerms, ids: Collection[str]) -> RareMatches:
    """The rare matches among the ids of the texts that have a main term; none if there are too many for a rare word."""
    weights = select_main_terms(query).weights
    return RareMatches(frozenset(ids), min(weights) / query.full_score) if 0 < len(ids) <= MAX_RARE else NO_RARE_MATCHES


def build_relevances(
    similarity: SimilarityRange,
    full_score: float,
    cosines: LegScores | None,
    words: LegScores | None,
    rare: RareMatches = NO_RARE_MATCHES,
) -> Relevances | None:
    """The relevances of a search: by words alone for a model that they were not fitted with; None if it has no words
    either."""
    usable = cosines if similarity.has_relevance else None
    if usable is None and (words is None or full_score <= 0):
        return None
    return Relevances(similarity, full_score, usable, words, rare)


@dataclass(frozen=True, slots=True)
class Relevances:
    """The relevance of the hits of one search. `cosines` or `words` (BM25) is None if the search has no such ranking;
    `full_score` is the BM25 score of a text of average length with every word of the query. A rare match has at least
    the relevance that its words have alone, because the model may not know the word."""

    similarity: SimilarityRange
    full_score: float
    cosines: LegScores | None
    words: LegScores | None
    rare: RareMatches = NO_RARE_MATCHES
    learned: LearnedRelevance = field(default=LEARNED)

    def estimate(self, hit_id: str) -> float:
        """The relevance of a hit, from 0 to 1, rounded."""
        relevance = self._weigh(*self._find_scores(hit_id))
        return max(relevance, self._rare_relevance) if hit_id in self.rare.ids else relevance

    def estimate_absent(self) -> float:
        """The highest relevance of a text that is in no ranking."""
        cosine, shared = (leg.absent if leg else 0.0 for leg in (self.cosines, self.words))
        ranked = [leg.scores.keys() for leg in (self.cosines, self.words) if leg]
        is_rare = not self.rare.ids.issubset(frozenset().union(*ranked)) if self.rare.ids else False
        return max(self._weigh(cosine, shared), self._rare_relevance if is_rare else 0.0)

    def reach(self, min_relevance: float) -> bool:
        """Whether any hit has this relevance, on whichever page."""
        if self.rare.ids and self._rare_relevance >= min_relevance:
            return True
        legs = [leg for leg in (self.cosines, self.words) if leg]
        # Nonsense is decided by the bound, without a look at a thousand hits.
        return self.estimate_bound() >= min_relevance and any(
            self.estimate(hit_id) >= min_relevance for leg in legs for hit_id in leg.scores
        )

    def estimate_bound(self) -> float:
        """A relevance that no hit exceeds: the relevance of a hit that is first in every ranking."""
        legs = (self.cosines, self.words)
        cosine, shared = (max(leg.scores.values(), default=leg.absent) if leg else 0.0 for leg in legs)
        return max(self._weigh(cosine, shared), self._rare_relevance if self.rare.ids else 0.0)

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
    def _rare_relevance(self) -> float:
        return round(self.learned.words.estimate(RelevanceSignals(0.0, self.rare.share)), DIGITS)

    @property
    def _curve(self) -> RelevanceCurve:
        if self.cosines is None:
            return self.learned.words
        return self.learned.hybrid if self.words is not None and self.full_score > 0 else self.learned.meaning
