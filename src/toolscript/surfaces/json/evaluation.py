"""Responses about search quality as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolscript.evaluation.live import JudgedSearch


def build_evaluation_response(searches: Sequence[JudgedSearch]) -> dict[str, Any]:
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
