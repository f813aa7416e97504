"""Which skills a query is about: every skill compared at once, in memory, by the best of its parts.

A few thousand vectors at most, and the same ones for every query: a copy of the collection answers in a fraction of
the time that asking an engine for it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Candidate, SimilarityRange, Vector

# How far beyond its centre a group of tools reaches towards a query, in units of how wide it lies and of what the
# model's cosines range over. Fitted so that the estimate from a facet ranks skills as their nearest tools would
# (docs/decisions/0011).
REACH = 0.56
# How much less a skill that has no tools yet scores than one whose tools are as near as its description.
UNPROVEN = 0.55


@dataclass(frozen=True, slots=True)
class SkillFacts:
    """What a match tells of a skill."""

    id: str
    name: str
    description: str
    tool_count: int


class SkillMap:
    """The parts of all skills, as they were when the map was drawn."""

    def __init__(self, points: Sequence[Candidate], vectors: Mapping[str, Vector], similarity: SimilarityRange) -> None:
        """Takes the points of the skills' collection, their vectors, and what the model's cosines mean. Raises
        Unavailable for what is no vector."""
        drawn = sorted((p for p in points if p.id in vectors), key=lambda p: (p.payload["skill_id"], p.id))
        self.skills: list[SkillFacts] = []
        starts: list[int] = []
        for number, point in enumerate(drawn):
            payload = point.payload
            if not self.skills or self.skills[-1].id != payload["skill_id"]:
                starts.append(number)
                self.skills.append(
                    SkillFacts(payload["skill_id"], payload["name"], payload["description"], int(payload["tool_count"]))
                )
        self._starts = np.array(starts, dtype=np.int64)
        tightness = np.array([p.payload["tightness"] for p in drawn], dtype=np.float32)
        is_facet = np.array([bool(p.payload["is_facet"]) for p in drawn], dtype=bool)
        spread = np.sqrt(np.clip(1 - tightness**2, 0.0, 1.0))
        scale = similarity.ceiling - similarity.floor
        beyond = np.where(is_facet, REACH * spread, 0.0) - similarity.floor / scale
        less = [0.0 if int(p.payload["tool_count"]) else UNPROVEN for p in drawn]
        self._beyond = (beyond - np.array(less)).astype(np.float32)
        rows = np.stack([vectors[p.id] for p in drawn]) if drawn else np.zeros((0, 1), np.float32)
        self._rows = np.ascontiguousarray(rows * (tightness[:, None] / np.float32(scale)))
        if not np.isfinite(self._rows).all():
            raise Unavailable("the vectors of the skills hold what is no number: run `toolscript index rebuild`")

    def nearest(self, vector: Vector, limit: int, floor: float) -> list[tuple[SkillFacts, float]]:
        """The skills that look nearest, best first (equal ones by id), those below the floor left out: of each the
        score that its nearest tool is estimated to have, not yet cut to 0 and 1."""
        if not self.skills:
            return []
        parts = self._rows @ vector
        parts += self._beyond
        scores = np.maximum.reduceat(parts, self._starts).tolist()
        best = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[:limit]
        return [(self.skills[n], scores[n]) for n in best if scores[n] >= floor]
