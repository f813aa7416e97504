"""Requests about search quality."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from toolscript.domain.search import MAX_TASK_CHARACTERS
from toolscript.evaluation.datasets import JudgedQuery, judge_query
from toolscript.evaluation.live import MAX_QUERIES
from toolscript.surfaces.http.schemas.models import RequestModel

MAX_RELEVANT = 100

ToolIds = Annotated[list[str], Field(max_length=MAX_RELEVANT)]


class JudgedQueryRequest(RequestModel):
    """A request and the tools that serve it."""

    query: str = Field(max_length=MAX_TASK_CHARACTERS, examples=["what changed in the repository"])
    relevant: ToolIds = Field(
        description="The tools that serve it. None: no tool does.", examples=[["git__git_diff", "git__git_log"]]
    )
    groups: Annotated[list[ToolIds], Field(max_length=MAX_RELEVANT)] | None = Field(
        default=None, description="Groups of tools, one of each of which must be found. Default: every tool must be."
    )

    def to_judged(self) -> JudgedQuery:
        """Converts it to the query that is measured."""
        return judge_query(self.query, dict.fromkeys(self.relevant, 1.0), self.groups)


class EvaluationRequest(RequestModel):
    """Queries to measure."""

    queries: list[JudgedQueryRequest] = Field(min_length=1, max_length=MAX_QUERIES)
