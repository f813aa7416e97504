"""Hybrid tool search: meaning, words and names, weighed into one confidence with a reason.

Each side is scaled by its own best hit, because the spread between hits is what ranks; how sure the whole answer
is (one factor for all hits of a query) comes from the calibrated similarity of the best hit and from how much
of the query its words cover. So `confidence = alpha * semantic + (1 - alpha) * keyword` holds for every hit. A name
that is given, exactly or nearly so, speaks for itself: both sides are then what its likeness is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from toolscript.domain.errors import Invalid
from toolscript.domain.search import Report
from toolscript.ports import CatalogStore
from toolscript.retrieval.calibration import calibrated
from toolscript.retrieval.fusion import RRF_K, ordered, rrf, weighted
from toolscript.retrieval.fuzzy import NameMatches, Names
from toolscript.retrieval.reasons import Evidence, reason
from toolscript.retrieval.retriever import Legs, Prepared, Retriever, stage
from toolscript.retrieval.words import STOP_WORDS, sayable, stem, stems, words
from toolscript.services.sync import TOOLS, item_payload

LONGEST_QUERY = 1000
DEPTH = 100
BEST_RRF = 2 / (RRF_K + 1)
DEFAULT_LIMIT = 3
DEFAULT_THRESHOLD = 0.35


class Blend(StrEnum):
    """Which sides of a hybrid search count: both, weighed; both, by rank; or one alone."""

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


@dataclass(frozen=True, slots=True)
class ToolResults:
    """The answer to a tool search."""

    query: str
    hits: list[ToolHit]
    threshold: float
    report: Report = field(default_factory=Report)


@dataclass(frozen=True, slots=True)
class _Scored:
    """Confidences, and what each side contributed to them, weights included; `by_name` in place of the others."""

    fused: Mapping[str, float]
    semantic: Mapping[str, float]
    keyword: Mapping[str, float]
    by_name: Mapping[str, float]
    exact: frozenset[str]

    def evidence(self, item_id: str, shared_words: tuple[str, ...]) -> Evidence:
        if item_id in self.exact or item_id in self.by_name:
            return Evidence(fuzzy=self.by_name.get(item_id, 0.0), exact=item_id in self.exact)
        return Evidence(
            semantic=self.semantic.get(item_id, 0.0),
            keyword=self.keyword.get(item_id, 0.0),
            shared_words=shared_words,
        )


class ToolSearch:
    """Finds tools, prompts and resources by what they do, what they are called, or nearly so."""

    def __init__(self, retriever: Retriever, catalog: CatalogStore, *, alpha: float = 0.7) -> None:
        self._retriever = retriever
        self._catalog = catalog
        self._alpha = alpha
        self._names: Names | None = None

    def forget_names(self) -> None:
        """To be called when the catalogue has changed."""
        self._names = None

    async def search(
        self,
        text: str,
        *,
        limit: int = DEFAULT_LIMIT,
        threshold: float = DEFAULT_THRESHOLD,
        blend: Blend = Blend.HYBRID,
    ) -> ToolResults:
        """The best tools, most confident first, those under the threshold left out.

        Raises Invalid for a blank or overlong query, or a limit or threshold out of range.
        """
        _check(text, limit, threshold)
        text = sayable(text)
        report = Report()
        async with stage(report, "total"):
            prepared = await self._retriever.prepare(
                text,
                report,
                count_terms=None if blend is Blend.SEMANTIC else self._catalog.term_counts,
                dense=blend is not Blend.KEYWORD,
            )
            legs = await self._retriever.rank(prepared, TOOLS, report, depth=max(DEPTH, limit))
            names = await self._matched(text) if blend is Blend.HYBRID else NameMatches(frozenset(), {})
            scored = self._score(prepared, legs, names, blend)
            best = [(i, s) for i, s in ordered(scored.fused) if s >= threshold][:limit]
            hits = await self._hits(best, legs, scored, text)
        report.counts.update(candidates=len(scored.fused), returned=len(hits))
        return ToolResults(text, hits, threshold, report)

    async def _hits(self, best: Sequence[tuple[str, float]], legs: Legs, scored: _Scored, text: str) -> list[ToolHit]:
        """The hits, with reasons; what only its name brought up is read from the catalogue."""
        told = {c.id: c.payload for c in [*legs.dense, *legs.lexical]}
        named = [i for i, _ in best if i not in told]
        if named:
            told.update((s.item.id, item_payload(s)) for s in await self._catalog.items(named))
        asked = [w for w in words(text) if w not in STOP_WORDS]
        return [_hit(i, score, told[i], scored.evidence(i, _shared(asked, told[i]))) for i, score in best if i in told]

    def _score(self, prepared: Prepared, legs: Legs, names: NameMatches, blend: Blend) -> _Scored:
        if blend is Blend.RRF:
            ranks = rrf([legs.dense, legs.lexical])
            return _Scored(_confidences({i: score / BEST_RRF for i, score in ranks.items()}), {}, {}, {}, frozenset())
        alpha = {Blend.SEMANTIC: 1.0, Blend.KEYWORD: 0.0}.get(blend, self._alpha if legs.dense else 0.0)
        similarity = self._retriever.similarity
        nearest = legs.dense[0].score if legs.dense else 0.0
        top = legs.lexical[0].score if legs.lexical else 0.0
        coverage = min(1.0, top / max(prepared.terms.full_score, 1e-9))
        certainty = max(calibrated(nearest, similarity), coverage**2)
        span = max(nearest - similarity.floor, 1e-9)
        semantic = {c.id: alpha * certainty * max(0.0, (c.score - similarity.floor) / span) for c in legs.dense}
        keyword = {c.id: (1 - alpha) * certainty * c.score / top for c in legs.lexical}
        fused = weighted([(1.0, semantic), (1.0, keyword)])
        by_name = {i: score for i, score in names.close.items() if score > fused.get(i, 0.0)}
        fused |= {**by_name, **dict.fromkeys(names.exact, 1.0)}
        return _Scored(_confidences(fused), semantic, keyword, by_name, names.exact)

    async def _matched(self, text: str) -> NameMatches:
        if self._names is None:
            self._names = Names((s.item.id, s.item.name) for s in await self._catalog.items())
        return self._names.match(text)


def _confidences(scores: Mapping[str, float]) -> dict[str, float]:
    """Between 0 and 1, rounded before they are compared: what is shown is what was held against the threshold."""
    return {i: round(min(1.0, max(0.0, s)), 4) for i, s in scores.items()}


def _shared(asked: Sequence[str], told: Mapping[str, Any]) -> tuple[str, ...]:
    own = _own_stems(f"{told['name']} {told['server']} {told['description']}")
    return tuple(dict.fromkeys(w for w in asked if stem(w) in own))[:3]


@lru_cache(maxsize=4096)
def _own_stems(text: str) -> frozenset[str]:
    return frozenset(stems(text))


def _hit(item_id: str, confidence: float, told: Mapping[str, Any], evidence: Evidence) -> ToolHit:
    return ToolHit(
        id=item_id,
        server=told["server"],
        name=told["name"],
        type=told["type"],
        description=told["description"],
        confidence=confidence,
        reason=reason(evidence),
    )


def _check(text: str, limit: int, threshold: float) -> None:
    if not words(text):
        raise Invalid("the query is blank: say in a few words what the tool should do", details={"field": "query"})
    if len(text) > LONGEST_QUERY:
        raise Invalid(
            f"the query has {len(text)} characters, at most {LONGEST_QUERY} are allowed",
            details={"field": "query", "longest": LONGEST_QUERY},
        )
    if limit < 1:
        raise Invalid(f"limit {limit} is out of range: give 1 or more", details={"field": "limit"})
    if not 0 <= threshold <= 1:
        raise Invalid(f"threshold {threshold} is out of range: give 0 to 1", details={"field": "threshold"})
