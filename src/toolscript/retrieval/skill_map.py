"""Finds the skills and topics nearest to a query, by comparing it with the vectors of all of them in memory.

There are a few thousand vectors at most, the same for every query: a copy in memory answers in a fraction of the time
that an engine takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Candidate, SimilarityRange, Vector
from toolscript.retrieval.retriever import WHOLE

# How much nearer to a query the nearest tool of a facet is than its centre, per unit of the facet's spread. Fitted so
# that facets rank skills as their nearest tools would (docs/decisions/0011).
FACET_RADIUS = 0.56
# How much less a skill without tools scores than one whose tools are as near as its description.
UNPROVEN = 0.55
# From an estimate to the probability that the nearest skill holds a tool for the request. Fitted with 1 533 requests
# over 17 catalogues (docs/decisions/0011).
STEEPNESS, MIDDLE = 6.1, 0.65

Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SkillFacts:
    """The facts about a skill that results contain."""

    id: str
    name: str
    description: str
    tool_count: int


class SkillMap:
    """The vectors of all skills at one time: one of the description and one per facet (a group of tools). Facets with
    tools of their own are topics: every tool of the catalogue at that time is in exactly one."""

    def __init__(self, points: Sequence[Candidate], vectors: Mapping[str, Vector], similarity: SimilarityRange) -> None:
        """Takes the points of the skills' collection, their vectors, and the range of the model. Skills that are not
        active have topics only. Raises Unavailable for vectors that are not finite."""
        parts = sorted(
            (p for p in points if p.id in vectors),
            key=lambda p: (not p.payload["is_active"], p.payload["skill_id"], p.id),
        )
        self.skills: list[SkillFacts] = []
        starts: list[int] = []
        self._active = sum(bool(p.payload["is_active"]) for p in parts)
        for number, point in enumerate(parts[: self._active]):
            payload = point.payload
            if not self.skills or self.skills[-1].id != payload["skill_id"]:
                starts.append(number)
                self.skills.append(
                    SkillFacts(payload["skill_id"], payload["name"], payload["description"], int(payload["tool_count"]))
                )
        self._starts = np.array(starts, dtype=np.int64)
        tightness = np.array([p.payload["tightness"] for p in parts], dtype=np.float32)
        is_facet = np.array([bool(p.payload["is_facet"]) for p in parts], dtype=bool)
        spread = np.sqrt(np.clip(1 - tightness**2, 0.0, 1.0))
        scale = similarity.ceiling - similarity.floor
        beyond = np.where(is_facet, FACET_RADIUS * spread, 0.0) - similarity.floor / scale
        less = [0.0 if int(p.payload["tool_count"]) else UNPROVEN for p in parts]
        self._beyond = (beyond - np.array(less)).astype(np.float32)
        rows = np.stack([vectors[p.id] for p in parts]) if parts else np.zeros((0, 1), np.float32)
        self._rows = np.ascontiguousarray(rows * (tightness[:, None] / np.float32(scale)))
        if not np.isfinite(self._rows).all():
            raise Unavailable("the vectors of the skills are not finite: run `toolscript index rebuild`")
        tools = [tuple(p.payload.get("tools") or ()) for p in parts]
        self._topic_parts = np.array([n for n, ids in enumerate(tools) if ids], dtype=np.int64)
        self.topics: list[tuple[str, ...]] = [ids for ids in tools if ids]
        """The ids of the tools of each topic."""
        self.skills_of: dict[str, tuple[str, ...]] = {}
        """The active skills of every tool that has any."""
        for point in parts[: self._active]:
            for item_id in chain(point.payload.get("tools") or (), point.payload.get("also") or ()):
                self.skills_of[item_id] = (*self.skills_of.get(item_id, ()), point.payload["skill_id"])

    def compare(self, vector: Vector, needs: Sequence[Vector] = ()) -> Scores:
        """The estimated score of the nearest tool of each part of the map. A score may be outside of 0 to 1. With the
        vectors of a query's needs, half of a score is the score for the whole and half the score for the nearest need,
        as for tools. Raises ValueError for a vector of another model."""
        if not len(self._rows):
            return np.zeros(0, np.float32)
        # In one thread: BLAS starts several for so few numbers, which takes 20 ms on a busy machine.
        near = np.einsum("ij,j->i", self._rows, vector)
        if needs:
            near = WHOLE * near + (1 - WHOLE) * np.einsum("ij,kj->ik", self._rows, np.stack(needs)).max(axis=1)
        return np.asarray(near + self._beyond, dtype=np.float32)

    def rank_skills(self, scores: Scores) -> list[tuple[SkillFacts, float]]:
        """All skills, best first (equal ones by id), each with the probability that its best score stands for."""
        if not self.skills:
            return []
        nearest = np.maximum.reduceat(scores[: self._active], self._starts).astype(np.float64)
        of_skills = (1 / (1 + np.exp(STEEPNESS * (MIDDLE - nearest)))).tolist()
        best = sorted(range(len(of_skills)), key=of_skills.__getitem__, reverse=True)
        return [(self.skills[n], of_skills[n]) for n in best]

    def score_topics(self, scores: Scores) -> Scores:
        """The scores of the topics, in the order of `topics`."""
        return scores[self._topic_parts]
