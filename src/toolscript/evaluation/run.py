"""Runs a set through the application and scores every query."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from toolscript.domain.errors import Invalid
from toolscript.evaluation.datasets import DocumentSet, Judged, ToolSet
from toolscript.evaluation.metrics import Scores, by_group, graded
from toolscript.services.document_search import DocumentSearch, SearchType
from toolscript.services.ingest_documents import IngestDocuments
from toolscript.services.sync import Sync
from toolscript.services.tool_search import DEFAULT_THRESHOLD, Blend, ToolSearch

DEPTH = 100
AT_ONCE = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Scores per query; and, at the default threshold, the share of answerable queries that got any answer and of
    unanswerable ones that rightly got none."""

    scores: list[Scores]
    unanswerable: int = 0
    left_empty: float = 0.0
    answered: float = 1.0


class Evaluation:
    """One set at a time, over services that start out empty."""

    def __init__(
        self, sync: Sync, tool_search: ToolSearch, ingest: IngestDocuments, document_search: DocumentSearch
    ) -> None:
        self._sync = sync
        self._tool_search = tool_search
        self._ingest = ingest
        self._document_search = document_search

    async def load(self, data: ToolSet | DocumentSet) -> None:
        """Brings the set's tools or documents in, in place of the last set's tools."""
        if isinstance(data, ToolSet):
            await self._sync.run(list(data.items.values()))
        else:
            await self._ingest.put(_tenant(data), data.documents)

    async def run(self, data: ToolSet | DocumentSet, pipeline: str) -> Outcome:
        """Scores every query of the loaded set. Raises Invalid for a pipeline that the kind of set lacks."""
        if isinstance(data, ToolSet):
            return await self._run_tools(data, _blend(pipeline))
        return await self._run_documents(data, pipeline)

    async def _run_tools(self, data: ToolSet, blend: Blend) -> Outcome:
        own_id = {item.id: own for own, item in data.items.items()}

        async def one(judged: Judged) -> tuple[Scores, bool]:
            found = await self._tool_search.search(judged.text, limit=DEPTH, threshold=0, blend=blend)
            ranking = [own_id[h.id] for h in found.hits]
            return by_group(judged, ranking), bool(found.hits and found.hits[0].confidence >= DEFAULT_THRESHOLD)

        async def is_empty(text: str) -> bool:
            return not (await self._tool_search.search(text, blend=blend)).hits

        done = await _together(one, data.queries)
        empty = await _together(is_empty, data.unanswerable)
        return Outcome(
            [scores for scores, _ in done],
            len(empty),
            sum(empty) / max(len(empty), 1),
            sum(answered for _, answered in done) / max(len(done), 1),
        )

    async def _run_documents(self, data: DocumentSet, pipeline: str) -> Outcome:
        fusion = pipeline if pipeline in {"rrf", "zscore"} else "rrf"
        kind = SearchType(pipeline) if pipeline in {"semantic", "keyword"} else SearchType.HYBRID

        async def one(judged: Judged) -> Scores:
            found = await self._document_search.search(
                _tenant(data), judged.text, top_k=DEPTH, search_type=kind, fusion=fusion
            )
            return graded(judged, [h.doc_id for h in found.hits])

        return Outcome(await _together(one, data.queries))


def _tenant(data: DocumentSet) -> str:
    """A tenant of its own for each set: sets may share a name."""
    return f"evaluation-{data.name}-{id(data)}"


def _blend(pipeline: str) -> Blend:
    try:
        return Blend(pipeline)
    except ValueError as error:
        allowed = [b.value for b in Blend]
        raise Invalid(
            f"pipeline {pipeline!r} is not for tools: give one of {', '.join(allowed)}",
            details={"field": "--pipeline", "allowed": allowed},
        ) from error


async def _together(work: Callable[..., Awaitable[T]], of: Sequence[object]) -> list[T]:
    """A few at a time, in order: what a server with several clients does."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(each: object) -> T:
        async with at_once:
            return await work(each)

    return list(await asyncio.gather(*map(one, of)))
