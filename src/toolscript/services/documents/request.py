"""Document search requests: their limits, what a plan allows, and the state of one that is running."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolscript.domain.access import Plan, Principal
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import Forbidden, InvalidArguments
from toolscript.domain.filters import EVERYTHING, Condition, Filter
from toolscript.domain.requests import RequestContext, build_query_id
from toolscript.domain.search import SearchReport
from toolscript.retrieval.fusion import FUSIONS
from toolscript.retrieval.query import DEFAULT_RULES, check_range
from toolscript.retrieval.relevance import LEARNED
from toolscript.services.documents.points import metadata_field

MAX_HITS = 200
MAX_OFFSET = 10_000
MIN_SNIPPET_CHARACTERS, MAX_SNIPPET_CHARACTERS = 32, 1000
DEFAULT_FUSION = "rrf"
# Where no document has this relevance, and no other one is requested, nothing relevant was found.
USUAL_RELEVANCE = LEARNED.threshold


class SearchType(StrEnum):
    """How documents are ranked."""

    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class DocumentQuery:
    """A document search request. Without a query it selects every document that passes the filter. Fields of the filter
    are metadata fields. Documents of less relevance than `min_relevance` are left out."""

    query: str | None = None
    top_k: int = 10
    offset: int = 0
    search_type: SearchType = SearchType.HYBRID
    fusion: str | None = None
    where: Filter = EVERYTHING
    include_snippets: bool = True
    snippet_max_chars: int = 240
    highlight: bool = False
    metadata_fields: tuple[str, ...] | None = None
    rerank: bool = False
    page_token: str | None = None
    min_relevance: float | None = None

    @property
    def text(self) -> str:
        """The query; empty for a request by filter only."""
        return (self.query or "").strip()

    @property
    def fused_by(self) -> str | None:
        """The fusion of a hybrid search; None for other search types."""
        return (self.fusion or DEFAULT_FUSION) if self.search_type is SearchType.HYBRID else None

    @property
    def question(self) -> str:
        """Everything that determines the hits, their order and their content: a page token is bound to it. The page
        size may change from page to page."""
        filters = [[[c.field, c.op.value, _plain(c.value)] for c in group] for group in _groups(self.where)]
        shown = [self.include_snippets, self.snippet_max_chars, self.highlight, self.metadata_fields]
        rules = [self.search_type.value, self.fused_by, self.rerank, self.min_relevance]
        return json.dumps([self.text, *rules, filters, shown])


@dataclass(slots=True)
class DocumentRun:
    """A search that is running. The plan is None until the request is admitted."""

    principal: Principal
    ask: DocumentQuery
    report: SearchReport
    deadline: Deadline
    plan: Plan | None = None
    context: RequestContext = field(default_factory=RequestContext)
    request_id: str = field(init=False)
    offset: int = 0
    total: int = 0
    doc_ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.request_id = self.context.get_or_create_id()

    @property
    def query_id(self) -> str:
        """The id that the caller gets."""
        return build_query_id(self.request_id)

    @property
    def tenant(self) -> str:
        """The tenant of the searched documents."""
        return self.principal.tenant

    def describe(self) -> dict[str, Any]:
        """What the event for the query log says of the search."""
        return {
            "request_id": self.request_id,
            "query_id": self.query_id,
            "tenant": self.tenant,
            "plan": self.plan.name if self.plan else self.principal.plan,
            "query": self.ask.query,
            "search_type": self.ask.search_type.value,
            "fusion": self.ask.fused_by,
            "top_k": self.ask.top_k,
            "offset": self.offset or self.ask.offset,
            "hits": len(self.doc_ids),
            "total": self.total,
            "doc_ids": list(self.doc_ids),
        }


def check(ask: DocumentQuery) -> None:
    """Raises InvalidArguments for values out of range or in conflict."""
    DEFAULT_RULES.check_length(ask.query or "")
    check_range("top_k", ask.top_k, 1, MAX_HITS)
    check_range("offset", ask.offset, 0, MAX_OFFSET)
    check_range("snippet_max_chars", ask.snippet_max_chars, MIN_SNIPPET_CHARACTERS, MAX_SNIPPET_CHARACTERS)
    if ask.min_relevance is not None:
        check_range("min_relevance", ask.min_relevance, 0, 1)
        if not ask.text:
            raise InvalidArguments(
                "min_relevance requires a query: give one, or leave it out", details={"field": "min_relevance"}
            )
    if ask.fusion is not None and ask.fusion not in FUSIONS:
        raise InvalidArguments(
            f"unknown fusion {ask.fusion!r}: use {' or '.join(FUSIONS)}",
            details={"field": "fusion", "allowed": list(FUSIONS)},
        )
    if ask.fusion is not None and ask.search_type is not SearchType.HYBRID:
        raise InvalidArguments(
            f"fusion requires search_type hybrid, not {ask.search_type}: leave it out",
            details={"field": "fusion", "search_type": ask.search_type.value},
        )
    if ask.page_token is not None and ask.offset:
        raise InvalidArguments(
            "page_token and offset cannot be combined: give one of them", details={"field": "offset"}
        )


def allow(plan: Plan, ask: DocumentQuery) -> None:
    """Raises Forbidden for what the plan does not allow."""
    if plan.max_top_k is not None and ask.top_k > plan.max_top_k:
        raise Forbidden(
            f"top_k {ask.top_k} exceeds the limit of the plan {plan.name}: give at most {plan.max_top_k}",
            details={"field": "top_k", "max": plan.max_top_k, "plan": plan.name},
        )
    if plan.fields is None:
        return
    filtered = (condition.field for group in _groups(ask.where) for condition in group)
    for place, names in (("filters", filtered), ("metadata_fields", ask.metadata_fields or ())):
        beyond = sorted(set(names) - plan.fields)
        if beyond:
            allowed = sorted(plan.fields)
            raise Forbidden(
                f"{place}: the plan {plan.name} does not allow the field {beyond[0]!r}: "
                + (f"use {', '.join(allowed)}" if allowed else "it allows none"),
                details={"field": place, "name": beyond[0], "allowed": allowed, "plan": plan.name},
            )


def in_payload(where: Filter) -> Filter:
    """Translates a filter on metadata into one on the payload of points."""
    must, should, must_not = (
        tuple(Condition(metadata_field(c.field), c.op, c.value) for c in group) for group in _groups(where)
    )
    return Filter(must, should, must_not)


def _groups(where: Filter) -> Iterable[tuple[Condition, ...]]:
    return where.must, where.should, where.must_not


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool) else list(value)  # type: ignore[call-overload]
