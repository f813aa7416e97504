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
from datetime import UTC, datetime
from typing import Any

from toolscript.domain.access import Plan, Principal
from toolscript.domain.errors import InvalidArguments, ToolscriptError, Unavailable
from toolscript.domain.requests import current_request_id
from toolscript.domain.search import SearchPart, SearchReport, no_span
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Reranker
from toolscript.ports.observability import EventSink
from toolscript.ports.stores import DocumentStore
from toolscript.retrieval.deadline import Deadline
from toolscript.retrieval.retriever import Retriever, Stage
from toolscript.services.access.plans import Plans
from toolscript.services.documents.hits import DocumentHit, DocumentReader, build_hits, question_and_passages
from toolscript.services.documents.page_tokens import PageTokens
from toolscript.services.documents.ranking import DIGITS, FUSED_DIGITS, DocumentRanker, DocumentRanking, Ranked
from toolscript.services.documents.request import MAX_OFFSET, DocumentQuery, SearchType, allow, check
from toolscript.services.support.search_events import get_error_code, record_event

__all__ = ["DocumentHit", "DocumentPage", "DocumentQuery", "DocumentSearch", "DocumentStream", "SearchType"]

MAX_SECONDS = 10.0
RERANKED = 50
RERANK_SECONDS = 5.0
MIN_SHARE = 1e-9
BATCH = 20
# How long the result of a health check is reused, so that callers cannot make it call the model again and again.
WELL_SECONDS, UNWELL_SECONDS = 5.0, 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page of results. `total_relation` is `eq`, or `gte` if there may be more than `total`."""

    query_id: str
    hits: list[DocumentHit]
    total: int
    total_relation: str
    next_page_token: str | None
    report: SearchReport = field(default_factory=SearchReport)


@dataclass(frozen=True, slots=True)
class DocumentStream:
    """A page whose hits follow in batches. Read `batches` to the end, or close it."""

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

    def admit(self, principal: Principal) -> Plan:
        """Counts a search against the rate limit before its body is parsed. Pass the returned plan to `search` or
        `stream`, which then do not count it again. Raises RateLimited."""
        with _EventRecorder(self._events, _SearchRun(principal, DocumentQuery(), SearchReport()), at_success=False):
            return self._plans.admit(principal)

    async def search(self, principal: Principal, ask: DocumentQuery, plan: Plan | None = None) -> DocumentPage:
        """Returns one page of the tenant's documents, best first, equal scores by id. `plan` is the result of `admit`.

        Raises RateLimited and Forbidden by the plan, InvalidArguments for values out of range, Invalid for a bad page
        token, Unavailable when index or store fail, or when the model fails in a semantic search.
        """
        run = _SearchRun(principal, ask, SearchReport(span=self._span))
        with _EventRecorder(self._events, run), self._span("search.execute"):
            found = await self._rank_page(run, plan)
            page = replace(found.page, hits=await self._hits(found, found.documents))
            run.doc_ids = [hit.doc_id for hit in page.hits]
        return page

    async def stream(self, principal: Principal, ask: DocumentQuery, plan: Plan | None = None) -> DocumentStream:
        """Ranks the same page as `search`; its hits follow as their documents are read. Raises what `search` raises;
        later errors are raised while reading."""
        run = _SearchRun(principal, ask, SearchReport(span=self._span))
        recording = _EventRecorder(self._events, run, at_success=False)
        with recording, self._span("search.execute"):
            found = await self._rank_page(run, plan)
        return DocumentStream(found.page, self._batches(found))

    async def check(self) -> None:
        """Raises Unavailable when index, store or model do not answer; its details name the `adapter`. The
        result is reused for a moment."""
        async with self._checking:
            if self._clock() >= self._checked_until:
                await self._check()
            if self._unwell is not None:
                raise self._unwell.with_traceback(None)

    async def _check(self) -> None:
        try:
            await self._ranker.check(Deadline(MAX_SECONDS))
            self._unwell = None
        except ToolscriptError as error:
            self._unwell = error
        self._checked_until = self._clock() + (UNWELL_SECONDS if self._unwell else WELL_SECONDS)

    async def _rank_page(self, run: _SearchRun, plan: Plan | None) -> _RankedPage:
        principal, ask, report = run.principal, run.ask, run.report
        plan = run.plan = plan or self._plans.admit(principal)
        check(ask)
        allow(plan, ask)
        if ask.rerank and self._reranker is None:
            raise InvalidArguments(
                "rerank: no reranker is configured: leave it out, or set TOOLSCRIPT_RERANKER",
                details={"field": "rerank", "setting": "TOOLSCRIPT_RERANKER"},
            )
        deadline = Deadline(MAX_SECONDS)
        start = self._start(principal.tenant, ask)
        run.offset = start
        end = start + ask.top_k
        reach = max(end, RERANKED + 1) if ask.rerank else end
        ranking = await self._ranker.rank(principal.tenant, ask, reach, report, deadline)
        if ask.rerank and ask.text:
            ranking = await self._rerank(principal.tenant, ask, ranking, report, deadline)
        documents = ranking.documents(start, end)
        has_more = len(documents) == ask.top_k and ranking.total > end and end <= MAX_OFFSET
        token = self._page_tokens.issue(principal.tenant, ask.question, end) if has_more else None
        relation = "gte" if ranking.is_cut else "eq"
        run.total = ranking.total
        page = DocumentPage(run.query_id, [], ranking.total, relation, token, report)
        return _RankedPage(run, plan, page, documents, deadline)

    def _start(self, tenant: str, ask: DocumentQuery) -> int:
        return ask.offset if ask.page_token is None else self._page_tokens.read(ask.page_token, tenant, ask.question)

    async def _hits(self, found: _RankedPage, documents: Sequence[Ranked]) -> list[DocumentHit]:
        ask = found.run.ask
        with Stage(found.run.report, "read"):
            tenant = found.run.principal.tenant
            read = await self._reader.read(tenant, documents, found.deadline, passages=ask.include_snippets)
            return await build_hits(ask, found.plan, read, found.deadline)

    async def _batches(self, found: _RankedPage) -> AsyncIterator[list[DocumentHit]]:
        with _EventRecorder(self._events, found.run):
            for start in range(0, len(found.documents), BATCH):
                found.deadline.restart()
                hits = await self._hits(found, found.documents[start : start + BATCH])
                found.run.doc_ids += [hit.doc_id for hit in hits]
                found.run.take_time()
                yield hits

    async def _rerank(
        self, tenant: str, ask: DocumentQuery, ranking: DocumentRanking, report: SearchReport, deadline: Deadline
    ) -> DocumentRanking:
        """Reorders the best documents by the reranker's scores; the same documents for every page.

        Their scores are above that of the best document that was not reranked, and grow with the reranker's score. If
        the reranker fails or takes too long, the first ranking stays.
        """
        best, rest = ranking.documents(0, RERANKED), ranking.places[RERANKED:]
        began = time.monotonic()
        try:
            with Stage(report, "rerank"):
                async with asyncio.timeout(RERANK_SECONDS):
                    scores = await self._rerank_scores(tenant, ask, best, deadline)
        except Exception as error:  # noqa: BLE001  (the first ranking is a good fallback for any error)
            log.warning("not_reranked", extra={"reason": f"{type(error).__name__}: {error}"})
            report.degrade(SearchPart.RERANKER)
            return ranking
        finally:
            deadline.extend(time.monotonic() - began)
        above = max(0.0, rest[0][1]) if rest else 0.0
        shares = ((r.doc_id, round(above + _share(scores.get(r.doc_id)), FUSED_DIGITS)) for r in best)
        anew = sorted(shares, key=lambda place: (-place[1], place[0]))
        return replace(ranking, places=[*anew, *rest])

    async def _rerank_scores(
        self, tenant: str, ask: DocumentQuery, best: Sequence[Ranked], deadline: Deadline
    ) -> dict[str, float]:
        read = await self._reader.read(tenant, best, deadline, passages=True)
        if not read or self._reranker is None:
            return {}
        question, passages = await asyncio.to_thread(question_and_passages, ask, read)
        scores = await self._reranker.scores(question, passages)
        if len(scores) != len(read) or not all(map(math.isfinite, scores)):
            raise Unavailable("invalid answer of the reranker: expected one finite number per passage")
        return {each.ranked.doc_id: round(score, DIGITS) for each, score in zip(read, scores, strict=True)}


@dataclass(slots=True)
class _SearchRun:
    """The state of a running search."""

    principal: Principal
    ask: DocumentQuery
    report: SearchReport
    query_id: str = field(default_factory=current_request_id)
    plan: Plan | None = None
    offset: int = 0
    total: int = 0
    doc_ids: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def take_time(self) -> None:
        """Updates the total time in the report."""
        self.report.timings_ms["total"] = (time.perf_counter() - self.began) * 1000

    def event(self, error: str | None) -> dict[str, Any]:
        """Builds the event for the query log."""
        ask, report = self.ask, self.report
        return {
            "type": "documents.search",
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request_id": self.query_id,
            "tenant": self.principal.tenant,
            "plan": self.plan.name if self.plan else self.principal.plan,
            "query": ask.query,
            "search_type": ask.search_type.value,
            "fusion": ask.fused_by,
            "top_k": ask.top_k,
            "offset": self.offset or ask.offset,
            "hits": len(self.doc_ids),
            "total": self.total,
            "took_ms": round(report.timings_ms.get("total", 0.0), 3),
            "timings_ms": {name: round(ms, 3) for name, ms in report.timings_ms.items()},
            "degraded": list(report.degraded),
            "doc_ids": list(self.doc_ids),
            "error": error,
        }


@dataclass(frozen=True, slots=True)
class _RankedPage:
    """A ranked page whose documents are not read yet."""

    run: _SearchRun
    plan: Plan
    page: DocumentPage
    documents: Sequence[Ranked]
    deadline: Deadline


class _EventRecorder:
    """Records the event of a search when it ends."""

    def __init__(self, events: EventSink, run: _SearchRun, *, at_success: bool = True) -> None:
        self._events = events
        self._under_way = run
        self._at_success = at_success

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._under_way.take_time()
        if error is None and not self._at_success:
            return
        record_event(self._events, self._under_way.event(get_error_code(error)))


def _share(score: float | None) -> float:
    """Maps a reranker's score to 0..1; the minimum for a document that was deleted."""
    share = 0.0 if score is None else (1 + score / (1 + abs(score))) / 2
    return max(share, MIN_SHARE)
