"""Which of a tenant's documents answer a question, best first: passages become documents, two rankings become one.

Whatever is asked of the index is asked within the tenant, and nothing but the ids of points is read. Scores are told
to six digits and compared as they are told: how an engine adds up numbers must not decide an order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from toolscript.domain.errors import Unavailable
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import Candidate, SearchReport, Vector
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.stores import DocumentStore
from toolscript.retrieval.bm25 import QueryTerms
from toolscript.retrieval.fusion import FUSIONS, sort_scores
from toolscript.retrieval.retriever import Prepared, Retriever, Stage
from toolscript.retrieval.text.words import replace_unencodable
from toolscript.services.documents.points import DOCUMENTS, doc_of, first_parts, in_tenant, of_tenant
from toolscript.services.documents.request import DocumentQuery, SearchType, in_payload
from toolscript.services.support.deadlines import Patience

# How many passages a ranking by meaning looks at; more of them only for pages far behind.
DEPTH, DEEP = 1_000, 12_000
# A document with this share of the passages that were looked at, or more, stands in the way of others: it is set aside,
# and the rest is looked at anew, so many times at most.
CROWDING = 100
ROUNDS = 6
# How many documents hybrid search wants to have found by meaning, whatever page is asked for.
ENOUGH = 100
# Every document that a page can reach: the largest offset and the most hits.
KEYWORD_DEPTH = 10_200
DIGITS = 6
FUSED_DIGITS = 9
EMBEDDING_SECONDS = 5.0

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """A document's or a point's place in a ranking: thousands of them are made for one search."""

    id: str
    score: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A document in a ranking. `part` is its best passage by meaning, where meaning was asked for."""

    doc_id: str
    score: float
    part: int | None = None


@dataclass(frozen=True, slots=True)
class DocumentRanking:
    """Documents, best first, equal scores by id; how many there are, or at least are; and their best passages."""

    places: Sequence[tuple[str, float]]
    total: int
    is_cut: bool = False
    parts: Mapping[str, int] = field(default_factory=dict)

    def documents(self, start: int, end: int) -> list[Ranked]:
        """Those on the places from `start` to before `end`."""
        return [Ranked(doc_id, score, self.parts.get(doc_id)) for doc_id, score in self.places[start:end]]


class DocumentRanker:
    """Ranks the documents of one tenant at a time."""

    def __init__(self, retriever: Retriever, index: VectorIndex, store: DocumentStore) -> None:
        self._retriever = retriever
        self._index = index
        self._store = store

    async def rank(
        self, tenant: str, ask: DocumentQuery, end: int, report: SearchReport, patience: Patience
    ) -> DocumentRanking:
        """The ranking that a question has, at least as far as `end`, where there are that many.

        Raises Unavailable when index or store fail, or when nothing but meaning was asked for and no model answers.
        """
        where = in_payload(ask.where).with_conditions(*in_tenant(tenant))
        if not ask.text:
            return await self._listed(where, end, report, patience)
        prepared = await self._prepared(tenant, ask, report, patience)
        match ask.search_type:
            case SearchType.SEMANTIC:
                return await self._by_meaning(prepared, where, end, report, patience)
            case SearchType.KEYWORD:
                return await self._by_word(prepared, where, end, report, patience)
            case _ if prepared.vector is None:
                return await self._by_word(prepared, where, end, report, patience)
            case _:
                return await self._by_both(prepared, where, ask.fused_by or "", report, patience)

    async def check(self, patience: Patience) -> None:
        """Raises Unavailable when index, store or model do not answer; its details name the `adapter`."""
        await patience.of("index", self._index.count(DOCUMENTS, Filter(must=(of_tenant(""),))))
        await patience.of("store", self._store.ping())
        if await self._embedded("health", SearchReport()) is None:
            raise _no_model()

    async def _listed(self, where: Filter, end: int, report: SearchReport, patience: Patience) -> DocumentRanking:
        with Stage(report, "rank"):
            work = self._index.scroll(DOCUMENTS, where=where.with_conditions(first_parts()), fields=())
            ids = sorted(doc_of(c.id)[0] for c in await patience.of("index", work))
        return DocumentRanking([(i, 0.0) for i in ids[:end]], len(ids))

    async def _prepared(self, tenant: str, ask: DocumentQuery, report: SearchReport, patience: Patience) -> Prepared:
        text = replace_unencodable(ask.text)
        if ask.search_type is SearchType.KEYWORD:
            return Prepared(text, None, await self._weighed(tenant, text, patience))
        if ask.search_type is SearchType.SEMANTIC:
            vector = await self._embedded(text, report)
            if vector is None:
                raise _no_model()
            return Prepared(text, vector)
        vector, terms = await asyncio.gather(self._embedded(text, report), self._weighed(tenant, text, patience))
        return Prepared(text, vector, terms)

    async def _weighed(self, tenant: str, text: str, patience: Patience) -> QueryTerms:
        work = self._retriever.prepare(
            text, SearchReport(), count_terms=lambda terms: self._store.count_terms(tenant, terms), dense=False
        )
        return (await patience.of("store", work)).terms

    async def _embedded(self, text: str, report: SearchReport) -> Vector | None:
        """The query's vector. A model that is not there, fails, takes too long or makes no sense costs the search by
        meaning, and the report says so."""
        try:
            async with asyncio.timeout(EMBEDDING_SECONDS):
                vector = (await self._retriever.prepare(text, report)).vector
        except Exception as error:  # noqa: BLE001  (whatever a model does, words are left)
            log.warning("query_not_embedded", extra={"reason": f"{type(error).__name__}: {error}"})
            vector = None
        if vector is not None and not np.isfinite(vector).all():
            log.warning("query_not_embedded", extra={"reason": "the vector holds what is no number"})
            vector = None
        if vector is None and "embedder" not in report.degraded:
            report.degraded.append("embedder")
        return vector

    async def _by_meaning(
        self, prepared: Prepared, where: Filter, end: int, report: SearchReport, patience: Patience
    ) -> DocumentRanking:
        counting = self._index.count(DOCUMENTS, where.with_conditions(first_parts()))
        total, found = await asyncio.gather(
            patience.of("index", counting), self._dense(prepared, where, DEPTH, report, patience)
        )
        crowd = _Crowd(end, DEEP)
        while (beyond := crowd.take(found)) is not None:
            found = await self._dense(prepared, where.with_conditions(*beyond), crowd.depth, report, patience)
        return DocumentRanking(crowd.places, max(total, len(crowd.places)), parts=crowd.parts)

    async def _dense(
        self, prepared: Prepared, where: Filter, depth: int, report: SearchReport, patience: Patience
    ) -> list[Place]:
        work = self._retriever.rank(prepared, DOCUMENTS, report, where=where, depth=depth, fields=())
        return _rounded((await patience.of("index", work)).dense)

    async def _by_word(
        self, prepared: Prepared, where: Filter, end: int, report: SearchReport, patience: Patience
    ) -> DocumentRanking:
        words = Prepared(prepared.text, None, prepared.terms)
        work = self._retriever.rank(words, DOCUMENTS, report, where=where, depth=KEYWORD_DEPTH, fields=())
        found = _rounded((await patience.of("index", work)).lexical)
        return DocumentRanking(_documents(found[:end]), len(found), len(found) == KEYWORD_DEPTH)

    async def _by_both(
        self, prepared: Prepared, where: Filter, fusion: str, report: SearchReport, patience: Patience
    ) -> DocumentRanking:
        """Both rankings to a depth that no page changes: what is fused depends on it."""
        work = self._retriever.rank(prepared, DOCUMENTS, report, where=where, depth=DEPTH, fields=())
        legs = await patience.of("index", work)
        crowd, found = _Crowd(ENOUGH, DEPTH), _rounded(legs.dense)
        vector = Prepared(prepared.text, prepared.vector)
        while (beyond := crowd.take(found)) is not None:
            found = await self._dense(vector, where.with_conditions(*beyond), crowd.depth, report, patience)
        is_cut = DEPTH in {len(found), len(legs.lexical)}
        with Stage(report, "fuse"):
            worded = _documents(_sure(_rounded(legs.lexical), DEPTH))
            fused = FUSIONS[fusion]([crowd.places, worded])
            told = sort_scores({i: round(score, FUSED_DIGITS) + 0.0 for i, score in fused.items()})
        return DocumentRanking(told, len(told), is_cut, crowd.parts)


class _Crowd:
    """Documents by their best passages, taken in from one look at the index after another.

    What is told is certain whatever the looks were: every passage better than the last one of the last look was seen,
    or is of a document that was set aside, whose best passage is known.
    """

    def __init__(self, enough: int, deepest: int) -> None:
        self.places: list[Place] = []
        self.parts: dict[str, int] = {}
        self.depth = DEPTH
        self._enough = enough
        self._deepest = deepest
        self._looks = 0
        self._aside: dict[str, Place] = {}

    def take(self, found: list[Place]) -> list[Condition] | None:
        """Takes in a look of `depth`; what the next one has to ask for, to that depth, or None when none is needed."""
        self._looks += 1
        places, parts = _by_best_passage(found)
        self.parts |= parts
        merged = sorted([*self._aside.values(), *places], key=lambda place: (-place.score, place.id))
        is_cut = len(found) >= self.depth
        self.places = [p for p in merged if p.score > found[-1].score] or merged if is_cut else merged
        if not is_cut or len(self.places) >= self._enough or self._looks > ROUNDS:
            return None
        often = Counter(doc_of(place.id)[0] for place in found)
        many = {i for i, times in often.items() if times >= max(2, self.depth // CROWDING)}
        if not many and self.depth == self._deepest:
            return None
        if not many or self._enough > DEPTH:
            self.depth = self._deepest
        self._aside |= {place.id: place for place in places if place.id in many}
        return [Condition("doc_id", Op.NIN, list(self._aside))] if self._aside else []


def _rounded(found: Sequence[Candidate]) -> list[Place]:
    """Scores as they are told, in the order that they give."""
    told = np.round(np.array([c.score for c in found], np.float64), DIGITS) + 0.0
    best_first = sorted(zip((-told).tolist(), (c.id for c in found), strict=True))
    return [Place(own_id, -score + 0.0) for score, own_id in best_first]


def _sure(found: list[Place], depth: int) -> list[Place]:
    """Of a ranking that was cut, what is certain: of those that are as good as the last one, others may have been cut
    off, so that all of them are left out, unless nothing else is there."""
    if len(found) < depth or found[0].score == found[-1].score:
        return found
    return [place for place in found if place.score > found[-1].score]


def _documents(found: Sequence[Place]) -> list[Place]:
    """The documents of points of which each has one."""
    return [Place(doc_of(own_id)[0], score) for own_id, score in found]


def _by_best_passage(found: Sequence[Place]) -> tuple[list[Place], dict[str, int]]:
    """Each document once, where its best passage is, and which that is."""
    places, parts = [], {}
    for own_id, score in found:
        doc_id, part = doc_of(own_id)
        if doc_id not in parts:
            parts[doc_id] = part
            places.append(Place(doc_id, score))
    return places, parts


def _no_model() -> Unavailable:
    return Unavailable(
        "documents cannot be searched by meaning right now, because the embedding model does not answer: try again in "
        "a moment, or search with search_type keyword; the log tells what is wrong with TOOLSCRIPT_SEARCH_MODEL",
        details={"adapter": "embedder"},
    )
