"""The points of skills in the index: a vector for each skill, and vectors for groups of its tools.

A skill's vector is the mean of its tools' vectors, weighted by confidence; without tools, the vector of its
description. One vector cannot represent the different tools of a broad skill, so a skill also has facets: the centres
of groups of its tools, each with the tightness of its group, and its description. The tools of a facet that have the
skill as their primary skill are a *topic*; tools without a skill have topics of their own. See docs/decisions/0011.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from toolscript.domain import search
from toolscript.domain.catalog import Skill, SkillMember, get_skill_values
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import FieldType, Point, Terms, Vector
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.stores import SkillStore
from toolscript.retrieval.clusters import find_clusters
from toolscript.retrieval.reconcile import Payload, Reconciler
from toolscript.retrieval.text.item_text import build_skill_text
from toolscript.services.catalogue.item_points import TOOLS, describe_vector

SKILLS = "mcp_skills"
SKILL_FIELDS = {"skill_id": FieldType.KEYWORD, "is_active": FieldType.BOOL}
# Increased when points are built differently, so that the next sync builds them again.
RECIPE = 4
# Up to this number every tool is a facet; above it, the number of facets grows with the square root of the tools.
ALL_FACETS = 16
MAX_FACETS = 120
MAX_ROUNDS = 3

# Its facets are the topics of the tools without an active skill.
NO_SKILL = Skill("", "", "", is_active=False)

SkillsAndMembers = tuple[list[Skill], dict[str, list[SkillMember]]]


def skills_collection(model: str, dimensions: int) -> search.Collection:
    return search.Collection(SKILLS, model, dimensions, SKILL_FIELDS)


class _SkillVector(NamedTuple):
    """A vector of a skill; for a facet, its group of tools and how tight that is."""

    vector: Vector
    tightness: float = 1.0
    members: Sequence[SkillMember] = ()


@dataclass(slots=True)
class _SkillDraft:
    """The points of a skill: its own, then its facets."""

    skill: Skill
    members: Sequence[SkillMember]
    model: str
    sources: Sequence[str]
    """What the vectors of its members are made of."""
    parts: list[_SkillVector] = field(default_factory=list)
    """None before its tools are read, and for a skill without indexed tools."""

    @property
    def key(self) -> str:
        return self.skill.id

    @property
    def texts(self) -> Mapping[str, str]:
        return {} if self.skill is NO_SKILL else {self.skill.id: build_skill_text(self.skill)}

    def is_current(self, existing: Mapping[str, Payload]) -> bool:
        fingerprint = self._compute_fingerprint()
        return bool(existing) and all(
            p["fingerprint"] == fingerprint and p["parts"] == len(existing) for p in existing.values()
        )

    async def read_tools(self, index: VectorIndex) -> None:
        """Computes the parts from the tools in the index."""
        ids = [m.item_id for m in self.members]
        vectors = await index.vectors(TOOLS, ids)
        payloads = await index.payloads(TOOLS, ids, ["vector_of"])
        # What the vectors are made of, not what they should be: if a tool's point is stale, its skills' points are too.
        self.sources = [str(payloads[i].get("vector_of")) if i in payloads and i in vectors else "" for i in ids]
        indexed = [m for m in self.members if m.item_id in vectors]
        if indexed:
            rows = np.stack([vectors[m.item_id] for m in indexed])
            weights = np.array([m.confidence for m in indexed], dtype=np.float32)
            self.parts = await asyncio.to_thread(_compute_parts, rows, weights, indexed)

    def build_points(self, vectors: Mapping[str, Vector]) -> Sequence[Point]:
        # The first is the skill's own. No skill has none, and no description either.
        parts = self.parts[1:] if self.skill is NO_SKILL else [*self.parts, _SkillVector(vectors[self.skill.id])]
        first = int(self.skill is NO_SKILL)
        payload: dict[str, Any] = {
            "id": self.skill.id,
            "skill_id": self.skill.id,
            "name": self.skill.name,
            "description": self.skill.description,
            "tool_count": len(self.members),
            "is_active": self.skill.is_active,
            "parts": len(parts),
            "fingerprint": self._compute_fingerprint(),
        }
        return [
            Point(
                f"{self.skill.id}#{number}" if number else self.skill.id,
                part.vector,
                Terms(),
                {
                    **payload,
                    "tightness": part.tightness,
                    "is_facet": number > 0,
                    "tools": [m.item_id for m in part.members if m.is_primary],
                    "also": [m.item_id for m in part.members if not m.is_primary],
                },
            )
            for number, part in enumerate(parts, start=first)
        ]

    def _compute_fingerprint(self) -> str:
        pairs = zip(self.members, self.sources, strict=True)
        tools = [[m.item_id, m.confidence, m.is_primary, source] for m, source in pairs]
        made_of = [RECIPE, self.model, get_skill_values(self.skill), tools]
        return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]


class SkillPoints:
    """Keeps the points of skills at what the store says of skills and their items."""

    def __init__(self, skill_store: SkillStore, index: VectorIndex, embedder: Embedder) -> None:
        self._skill_store = skill_store
        self._index = index
        self._model = embedder.model
        self._reconciler = Reconciler(index, embedder, SKILLS, key_field="skill_id")

    async def refresh(self, skill_ids: Collection[str] | None = None) -> int:
        """Brings the points of these skills (None: of all) up to date and returns how many skills had changed.

        An interrupted refresh is completed by the next one, and without changes nothing is written. Another process may
        change the store and the same points meanwhile: after writing, the store is compared again, a few times at most.
        """
        content, changed = await self._read_store(skill_ids), 0
        for _ in range(MAX_ROUNDS):
            done = await self._reconcile(content, skill_ids)
            changed += done
            before, content = content, await self._read_store(skill_ids) if done else content
            if content == before:
                break
        return changed

    async def _read_store(self, skill_ids: Collection[str] | None) -> SkillsAndMembers:
        skills = [s for s in await self._skill_store.list_skills() if skill_ids is None or s.id in skill_ids]
        members = await self._skill_store.get_members(None if skill_ids is None else list(skill_ids))
        if NO_SKILL.id in members:
            skills.append(NO_SKILL)
        return skills, members

    async def _reconcile(self, content: SkillsAndMembers, skill_ids: Collection[str] | None) -> int:
        skills, members = content
        must = () if skill_ids is None else (Condition("skill_id", Op.IN, sorted(skill_ids)),)
        existing = await self._reconciler.find(Filter(must=must), ["skill_id", "fingerprint", "parts"])
        plan = await self._reconciler.plan([self._draft(s, members.get(s.id, [])) for s in skills], existing)
        for draft in plan.stale:
            await draft.read_tools(self._index)
        await self._reconciler.embed(plan)
        await self._reconciler.apply(plan)
        return len(plan.stale) + bool(plan.gone)

    def _draft(self, skill: Skill, members: Sequence[SkillMember]) -> _SkillDraft:
        sources = [describe_vector(self._model, m.digest) for m in members]
        return _SkillDraft(skill, members, self._model, sources)


def _compute_parts(rows: Any, weights: Any, members: Sequence[SkillMember]) -> list[_SkillVector]:
    """The skill's own vector, then its facets. Each has its tightness, the length of the mean of its tools' vectors: 1
    if the tools are the same, less the more they differ."""
    mean = (rows * weights[:, None]).sum(axis=0) / weights.sum()
    length = float(np.linalg.norm(mean))
    centre = np.asarray(mean / length, dtype=np.float32) if length else rows[0]
    tools = len(rows)
    count = tools if tools <= ALL_FACETS else min(MAX_FACETS, math.ceil(math.sqrt(ALL_FACETS * tools)))
    facets = find_clusters(rows, count, starts=1)
    return [
        _SkillVector(centre, length),
        *(_SkillVector(f.centroid, f.cohesion, [members[n] for n in f.members]) for f in facets),
    ]
