"""Topics: the part of a hierarchical search between its two stages. From the nearest topics to the tools that are
compared, and from the ranking of these to the skills that match."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from toolscript.domain.catalog import ItemType
from toolscript.retrieval.catalogue import CatalogueFacts
from toolscript.retrieval.skill_map import Scores, SkillFacts, SkillMap
from toolscript.services.catalogue.visibility import View

# Thresholds are compared with rounded scores: a returned score, given as a threshold, keeps its tool.
DIGITS = 4

# How many of n tools are compared: this share, at most so many times the square root of n, and at least the minimum
# (docs/decisions/0011).
SHARE = 0.1
TIMES_ROOT = 10.0
MIN_TOOLS = 10


class SkillHit(NamedTuple):
    """A skill that the query is about."""

    skill: SkillFacts
    score: float


@dataclass(frozen=True, slots=True)
class SearchArea:
    """The tools that are searched: all tools, the tools of some skills, or the tools of the nearest topics."""

    skills: Sequence[tuple[SkillFacts, float]] = ()
    """All skills with the estimated scores of their nearest tools, best first."""
    tools: frozenset[str] | None = None
    """The tools of the nearest topics."""
    skills_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The skills of the tools that have any, and are in a topic."""
    new: frozenset[str] = frozenset()
    """The tools that are in no topic yet."""
    skill_ids: Sequence[str] | None = None
    """The skills that a caller named."""

    def keeps(self, item_id: str, skill_ids: Sequence[str], matched: Sequence[SkillHit]) -> bool:
        """Whether a tool that has these skills now belongs to a matched one: it may have moved since topics were
        made."""
        is_free = not self.skills or not skill_ids or item_id in self.new
        return is_free or any(hit.skill.id in skill_ids for hit in matched)


EVERYWHERE = SearchArea()


class VisibleTopics:
    """The topics of a skill map, without the tools that a caller does not see or want, and with the tools that are
    newer than the map."""

    def __init__(
        self, skill_map: SkillMap, catalogue: CatalogueFacts | None, view: View, item_type: ItemType | None
    ) -> None:
        """Without facts about the catalogue, everything of the map."""
        self._topics: Sequence[tuple[str, ...]] = skill_map.topics
        self.new: frozenset[str] = frozenset()
        """The tools that are in no topic yet."""
        if catalogue is not None:
            known = {i for ids in skill_map.topics for i in ids}
            shown = {
                i
                for i, facts in catalogue.items.items()
                if view.shows(i) and (item_type is None or facts.type is item_type)
            }
            self.new = frozenset(shown - known)
            if view.ids is not None or item_type is not None:
                self._topics = [tuple(i for i in ids if i in shown) for ids in skill_map.topics]
        self._sizes = np.array([len(ids) for ids in self._topics], dtype=np.int64)
        total = int(self._sizes.sum()) + len(self.new)
        self._budget = max(MIN_TOOLS, min(SHARE * total, TIMES_ROOT * math.sqrt(total)))

    def choose_tools(self, scores: Scores) -> frozenset[str]:
        """The tools of the nearest topics, and all new tools."""
        order = np.argsort(-scores, kind="stable")
        before = np.cumsum(self._sizes[order]) - self._sizes[order]
        nearest = order[before < self._budget]
        return self.new.union(chain.from_iterable(self._topics[n] for n in nearest.tolist()))


def match_skills(
    area: SearchArea, ranked: Sequence[tuple[str, float]], limit: int, threshold: float
) -> tuple[Sequence[tuple[str, float]], list[SkillHit]]:
    """The ranking without tools of unmatched skills, and the matched skills: the skills with the best tools, then the
    nearest. A tool without a skill, or in no topic yet, stays."""
    if not area.skills:
        return ranked, []
    scores = {skill.id: score for skill, score in area.skills}
    skills_by_tool = {i: [s for s in area.skills_of.get(i, ()) if s in scores] for i, _ in ranked}
    for item_id, score in ranked:
        scores.update({skill: max(score, scores[skill]) for skill in skills_by_tool[item_id]})
    floor = lower_bound(threshold)
    matched: set[str] = set()
    for item_id, _ in ranked:
        near = [skill for skill in skills_by_tool[item_id] if scores[skill] >= floor]
        if near and matched.isdisjoint(near) and len(matched) < limit:
            matched.add(max(near, key=scores.__getitem__))
    rest = [skill.id for skill, _ in area.skills if skill.id not in matched and scores[skill.id] >= floor]
    matched.update(rest[: limit - len(matched)])
    kept = [(i, score) for i, score in ranked if not skills_by_tool[i] or not matched.isdisjoint(skills_by_tool[i])]
    hits = [(skill, scores[skill.id]) for skill, _ in area.skills if skill.id in matched]
    return kept, list_hits(sorted(hits, key=lambda hit: -hit[1]), threshold)


def list_hits(skills: Sequence[tuple[SkillFacts, float]], threshold: float) -> list[SkillHit]:
    """The skills at or above the threshold, with scores from 0 to 1."""
    hits = [SkillHit(skill, round(min(1.0, max(0.0, score)), DIGITS)) for skill, score in skills]
    return [hit for hit in hits if hit.score >= threshold]


def lower_bound(threshold: float) -> float:
    """The smallest score that rounds to the threshold; every score passes a threshold of 0."""
    return threshold - 0.1**DIGITS if threshold > 0 else -math.inf
