"""Computes one confidence from 0 to 1 for each candidate, from similarity, words and names, and keeps the parts for the
reason. The reason names only what changed the score. docs/decisions/0019 and 0007
explain the design."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from toolscript.domain.search import SimilarityRange
from toolscript.retrieval.calibration import position
from toolscript.retrieval.capabilities import NO_SUBJECTS, Capabilities, Subjects
from toolscript.retrieval.fusion import Scores, sum_weighted
from toolscript.retrieval.learned_ranking import LEARNED, LearnedRanking, Signals
from toolscript.retrieval.retriever import Legs
from toolscript.retrieval.text.fuzzy import NameMatches

# A tool of the query's domain gains this share of its confidence.
DOMAIN_BOOST = 0.05
# A tool that can do that domain's work gains INFERRED_MORE. It gets at least INFERRED_ALONE if nothing else was found,
# or if it does such work wholly. It stays behind tools of the domain.
INFERRED_MORE = 0.05
INFERRED_ALONE = 0.4
BEHIND = 0.95
# The maximum confidence without a match of the name, and without a domain of the query either.
UNNAMED = 0.985
UNRELATED = 0.95
# What was learnt from use moves a tool among others whose confidences differ by no more than this, and changes none.
NEAR_EQUAL = 0.1
# Smaller moves are not named.
MIN_MOVE = 0.01
# Parts that contribute less than this share of the score are not named, except capabilities, which are not obvious.
MIN_SHARE = 0.25
# Words are named, too, from this share of the best score by words on: with the usual weights they are a fifth of a
# score at most, and the best hit would name none where lower hits do.
MIN_WORDS = 0.5
DIGITS = 4


@dataclass(frozen=True, slots=True)
class QueryTopics:
    """The domains of a query, and the subjects of the tools in the catalogue that have subjects."""

    query_domains: frozenset[str]
    subjects: Mapping[str, Subjects]
    capabilities: Capabilities
    capable: Mapping[Subjects, Collection[str]] = field(default_factory=dict)
    """The tools that have a capability, by their subjects: many have the same."""

    def shares(self, item_id: str) -> bool:
        """Whether the tool is of one of the query's domains."""
        tool = self.subjects.get(item_id)
        return tool is not None and not self.query_domains.isdisjoint(tool.domains)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The contributions of the parts of a score, after their weights; the shared domain and the capability
    ("shell → git") that raised it."""

    semantic: float = 0.0
    keyword: float = 0.0
    fuzzy: float = 0.0
    inferred: float = 0.0
    exact: bool = False
    domain: str = ""
    capability: str = ""
    shared_words: tuple[str, ...] = ()
    words: float = 0.0
    """The candidate's score by words over the highest one."""
    use: float = 0.0
    """How far what was learnt from use moves the candidate among near equals."""


class Confidences:
    """The confidence of every candidate, and its parts.

    Candidates rank by `alpha * semantic + (1 - alpha) * keyword`, each side relative to its own best hit, because the
    differences between hits are what ranks. The first one's confidence is the learned probability that it is right; the
    others have as much less as their scores are lower. Names, domains and capabilities can raise a confidence.
    """

    def __init__(
        self,
        legs: Legs,
        full_score: float,
        similarity: SimilarityRange,
        alpha: float,
        about: QueryTopics,
        tools: int,
        learned: LearnedRanking = LEARNED,
        variants: Mapping[str, Collection[str]] = MappingProxyType({}),
        use: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """`tools` is the number of different definitions in the catalogue; `variants` has the ids of items with equal
        definitions; none of them is ahead of another. `use` has the similarity of tools that were used for requests or
        marked as wrong for some, after their steps."""
        self._about = about
        meaning = alpha / (alpha + (1 - alpha) * learned.keyword)
        near = {c.id: position(c.score, similarity) for c in legs.dense}
        similar = max(near.values(), default=0.0)
        nearest = max(1e-9, similar + learned.beneath)
        top = legs.lexical[0].score if legs.lexical else 0.0
        self._semantic = {i: meaning * max(0.0, value + learned.beneath) / nearest for i, value in near.items()}
        self._words = 1 - meaning
        self._keyword = {c.id: self._words * c.score / top for c in legs.lexical}
        self.scores = sum_weighted([(1.0, self._semantic), (1.0, self._keyword)])
        first, second = _find_best_two(self.scores, variants)
        self.signals = Signals(
            similarity=similar,
            coverage=min(1.0, top / max(full_score, 1e-9)),
            lead=first - second,
            size=math.log10(max(1, tools)),
        )
        confident = min(UNRELATED, (learned.hybrid if meaning > 0 else learned.words).estimate(self.signals))
        highest = max(first, 1e-9)
        self._base = {i: confident * score / highest for i, score in self.scores.items()}
        scale = meaning / nearest * confident / highest
        self.moves = {
            i: max(-NEAR_EQUAL, min(NEAR_EQUAL, scale * (position(after, similarity) - near[i])))
            for i, after in use.items()
            if i in near
        }
        """How far use moves candidates in the order, in confidence."""
        self._alike: Scores = {}
        self._exact: frozenset[str] = frozenset()
        self._inferred: dict[str, tuple[float, str]] = {}
        self._values = dict(self._base)
        if about.query_domains:
            self._values |= {i: self._boost(i, base) for i, base in self._base.items() if about.shares(i)}

    def raise_named(self, names: NameMatches) -> None:
        """Raises tools with names that the query contains, to at least the similarity of the names."""
        self._exact = names.exact
        self._alike = {i: alike for i, alike in names.close.items() if alike > self._base.get(i, 0.0)}
        self._values |= {i: self._boost(i, alike) for i, alike in self._alike.items()}
        self._values |= {i: names.close[i] for i in names.exact}

    def raise_capable(self) -> None:
        """Raises tools of other domains that can do the work of the query's domains. Among many tools, a tool that can
        do it wholly is in neither ranking: its text is not near."""
        about, values = self._about, self._values
        if not about.query_domains:
            return
        nothing_found = max(values.values(), default=0.0) < INFERRED_ALONE
        best: Scores = {domain: 0.0 for tool in about.capable for domain in about.query_domains & tool.domains}
        for i, value in values.items():
            for domain in about.query_domains & about.subjects.get(i, NO_SUBJECTS).domains:
                best[domain] = max(best.get(domain, 0.0), value)
        for tool, item_ids in about.capable.items():
            by = about.capabilities.infer(about.query_domains, tool)
            if by is None:
                continue
            ahead = max((best[domain] for domain in by.domains if domain in best), default=1.0)
            min_confidence = INFERRED_ALONE if by.wholly or nothing_found else 0.0
            for i in item_ids if min_confidence else filter(values.__contains__, item_ids):
                known = values.get(i, 0.0)
                raised = min(max(known + INFERRED_MORE, min_confidence), UNNAMED, BEHIND * ahead)
                if round(raised, DIGITS) > round(known, DIGITS):
                    self._inferred[i] = raised - known, by.text
                    values[i] = raised

    def sort(self) -> list[tuple[str, float]]:
        """Most confident first; equal confidences by score, then by id. Confidences are rounded first, so that the
        threshold applies to the value shown."""
        scores = self.scores
        rounded = np.round([*self._values.values()], DIGITS).tolist()
        ordered = sorted([(-value, -scores.get(i, 0.0), i) for i, value in zip(self._values, rounded, strict=True)])
        return [(i, -value) for value, _, i in ordered]

    def evidence(self, item_id: str, shared_words: tuple[str, ...]) -> Evidence:
        """The parts of a candidate's score that changed its confidence."""
        if item_id in self._exact:
            return Evidence(exact=True)
        alike = self._alike.get(item_id)
        base = self._base.get(item_id, 0.0) if alike is None else alike
        scale = base / max(self.scores.get(item_id, 0.0), 1e-9) if alike is None else 0.0
        is_boosted = round(self._boost(item_id, base), DIGITS) > round(min(UNNAMED, base), DIGITS)
        shared = self._about.query_domains & self._about.subjects.get(item_id, NO_SUBJECTS).domains
        inferred, capability = self._inferred.get(item_id, (0.0, ""))
        return Evidence(
            semantic=scale * self._semantic.get(item_id, 0.0),
            keyword=scale * self._keyword.get(item_id, 0.0),
            fuzzy=alike or 0.0,
            inferred=inferred,
            domain=self._about.capabilities.name_domains(shared) if is_boosted else "",
            capability=capability,
            shared_words=shared_words,
            words=self._keyword.get(item_id, 0.0) / max(self._words, 1e-9),
            use=self.moves.get(item_id, 0.0),
        )

    def _boost(self, item_id: str, base: float) -> float:
        return min(UNNAMED, base * (1 + DOMAIN_BOOST) if self._about.shares(item_id) else base)


def _find_best_two(scores: Scores, variants: Mapping[str, Collection[str]]) -> tuple[float, float]:
    """The highest score, and the highest of candidates that are not variants of the first; 0 without one."""
    best = max(scores, key=scores.__getitem__, default=None) if variants else None
    copies = set(variants.get(best, ())) - {best} if best else set()
    ordered = sorted((score for i, score in scores.items() if i not in copies), reverse=True)
    first, second, *_ = [*ordered[:2], 0.0, 0.0]
    return first, second


def explain(evidence: Evidence) -> str:
    """The reason, with the strongest cause first: "Semantic similarity (git) + Keyword match (commit)"."""
    if evidence.exact:
        return "Exact name"
    parts = [
        (evidence.semantic, f"Semantic similarity{_add_brackets(evidence.domain)}"),
        (evidence.keyword, f"Keyword match{_add_brackets(', '.join(evidence.shared_words))}"),
        (evidence.fuzzy, "Fuzzy match"),
    ]
    inferred = (evidence.inferred, f"Capability inference{_add_brackets(evidence.capability)}")
    threshold = MIN_SHARE * (sum(score for score, _ in parts) + evidence.inferred)
    worded = parts[1] if evidence.words >= MIN_WORDS else None
    causes_found = [p for p in parts if p[0] > 0 and (p[0] >= threshold or p is worded)]
    causes_found += [inferred] * (evidence.inferred > 0)
    causes_found.sort(key=lambda part: -part[0])
    causes = [text for _, text in causes_found] or ["Weak match"]
    if evidence.domain and parts[0] not in causes_found:
        causes.append("domain boost")
    if evidence.use >= MIN_MOVE:
        causes.append("used for similar requests")
    elif evidence.use <= -MIN_MOVE:
        causes.append("wrong for similar requests")
    return " + ".join(causes)


def _add_brackets(causes_found: str) -> str:
    return f" ({causes_found})" if causes_found else ""
