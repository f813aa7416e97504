"""Measures judged queries on the catalogue that is searched, with all that it knows and has learnt. The console and
`toolscript eval --live` both do it here, so that they say the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from toolscript.domain.search import MAX_CLOSEST
from toolscript.evaluation.datasets import JudgedQuery
from toolscript.evaluation.metrics import Scores, score_hits
from toolscript.evaluation.searches import AGENT_LIMIT, DEPTH, search_each
from toolscript.services.tools.hybrid_search import ToolHit, ToolSearch

# A request with more would take longer than clients wait.
MAX_QUERIES = 100


@dataclass(frozen=True, slots=True)
class JudgedSearch:
    """What a query found."""

    query: str
    first: str | None
    """The first tool."""
    confidence: float
    """That of the first tool; 0 without one."""
    rank: int
    """That of the first right tool; 0 if none was found."""
    scores: Scores | None
    """None for a query that no tool is right for."""
    is_shown: bool = False
    """Whether the answer that agents get by default shows a right tool, as a confident one or as one of the closest."""
    is_silent: bool = True
    """Whether that answer shows no tool at all."""
    problem: str | None = None
    """Why the query cannot be searched."""


async def measure_queries(
    search: ToolSearch, queries: Sequence[JudgedQuery], slots: asyncio.Semaphore | None = None
) -> list[JudgedSearch]:
    """Searches without a threshold, and scores. A tool that several servers have is one hit, and counts as found for
    all of them. A query that cannot be searched finds nothing. Each query is a search like others: it is in the
    audit."""

    async def find(text: str) -> tuple[list[ToolHit], list[str]]:
        hits = (await search.search(text, limit=DEPTH, threshold=0)).hits
        return hits, (await search.search(text, limit=AGENT_LIMIT, closest=MAX_CLOSEST, recorded=False)).ids

    found, problems = await search_each(find, [judged.text for judged in queries], slots)
    return [_judge(q, *(each or ([], [])), why) for q, each, why in zip(queries, found, problems, strict=True)]


def _judge(judged: JudgedQuery, hits: Sequence[ToolHit], shown: Sequence[str], problem: str | None) -> JudgedSearch:
    rank = next((place for place, hit in enumerate(hits, 1) if any(i in judged.grades for i in hit.ids)), 0)
    return JudgedSearch(
        judged.text,
        hits[0].id if hits else None,
        hits[0].confidence if hits else 0.0,
        rank,
        score_hits(judged, [hit.ids for hit in hits]) if judged.grades else None,
        not judged.grades.keys().isdisjoint(shown),
        not shown,
        problem,
    )
