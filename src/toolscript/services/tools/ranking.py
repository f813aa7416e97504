"""The ranking of tools that hybrid and hierarchical search share: correct the spelling, rank by meaning and words,
raise names, domains and capabilities.

`score = alpha * semantic + (1 - alpha) * keyword`; a learned curve turns scores into confidences (docs/decisions/0019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from toolscript.domain.agent_skills import get_item_id
from toolscript.domain.deadline import Deadline
from toolscript.domain.feedback import Step
from toolscript.domain.filters import EVERYTHING, Filter, Payload, Subset
from toolscript.domain.search import Candidate, SearchPart, SearchReport
from toolscript.retrieval.capabilities import Capabilities
from toolscript.retrieval.catalogue import CatalogueFacts
from toolscript.retrieval.confidence import Confidences, Evidence, QueryTopics
from toolscript.retrieval.fusion import RRF_K, rrf, sort_scores
from toolscript.retrieval.learned_ranking import LEARNED, LearnedRanking, Signals
from toolscript.retrieval.query import QueryRules
from toolscript.retrieval.retriever import Legs, PreparedQuery, Retriever, compare
from toolscript.retrieval.text.needs import split_needs
from toolscript.services.catalogue.item_points import IS_PASSAGE, TOOLS
from toolscript.services.catalogue.visibility import FindView, View, see_everything

# The same for every limit, so that an answer does not depend on how many of its results are wanted.
DEPTH = 100
# The depth of the second ranking where copies of tools fill the first one.
MAX_DEPTH = 2000
# So many different tools are compared at least, however many copies of them there are.
MIN_DISTINCT = 50
BEST_RRF = 2 / (RRF_K + 1)
# A name that is this similar to a part of the query is the one that is meant.
MIN_LIKENESS = 0.9
NO_SIGNALS = Signals(0.0, 0.0, 0.0, 0.0)

# Returns the evidence for a candidate, given the words that it shares with the query.
FindEvidence = Callable[[str, tuple[str, ...]], Evidence]


class Blend(StrEnum):
    """How the two rankings are combined: weighted scores, ranks, or one of them alone."""

    HYBRID = "hybrid"
    RRF = "rrf"
    SEMANTIC = "semantic"
    KEYWORD = "keyword"


@dataclass(frozen=True, slots=True)
class RankedTools:
    """Every candidate with its confidence, best first; the two rankings that they come from; what the caller may see;
    what is known of the whole answer."""

    best: list[tuple[str, float]]
    legs: Legs
    find_evidence: FindEvidence
    view: View
    signals: Signals = NO_SIGNALS
    named: frozenset[str] = frozenset()
    """Those whose names the query has, exactly or with a typo."""
    moves: Mapping[str, float] = field(default_factory=dict)
    """How far what was learnt from use moves candidates in the order, in confidence."""


class ToolRanking:
    """Ranks the tools of the index, all of them or the tools that match a filter."""

    def __init__(
        self,
        retriever: Retriever,
        capabilities: Capabilities,
        *,
        alpha: float = 0.7,
        learned: LearnedRanking = LEARNED,
        find_view: FindView = see_everything,
    ) -> None:
        """`find_view` returns what the caller may see."""
        self.find_view = find_view
        self._retriever = retriever
        self._capabilities = capabilities
        self._alpha = alpha
        self.learned = learned

    async def prepare(
        self,
        text: str,
        catalogue: CatalogueFacts | None,
        report: SearchReport,
        deadline: Deadline,
        rules: QueryRules,
        blend: Blend = Blend.HYBRID,
        *,
        dense: bool = True,
    ) -> PreparedQuery:
        """Corrects, embeds (unless `dense` is false) and weighs a query. Without facts about the catalogue it will be
        ranked by meaning alone.

        Raises the errors of `rules`.
        """
        by_words = catalogue is not None and blend is not Blend.SEMANTIC
        return await self._retriever.prepare(
            text,
            deadline,
            report,
            rules=rules,
            correct=catalogue.spelling.correct if catalogue and blend is Blend.HYBRID else None,
            split=split_needs,
            count_terms=catalogue.term_counts if catalogue and by_words else None,
            dense=dense and blend is not Blend.KEYWORD,
        )

    async def rank(
        self,
        text: str,
        prepared: PreparedQuery,
        catalogue: CatalogueFacts | None,
        report: SearchReport,
        view: View,
        *,
        where: Filter = EVERYTHING,
        among: frozenset[str] | None = None,
        steps: Mapping[str, Step] | None = None,
        blend: Blend = Blend.HYBRID,
        alpha: float | None = None,
    ) -> RankedTools:
        """Ranks the tools of the view for a prepared query; `text` is the query as it was given, `among`
        the ids of the tools to compare (None: all), `steps` has what was learnt from use, `alpha` replaces the
        configured weight of meaning. Raises what the index raises.

        Candidates without a number as their score are left out, and the report names the index.
        """
        if among is not None and catalogue:
            among = catalogue.list_points(among)
        where, depth = replace(where, within=view.subset if among is None else Subset(among)), DEPTH
        legs = await self._retriever.rank(prepared, TOOLS, report, where=where, depth=depth, fields=())
        copies = catalogue.max_variants * catalogue.max_points if catalogue else 1
        if catalogue and copies > 1 and _is_crowded(legs, catalogue):
            depth = min(depth * copies, MAX_DEPTH)
            legs = await self._retriever.rank(prepared, TOOLS, report, where=where, depth=depth, fields=())
        legs = _keep_finite(legs, report)
        if catalogue is None or catalogue.max_points > 1:
            legs = _fold_passages(legs)
        if blend is Blend.RRF:
            ranks = sort_scores(rrf([legs.dense, legs.lexical]))
            best = [(i, round(min(1.0, score / BEST_RRF), 4)) for i, score in ranks]
            return RankedTools(view.select(best), legs, lambda _, __: Evidence(), view)
        weight = (self._alpha if alpha is None else alpha) if legs.dense else 0.0
        weight = {Blend.SEMANTIC: 1.0, Blend.KEYWORD: 0.0}.get(blend, weight)
        is_hybrid = catalogue is not None and blend is Blend.HYBRID
        domains = self._capabilities.of_query(prepared.text) if is_hybrid else frozenset()
        subjects, capable = (catalogue.subjects, catalogue.capable) if catalogue else ({}, {})
        about = QueryTopics(domains, subjects, self._capabilities, capable)
        tools, variants = (catalogue.distinct, catalogue.variants) if catalogue else (len(legs.dense), {})
        use = _compare_steps(prepared, legs, catalogue, steps) if catalogue and is_hybrid and steps else {}
        full_score, similarity = prepared.terms.full_score, self._retriever.similarity
        found = Confidences(legs, full_score, similarity, weight, about, tools, self.learned, variants, use)
        called: frozenset[str] = frozenset()
        if catalogue and is_hybrid:
            mistyped = catalogue.is_mistyped(text)
            named = catalogue.names.match(text, mistyped=mistyped, corrected=prepared.text)
            found.raise_named(named if view.ids is None else named.select(view.ids))
            found.raise_capable()
            called = frozenset(i for i, likeness in named.close.items() if likeness >= MIN_LIKENESS)
        best = view.select(found.sort())
        best = catalogue.near_equals.order(best, called, found.moves) if catalogue and is_hybrid else best
        return RankedTools(best, legs, found.evidence, view, found.signals, called, found.moves)

    def choose_closest(
        self, ranked: Sequence[tuple[str, float]], threshold: float, limit: int
    ) -> list[tuple[str, float]]:
        """Up to `limit` candidates below the threshold, without candidates that a request for no tool would have,
        too."""
        near = [(i, score) for i, score in ranked if self.learned.noise <= score < threshold]
        return near[: max(0, limit)]

    async def count_tools(self, where: Filter, catalogue: CatalogueFacts | None) -> int:
        """The number of items that match a filter. Raises what the index raises."""
        if catalogue is None or catalogue.max_points > 1:
            where = replace(where, must_not=(*where.must_not, IS_PASSAGE))
        return await self._retriever.count(TOOLS, where)

    async def read_payloads(self, item_ids: Sequence[str], fields: Sequence[str] | None = None) -> dict[str, Payload]:
        """The payloads of the tools that the index has, or the given fields."""
        return await self._retriever.read_payloads(TOOLS, item_ids, fields)


def _keep_finite(legs: Legs, report: SearchReport) -> Legs:
    """The candidates with numbers as scores."""
    if math.isfinite(sum(c.score for leg in (legs.dense, legs.lexical) for c in leg)):
        return legs
    report.degrade(SearchPart.INDEX)
    dense, lexical = ([c for c in leg if math.isfinite(c.score)] for leg in (legs.dense, legs.lexical))
    return Legs(dense, lexical, legs.needs)


def _fold_passages(legs: Legs) -> Legs:
    """The rankings with each agent skill once: as near as its description or the nearest passage of its text."""

    def fold(leg: list[Candidate]) -> list[Candidate]:
        best: dict[str, Candidate] = {}
        for candidate in leg:
            best.setdefault(item_id := get_item_id(candidate.id), candidate._replace(id=item_id))
        return list(best.values())

    needs: dict[str, str] = {}
    for point_id in (c.id for leg in (legs.dense, legs.lexical) for c in leg if c.id in legs.needs):
        needs.setdefault(get_item_id(point_id), legs.needs[point_id])
    return Legs(fold(legs.dense), fold(legs.lexical), needs)


def _compare_steps(
    prepared: PreparedQuery, legs: Legs, catalogue: CatalogueFacts, steps: Mapping[str, Step]
) -> dict[str, float]:
    """The similarity of candidates with steps, after their steps."""
    moved = {
        c.id: step.vector
        for c in legs.dense
        if (step := steps.get(c.id)) and step.vector is not None and _has_text(step, catalogue)
    }
    return compare(prepared, moved)


def _has_text(step: Step, catalogue: CatalogueFacts) -> bool:
    """Whether a step was computed from the text that the tool has now."""
    item = catalogue.items.get(step.item_id)
    return item is not None and item.digest == step.item_digest


def _is_crowded(legs: Legs, catalogue: CatalogueFacts) -> bool:
    """Whether a full ranking has too few different tools, because the rest are copies or passages of them."""
    enough = min(MIN_DISTINCT, catalogue.distinct)
    full = ([get_item_id(c.id) for c in leg] for leg in (legs.dense, legs.lexical) if len(leg) >= DEPTH)
    return any(len({catalogue.variants.get(i, (i,)) for i in leg}) < enough for leg in full)
