"""Hybrid tool search: correct the spelling, rank by meaning and words, boost names, domains and capabilities, apply
the threshold.

`confidence = alpha * semantic + (1 - alpha) * keyword`, plus boosts that the hit's reason names (docs/decisions/0007).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from toolscript.domain.errors import Invalid
from toolscript.domain.search import MAX_TASK_CHARACTERS, SearchPart, SearchReport
from toolscript.retrieval.catalogue import CatalogueFacts, ItemFacts
from toolscript.retrieval.confidence import Confidences, Evidence, QueryTopics, explain
from toolscript.retrieval.deadline import Deadline
from toolscript.retrieval.fusion import RRF_K, cover_needs, rrf, sort_scores
from toolscript.retrieval.query import QueryRules
from toolscript.retrieval.retriever import Legs, PreparedQuery, Retriever
from toolscript.retrieval.text.needs import split_needs
from toolscript.retrieval.text.words import STOP_WORDS, replace_unencodable, stem, stems, words
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.tool_points import TOOLS

EMBEDDING_SECONDS = 10.0
RULES = QueryRules(has_content=words, blank_error=Invalid, length_error=Invalid, max_characters=MAX_TASK_CHARACTERS)
DEPTH = 50
BEST_RRF = 2 / (RRF_K + 1)
DEFAULT_LIMIT = 3
DEFAULT_THRESHOLD = 0.35

# Returns the evidence for a candidate, given the words that it shares with the query.
FindEvidence = Callable[[str, tuple[str, ...]], Evidence]


class Blend(StrEnum):
    """How the two rankings are combined: weighted scores, ranks, or one of them alone."""

    HYBRID = "hybrid"
    RRF = "rrf"
    SEMANTIC = "semantic"
    KEYWORD = "keyword"


@dataclass(frozen=True, slots=True)
class ToolHit:
    """A tool that was found."""

    id: str
    server: str
    name: str
    type: str
    description: str
    confidence: float
    reason: str
    need: str | None = None
    """The part of a request with several needs that it serves."""


@dataclass(frozen=True, slots=True)
class ToolResults:
    """The results of a tool search."""

    query: str
    hits: list[ToolHit]
    threshold: float
    report: SearchReport = field(default_factory=SearchReport)


class ToolSearch:
    """Finds tools, prompts and resources by what they do and by their names, misspelt or not."""

    def __init__(
        self,
        retriever: Retriever,
        snapshots: CatalogueSnapshots,
        *,
        alpha: float = 0.7,
        is_incomplete: Callable[[], bool] = lambda: False,
    ) -> None:
        """While `is_incomplete` returns true, tools are still being indexed, and reports say so."""
        self._retriever = retriever
        self._snapshots = snapshots
        self._alpha = alpha
        self._capabilities = snapshots.capabilities
        self._is_incomplete = is_incomplete

    async def search(
        self,
        text: str,
        *,
        limit: int = DEFAULT_LIMIT,
        threshold: float = DEFAULT_THRESHOLD,
        blend: Blend = Blend.HYBRID,
    ) -> ToolResults:
        """The tools at or above the threshold, most confident first.

        Raises Invalid for a blank or overlong query, or a limit or threshold out of range.
        """
        _check(limit, threshold)
        text = replace_unencodable(text)
        report = SearchReport()
        with report.stage("total"):
            catalogue = await self._snapshots.current().facts()
            prepared = await self._retriever.prepare(
                text,
                Deadline(EMBEDDING_SECONDS, "tools"),
                report,
                rules=RULES,
                correct=catalogue.spelling.correct if blend is Blend.HYBRID else None,
                split=split_needs,
                count_terms=None if blend is Blend.SEMANTIC else catalogue.term_counts,
                dense=blend is not Blend.KEYWORD,
            )
            legs = await self._retriever.rank(prepared, TOOLS, report, depth=max(DEPTH, limit), fields=())
            ranked, evidence = self._rank(text, prepared, legs, catalogue, blend)
            best = [(i, score) for i, score in ranked if score >= threshold and i in catalogue.items]
            best = cover_needs(best, legs.needs, limit)
            query_words = [w for w in words(prepared.text) if w not in STOP_WORDS]
            hits = [
                _build_hit(i, score, catalogue.items[i], query_words, evidence, legs.needs.get(i)) for i, score in best
            ]
        if self._is_incomplete():
            report.degrade(SearchPart.CATALOGUE)
        report.counts.update(candidates=len(ranked), returned=len(hits))
        return ToolResults(text, hits, threshold, report)

    def _rank(
        self, text: str, prepared: PreparedQuery, legs: Legs, catalogue: CatalogueFacts, blend: Blend
    ) -> tuple[list[tuple[str, float]], FindEvidence]:
        """Every candidate with its confidence, best first, and a function that returns the evidence for it."""
        if blend is Blend.RRF:
            ranks = sort_scores(rrf([legs.dense, legs.lexical]))
            return [(i, round(min(1.0, score / BEST_RRF), 4)) for i, score in ranks], lambda _, __: Evidence()
        alpha = {Blend.SEMANTIC: 1.0, Blend.KEYWORD: 0.0}.get(blend, self._alpha if legs.dense else 0.0)
        domains = self._capabilities.of_query(prepared.text) if blend is Blend.HYBRID else frozenset()
        about = QueryTopics(domains, catalogue.subjects, self._capabilities)
        found = Confidences(legs, prepared.terms.full_score, self._retriever.similarity, alpha, about)
        if blend is Blend.HYBRID:
            found.raise_named(catalogue.names.match(text, mistyped=catalogue.is_mistyped(text)))
            found.raise_capable()
        return found.sort(), found.evidence


def _build_hit(
    item_id: str,
    confidence: float,
    facts: ItemFacts,
    query_words: Sequence[str],
    evidence: FindEvidence,
    need: str | None,
) -> ToolHit:
    own = _own_stems(f"{facts.name} {facts.server} {facts.description}")
    shared = tuple(dict.fromkeys(w for w in query_words if stem(w) in own))[:3]
    return ToolHit(
        id=item_id,
        server=facts.server,
        name=facts.name,
        type=facts.type,
        description=facts.description,
        confidence=confidence,
        reason=explain(evidence(item_id, shared)),
        need=need,
    )


@lru_cache(maxsize=4096)
def _own_stems(text: str) -> frozenset[str]:
    return frozenset(stems(text))


def _check(limit: int, threshold: float) -> None:
    if limit < 1:
        raise Invalid(f"limit {limit} is out of range: give 1 or more", details={"field": "limit"})
    if not 0 <= threshold <= 1:
        raise Invalid(f"threshold {threshold} is out of range: give 0 to 1", details={"field": "threshold"})
