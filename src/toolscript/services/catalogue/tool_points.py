"""The points of items in the index: what they consist of, and where their vectors come from.

Every point has a fingerprint of everything it was built from, and one of what its vector was: a stale point is
recognised, and a vector that is still right is never computed twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolscript.domain import search
from toolscript.domain.catalog import Assignment, ItemFingerprint, StoredItem
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.domain.search import FieldType, Point, Vector
from toolscript.ports.indexes import VectorCache, VectorIndex
from toolscript.ports.models import Embedder
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.reconcile import Payload, ReconcilePlan, Reconciler
from toolscript.retrieval.text.item_text import ITEM_AVERAGE_LENGTH, build_item_text, item_frequencies

TOOLS = "mcp_unified_search"
TOOL_FIELDS = {
    "type": FieldType.KEYWORD,
    "server": FieldType.KEYWORD,
    "skill_ids": FieldType.KEYWORD,
    "is_active": FieldType.BOOL,
}
# The fields that a sync compares.
SYNC_FIELDS = ("fingerprint", "vector_of", "skill_ids")
# Increased when points are built differently, so that the next sync builds them again.
RECIPE = 3
TEXT_RECIPE = 2


def tools_collection(model: str, dimensions: int) -> search.Collection:
    """The collection of all items."""
    return search.Collection(TOOLS, model, dimensions, TOOL_FIELDS)


@dataclass(frozen=True, slots=True)
class _ToolDraft:
    """The one point of an item."""

    stored: StoredItem
    fingerprint: str
    source: str
    """What its vector is made of."""

    @property
    def key(self) -> str:
        return self.stored.item.id

    @property
    def texts(self) -> Mapping[str, str]:
        return {self.source: build_item_text(self.stored.item)}

    def is_current(self, existing: Mapping[str, Payload]) -> bool:  # noqa: ARG002
        """Never: a sync compares fingerprints before it reads an item, and reads those that it will write."""
        return False

    def build_points(self, vectors: Mapping[str, Vector]) -> Sequence[Point]:
        item = self.stored.item
        payload = {**build_payload(self.stored), "fingerprint": self.fingerprint, "vector_of": self.source}
        terms = document_terms(item_frequencies(item), ITEM_AVERAGE_LENGTH)
        return [Point(item.id, vectors.get(self.source), terms, payload)]


class ToolPoints:
    """Reads and writes the points of items."""

    def __init__(self, index: VectorIndex, embedder: Embedder | None, cache: VectorCache | None) -> None:
        self._index = index
        self._cache = cache if embedder else None
        self._model = embedder.model if embedder else ""
        self._reconciler = Reconciler(index, embedder, TOOLS, digest_field="vector_of")
        self.servers: frozenset[str] = frozenset()
        """The servers whose vectors the cache keeps."""
        self.embedded = 0
        """The number of texts embedded so far."""

    async def find(self, servers: Collection[str] | None) -> dict[str, Payload]:
        """The points of these servers (None: of all) by id."""
        where = EVERYTHING if servers is None else Filter(must=(Condition("server", Op.IN, sorted(servers)),))
        return await self._reconciler.find(where, SYNC_FIELDS)

    async def find_by_id(self, item_ids: Collection[str]) -> dict[str, Payload]:
        """The points of these items by id."""
        return await self._reconciler.find_by_id(sorted(item_ids), SYNC_FIELDS)

    def is_current(self, item: ItemFingerprint, point: Payload | None) -> bool:
        """Whether the item's point is up to date."""
        expected = self._compute_fingerprint(item.number, item.digest, item.assignments)
        return point is not None and point.get("fingerprint") == expected

    def has_vector(self, point: Payload | None, digest: str) -> bool:
        """Whether the point has the vector of an item with that digest."""
        return point is not None and point.get("vector_of") == describe_vector(self._model, digest)

    async def read_cache(self, digests: Mapping[str, str]) -> dict[str, Vector]:
        """The cached vectors of these items (id to digest)."""
        if self._cache is None or not digests:
            return {}
        wanted = {i: _describe_text(digest) for i, digest in digests.items()}
        return await self._cache.find(self.servers, self._model, wanted)

    async def write_cache(self, vectors: Mapping[str, tuple[str, Vector]]) -> None:
        """Caches vectors (id to digest and vector) for later runs."""
        if self._cache and vectors:
            described = {i: (_describe_text(digest), vector) for i, (digest, vector) in vectors.items()}
            await self._cache.keep(self.servers, self._model, described)

    async def copy_cache(self, digests: Mapping[str, str]) -> None:
        """Copies what other configurations cached of these items, if nothing is cached for these servers yet."""
        if self._cache and not await self._cache.has(self.servers):
            found = await self.read_cache(digests)
            await self.write_cache({i: (digests[i], vector) for i, vector in found.items()})

    async def compute_vectors(
        self, items: Sequence[StoredItem], existing: Mapping[str, Payload], cached: Mapping[str, Vector]
    ) -> dict[str, Vector]:
        """The vector of each item by id: that of its point if it is still right, else the cached one, else a new one.
        None without an embedder."""
        drafts = [self._draft(stored) for stored in items]
        points = {draft.key: existing[draft.key] for draft in drafts if draft.key in existing}
        plan = await self._reconciler.plan(drafts, points)
        for draft in drafts:
            if draft.key in cached:
                plan.vectors.setdefault(draft.source, cached[draft.key])
        self.embedded += await self._reconciler.embed(plan)
        return {draft.key: plan.vectors[draft.source] for draft in drafts if draft.source in plan.vectors}

    async def write(self, items: Sequence[StoredItem], vectors: Mapping[str, Vector]) -> None:
        """Writes the points of these items."""
        drafts = [self._draft(stored) for stored in items]
        by_source = {draft.source: vectors[draft.key] for draft in drafts if draft.key in vectors}
        await self._reconciler.apply(ReconcilePlan(drafts, gone={}, existing={}, vectors=by_source))

    async def remove(self, ids: Sequence[str]) -> None:
        """Removes points."""
        await self._index.delete(TOOLS, ids)

    async def count(self) -> int:
        """The number of points."""
        return await self._index.count(TOOLS)

    def _draft(self, stored: StoredItem) -> _ToolDraft:
        digest = stored.item.digest
        fingerprint = self._compute_fingerprint(stored.number, digest, stored.assignments)
        return _ToolDraft(stored, fingerprint, describe_vector(self._model, digest))

    def _compute_fingerprint(self, number: int, digest: str, assignments: Sequence[Assignment]) -> str:
        skills = [[a.skill_id, a.is_primary] for a in assignments]
        return hashlib.sha256(json.dumps([RECIPE, self._model, digest, number, skills]).encode()).hexdigest()[:32]


def describe_vector(model: str, digest: str) -> str:
    """What a vector is made of: the model, and the text of an item with that digest."""
    return f"{model}-{_describe_text(digest)}"


def build_payload(stored: StoredItem) -> dict[str, Any]:
    """The fields of an item's point that searches return."""
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


def _describe_text(digest: str) -> str:
    return f"{TEXT_RECIPE}-{digest}"
