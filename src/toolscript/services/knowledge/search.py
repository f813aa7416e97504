"""Search in knowledge: chunks and extractions at the same time, by meaning and words, each with source and position.

One embedding, one ranking per collection, one read that attributes the hits. Nothing here writes or creates
collections: a process that only searches needs read access only.
"""

from __future__ import annotations

import asyncio
import logging
import time
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import InvalidArguments, ToolscriptError, Unavailable
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.domain.knowledge import UNKNOWN_SOURCE, Chunk, KnowledgeRecords, Position, format_content
from toolscript.domain.limits import current_limits
from toolscript.domain.requests import current_request
from toolscript.domain.search import SearchPart, SearchReport, TermCounts, no_span
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import LanguageModel
from toolscript.ports.observability import EventSink
from toolscript.ports.stores import KnowledgeReader
from toolscript.retrieval.query import check_range
from toolscript.retrieval.relevance import LEARNED
from toolscript.retrieval.retriever import Retriever
from toolscript.services.knowledge.answers import AnswerWriter, KnowledgeAnswer
from toolscript.services.knowledge.context import KnowledgeHit, PassageContext, fold_copies, widen_hits
from toolscript.services.knowledge.points import CHUNK, CHUNKS, EXTRACTIONS
from toolscript.services.knowledge.ranking import (
    EXTRACTION,
    KnowledgeRanker,
    KnowledgeRanking,
    RankedPoint,
)
from toolscript.services.knowledge.source_filter import SourceSelection, check_source_filter, select_sources
from toolscript.services.support.relevance import unknown_relevance
from toolscript.services.support.search_events import Event, record_event, record_search

DEFAULT_HITS, MAX_HITS = 10, 100
MAX_WORDS, MAX_WORD_CHARACTERS = 50, 200
# How many more hits than requested are ranked, because the store may lack some; and how many in a second try.
SPARE, SPARE_AGAIN = 8, 300
# How many times as many hits as requested are ranked where hits of one section merge.
MERGED_HITS = 3
# Unicode categories that no store need hold: control characters and halves of surrogate pairs.
FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs"})
KNOWLEDGE = "knowledge"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnowledgeQuery:
    """A search request. `types`: chunk, extraction, or types of extractions; any of them, all when empty. `topics`: any
    of them, ignoring case. `answer`: whether a language model should answer from the hits. `context`: how much
    of its surroundings each hit shows. `where`: only sources that pass it, by the fields of `read_field`.
    `min_relevance`: hits of less relevance are left out."""

    query: str
    limit: int = DEFAULT_HITS
    types: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    answer: bool = False
    context: PassageContext = PassageContext.PASSAGE
    where: Filter = EVERYTHING
    min_relevance: float | None = None


@dataclass(slots=True)
class KnowledgeResults:
    """The answer to a search: hits, best first, and the titles of what they come from. `has_words`: whether words count
    in their order, or meaning alone. `nothing_relevant`: whether no hit has the requested or else the usual relevance.
    `answer` comes from a language model, if the query wants an answer."""

    hits: list[KnowledgeHit]
    sources_cited: list[str]
    report: SearchReport = field(default_factory=SearchReport)
    has_words: bool = False
    nothing_relevant: bool = False
    answer: KnowledgeAnswer | None = None


class KnowledgeSearch:
    """Finds chunks and extractions. Collections may be created while this lives."""

    def __init__(
        self,
        retriever: Retriever,
        index: VectorIndex,
        reader: KnowledgeReader,
        events: EventSink,
        *,
        language_model: LanguageModel | None = None,
        span: Callable[[str], AbstractContextManager[object]] = no_span,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retriever = retriever
        self._ranker = KnowledgeRanker(retriever, index, clock)
        self._reader = reader
        self._events = events
        self._answers = AnswerWriter(language_model)
        self._span = span

    async def search(self, query: KnowledgeQuery) -> KnowledgeResults:
        """The best chunks and extractions together. When one of the two collections cannot be searched, the report says
        so.

        Raises InvalidArguments for values out of range, and Unavailable, naming the `adapter`, when the model, the
        store or both collections do not answer.
        """
        results = KnowledgeResults([], [], SearchReport(span=self._span))
        described, context = partial(_describe, query, results), current_request()
        recorded = record_search(self._record, "knowledge.search", results.report, described, context)
        with recorded, self._span("search.execute"):
            check(query)
            try:
                attempt = await self._attempt(query, results.report)
            except Unavailable as error:
                log.warning("knowledge_not_searched", extra={"reason": error.message, **error.details})
                raise
            results.hits.extend(await self._widen(attempt.hits, query, results.report))
            results.sources_cited.extend(sorted({hit.title for hit in results.hits}))
            results.has_words = attempt.ranking.has_words({i for hit in results.hits for i in (hit.id, *hit.merged)})
            usual = LEARNED.threshold if query.min_relevance is None else query.min_relevance
            results.nothing_relevant = all(hit.relevance is not None and hit.relevance < usual for hit in attempt.hits)
        if query.answer:
            with results.report.stage("answer"):
                results.answer = await self._answers.answer(query.query, [hit.content for hit in results.hits])
        return results

    async def _widen(
        self, hits: Sequence[KnowledgeHit], query: KnowledgeQuery, report: SearchReport
    ) -> Sequence[KnowledgeHit]:
        """The hits with their sections, if the context is the section; as they are if the store does not answer in
        time. Where hits merge, later hits take their places."""
        if query.context is PassageContext.PASSAGE:
            return hits
        chunks: dict[str, Sequence[Chunk]] = {}
        wide: Sequence[KnowledgeHit] = []
        deadline = _start_deadline(current_limits().knowledge_widening)
        try:
            with report.stage("widen"):
                for end in range(query.limit, len(hits) + query.limit, query.limit):
                    source_ids = dict.fromkeys(hit.source_id for hit in hits[:end] if hit.type == CHUNK)
                    missing = [source_id for source_id in source_ids if source_id not in chunks]
                    reading = asyncio.gather(*map(self._reader.get_contents, missing))
                    contents = await deadline.call(SearchPart.STORE, reading)
                    chunks |= {source_id: parts for source_id, (parts, _) in zip(missing, contents, strict=True)}
                    wide = await asyncio.to_thread(widen_hits, hits[:end], chunks, query.limit)
                    if len(wide) == query.limit:
                        break
        except Unavailable as error:
            log.warning("sections_not_read", extra={"reason": error.message})
            report.degrade(SearchPart.STORE)
            return wide or hits[: query.limit]
        return wide

    def _record(self, event: Event) -> None:
        """Writes a line into the log, and records the event."""
        line = {"query": event["query"], "result_count": event["hits"], "latency_ms": event["took_ms"]}
        log.info("search_knowledge", extra=line | ({"error": event["error"]} if event["error"] else {}))
        record_event(self._events, event)

    async def _attempt(self, query: KnowledgeQuery, report: SearchReport) -> _Attempt:
        selected = await self._select_sources(query.where, report)
        embedding = _start_deadline(current_limits().knowledge_embedding)
        ranking = _start_deadline(current_limits().knowledge_ranking)
        reading = _start_deadline(current_limits().knowledge_reading)

        async def count_terms(terms: Sequence[int]) -> TermCounts:
            return await self._count_terms(terms, embedding, report)

        prepared = await self._retriever.prepare(
            query.query, embedding, report, count_terms=count_terms, any_language=True
        )
        if prepared.vector is None:
            raise embedding.unavailable(SearchPart.EMBEDDER, "the model does not answer, see the log")
        if selected and not selected.ids:
            return _Attempt([], KnowledgeRanking([], []), may_have_more=False)
        merged = 1 if query.context is PassageContext.PASSAGE else MERGED_HITS
        count = query.limit * merged
        legs = _legs(query, selected.to_conditions() if selected else ())

        async def attempt_search(depth: int) -> _Attempt:
            ranked = await self._ranker.rank(prepared, legs, depth, report, ranking)
            with report.stage("read"):
                read = await reading.call(SearchPart.STORE, self._read(ranked.places))
                hits = fold_copies([hit for hit in read if selected is None or hit.source_id in selected.ids])
            if query.min_relevance is not None:
                if any(hit.relevance is None for hit in hits):
                    raise unknown_relevance()
                hits = [hit for hit in hits if (hit.relevance or 0.0) >= query.min_relevance]
                return _Attempt(hits[:count], ranked, may_have_more=False)
            has_more = len(hits) < count and len(ranked.places) >= depth
            return _Attempt(hits[:count], ranked, has_more)

        # Relevance does not follow the order: hits are sought among as many, whatever the limit.
        attempt = await attempt_search((count if query.min_relevance is None else MAX_HITS * merged) + SPARE)
        if attempt.may_have_more:
            with suppress(Unavailable):
                second = await attempt_search(count + SPARE_AGAIN)
                failed = set(second.ranking.missing) - set(attempt.ranking.missing)
                if not failed and len(second.hits) >= len(attempt.hits):
                    attempt = second
        if attempt.ranking.missing:
            report.degrade(SearchPart.INDEX)
        return attempt

    async def _select_sources(self, where: Filter, report: SearchReport) -> SourceSelection | None:
        """The sources that pass a filter; None for all. Raises Unavailable if that takes too long."""
        if where == EVERYTHING:
            return None

        async def select() -> SourceSelection:
            return await asyncio.to_thread(select_sources, await self._reader.list_sources(), where)

        with report.stage("select"):
            return await _start_deadline(current_limits().knowledge_selecting).call(SearchPart.STORE, select())

    async def _count_terms(self, terms: Sequence[int], deadline: Deadline, report: SearchReport) -> TermCounts:
        """The counts of a query's terms; none if the store fails: then only the words are missing."""
        try:
            return await deadline.call(SearchPart.STORE, self._reader.count_terms(terms))
        except Unavailable as error:
            log.warning("terms_not_counted", extra={"reason": error.message})
            report.degrade(SearchPart.STORE)
            return TermCounts(0, {})

    async def _read(self, places: Sequence[RankedPoint]) -> list[KnowledgeHit]:
        """The hits that the store has, in the same order, with one read."""
        if not places:
            return []
        chunks = {p.id if p.type == CHUNK else p.chunk_id for p in places}
        records = await self._reader.get_records(
            {p.source_id for p in places if p.source_id},
            {chunk_id for chunk_id in chunks if chunk_id},
            {p.id for p in places if p.type == EXTRACTION},
        )
        return [hit for hit in (_hit(place, records) for place in places) if hit is not None]


class _Attempt(NamedTuple):
    """The hits of one try, and the ranking that they come from."""

    hits: list[KnowledgeHit]
    ranking: KnowledgeRanking
    may_have_more: bool


def _start_deadline(seconds: float) -> Deadline:
    """Every error of a part is the part's: none is the caller's fault."""
    return Deadline(seconds, KNOWLEDGE, failures=(ToolscriptError,))


def check(query: KnowledgeQuery) -> None:
    """Raises InvalidArguments for values out of range."""
    check_source_filter(query.where)
    check_range("limit", query.limit, 1, MAX_HITS)
    if query.min_relevance is not None:
        check_range("min_relevance", query.min_relevance, 0, 1)
    for name, words in (("type", query.types), ("topics", query.topics)):
        if len(words) > MAX_WORDS or not all(word.strip() and len(word) <= MAX_WORD_CHARACTERS for word in words):
            raise InvalidArguments(
                f"{name}: give at most {MAX_WORDS} words, none of them empty or longer than {MAX_WORD_CHARACTERS} "
                "characters",
                details={"field": name, "max": MAX_WORDS, "max_length": MAX_WORD_CHARACTERS},
            )
        if any(unicodedata.category(character) in FORBIDDEN_CATEGORIES for word in words for character in word):
            raise InvalidArguments(
                f"{name}: a word contains a control character or half a surrogate pair: leave it out",
                details={"field": name},
            )


def _legs(query: KnowledgeQuery, of_sources: tuple[Condition, ...]) -> dict[str, Filter]:
    """The collections to search, each with its filter."""
    topics = (Condition("topics", Op.IN, [topic.lower() for topic in query.topics]),) if query.topics else ()
    shared = Filter((*topics, *of_sources))
    types = {word.lower() for word in query.types}
    legs = {CHUNKS: shared} if not types or CHUNK in types else {}
    if not types or EXTRACTION in types:
        return legs | {EXTRACTIONS: shared}
    own_types = sorted(types - {CHUNK})
    return legs | ({EXTRACTIONS: shared.with_conditions(Condition("type", Op.IN, own_types))} if own_types else {})


def _hit(place: RankedPoint, records: KnowledgeRecords) -> KnowledgeHit | None:
    """The hit at a place; None when the store does not have it."""
    chunk, extraction = records.chunks.get(place.id), records.extractions.get(place.id)
    if place.type == CHUNK and chunk:
        content, source_id, chunk_id = chunk.content, chunk.source_id, chunk.id
    elif place.type == EXTRACTION and extraction:
        topics = f" ({', '.join(extraction.topics)})" if extraction.topics else ""
        content = f"{extraction.type}{topics}\n{format_content(extraction.content)}"
        source_id, chunk_id = extraction.source_id, extraction.chunk_id
        chunk = records.chunks.get(chunk_id)
    else:
        return None
    source = records.sources.get(source_id)
    return KnowledgeHit(
        id=place.id,
        score=place.score,
        type=place.type,
        content=content,
        source_id=source_id,
        chunk_id=chunk_id or None,
        title=source.title if source else UNKNOWN_SOURCE,
        authors=source.authors if source else (),
        position=chunk.position if chunk else Position(),
        date=source.date if source else None,
        relevance=place.relevance,
    )


def _describe(query: KnowledgeQuery, results: KnowledgeResults) -> dict[str, Any]:
    return {
        "query": query.query,
        "limit": query.limit,
        "types": list(query.types),
        "topics": list(query.topics),
        "hits": len(results.hits),
        "ids": [hit.id for hit in results.hits],
    }
