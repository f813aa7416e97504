"""Ranks chunks and extractions by meaning and by words, both collections at the same time.

Every place in the ranking has its cosine, also where only its words were found. Decision 0026 explains the fusion.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeVar

import numpy as np

from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import NotFound, Unavailable
from toolscript.domain.filters import Filter, Subset
from toolscript.domain.search import Candidate, Collection, SearchPart, SearchReport, require_same_model
from toolscript.ports.indexes import VectorIndex
from toolscript.retrieval.relevance import (
    MAX_RARE,
    NO_RARE_MATCHES,
    LegScores,
    RareMatches,
    build_rare_matches,
    build_relevances,
    select_main_terms,
)
from toolscript.retrieval.retriever import Legs, PreparedQuery, Retriever
from toolscript.services.knowledge.points import CHUNK, CHUNKS

EXTRACTION = "extraction"
# How long a check of a collection is valid: other processes may rebuild it with another model.
CHECK_VALID_SECONDS = 5.0
DIGITS = 6
FIELDS = ("source_id", "chunk_id")
# The candidates that each ranking has at least: the order of the first ones must not depend on the limit.
POOL = 50
# What the words of a query add to a cosine at most: where a passage has all of them (docs/benchmarks.md).
WORDS_WEIGHT = 0.2

T = TypeVar("T")

log = logging.getLogger(__name__)


class RankedPoint(NamedTuple):
    """A place in the ranking: its cosine, rounded, from 0 to 1, what its words add to that in the order, and the
    estimated probability that it is relevant, if that is known."""

    type: str
    id: str
    score: float
    source_id: str | None
    chunk_id: str | None
    by_words: float = 0.0
    relevance: float | None = None


class KnowledgeRanking(NamedTuple):
    """The best of both collections, best first, and the collections that did not answer."""

    places: Sequence[RankedPoint]
    missing: Sequence[str]

    def has_words(self, ids: AbstractSet[str]) -> bool:
        """Whether words were counted in the place of one of these."""
        return any(place.by_words and place.id in ids for place in self.places)


class KnowledgeRanker:
    """Ranks in the collections that exist; they may be created while this lives."""

    def __init__(self, retriever: Retriever, index: VectorIndex, clock: Callable[[], float] = time.monotonic) -> None:
        self._retriever = retriever
        self._index = index
        self._clock = clock
        self._valid_until: dict[str, float] = {}

    async def rank(
        self,
        prepared: PreparedQuery,
        legs: Mapping[str, Filter],
        depth: int,
        report: SearchReport,
        deadline: Deadline,
    ) -> KnowledgeRanking:
        """The best `depth` of these collections, each with its filter. Raises Unavailable when none answers."""
        answers = await asyncio.gather(
            *(
                deadline.call(SearchPart.INDEX, self._rank_collection(name, prepared, where, depth, report))
                for name, where in legs.items()
            ),
            return_exceptions=True,
        )
        places: dict[tuple[str, str], RankedPoint] = {}
        failed: dict[str, Unavailable] = {}
        for name, answer in zip(legs, answers, strict=True):
            if isinstance(answer, Unavailable):
                failed[name] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                places |= {(place.type, place.id): place for place in answer}
        for name, error in failed.items():
            if len(failed) == len(legs):
                raise error
            log.warning("collection_not_searched", extra={"collection": name, "reason": error.message})
        ordered = sorted(places.values(), key=_order)
        return KnowledgeRanking(ordered[:depth], list(failed))

    async def _rank_collection(
        self, name: str, prepared: PreparedQuery, where: Filter, depth: int, report: SearchReport
    ) -> list[RankedPoint]:
        """The best of one collection by meaning and by words; none when it does not exist."""
        try:
            if not await self._is_open(name, prepared):
                return []
            depth = max(depth, POOL)
            legs = await self._retriever.rank(prepared, name, report, where=where, depth=depth, fields=FIELDS)
            (cosines, words), rare = await asyncio.gather(
                self._complete(name, prepared, legs), self._find_rare(name, prepared, where)
            )
        except NotFound:  # it existed a moment ago
            self._valid_until.pop(name, None)
            if await self._index.describe(name) is None:
                return []
            raise
        full = max(prepared.terms.full_score, 1e-9)
        by_words = {c.id: WORDS_WEIGHT * min(1.0, c.score / full) for c in words}
        relevances = build_relevances(
            self._retriever.similarity,
            prepared.terms.full_score,
            LegScores({c.id: c.score for c in cosines}),
            LegScores({c.id: c.score for c in words}),
            rare,
        )
        return [
            _place(name, point, by_words.get(point.id, 0.0), relevances.estimate(point.id) if relevances else None)
            for point in cosines
        ]

    async def _complete(
        self, name: str, prepared: PreparedQuery, legs: Legs
    ) -> tuple[list[Candidate], list[Candidate]]:
        """All candidates with their cosines, and all that share words with the query: a passage that one ranking lacks
        has its score there too, or deep places of it would decide the order."""
        if not legs.lexical or prepared.vector is None:
            return legs.dense, legs.lexical
        near, worded = ({candidate.id: candidate for candidate in leg} for leg in (legs.dense, legs.lexical))
        unworded = Filter(within=Subset(frozenset(near.keys() - worded.keys())))
        vectors, words = await asyncio.gather(
            self._index.vectors(name, [i for i in worded if i not in near]),
            self._index.lexical(name, prepared.terms.terms, where=unworded, limit=len(near), fields=()),
        )
        cosines = [Candidate(i, float(np.dot(v, prepared.vector)), worded[i].payload) for i, v in vectors.items()]
        return [*legs.dense, *cosines], [*legs.lexical, *words]

    async def _find_rare(self, name: str, prepared: PreparedQuery, where: Filter) -> RareMatches:
        """The passages that have a rare word which the query is mostly about."""
        terms = select_main_terms(prepared.terms)
        if not terms.ids:
            return NO_RARE_MATCHES
        points = await self._index.lexical(name, terms, where=where, limit=MAX_RARE + 1, fields=())
        return build_rare_matches(prepared.terms, [point.id for point in points])

    async def _is_open(self, name: str, prepared: PreparedQuery) -> bool:
        """Opens the collection if it exists. Raises Invalid when another model made it."""
        now = self._clock()
        if now < self._valid_until.get(name, -math.inf):
            return True
        existing = await self._index.describe(name)
        if existing is None:
            return False
        dimensions = 0 if prepared.vector is None else len(prepared.vector)
        require_same_model(existing, Collection(name, self._retriever.model or "", dimensions))
        if name not in self._valid_until:
            await self._index.open(existing)
        self._valid_until[name] = now + CHECK_VALID_SECONDS
        return True


def _order(place: RankedPoint) -> tuple[float, str, str]:
    """Best first; equal scores by id."""
    return -round(place.score + place.by_words, DIGITS), place.id, place.type


def _place(collection: str, candidate: Candidate, by_words: float, relevance: float | None) -> RankedPoint:
    """Raises ValueError for a score that is not finite."""
    score = round(float(candidate.score), DIGITS)
    if not math.isfinite(score + by_words):
        raise ValueError(f"the score of {candidate.id} is not finite")
    source_id, chunk_id = (_text(candidate.payload.get(name)) for name in FIELDS)
    kind = CHUNK if collection == CHUNKS else EXTRACTION
    return RankedPoint(kind, candidate.id, min(1.0, max(0.0, score)), source_id, chunk_id, by_words, relevance)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
