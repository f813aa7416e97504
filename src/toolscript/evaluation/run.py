"""Runs an evaluation set through the services and scores every query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from toolscript.domain.access import Principal
from toolscript.domain.catalog import Item
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Source
from toolscript.domain.search import MAX_CLOSEST, MAX_QUERY_CHARACTERS
from toolscript.evaluation.datasets import BookSet, DocumentSet, JudgedQuery, ListedBook, Question, ToolSet
from toolscript.evaluation.metrics import (
    Scores,
    score_by_grade,
    score_by_group,
    score_hits,
    share_answered,
    share_left_empty,
)
from toolscript.evaluation.searches import AGENT_LIMIT, DEPTH, search_each
from toolscript.services.catalogue.sync import Sync
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.search import DocumentQuery, DocumentSearch, SearchType
from toolscript.services.knowledge.context import KnowledgeHit
from toolscript.services.knowledge.ingest import IngestKnowledge, SourceDetails
from toolscript.services.knowledge.search import KnowledgeQuery, KnowledgeSearch
from toolscript.services.tools.hierarchical_search import HierarchicalQuery, HierarchicalSearch, Strategy
from toolscript.services.tools.hybrid_search import DEFAULT_THRESHOLD, ToolSearch
from toolscript.services.tools.ranking import Blend

# Rank fusion over names and descriptions alone: the minimum that tool search has to exceed.
BASELINE = "baseline"
# The strategies of hierarchical search. Its hybrid strategy is named differently, because `hybrid` is a blend.
STRATEGIES = {"hierarchical": Strategy.HIERARCHICAL, "direct": Strategy.DIRECT, "hierarchical+direct": Strategy.HYBRID}
# The command's default, and the name of the only pipeline for books.
BOOK_PIPELINES = ("hybrid", "semantic")
ANSWER = "an answer"
TEST_ONLY = "held out"


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Scores per query. For tools also the confidence of the first hit of each answerable and unanswerable query (0
    without a hit) and the default threshold; with skills also the share of tools that each query was compared with. For
    books the scores by the book of a question's first place, and the scores of the test-only questions. A query that
    cannot be searched scores zero; `not_searched` has the reasons with their numbers of queries. `are_shown` says for
    each answerable query whether the answer that agents get by default shows a right tool, as a confident one or as one
    of the closest; `are_silent` whether it shows no tool at all."""

    scores: list[Scores]
    answerable: list[float] = field(default_factory=list)
    unanswerable: list[float] = field(default_factory=list)
    threshold: float = DEFAULT_THRESHOLD
    searched: list[float] = field(default_factory=list)
    are_shown: list[bool] = field(default_factory=list)
    are_silent: list[bool] = field(default_factory=list)
    parts: Mapping[str, list[Scores]] = field(default_factory=dict)
    not_searched: Mapping[str, int] = field(default_factory=dict)

    @property
    def answered(self) -> float | None:
        """The share of answerable queries with any answer at the default threshold."""
        return share_answered(self.answerable, self.threshold)

    @property
    def shown(self) -> float | None:
        """The share of answerable queries with a right tool in the answer."""
        return sum(self.are_shown) / len(self.are_shown) if self.are_shown else None

    @property
    def silent(self) -> float | None:
        """The share of answerable queries without any tool in the answer."""
        return sum(self.are_silent) / len(self.are_silent) if self.are_silent else None

    @property
    def share_searched(self) -> float | None:
        """The mean share of the tools that a query was compared with."""
        return sum(self.searched) / len(self.searched) if self.searched else None

    @property
    def left_empty(self) -> float | None:
        """The share of unanswerable queries that correctly get no answer."""
        return share_left_empty(self.unanswerable, self.threshold)


class _JudgedRanking(NamedTuple):
    hits: list[tuple[str, ...]]
    """The ids of each hit: a tool that several servers have is one."""
    confidence: float
    """Confidence of the first hit, or 0 if there is none."""
    shown: list[str]
    """The ids in the answer that agents get by default: the confident tools, and the closest."""
    share_searched: float | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Evaluates one set at a time, over services that are empty at the start."""

    sync: Sync
    tool_search: ToolSearch
    ingest: IngestDocuments
    document_search: DocumentSearch
    hierarchical: HierarchicalSearch

    async def run(self, data: ToolSet | DocumentSet, pipeline: str) -> EvaluationResult:
        """Loads the set, replacing the tools of the previous one, and scores every query. Raises Invalid for a pipeline
        that is not available for the kind of set."""
        if isinstance(data, DocumentSet):
            # Some collections contain empty documents, which no search can find.
            await self.ingest.put(_get_tenant(data), [d for d in data.documents if d.text.strip()])
            return await self._run_documents(data, pipeline)
        if pipeline in STRATEGIES:
            return await self._run_strategy(data, STRATEGIES[pipeline])
        if pipeline == BASELINE:
            return await self._run_blend(data, _strip_items(data.items), Blend.RRF)
        return await self._run_blend(data, data.items, _parse_blend(pipeline))

    async def _run_blend(self, data: ToolSet, items: Mapping[str, Item], blend: Blend) -> EvaluationResult:
        await self.sync.run(list(items.values()))

        async def search(text: str) -> _JudgedRanking:
            hits = (await self.tool_search.search(text, limit=DEPTH, threshold=0, blend=blend, recorded=False)).hits
            shown = await self.tool_search.search(
                text, limit=AGENT_LIMIT, closest=MAX_CLOSEST, blend=blend, recorded=False
            )
            return _JudgedRanking([h.ids for h in hits], hits[0].confidence if hits else 0.0, shown.ids)

        return await _evaluate_tools(data, items, search, DEFAULT_THRESHOLD)

    async def _run_strategy(self, data: ToolSet, strategy: Strategy) -> EvaluationResult:
        """Ranks without a threshold for tools: it would only cut off rankings; skills keep theirs."""
        await self.sync.run(list(data.items.values()))

        async def search(text: str) -> _JudgedRanking:
            query = HierarchicalQuery(text[:MAX_QUERY_CHARACTERS], include_schemas=False, strategy=strategy)
            found = await self.hierarchical.search(replace(query, limit=50, tool_threshold=0))
            shown = await self.hierarchical.search(replace(query, limit=AGENT_LIMIT, closest=MAX_CLOSEST))
            count = found.candidates if strategy is Strategy.HIERARCHICAL else len(data.items)
            best = found.tools[0].score if found.tools else 0.0
            return _JudgedRanking([t.ids for t in found.tools], best, shown.ids, count / len(data.items))

        return await _evaluate_tools(data, data.items, search, HierarchicalQuery("").tool_threshold)

    async def _run_documents(self, data: DocumentSet, pipeline: str) -> EvaluationResult:
        fusion = pipeline if pipeline in {"rrf", "zscore"} else None
        search_type = SearchType(pipeline) if pipeline in {"semantic", "keyword"} else SearchType.HYBRID
        principal = Principal(_get_tenant(data))

        async def search(text: str) -> list[str]:
            text = text[:MAX_QUERY_CHARACTERS]
            query = DocumentQuery(text, top_k=DEPTH, search_type=search_type, fusion=fusion, include_snippets=False)
            found = await self.document_search.search(principal, query)
            return [h.doc_id for h in found.hits]

        rankings, reasons = await search_each(search, [judged.text for judged in data.queries])
        scores = [score_by_grade(judged, ranking or []) for judged, ranking in zip(data.queries, rankings, strict=True)]
        return EvaluationResult(scores, not_searched=Counter(filter(None, reasons)))


async def _evaluate_tools(
    data: ToolSet, items: Mapping[str, Item], search: Callable[[str], Awaitable[_JudgedRanking]], threshold: float
) -> EvaluationResult:
    set_ids = {item.id: set_id for set_id, item in items.items()}
    texts = [judged.text for judged in data.queries]
    found, reasons = await search_each(search, [*texts, *data.unanswerable])
    found_or_empty = [ranking or _JudgedRanking([], 0.0, []) for ranking in found]
    rankings, unanswerable = found_or_empty[: len(texts)], found_or_empty[len(texts) :]
    scores = [
        score_hits(judged, [[set_ids[i] for i in ids] for ids in ranking.hits])
        for judged, ranking in zip(data.queries, rankings, strict=True)
    ]
    return EvaluationResult(
        scores,
        [ranking.confidence for ranking in rankings],
        [ranking.confidence for ranking in unanswerable],
        threshold,
        [ranking.share_searched for ranking in rankings if ranking.share_searched is not None],
        are_shown=[
            not judged.grades.keys().isdisjoint(set_ids[i] for i in ranking.shown)
            for judged, ranking in zip(data.queries, rankings, strict=True)
        ],
        are_silent=[not ranking.shown for ranking in rankings],
        not_searched=Counter(filter(None, reasons)),
    )


def _get_tenant(data: DocumentSet) -> str:
    """A separate tenant for each set, because two sets may have the same name."""
    return f"evaluation-{data.name}-{id(data)}"


def _strip_items(items: Mapping[str, Item]) -> dict[str, Item]:
    """The items with name and description only. Servers become dashes, more for each repetition of a name."""
    seen: Counter[str] = Counter()
    stripped = {}
    for set_id, item in items.items():
        seen[item.name] += 1
        stripped[set_id] = Item("-" * seen[item.name], item.name, item.description)
    return stripped


def _parse_blend(pipeline: str) -> Blend:
    try:
        return Blend(pipeline)
    except ValueError as error:
        allowed = [*(b.value for b in Blend), *STRATEGIES, BASELINE]
        raise Invalid(
            f"pipeline {pipeline!r} is not available for tools: expected one of {', '.join(allowed)}",
            details={"field": "--pipeline", "allowed": allowed},
        ) from error


async def evaluate_books(
    ingest: IngestKnowledge, search: KnowledgeSearch, data: BookSet, pipeline: str
) -> EvaluationResult:
    """Ingests the books, scores every question and removes the books. Any of its places answers a question, once.
    Raises Invalid for an unknown pipeline, and for a file that is not a book."""
    if pipeline not in BOOK_PIPELINES:
        raise Invalid(
            f"pipeline {pipeline!r} is not available for books: leave out --pipeline",
            details={"field": "--pipeline", "allowed": list(BOOK_PIPELINES)},
        )

    async def find(text: str) -> Sequence[KnowledgeHit]:
        return (await search.search(KnowledgeQuery(text[:MAX_QUERY_CHARACTERS], limit=DEPTH))).hits

    sources = [await ingest_book(ingest, book) for book in data.books]
    found, reasons = await search_each(find, [question.text for question in data.queries])
    scores = [_score_question(question, hits or ()) for question, hits in zip(data.queries, found, strict=True)]
    for source in sources:
        await ingest.remove(source.id)
    parts: dict[str, list[Scores]] = {}
    for question, each in zip(data.queries, scores, strict=True):
        parts.setdefault(question.places[0].source, []).append(each)
    test_only = [each for question, each in zip(data.queries, scores, strict=True) if question.is_test_only]
    parts |= {TEST_ONLY: test_only} if test_only else {}
    return EvaluationResult(scores, parts=parts, not_searched=Counter(filter(None, reasons)))


def _score_question(question: Question, hits: Sequence[KnowledgeHit]) -> Scores:
    ranking = [
        ANSWER if any(place.contains(hit.title, hit.position) for place in question.places) else hit.id for hit in hits
    ]
    return score_by_group(JudgedQuery(question.text, {ANSWER: 1.0}, (frozenset({ANSWER}),)), ranking)


async def ingest_book(ingest: IngestKnowledge, book: ListedBook) -> Source:
    """Ingests a book of a set, without extractions."""
    about = SourceDetails(book.title, book.authors, book.type, extract=False)
    if len(book.files) == 1:
        return (await ingest.ingest(book.files[0], about)).source
    return (await ingest.ingest_together(book.files[0].parent, book.files, about)).source
