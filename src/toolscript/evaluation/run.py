"""Runs a set through the application and scores every query."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from toolscript.domain.access import Principal
from toolscript.domain.catalog import Item, SkillMember
from toolscript.domain.errors import Invalid
from toolscript.domain.search import MAX_QUERY_CHARACTERS
from toolscript.evaluation.curve import share_answered, share_left_empty
from toolscript.evaluation.datasets import DocumentSet, JudgedQuery, ToolSet
from toolscript.evaluation.metrics import Scores, score_by_grade, score_by_group
from toolscript.services.catalogue.sync import Sync
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.search import DocumentQuery, DocumentSearch, SearchType
from toolscript.services.tools.hierarchical_search import (
    HierarchicalQuery,
    HierarchicalSearch,
    Strategy,
)
from toolscript.services.tools.hybrid_search import DEFAULT_THRESHOLD, Blend, ToolSearch

DEPTH = 100
AT_ONCE = 8
# Rank fusion over name and description and nothing else: what any tool search has to be better than.
BASELINE = "baseline"
# The strategies of hierarchical search; its hybrid has the name of another pipeline.
THROUGH_SKILLS = {
    "hierarchical": Strategy.HIERARCHICAL,
    "direct": Strategy.DIRECT,
    "hierarchical+direct": Strategy.HYBRID,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Scores per query; and, for tools, how sure the first hit of each answerable and each unanswerable query was
    (0 where there was none), with the threshold that it is held against; through skills, also what share of the tools
    each query was compared with; and, where a set has parts, the scores of each."""

    scores: list[Scores]
    answerable: list[float] = field(default_factory=list)
    unanswerable: list[float] = field(default_factory=list)
    threshold: float = DEFAULT_THRESHOLD
    searched: list[float] = field(default_factory=list)
    parts: Mapping[str, list[Scores]] = field(default_factory=dict)

    @property
    def answered(self) -> float | None:
        """The share of answerable queries that get any answer at the default threshold."""
        return share_answered(self.answerable, self.threshold)

    @property
    def share_searched(self) -> float | None:
        """The mean share of the tools that a query was compared with."""
        return sum(self.searched) / len(self.searched) if self.searched else None

    @property
    def left_empty(self) -> float | None:
        """The share of unanswerable queries that rightly get none."""
        return share_left_empty(self.unanswerable, self.threshold)


class Evaluation:
    """One set at a time, over services that start out empty."""

    def __init__(
        self,
        sync: Sync,
        tool_search: ToolSearch,
        ingest: IngestDocuments,
        document_search: DocumentSearch,
        hierarchical: HierarchicalSearch,
        members: Callable[[], Awaitable[Mapping[str, Sequence[SkillMember]]]],
    ) -> None:
        """`members` tells who is in which skill."""
        self._sync = sync
        self._hierarchical = hierarchical
        self._members = members
        self._tool_search = tool_search
        self._ingest = ingest
        self._document_search = document_search

    async def run(self, data: ToolSet | DocumentSet, pipeline: str) -> EvaluationResult:
        """Brings the set in, in place of the last one's tools, and scores every query. Raises Invalid for a pipeline
        that the kind of set lacks."""
        if isinstance(data, DocumentSet):
            # Collections have empty documents too; nobody can find those.
            await self._ingest.put(_tenant(data), [d for d in data.documents if d.text.strip()])
            return await self._run_documents(data, pipeline)
        if pipeline in THROUGH_SKILLS:
            return await self._run_through_skills(data, THROUGH_SKILLS[pipeline])
        if pipeline == BASELINE:
            return await self._run_tools(data, _bare(data.items), Blend.RRF)
        return await self._run_tools(data, data.items, _blend(pipeline))

    async def _run_tools(self, data: ToolSet, items: Mapping[str, Item], blend: Blend) -> EvaluationResult:
        await self._sync.run(list(items.values()))
        own_id = {item.id: own for own, item in items.items()}

        async def one(text: str) -> tuple[list[str], float]:
            hits = (await self._tool_search.search(text, limit=DEPTH, threshold=0, blend=blend)).hits
            return [own_id[h.id] for h in hits], hits[0].confidence if hits else 0.0

        done = await run_concurrently(one, [judged.text for judged in data.queries])
        none = await run_concurrently(one, data.unanswerable)
        scores = [score_by_group(judged, ranking) for judged, (ranking, _) in zip(data.queries, done, strict=True)]
        return EvaluationResult(scores, [sure for _, sure in done], [sure for _, sure in none])

    async def _run_through_skills(self, data: ToolSet, strategy: Strategy) -> EvaluationResult:
        """Ranks without a threshold for tools, which would only cut rankings short; skills keep theirs."""
        await self._sync.run(list(data.items.values()))
        own_id = {item.id: own for own, item in data.items.items()}
        members = {skill: {m.item_id for m in each} for skill, each in (await self._members()).items()}

        async def one(text: str) -> tuple[list[str], float, float]:
            found = await self._hierarchical.search(
                HierarchicalQuery(
                    text[:MAX_QUERY_CHARACTERS], limit=50, tool_threshold=0, include_schemas=False, strategy=strategy
                )
            )
            used = found.skill_ids_used if strategy is Strategy.HIERARCHICAL else None
            within = len(own_id) if used is None else len(set().union(*(members.get(s, set()) for s in used)))
            best = found.tools[0].score if found.tools else 0.0
            return [own_id[t.id] for t in found.tools], best, within / len(own_id)

        done = await run_concurrently(one, [judged.text for judged in data.queries])
        none = await run_concurrently(one, data.unanswerable)
        return EvaluationResult(
            [score_by_group(judged, ranking) for judged, (ranking, _, _) in zip(data.queries, done, strict=True)],
            [best for _, best, _ in done],
            [best for _, best, _ in none],
            HierarchicalQuery("").tool_threshold,
            [share for _, _, share in done],
        )

    async def _run_documents(self, data: DocumentSet, pipeline: str) -> EvaluationResult:
        fusion = pipeline if pipeline in {"rrf", "zscore"} else None
        kind = SearchType(pipeline) if pipeline in {"semantic", "keyword"} else SearchType.HYBRID
        asker = Principal(_tenant(data))

        async def one(judged: JudgedQuery) -> Scores:
            text = judged.text[:MAX_QUERY_CHARACTERS]
            ask = DocumentQuery(text, top_k=DEPTH, search_type=kind, fusion=fusion, include_snippets=False)
            found = await self._document_search.search(asker, ask)
            return score_by_grade(judged, [h.doc_id for h in found.hits])

        return EvaluationResult(await run_concurrently(one, data.queries))


def _tenant(data: DocumentSet) -> str:
    """A tenant of its own for each set: sets may share a name."""
    return f"evaluation-{data.name}-{id(data)}"


def _bare(items: Mapping[str, Item]) -> dict[str, Item]:
    """The items with name and description only. Servers become dashes, as many as tell equal names apart."""
    seen: Counter[str] = Counter()
    bare = {}
    for own, item in items.items():
        seen[item.name] += 1
        bare[own] = Item("-" * seen[item.name], item.name, item.description)
    return bare


def _blend(pipeline: str) -> Blend:
    try:
        return Blend(pipeline)
    except ValueError as error:
        allowed = [*(b.value for b in Blend), *THROUGH_SKILLS, BASELINE]
        raise Invalid(
            f"pipeline {pipeline!r} is not for tools: give one of {', '.join(allowed)}",
            details={"field": "--pipeline", "allowed": allowed},
        ) from error


async def run_concurrently(work: Callable[..., Awaitable[T]], of: Sequence[object]) -> list[T]:
    """A few at a time, in order: what a server with several clients does."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(each: object) -> T:
        async with at_once:
            return await work(each)

    return list(await asyncio.gather(*map(one, of)))
