"""Finds the skills nearest to a query, by comparing it with the vectors of all skills in memory.

There are a few thousand vectors at most, the same for every query: a copy in memory answers in a fraction of the time
that an engine takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Candidate, SimilarityRange, Vector
from toolscript.retrieval.retriever import WHOLE

# How much nearer to a query the nearest tool of a facet is than its centre, per unit of the facet's spread. Fitted so
# that facets rank skills as their nearest tools would (docs/decisions/0011).
REACH = 0.56
# How much less a skill without tools scores than one whose tools are as near as its description.
UNPROVEN = 0.55


@dataclass(frozen=True, slots=True)
class SkillFacts:
    """The facts about a skill that results contain."""

    id: str
    name: str
    description: str
    tool_count: int


class SkillMap:
    """The vectors of all skills at one time: one of the description and one per facet (a group of tools)."""

    def __init__(self, points: Sequence[Candidate], vectors: Mapping[str, Vector], similarity: SimilarityRange) -> None:
        """Takes the points of the skills' collection, their vectors, and the range of the model. Raises Unavailable for
        vectors that are not finite."""
        parts = sorted((p for p in points if p.id in vectors), key=lambda p: (p.payload["skill_id"], p.id))
        self.skills: list[SkillFacts] = []
        starts: list[int] = []
        for number, point in enumerate(parts):
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
        beyond = np.where(is_facet, REACH * spread, 0.0) - similarity.floor / scale
        less = [0.0 if int(p.payload["tool_count"]) else UNPROVEN for p in parts]
        self._beyond = (beyond - np.array(less)).astype(np.float32)
        rows = np.stack([vectors[p.id] for p in parts]) if parts else np.zeros((0, 1), np.float32)
        self._rows = np.ascontiguousarray(rows * (tightness[:, None] / np.float32(scale)))
        if not np.isfinite(self._rows).all():
            raise Unavailable("the vectors of the skills are not finite: run `toolscript index rebuild`")

    def nearest(
        self, vector: Vector, limit: int, floor: float, needs: Sequence[Vector] = ()
    ) -> list[tuple[SkillFacts, float]]:
        """The nearest skills at or above the floor, best first (equal ones by id), each with the estimated score of its
        nearest tool, which may be outside of 0 to 1. With the vectors of a query's needs, half of it is the score for
        the whole and half that for the nearest need, as it is for tools."""
        if not self.skills:
            return []
        near = self._rows @ vector
        if needs:
            near = WHOLE * near + (1 - WHOLE) * (self._rows @ np.stack(needs).T).max(axis=1)
        scores = np.maximum.reduceat(near + self._beyond, self._starts).tolist()
        best = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[:limit]
        return [(self.skills[n], scores[n]) for n in best if scores[n] >= floor]
