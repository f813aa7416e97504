"""Responses about search quality as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypedDict

from toolscript.surfaces.json.definitions import More, Share

if TYPE_CHECKING:
    from toolscript.evaluation.live import JudgedSearch


class JudgedSearchResponse(TypedDict):
    """What a query found."""

    query: str
    first: Annotated[str | None, "The first tool."]
    confidence: Annotated[Share, "That of the first tool; 0 without one."]
    rank: Annotated[int, "That of the first right tool; 0 if none is found.", More(minimum=0)]
    scores: Annotated[
        dict[str, float] | None,
        "`hit@1`, `r@5`, `r@10`, `ndcg@10`, `c@10` and `mrr`; null for a query that no tool is right for.",
    ]
    is_shown: Annotated[
        bool, "Whether an agent's answer shows a right tool, as a confident one or as one of the closest."
    ]
    is_silent: Annotated[bool, "Whether an agent's answer shows no tool at all."]
    problem: Annotated[str | None, "Why the query cannot be searched: it finds nothing."]


class EvaluationResponse(TypedDict):
    """What the queries found, in their order."""

    results: list[JudgedSearchResponse]


def build_evaluation_response(searches: Sequence[JudgedSearch]) -> EvaluationResponse:
    """Builds the response of `POST /api/v1/evaluate`, in the order of the queries."""
    return {
        "results": [
            {
                "query": each.query,
                "first": each.first,
                "confidence": each.confidence,
                "rank": each.rank,
                "scores": each.scores,
                "is_shown": each.is_shown,
                "is_silent": each.is_silent,
                "problem": each.problem,
            }
            for each in searches
        ]
    }
