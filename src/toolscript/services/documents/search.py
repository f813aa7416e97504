"""Searches one tenant's documents: semantic, keyword or hybrid, fused by rank or by standard score.

One straight line: plan, request, one embedding, rankings within the tenant, page, one read, snippets. Every search
records one event, also when it fails.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from toolscript.domain.access import Plan, Principal
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import InvalidArguments, ToolscriptError, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.requests import current_request
from toolscript.domain.search import SCORE_DIGITS, SearchPart, SearchReport, no_span
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Reranker
from toolscript.ports.observability import EventSink
from toolscript.ports.stores import DocumentStore
from toolscript.retrieval.reconcile import split_batches
from toolscript.retrieval.retriever import Retriever
from toolscript.services.access.plans import Plans
from toolscript.services.documents.hits import DocumentHit, DocumentReader, build_hits, question_and_passages
from toolscript.services.documents.page_tokens import PageTokens
from toolscript.services.documents.ranking import FUSED_DIGITS, DocumentRanker, DocumentRanking, Ranked
from toolscript.services.documents.request import (
    MAX_OFFSET,
    USUAL_RELEVANCE,
    DocumentQuery,
    DocumentRun,
    SearchType,
    allow,
    check,
)
from toolscript.services.support.relevance import unknown_relevance
from toolscript.services.support.search_events import record_event, record_search

__all__ = ["DocumentHit", "DocumentPage", "DocumentQuery", "DocumentSearch", "DocumentStream", "SearchType"]

RERANKED = 50
MIN_SHARE = 1e-9
BATCH = 20
# How long the result of a health check is reused, so that callers cannot make it call the model again and again.
HEALTHY_CHECK_SECONDS, FAILED_CHECK_SECONDS = 5.0, 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page of results. `total_relation` is `eq`, or `gte` if there may be more than `total`. `nothing_relevant` is
    the same on every page: whether no document of the search has the requested or else the usual relevance."""

    query_id: str
    hits: list[DocumentHit]
    total: int
    total_relation: Literal["eq", "gte"]
    next_page_token: str | None
    report: SearchReport = field(default_factory=SearchReport)
    nothing_relevant: bool = False


@dataclass(frozen=True, slots=True)
class DocumentStream:
    """A page with hits that follow in batches. Read `batches` to the end, or close it."""

    page: DocumentPage
    batches: AsyncIterator[list[DocumentHit]]


class DocumentSearch:
    """Finds a tenant's documents. The tenant is the principal's and never optional."""

    def __init__(
        self,
        retriever: Retriever,
        index: VectorIndex,
        store: DocumentStore,
        plans: Plans,
        page_tokens: PageTokens,
        events: EventSink,
        *,
        reranker: Reranker | None = None,
        span: Callable[[str], AbstractContextManager[object]] = no_span,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plans = plans
        self._page_tokens = page_tokens
        self._events = events
        self._reranker = reranker
        self._span = span
        self._clock = clock
        self._checking = asyncio.Lock()
        self._checked_until = -math.inf
        self._unwell: ToolscriptError | None = None
        self._ranker = DocumentRanker(retriever, index, store)
        self._reader = DocumentReader(index, store)

    async def admit(self, principal: Principal) -> Plan:
        """Counts a search against the rate limit before its body is parsed. Pass the returned plan to `search` or
        `stream`, so that they do not count it again. Raises RateLimited."""
        run = self._begin(principal, DocumentQuery(), None)
        with self._record(run, at_success=False):
            return await self._plans.admit(principal)

    async def search(self, principal: Principal, ask: DocumentQuery, plan: Plan | None = None) -> DocumentPage:
        """Returns one page of the tenant's documents, best first, equal scores by id. `plan` is the result of `admit`.

        Raises RateLimited and Forbidden by the plan, InvalidArguments for values out of range, Invalid for a bad page
        token, Unavailable when index or store fail, or when the model fails in a semantic search.
        """
        run = self._begin(principal, ask, plan)
        with self._record(run), self._span("search.execute"):
            page, documents = await self._rank_page(run)
            return replace(page, hits=await self._hits(run, documents))

    async def stream(self, principal: Principal, ask: DocumentQuery, plan: Plan | None = None) -> DocumentStream:
        """Ranks the same page as `search`; its hits follow as their documents are read. Raises what `search` raises;
        later errors are raised while reading."""
        run = self._begin(principal, ask, plan)
        with self._record(run, at_success=False), self._span("search.execute"):
            page, documents = await self._rank_page(run)
        return DocumentStream(page, self._batches(run, documents))

    async def check(self) -> None:
        """Raises Unavailable, naming the `adapter`, when index, store or model do not answer. Results are reused for a
        moment."""
        async with self._checking:
            if self._clock() >= self._checked_until:
                try:
                    await self._ranker.check(Deadline(current_limits().document_search))
                    self._unwell = None
                except ToolscriptError as error:
                    self._unwell = error
                self._checked_until = self._clock() + (FAILED_CHECK_SECONDS if self._unwell else HEALTHY_CHECK_SECONDS)
            if self._unwell is not None:
                raise self._unwell.with_traceback(None)

    def _begin(self, principal: Principal, ask: DocumentQuery, plan: Plan | None) -> DocumentRun:
        report, deadline = SearchReport(span=self._span), Deadline(current_limits().document_search)
        return DocumentRun(principal, ask, report, deadline, plan, current_request())

    def _record(self, run: DocumentRun, *, at_success: bool = True) -> AbstractContextManager[None]:
        record = partial(record_event, self._events)
        return record_search(record, "documents.search", run.report, run.describe, run.context, at_success=at_success)

    async def _rank_page(self, run: DocumentRun) -> tuple[DocumentPage, list[Ranked]]:
        """The page without its hits, and its documents before they are read."""
        ask = run.ask
        plan = run.plan = run.plan or await self._plans.admit(run.principal)
        check(ask)
        allow(plan, ask)
        if ask.rerank and self._reranker is None:
            raise InvalidArguments(
                "rerank: no reranker is configured: leave it out, or set TOOLSCRIPT_RERANKER",
                details={"field": "rerank", "setting": "TOOLSCRIPT_RERANKER"},
            )
        run.offset = ask.offset
        if ask.page_token is not None:
            run.offset = self._page_tokens.read(ask.page_token, run.tenant, ask.question)
        end = run.offset + ask.top_k
        places = (0, max(end, RERANKED + 1)) if ask.rerank else (run.offset, end)
        ranking = await self._ranker.rank(run, *places)
        if ask.rerank and ask.text:
            ranking = await self._rerank(run, ranking)
        if ask.min_relevance is not None:
            if ranking.relevances is None:
                raise unknown_relevance()
            ranking = ranking.keep_relevant(ask.min_relevance)
        documents = ranking.documents(run.offset, end)
        has_more = len(documents) == ask.top_k and ranking.total > end and end <= MAX_OFFSET
        token = self._page_tokens.issue(run.tenant, ask.question, end) if has_more else None
        run.total = ranking.total
        relation: Literal["eq", "gte"] = "gte" if ranking.is_cut else "eq"
        usual = USUAL_RELEVANCE if ask.min_relevance is None else ask.min_relevance
        is_irrelevant = ranking.relevances is not None and not ranking.relevances.reach(usual)
        return DocumentPage(run.query_id, [], ranking.total, relation, token, run.report, is_irrelevant), documents

    async def _hits(self, run: DocumentRun, documents: Sequence[Ranked]) -> list[DocumentHit]:
        with run.report.stage("read"):
            read = await self._reader.read(run, documents, passages=run.ask.include_snippets)
            hits = await build_hits(run, read)
        run.doc_ids += [hit.doc_id for hit in hits]
        return hits

    async def _batches(self, run: DocumentRun, documents: list[Ranked]) -> AsyncIterator[list[DocumentHit]]:
        with self._record(run):
            for some in split_batches(documents, BATCH):
                run.deadline.restart()
                yield await self._hits(run, some)

    async def _rerank(self, run: DocumentRun, ranking: DocumentRanking) -> DocumentRanking:
        """Reorders the best documents by the reranker's scores; the same documents for every page.

        Their scores are above the score of the best document that was not reranked, and grow with the reranker's score.
        If the reranker fails or takes too long, the first ranking stays.
        """
        best, rest = ranking.documents(0, RERANKED), ranking.places[RERANKED:]
        try:
            with run.report.stage("rerank"), run.deadline.pause():
                async with asyncio.timeout(current_limits().document_rerank):
                    scores = await self._rerank_scores(run, best)
        except Exception as error:  # noqa: BLE001  (the first ranking is a good fallback for any error)
            log.warning("not_reranked", extra={"reason": f"{type(error).__name__}: {error}"})
            run.report.degrade(SearchPart.RERANKER)
            return ranking
        above = max(0.0, rest[0][1]) if rest else 0.0
        shares = ((r.doc_id, round(above + _share(scores.get(r.doc_id)), FUSED_DIGITS)) for r in best)
        reranked = sorted(shares, key=lambda place: (-place[1], place[0]))
        return replace(ranking, places=[*reranked, *rest])

    async def _rerank_scores(self, run: DocumentRun, best: Sequence[Ranked]) -> dict[str, float]:
        read = await self._reader.read(run, best, passages=True)
        if not read or self._reranker is None:
            return {}
        question, passages = await asyncio.to_thread(question_and_passages, run.ask, read)
        scores = await self._reranker.scores(question, passages)
        if len(scores) != len(read) or not all(map(math.isfinite, scores)):
            raise Unavailable("invalid answer of the reranker: expected one finite number per passage")
        return {reading.ranked.doc_id: round(score, SCORE_DIGITS) for reading, score in zip(read, scores, strict=True)}


def _share(score: float | None) -> float:
    """Maps a reranker's score to 0..1; the minimum for a document that was deleted."""
    share = 0.0 if score is None else (1 + score / (1 + abs(score))) / 2
    return max(share, MIN_SHARE)
