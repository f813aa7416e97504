"""Hybrid tool search: meaning, words and names, weighed into one confidence with a reason.

Each side is scaled by its own best hit, because the spread between hits is what ranks; how sure the whole answer
is (one factor for all hits of a query) comes from the calibrated similarity of the best hit and from how much
of the query its words cover. So `confidence = alpha * semantic + (1 - alpha) * keyword` holds for every hit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from toolscript.domain.errors import Invalid
from toolscript.domain.search import Candidate, Report
from toolscript.ports import CatalogStore
from toolscript.retrieval.calibration import calibrated
from toolscript.retrieval.fusion import ordered, rrf, weighted
from toolscript.retrieval.fuzzy import NameMatches, Names
from toolscript.retrieval.reasons import Evidence, reason
from toolscript.retrieval.retriever import Legs, Prepared, Retriever, stage
from toolscript.retrieval.words import stems, words
from toolscript.services.sync import TOOLS

LONGEST_QUERY = 1000
DEPTH = 100
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
    """A candidate's sides, each between 0 and 1, before the weights."""

    semantic: Mapping[str, float]
    keyword: Mapping[str, float]
    fuzzy: Mapping[str, float]
    exact: frozenset[str]


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
        report = Report()
        async with stage(report, "total"):
            prepared = await self._retriever.prepare(
                text,
                report,
                count_terms=None if blend is Blend.SEMANTIC else self._catalog.term_counts,
                dense=blend is not Blend.KEYWORD,
            )
            legs = await self._retriever.rank(prepared, TOOLS, report, depth=max(DEPTH, limit))
            hits = await self._blend(prepared, legs, blend)
        kept = [h for h in hits if h.confidence >= threshold][:limit]
        report.counts.update(candidates=len(hits), returned=len(kept))
        return ToolResults(text, kept, threshold, report)

    async def _blend(self, prepared: Prepared, legs: Legs, blend: Blend) -> list[ToolHit]:
        found = {c.id: c for c in [*legs.dense, *legs.lexical]}
        if blend is Blend.RRF:
            most = 2 / 61
            return [
                _hit(found[i], score / most, "Rank in both searches")
                for i, score in ordered(rrf([legs.dense, legs.lexical]))
            ]
        names = await self._matched(prepared.text) if blend is Blend.HYBRID else NameMatches(frozenset(), {})
        found.update(await self._named(names, found))
        scored = self._score(prepared, legs, names)
        alpha = {Blend.SEMANTIC: 1.0, Blend.KEYWORD: 0.0}.get(blend, self._alpha if legs.dense else 0.0)
        keyword = {i: max(scored.keyword.get(i, 0), scored.fuzzy.get(i, 0)) for i in found}
        fused = weighted([(alpha, scored.semantic), (1 - alpha, keyword)])
        fused.update(dict.fromkeys(scored.exact, 1.0))
        query_stems = stems(prepared.text)
        return [_hit(found[i], s, _why(found[i], alpha, scored, query_stems)) for i, s in ordered(fused) if i in found]

    def _score(self, prepared: Prepared, legs: Legs, names: NameMatches) -> _Scored:
        similarity = self._retriever.similarity
        best = legs.dense[0].score if legs.dense else 0.0
        top = legs.lexical[0].score if legs.lexical else 0.0
        full = max(prepared.terms.full_score, 1e-9)
        coverage = min(1.0, top / full)
        certainty = max(calibrated(best, similarity), coverage**2)
        span = max(best - similarity.floor, 1e-9)
        return _Scored(
            semantic={c.id: certainty * max(0.0, (c.score - similarity.floor) / span) for c in legs.dense},
            keyword={c.id: certainty * c.score / top for c in legs.lexical},
            fuzzy=names.close,
            exact=names.exact,
        )

    async def _matched(self, text: str) -> NameMatches:
        if self._names is None:
            self._names = Names((s.item.id, s.item.name) for s in await self._catalog.items())
        return self._names.match(text)

    async def _named(self, names: NameMatches, found: Mapping[str, Candidate]) -> dict[str, Candidate]:
        """What only its name brought up, read from the catalogue."""
        missing = [i for i in {*names.exact, *names.close} if i not in found]
        if not missing:
            return {}
        return {
            s.item.id: Candidate(
                s.item.id,
                0.0,
                {
                    "server": s.item.server,
                    "name": s.item.name,
                    "type": s.item.type.value,
                    "description": s.item.description,
                },
            )
            for s in await self._catalog.items(missing)
        }


def _why(candidate: Candidate, alpha: float, scored: _Scored, query_stems: list[str]) -> str:
    keyword, fuzzy = scored.keyword.get(candidate.id, 0.0), scored.fuzzy.get(candidate.id, 0.0)
    own = set(stems(f"{candidate.payload['name']} {candidate.payload['server']} {candidate.payload['description']}"))
    return reason(
        Evidence(
            semantic=alpha * scored.semantic.get(candidate.id, 0.0),
            keyword=(1 - alpha) * keyword if keyword >= fuzzy else 0.0,
            fuzzy=(1 - alpha) * fuzzy if fuzzy > keyword else 0.0,
            exact=candidate.id in scored.exact,
            shared_words=tuple(dict.fromkeys(s for s in query_stems if s in own))[:3],
        )
    )


def _hit(candidate: Candidate, confidence: float, why: str) -> ToolHit:
    told = candidate.payload
    return ToolHit(
        id=candidate.id,
        server=told["server"],
        name=told["name"],
        type=told["type"],
        description=told["description"],
        confidence=round(min(1.0, max(0.0, confidence)), 4),
        reason=why,
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
