"""The items in the index: what a point of one is made of, and where its vector comes from.

Every point carries a fingerprint of what it was made from, and of what its vector was: an index that was left behind
is seen to be, and a vector that is still right is never made twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolscript.domain import search
from toolscript.domain.catalog import Assignment, StoredItem
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.domain.search import FieldType, Point, Vector
from toolscript.ports.indexes import VectorCache, VectorIndex
from toolscript.ports.models import Embedder
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.text.item_text import ITEM_AVERAGE_LENGTH, build_item_text, item_frequencies

TOOLS = "mcp_unified_search"
TOOL_FIELDS = {
    "type": FieldType.KEYWORD,
    "server": FieldType.KEYWORD,
    "skill_ids": FieldType.KEYWORD,
    "is_active": FieldType.BOOL,
}
HELD_FIELDS = ("fingerprint", "vector_of", "skill_ids")
# Raised when points are built differently, so that the next sync builds them anew.
RECIPE = 3
TEXT_RECIPE = 2


def tools_collection(model: str, dimensions: int) -> search.Collection:
    """The collection of all items."""
    return search.Collection(TOOLS, model, dimensions, TOOL_FIELDS)


@dataclass(frozen=True, slots=True)
class IndexedTool:
    """What the index says of a point that it holds."""

    fingerprint: str
    vector_of: str
    skill_ids: tuple[str, ...]


class ToolPoints:
    """Reads and writes the points of items."""

    def __init__(self, index: VectorIndex, embedder: Embedder | None, cache: VectorCache | None) -> None:
        self._index = index
        self._embedder = embedder
        self._cache = cache
        self._model = embedder.model if embedder else ""
        self.configured: frozenset[str] = frozenset()
        """The servers that vectors are kept for."""
        self.embedded = 0
        """How many texts had to be embedded so far."""

    async def held(self, servers: Collection[str] | None) -> dict[str, IndexedTool]:
        """The points of those servers (of all)."""
        where = EVERYTHING if servers is None else Filter(must=(Condition("server", Op.IN, sorted(servers)),))
        found = await self._index.scroll(TOOLS, where=where, fields=HELD_FIELDS)
        return {c.id: _held(c.payload) for c in found}

    async def held_of(self, item_ids: Collection[str]) -> dict[str, IndexedTool]:
        """The points of these items."""
        found = await self._index.payloads(TOOLS, sorted(item_ids), HELD_FIELDS)
        return {item_id: _held(payload) for item_id, payload in found.items()}

    def fingerprint(self, number: int, digest: str, assignments: Sequence[Assignment]) -> str:
        """What a point of that item must carry to be current."""
        skills = [[a.skill_id, a.is_primary] for a in assignments]
        made_of = [RECIPE, self._model, digest, number, skills]
        return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]

    def has_vector(self, held: IndexedTool | None, digest: str) -> bool:
        """Whether the point that is held has the vector of that digest."""
        return held is not None and held.vector_of == vector_of(self._model, digest)

    async def kept(self, digests: Mapping[str, str]) -> dict[str, Vector]:
        """The vectors of these items (id to digest) that earlier runs have kept."""
        if self._cache is None or self._embedder is None or not digests:
            return {}
        wanted = {i: _text_of(digest) for i, digest in digests.items()}
        return await self._cache.find(self.configured, self._model, wanted)

    async def keep(self, vectors: Mapping[str, tuple[str, Vector]]) -> None:
        """Keeps vectors (id to digest and vector) for later runs."""
        if self._cache and self._embedder and vectors:
            kept = {i: (_text_of(digest), vector) for i, (digest, vector) in vectors.items()}
            await self._cache.keep(self.configured, self._model, kept)

    async def take_over(self, digests: Mapping[str, str]) -> None:
        """Keeps for these servers what other configurations have kept of their items, unless that was done before."""
        if self._cache and not await self._cache.has(self.configured):
            known = await self.kept(digests)
            await self.keep({i: (digests[i], vector) for i, vector in known.items()})

    async def vectors(
        self, items: Sequence[StoredItem], held: Mapping[str, IndexedTool], kept: Mapping[str, Vector]
    ) -> dict[str, Vector]:
        """Of each item its vector: the one that its point has, if it is still right; one that was kept; a new one."""
        if self._embedder is None:
            return {}
        there = [s.item.id for s in items if self.has_vector(held.get(s.item.id), s.item.digest)]
        known = await self._index.vectors(TOOLS, there)
        known.update({s.item.id: kept[s.item.id] for s in items if s.item.id in kept and s.item.id not in known})
        new = [s.item for s in items if s.item.id not in known]
        if new:
            made = await self._embedder.embed_documents([build_item_text(i) for i in new])
            known.update(zip((i.id for i in new), made, strict=True))
            self.embedded += len(new)
        return known

    async def write(self, items: Sequence[StoredItem], vectors: Mapping[str, Vector]) -> None:
        """Writes the points of these items."""
        await self._index.upsert(TOOLS, [self._point(s, vectors.get(s.item.id)) for s in items])

    async def remove(self, ids: Sequence[str]) -> None:
        """Removes points."""
        await self._index.delete(TOOLS, ids)

    async def count(self) -> int:
        """How many points there are."""
        return await self._index.count(TOOLS)

    def _point(self, stored: StoredItem, vector: Vector | None) -> Point:
        item = stored.item
        digest = item.digest
        payload = {
            **item_payload(stored),
            "fingerprint": self.fingerprint(stored.number, digest, stored.assignments),
            "vector_of": vector_of(self._model, digest),
        }
        return Point(item.id, vector, document_terms(item_frequencies(item), ITEM_AVERAGE_LENGTH), payload)


def _held(payload: Mapping[str, Any]) -> IndexedTool:
    skill_ids = tuple(payload.get("skill_ids") or ())
    return IndexedTool(payload.get("fingerprint", ""), payload.get("vector_of", ""), skill_ids)


def vector_of(model: str, digest: str) -> str:
    """What a point says that its vector was made of: that model, the text of that digest."""
    return f"{model}-{_text_of(digest)}"


def item_payload(stored: StoredItem) -> dict[str, Any]:
    """What the index tells of an item that it finds."""
    item = stored.item
    primary = next((a.skill_id for a in stored.assignments if a.is_primary), None)
    return {
        "type": item.type.value,
        "server": item.server,
        "name": item.name,
        "description": item.description,
        "db_id": stored.number,
        "skill_ids": [a.skill_id for a in stored.assignments],
        "primary_skill_id": primary,
        "is_active": stored.is_active,
    }


def _text_of(digest: str) -> str:
    return f"{TEXT_RECIPE}-{digest}"
