"""Ranks the documents of a tenant: merges passages into documents and fuses two rankings.

Every index query is restricted to the tenant and reads only the ids of points. Scores are rounded to six digits before
they are compared, so that the order does not depend on how an engine adds up numbers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import Unavailable
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.limits import current_limits
from toolscript.domain.search import Candidate, SearchPart, SearchReport, TermCounts, TermMatches, round_scores
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.stores import DocumentStore
from toolscript.retrieval.fusion import FUSIONS, sort_scores
from toolscript.retrieval.relevance import (
    MAX_RARE,
    NO_RARE_MATCHES,
    LegScores,
    RareMatches,
    Relevances,
    build_rare_matches,
    build_relevances,
    select_main_terms,
)
from toolscript.retrieval.retriever import Legs, PreparedQuery, Retriever
from toolscript.services.documents.points import DOCUMENTS, doc_of, first_parts, of_tenant
from toolscript.services.documents.request import USUAL_RELEVANCE, DocumentRun, SearchType, in_payload

# Passages that a semantic ranking reads; more only for pages far down.
DEPTH, DEEP = 1_000, 12_000
# A document with at least 1/CROWDING of the passages read crowds out others: it is set aside and the rest is read
# again, at most ROUNDS times.
CROWDING = 100
ROUNDS = 6
# Documents that hybrid search wants from the semantic ranking, on every page.
FUSED_DOCUMENTS = 100
# Every document that a page can reach: maximum offset + maximum hits.
MAX_PLACES = 10_200
FUSED_DIGITS = 9

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """A document or point in a ranking. A NamedTuple, because a search makes thousands."""

    id: str
    score: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A ranked document. `part` is its best passage in the semantic ranking, if there is one; `relevance` is None where
    it is unknown."""

    doc_id: str
    score: float
    part: int | None = None
    relevance: float | None = None


@dataclass(frozen=True, slots=True)
class DocumentRanking:
    """Documents, best first, equal scores by id, from place `first` on; the total (a minimum if `is_cut`); their best
    passages; and their relevances, if there is a query and they are known."""

    places: Sequence[tuple[str, float]]
    total: int
    is_cut: bool = False
    parts: Mapping[str, int] = field(default_factory=dict)
    first: int = 0
    relevances: Relevances | None = None

    def documents(self, start: int, end: int) -> list[Ranked]:
        """The documents on places `start` to `end - 1`; `start` is at least `first`."""
        places = self.places[start - self.first : end - self.first]
        estimate = self.relevances.estimate if self.relevances else lambda _: None
        return [Ranked(doc_id, score, self.parts.get(doc_id), estimate(doc_id)) for doc_id, score in places]

    def keep_relevant(self, min_relevance: float) -> DocumentRanking:
        """The ranking without documents of less relevance; all of them if relevances are unknown."""
        if self.relevances is None:
            return self
        estimate = self.relevances.estimate
        places = [place for place in self.places if estimate(place[0]) >= min_relevance]
        is_cut = self.is_cut and self.relevances.estimate_absent() >= min_relevance
        return replace(self, places=places, total=len(places), is_cut=is_cut)


@dataclass(frozen=True, slots=True)
class DocumentRanker:
    """Ranks the documents of one tenant at a time."""

    retriever: Retriever
    index: VectorIndex
    store: DocumentStore

    async def rank(self, run: DocumentRun, start: int, end: int) -> DocumentRanking:
        """Ranks documents at least from place `start` to place `end`, if there are that many; with a minimum relevance,
        all that a page can reach and that have it.

        Raises Unavailable when index or store fail, or when the model fails in a semantic search.
        """
        ask = run.ask
        payload_filter = in_payload(ask.where)
        where = payload_filter.with_conditions(of_tenant(run.tenant))
        if not ask.text:
            return await self._list_all(run, where, end)
        if ask.min_relevance is not None:
            start, end = 0, MAX_PLACES
        prepared = await self._prepare(run)
        if ask.search_type is SearchType.SEMANTIC:
            return await self._by_meaning(run, prepared, where, end)
        if ask.search_type is SearchType.KEYWORD or prepared.vector is None:
            # The first points alone have terms.
            first = payload_filter.with_conditions(of_tenant(run.tenant), first_parts())
            return await self._by_word(run, prepared, first, start, end)
        return await self._by_both(run, prepared, where)

    async def check(self, deadline: Deadline) -> None:
        """Raises Unavailable when index, store or model do not answer; its details name the `adapter`."""
        await deadline.call(SearchPart.INDEX, self.index.count(DOCUMENTS, Filter(must=(of_tenant(""),))))
        await deadline.call(SearchPart.STORE, self.store.ping())
        prepared = await self.retriever.prepare("health", Deadline(current_limits().document_embedding), SearchReport())
        if prepared.vector is None:
            raise _no_model()

    async def _list_all(self, run: DocumentRun, where: Filter, end: int) -> DocumentRanking:
        with run.report.stage("rank"):
            work = self.index.scroll(DOCUMENTS, where=where.with_conditions(first_parts()), fields=())
            ids = sorted(doc_of(c.id)[0] for c in await run.deadline.call(SearchPart.INDEX, work))
        return DocumentRanking([(i, 0.0) for i in ids[:end]], len(ids))

    async def _prepare(self, run: DocumentRun) -> PreparedQuery:
        async def count_terms(terms: Sequence[int]) -> TermCounts:
            return await run.deadline.call(SearchPart.STORE, self.store.count_terms(run.tenant, terms))

        is_semantic = run.ask.search_type is SearchType.SEMANTIC
        prepared = await self.retriever.prepare(
            run.ask.text,
            Deadline(current_limits().document_embedding),
            run.report,
            count_terms=None if is_semantic else count_terms,
            any_language=True,
            dense=run.ask.search_type is not SearchType.KEYWORD,
        )
        if is_semantic and prepared.vector is None:
            raise _no_model()
        return prepared

    async def _query(self, run: DocumentRun, prepared: PreparedQuery, where: Filter, depth: int) -> Legs:
        work = self.retriever.rank(prepared, DOCUMENTS, run.report, where=where, depth=depth, fields=())
        return await run.deadline.call(SearchPart.INDEX, work)

    async def _by_meaning(self, run: DocumentRun, prepared: PreparedQuery, where: Filter, end: int) -> DocumentRanking:
        counting = self.index.count(DOCUMENTS, where.with_conditions(first_parts()))
        total, legs = await asyncio.gather(
            run.deadline.call(SearchPart.INDEX, counting), self._query(run, prepared, where, DEPTH)
        )
        minimum = run.ask.min_relevance

        def is_relevant(score: float) -> bool:
            relevance_limit = self._compare_cosines({}, score)
            return minimum is None or relevance_limit is None or relevance_limit.estimate_absent() >= minimum

        crowd = _Crowd(end, DEEP, is_relevant)
        is_cut = await self._fill(crowd, run, prepared, where, legs) >= crowd.depth and minimum is not None
        relevances = self._compare_cosines(dict(crowd.places), crowd.places[-1].score if is_cut else 0.0)
        return DocumentRanking(crowd.places, max(total, len(crowd.places)), is_cut, crowd.parts, relevances=relevances)

    def _compare_cosines(self, cosines: Mapping[str, float], absent: float) -> Relevances | None:
        return build_relevances(self.retriever.similarity, 0.0, LegScores(cosines, absent), None)

    async def _by_word(
        self, run: DocumentRun, prepared: PreparedQuery, where: Filter, start: int, end: int
    ) -> DocumentRanking:
        async def match(start: int, end: int, max_total: int) -> TermMatches:
            terms = prepared.terms.terms
            work = self.index.match(DOCUMENTS, terms, where=where, start=start, end=end, max_total=max_total)
            return await run.deadline.call(SearchPart.INDEX, work)

        with run.report.stage("rank"):
            matches, rare = await asyncio.gather(match(start, end, MAX_PLACES), self._find_rare(run, prepared, where))
            places, is_cut = _documents(matches.places), matches.total == MAX_PLACES
            leg = LegScores(dict(places), places[-1].score if is_cut and places else 0.0)
            relevances = Relevances(self.retriever.similarity, prepared.terms.full_score, None, leg, rare)
            if start and not relevances.reach(USUAL_RELEVANCE):
                # Whether anything is relevant must not depend on the page.
                first = _documents((await match(0, 1, 1)).places)
                relevances = replace(relevances, words=replace(leg, scores={**dict(first), **leg.scores}))
        return DocumentRanking(places, matches.total, is_cut, first=start, relevances=relevances)

    async def _by_both(self, run: DocumentRun, prepared: PreparedQuery, where: Filter) -> DocumentRanking:
        """Reads both rankings to a fixed depth: fused scores depend on it, so it must not depend on the page."""
        legs, rare = await asyncio.gather(
            self._query(run, prepared, where, DEPTH), self._find_rare(run, prepared, where)
        )
        crowd = _Crowd(FUSED_DOCUMENTS, DEPTH)
        last = await self._fill(crowd, run, PreparedQuery(prepared.text, prepared.vector), where, legs)
        with run.report.stage("fuse"):
            worded = _documents(_drop_cut_ties(_round_scores(legs.lexical), DEPTH))
            fused = FUSIONS[run.ask.fused_by or ""]([crowd.places, worded])
            scores = sort_scores({i: round(score, FUSED_DIGITS) + 0.0 for i, score in fused.items()})
        legs_cut = last == DEPTH, len(legs.lexical) == DEPTH
        cosines, words = (
            LegScores(dict(leg), leg[-1].score if is_cut else 0.0)
            for leg, is_cut in zip((crowd.places, worded), legs_cut, strict=True)
        )
        relevances = build_relevances(self.retriever.similarity, prepared.terms.full_score, cosines, words, rare)
        return DocumentRanking(scores, len(scores), any(legs_cut), crowd.parts, relevances=relevances)

    async def _find_rare(self, run: DocumentRun, prepared: PreparedQuery, where: Filter) -> RareMatches:
        """The documents that have a rare word which the query is mostly about."""
        terms = select_main_terms(prepared.terms)
        if not terms.ids:
            return NO_RARE_MATCHES
        work = self.index.lexical(DOCUMENTS, terms, where=where, limit=MAX_RARE + 1, fields=())
        points = await run.deadline.call(SearchPart.INDEX, work)
        return build_rare_matches(prepared.terms, [doc_of(point.id)[0] for point in points])

    async def _fill(self, crowd: _Crowd, run: DocumentRun, prepared: PreparedQuery, where: Filter, legs: Legs) -> int:
        """Queries the index until the crowd needs no more; returns how many passages the last query found."""
        while (beyond := crowd.take(_round_scores(legs.dense))) is not None:
            legs = await self._query(run, prepared, where.with_conditions(*beyond), crowd.depth)
        return len(legs.dense)


class _Crowd:
    """Collects documents by their best passages over several index queries.

    The result is exact: every passage better than the last one of the last query was seen, or belongs to a document
    that was set aside: its best passage is known.
    """

    def __init__(self, min_documents: int, deepest: int, is_relevant: Callable[[float], bool] = lambda _: True) -> None:
        """`is_wanted` says of a score whether passages with less are looked for."""
        self.places: list[Place] = []
        self.parts: dict[str, int] = {}
        self.depth = DEPTH
        self._min_documents = min_documents
        self._deepest = deepest
        self._is_relevant = is_relevant
        self._looks = 0
        self._aside: dict[str, Place] = {}

    def take(self, passages: list[Place]) -> list[Condition] | None:
        """Adds the result of one query; returns the conditions of the next query, or None when none is needed."""
        self._looks += 1
        places, parts = _by_best_passage(passages)
        self.parts |= parts
        merged = sorted([*self._aside.values(), *places], key=lambda place: (-place.score, place.id))
        is_cut = len(passages) >= self.depth
        self.places = [p for p in merged if p.score > passages[-1].score] or merged if is_cut else merged
        if not is_cut or len(self.places) >= self._min_documents or self._looks > ROUNDS:
            return None
        if not self._is_relevant(passages[-1].score):
            return None
        often = Counter(doc_of(place.id)[0] for place in passages)
        crowded = {i for i, times in often.items() if times >= max(2, self.depth // CROWDING)}
        if not crowded and self.depth == self._deepest:
            return None
        if not crowded or self._min_documents > DEPTH:
            self.depth = self._deepest
        self._aside |= {place.id: place for place in places if place.id in crowded}
        return [Condition("doc_id", Op.NIN, list(self._aside))] if self._aside else []


def _round_scores(candidates: Sequence[Candidate]) -> list[Place]:
    """Rounds scores and sorts by them."""
    scores = round_scores([c.score for c in candidates])
    best_first = sorted(zip((-scores).tolist(), (c.id for c in candidates), strict=True))
    return [Place(passage_id, -score + 0.0) for score, passage_id in best_first]


def _drop_cut_ties(places: list[Place], depth: int) -> list[Place]:
    """Removes the places that tie with the last one of a truncated ranking, because other ties may have been cut off;
    keeps them if all tie."""
    if len(places) < depth or places[0].score == places[-1].score:
        return places
    return [place for place in places if place.score > places[-1].score]


def _documents(points: Sequence[Candidate | Place]) -> list[Place]:
    """Maps points to documents, where each document has one point."""
    return [Place(doc_of(point.id)[0], point.score) for point in points]


def _by_best_passage(passages: Sequence[Place]) -> tuple[list[Place], dict[str, int]]:
    """Returns each document once with the score of its best passage, and the number of that passage."""
    places, parts = [], {}
    for passage_id, score in passages:
        doc_id, part = doc_of(passage_id)
        if doc_id not in parts:
            parts[doc_id] = part
            places.append(Place(doc_id, score))
    return places, parts


def _no_model() -> Unavailable:
    return Unavailable(
        "semantic search is unavailable: the embedding model does not answer. Try again in a moment, or use "
        "search_type keyword; the log has the reason",
        details={"adapter": SearchPart.EMBEDDER.value},
    )
