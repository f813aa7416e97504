"""Search in knowledge: chunks and extractions at the same time, by meaning, each with its source and position.

One embedding, one ranking per collection, one read that attributes the hits. Nothing here writes or creates
collections: a process that only searches needs read access only.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from toolscript.domain.errors import InvalidArguments, NotFound, ToolscriptError, Unavailable
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.knowledge import UNKNOWN_SOURCE, KnowledgeRecords, Position, format_content
from toolscript.domain.search import Candidate, Collection, SearchPart, SearchReport, no_span, require_same_model
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.observability import EventSink
from toolscript.ports.stores import KnowledgeReader
from toolscript.retrieval.deadline import Deadline
from toolscript.retrieval.query import check_range
from toolscript.retrieval.retriever import PreparedQuery, Retriever
from toolscript.services.knowledge.points import CHUNK, CHUNKS, EXTRACTIONS
from toolscript.services.support.search_events import Event, record_event, record_search

EXTRACTION = "extraction"
DEFAULT_HITS, MAX_HITS = 10, 100
MAX_WORDS, MAX_WORD_CHARACTERS = 50, 200
# Seconds from the start of a search by which each part must have answered, so that one that hangs leaves the others
# time.
EMBEDDED_BY, RANKED_BY, READ_BY = 1.2, 1.6, 2.0
# How many more hits than requested are ranked, because the store may lack some; and how many in a second try.
SPARE, MANY = 8, 300
# How long a check of a collection is valid: other processes may rebuild it with another model.
CHECK_VALID_SECONDS = 5.0
DIGITS = 6
# Unicode categories that no store need hold: control characters and halves of surrogate pairs.
FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs"})
FIELDS = ("source_id", "chunk_id")
KNOWLEDGE = "knowledge"

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnowledgeQuery:
    """A search request. `types`: chunk, extraction, or types of extractions; any of them, all when empty. `topics`: any
    of them, ignoring case."""

    query: str
    limit: int = DEFAULT_HITS
    types: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnowledgeHit:
    """A chunk or an extraction that was found, with its citation."""

    id: str
    score: float
    type: str
    content: str
    source_id: str
    chunk_id: str | None
    title: str
    authors: tuple[str, ...]
    position: Position


@dataclass(frozen=True, slots=True)
class KnowledgeResults:
    """The answer to a search: hits, best first, equal scores by id, and the titles of what they come from."""

    hits: list[KnowledgeHit]
    sources_cited: list[str]
    report: SearchReport = field(default_factory=SearchReport)


class KnowledgeSearch:
    """Finds chunks and extractions. Collections may be created while this lives."""

    def __init__(
        self,
        retriever: Retriever,
        index: VectorIndex,
        reader: KnowledgeReader,
        events: EventSink,
        *,
        span: Callable[[str], AbstractContextManager[object]] = no_span,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retriever = retriever
        self._index = index
        self._reader = reader
        self._events = events
        self._span = span
        self._clock = clock
        self._valid_until: dict[str, float] = {}

    async def search(self, query: KnowledgeQuery) -> KnowledgeResults:
        """The best chunks and extractions together. When one of the two collections cannot be searched, the report says
        so.

        Raises InvalidArguments for values out of range, and Unavailable, naming the `adapter`, when the model, the
        store or both collections do not answer.
        """
        found = KnowledgeResults([], [], SearchReport(span=self._span))
        described = partial(_describe, query, found)
        with record_search(self._record, "knowledge.search", found.report, described), self._span("search.execute"):
            check(query)
            try:
                found.hits.extend(await self._hits(query, found.report))
            except Unavailable as error:
                log.warning("knowledge_not_searched", extra={"reason": error.message, **error.details})
                raise
            found.sources_cited.extend(sorted({hit.title for hit in found.hits}))
        return found

    def _record(self, event: Event) -> None:
        """Writes a line into the log, and records the event."""
        line = {"query": event["query"], "result_count": event["hits"], "latency_ms": event["took_ms"]}
        log.info("search_knowledge", extra=line | ({"error": event["error"]} if event["error"] else {}))
        record_event(self._events, event)

    async def _hits(self, query: KnowledgeQuery, report: SearchReport) -> list[KnowledgeHit]:
        embedding, ranking, reading = (Deadline(by, KNOWLEDGE) for by in (EMBEDDED_BY, RANKED_BY, READ_BY))
        prepared = await self._retriever.prepare(query.query, embedding, report)
        if prepared.vector is None:
            raise embedding.unavailable(SearchPart.EMBEDDER, "the model does not answer, see the log")

        async def attempt_search(depth: int) -> _Attempt:
            places, missing = await self._rank(query, prepared, depth, report, ranking)
            with report.stage("read"):
                hits = await _call(SearchPart.STORE, self._read(places[:depth]), reading)
            return _Attempt(hits[: query.limit], missing, len(hits) < query.limit and len(places) >= depth)

        attempt = await attempt_search(query.limit + SPARE)
        if attempt.may_have_more:
            with suppress(Unavailable):
                second = await attempt_search(query.limit + MANY)
                if set(second.missing) <= set(attempt.missing) and len(second.hits) >= len(attempt.hits):
                    attempt = second
        if attempt.missing:
            report.degrade(SearchPart.INDEX)
        return attempt.hits

    async def _rank(
        self, query: KnowledgeQuery, prepared: PreparedQuery, depth: int, report: SearchReport, deadline: Deadline
    ) -> tuple[list[_RankedPoint], list[str]]:
        """The best of both collections, best first, and the collections that did not answer. Raises Unavailable when
        none answers."""
        legs = _legs(query)
        answers = await asyncio.gather(
            *(
                _call(SearchPart.INDEX, self._nearest(name, prepared, where, depth, report), deadline)
                for name, where in legs.items()
            ),
            return_exceptions=True,
        )
        places: dict[tuple[str, str], _RankedPoint] = {}
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
        return sorted(places.values(), key=lambda place: (-place.score, place.id, place.type)), list(failed)

    async def _nearest(
        self, name: str, prepared: PreparedQuery, where: Filter, depth: int, report: SearchReport
    ) -> list[_RankedPoint]:
        """The nearest of one collection; none when it does not exist."""
        try:
            if not await self._is_open(name, prepared):
                return []
            found = await self._retriever.rank(prepared, name, report, where=where, depth=depth, fields=FIELDS)
        except NotFound:  # it existed a moment ago
            self._valid_until.pop(name, None)
            if await self._index.describe(name) is None:
                return []
            raise
        return [_place(name, candidate) for candidate in found.dense]

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

    async def _read(self, places: Sequence[_RankedPoint]) -> list[KnowledgeHit]:
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


class _RankedPoint(NamedTuple):
    """A place in the ranking, with its rounded score."""

    type: str
    id: str
    score: float
    source_id: str | None
    chunk_id: str | None


class _Attempt(NamedTuple):
    """The hits of one try, and the collections that did not answer."""

    hits: list[KnowledgeHit]
    missing: list[str]
    may_have_more: bool


def check(query: KnowledgeQuery) -> None:
    """Raises InvalidArguments for values out of range."""
    check_range("limit", query.limit, 1, MAX_HITS)
    for name, words in (("type", query.types), ("topics", query.topics)):
        if len(words) > MAX_WORDS or not all(word.strip() and len(word) <= MAX_WORD_CHARACTERS for word in words):
            raise InvalidArguments(
                f"{name}: give at most {MAX_WORDS} words, none of them empty or longer than {MAX_WORD_CHARACTERS} "
                "characters",
                details={"field": name, "most": MAX_WORDS, "longest": MAX_WORD_CHARACTERS},
            )
        if any(unicodedata.category(character) in FORBIDDEN_CATEGORIES for word in words for character in word):
            raise InvalidArguments(
                f"{name}: a word contains a control character or half a surrogate pair: leave it out",
                details={"field": name},
            )


async def _call(part: SearchPart, work: Awaitable[T], deadline: Deadline) -> T:
    """The result of the work. Every error of the part becomes Unavailable: none is the caller's fault."""
    try:
        return await deadline.call(part, work)
    except Unavailable:
        raise
    except ToolscriptError as error:
        raise deadline.unavailable(part, error.message) from error


def _legs(query: KnowledgeQuery) -> dict[str, Filter]:
    """The collections to search, each with its filter."""
    topics = (Condition("topics", Op.IN, [topic.lower() for topic in query.topics]),) if query.topics else ()
    types = {word.lower() for word in query.types}
    legs = {CHUNKS: Filter(topics)} if not types or CHUNK in types else {}
    if not types or EXTRACTION in types:
        return legs | {EXTRACTIONS: Filter(topics)}
    own_types = sorted(types - {CHUNK})
    return legs | ({EXTRACTIONS: Filter((*topics, Condition("type", Op.IN, own_types)))} if own_types else {})


def _place(collection: str, candidate: Candidate) -> _RankedPoint:
    """Raises ValueError for a score that is not finite."""
    score = round(float(candidate.score), DIGITS)
    if not math.isfinite(score):
        raise ValueError(f"the score of {candidate.id} is not finite")
    source_id, chunk_id = (_text(candidate.payload.get(name)) for name in FIELDS)
    kind = CHUNK if collection == CHUNKS else EXTRACTION
    return _RankedPoint(kind, candidate.id, min(1.0, max(0.0, score)), source_id, chunk_id)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _hit(place: _RankedPoint, records: KnowledgeRecords) -> KnowledgeHit | None:
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
    )


def _describe(query: KnowledgeQuery, found: KnowledgeResults) -> dict[str, Any]:
    return {
        "query": query.query,
        "limit": query.limit,
        "types": list(query.types),
        "topics": list(query.topics),
        "hits": len(found.hits),
        "ids": [hit.id for hit in found.hits],
    }
