"""The skills in the index: of each its own vector, and the vectors of the parts that its tools fall into.

A skill's vector is the mean of its tools' vectors, weighted by how surely each belongs (while it has none, that of its
description). One vector cannot stand for tools as different as those of a broad skill, so beside it lie facets: the
centres of groups of its tools, each with how tightly its group lies around it. Why: docs/decisions/0011.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from toolscript.domain import search
from toolscript.domain.catalog import Skill, SkillMember
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import Candidate, FieldType, Point, Terms, Vector
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.stores import SkillStore
from toolscript.retrieval.clusters import find_clusters
from toolscript.retrieval.text.item_text import build_skill_text
from toolscript.services.catalogue.tool_points import TOOLS, vector_of

SKILLS = "mcp_skills"
SKILL_FIELDS = {"skill_id": FieldType.KEYWORD, "is_active": FieldType.BOOL}
# Raised when points are built differently, so that the next sync builds them anew.
RECIPE = 2
# So many tools each are a facet of their own; of more, the number of facets grows with the root of theirs.
ALL_FACETS = 16
MAX_FACETS = 120
MAX_ROUNDS = 3

Told = tuple[list[Skill], dict[str, list[SkillMember]]]


def skills_collection(model: str, dimensions: int) -> search.Collection:
    """The collection of all skills."""
    return search.Collection(SKILLS, model, dimensions, SKILL_FIELDS)


class SkillPoints:
    """Keeps the index at what the store says of skills and their items."""

    def __init__(self, skill_store: SkillStore, index: VectorIndex, embedder: Embedder) -> None:
        self._skill_store = skill_store
        self._index = index
        self._embedder = embedder

    async def refresh(self, skill_ids: Collection[str] | None = None) -> int:
        """Makes the points of those skills (of all) current and returns how many skills had changed.

        Every point carries a fingerprint of what it was made from: what was cut short is completed by the next
        refresh, and a refresh of nothing new writes nothing. Another process may change the store and the same points
        meanwhile: what was written is compared with the store afterwards, a few times if need be.
        """
        told, changed = await self._told(skill_ids), 0
        for _ in range(MAX_ROUNDS):
            done = await self._bring_to(told, skill_ids)
            changed += done
            before, told = told, await self._told(skill_ids) if done else told
            if told == before:
                break
        return changed

    async def _told(self, skill_ids: Collection[str] | None) -> Told:
        """What the store says of those skills (of all) and their items."""
        skills = [s for s in await self._skill_store.list_skills() if skill_ids is None or s.id in skill_ids]
        return skills, await self._skill_store.get_members(None if skill_ids is None else list(skill_ids))

    async def _bring_to(self, told: Told, skill_ids: Collection[str] | None) -> int:
        skills, members = told
        held: dict[str, list[Candidate]] = defaultdict(list)
        asked = () if skill_ids is None else (Condition("skill_id", Op.IN, sorted(skill_ids)),)
        found = await self._index.scroll(SKILLS, where=Filter(must=asked), fields=["skill_id", "fingerprint", "parts"])
        for point in found:
            held[point.payload["skill_id"]].append(point)
        changed = 0
        for skill in skills:
            own = members.get(skill.id, [])
            made_of = [vector_of(self._embedder.model, m.digest) for m in own]
            if not _is_current(held.get(skill.id, []), self._fingerprint(skill, own, made_of)):
                await self._write(skill, own, held.get(skill.id, []))
                changed += 1
        there = {skill.id for skill in skills}
        gone = [p.id for skill_id, points in held.items() if skill_id not in there for p in points]
        await self._index.delete(SKILLS, gone)
        return changed + bool(gone)

    async def _write(self, skill: Skill, members: Sequence[SkillMember], old: Sequence[Candidate]) -> None:
        ids = [m.item_id for m in members]
        vectors = await self._index.vectors(TOOLS, ids)
        told = await self._index.payloads(TOOLS, ids, ["vector_of"])
        # What the vectors are made of, not what they should be: with a tool that is behind, its skills are, too.
        made_of = [str(told[i].get("vector_of")) if i in told and i in vectors else "" for i in ids]
        placed = [m for m in members if m.item_id in vectors]
        if placed:
            rows = np.stack([vectors[m.item_id] for m in placed])
            weights = np.array([m.confidence for m in placed], dtype=np.float32)
            parts = await asyncio.to_thread(_parts, rows, weights)
        else:
            (described,) = await self._embedder.embed_documents([build_skill_text(skill)])
            parts = [(described, 1.0)]
        payload: dict[str, Any] = {
            "id": skill.id,
            "skill_id": skill.id,
            "name": skill.name,
            "description": skill.description,
            "tool_count": len(members),
            "is_active": skill.is_active,
            "parts": len(parts),
            "fingerprint": self._fingerprint(skill, members, made_of),
        }
        points = [_point(n, vector, tightness, payload) for n, (vector, tightness) in enumerate(parts)]
        await self._index.upsert(SKILLS, points)
        left = {p.id for p in old} - {p.id for p in points}
        await self._index.delete(SKILLS, sorted(left))

    def _fingerprint(self, skill: Skill, members: Sequence[SkillMember], vectors: Sequence[str]) -> str:
        tools = [[m.item_id, m.confidence, vector] for m, vector in zip(members, vectors, strict=True)]
        made_of = [RECIPE, self._embedder.model, astuple(skill), tools]
        return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]


def _parts(rows: Any, weights: Any) -> list[tuple[Vector, float]]:
    """The skill's own vector first, then its facets, each with the length of the mean that it is the direction of: 1
    where all its tools are the same, less the further they lie apart."""
    mean = (rows * weights[:, None]).sum(axis=0) / weights.sum()
    length = float(np.linalg.norm(mean))
    own = np.asarray(mean / length, dtype=np.float32) if length else rows[0]
    facets = find_clusters(rows, _facets(len(rows)), starts=1)
    return [(own, length), *((facet.centroid, facet.cohesion) for facet in facets)]


def _facets(tools: int) -> int:
    return tools if tools <= ALL_FACETS else min(MAX_FACETS, math.ceil(math.sqrt(ALL_FACETS * tools)))


def _point(number: int, vector: Vector, tightness: float, payload: dict[str, Any]) -> Point:
    is_own = number == 0
    told = {**payload, "tightness": tightness, "is_facet": not is_own}
    return Point(payload["skill_id"] if is_own else f"{payload['skill_id']}#{number}", vector, Terms(), told)


def _is_current(held: Sequence[Candidate], fingerprint: str) -> bool:
    return bool(held) and all(p.payload["fingerprint"] == fingerprint and p.payload["parts"] == len(held) for p in held)
