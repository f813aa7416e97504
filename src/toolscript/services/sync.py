"""The write path of the catalogue: fetch, compare, store (the truth), embed what changed, index.

No transaction spans store and index. Every point carries a fingerprint of what it was made from, so a sync that
was cut short, at any moment, is completed by the next one, and a sync of nothing new does nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from toolscript.domain import search
from toolscript.domain.catalog import Item, ItemMark, StoredItem
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.domain.search import FieldType, Point, Vector
from toolscript.ports import CatalogStore, Embedder, VectorCache, VectorIndex
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.texts import ITEM_AVERAGE_LENGTH, item_frequencies, item_text

TOOLS = "mcp_unified_search"
TOOL_FIELDS = {
    "type": FieldType.KEYWORD,
    "server": FieldType.KEYWORD,
    "skill_ids": FieldType.KEYWORD,
    "is_active": FieldType.BOOL,
}
BATCH = 64
# Raised when points are built differently, so that the next sync builds them anew.
RECIPE = 2

Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)


def tools_collection(model: str, dimensions: int) -> search.Collection:
    """The collection of all items."""
    return search.Collection(TOOLS, model, dimensions, TOOL_FIELDS)


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did."""

    added: int
    changed: int
    vanished: int
    indexed: int
    removed: int
    embedded: int


@dataclass(frozen=True, slots=True)
class Indexed:
    """What making the index current took: points written, points removed, texts embedded."""

    written: int
    removed: int
    embedded: int


class Sync:
    """Brings catalogue and index to what the servers offer now. One sync at a time; others wait."""

    def __init__(
        self,
        catalog: CatalogStore,
        index: VectorIndex,
        embedder: Embedder | None,
        *,
        cache: VectorCache | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called whenever a sync has changed the catalogue."""
        self._catalog = catalog
        self._index = index
        self._embedder = embedder
        self._cache = cache
        self._on_change = on_change
        self.embedded = 0
        """How many texts had to be embedded so far."""
        self._configured: frozenset[str] = frozenset()
        self._turn = asyncio.Lock()

    async def configure(self, servers: Collection[str], *, progress: Progress | None = None) -> None:
        """Says which servers there are: what the catalogue holds of others is retired, vectors that other
        configurations left behind are taken over, and an index that has lost its points gets them back."""
        async with self._turn:
            self._configured = frozenset(servers)
            marks = await self._catalog.marks()
            gone = [m.id for m in marks if m.is_active and m.server not in self._configured]
            if gone:
                await self._catalog.deactivate(gone)
                self._on_change()
            await self._index.delete(TOOLS, gone)
            kept = [m for m in marks if m.is_active and m.server in self._configured]
            if await self._index.count(TOOLS) != len(kept):
                await self._index_marks(None, kept, progress)
            await self._take_over(kept)

    async def run(
        self,
        items: Sequence[Item],
        *,
        servers: Collection[str] | None = None,
        progress: Progress | None = None,
    ) -> SyncReport:
        """Makes the catalogue of the named servers (all, when none are named) exactly these items.

        Of items with the same id the last counts. Items that are no longer offered become inactive.
        """
        async with self._turn:
            if servers is None:
                self._configured = frozenset(item.server for item in items)
            offered = {item.id: item for item in items}
            stored = {m.id: m for m in await self._catalog.marks(servers)}
            added = [i for i in offered.values() if i.id not in stored]
            changed = [i for i in offered.values() if i.id in stored and _differs(stored[i.id], i)]
            vanished = [m.id for m in stored.values() if m.is_active and m.id not in offered]
            if added or changed:
                await self._catalog.save_items([(i, frozenset(item_frequencies(i))) for i in [*added, *changed]])
            if vanished:
                await self._catalog.deactivate(vanished)
            if added or changed or vanished:
                self._on_change()
                stored = {m.id: m for m in await self._catalog.marks(servers)}
            done = await self._index_marks(servers, list(stored.values()), progress)
        report = SyncReport(len(added), len(changed), len(vanished), done.written, done.removed, done.embedded)
        log.info("synced", extra=asdict(report))
        return report

    async def index_catalogue(self, progress: Progress | None = None) -> Indexed:
        """Makes the index hold exactly the active items of the catalogue."""
        async with self._turn:
            marks = await self._catalog.marks()
            self._configured = self._configured or frozenset(m.server for m in marks)
            return await self._index_marks(None, marks, progress)

    async def _index_marks(
        self, servers: Collection[str] | None, marks: Sequence[ItemMark], progress: Progress | None
    ) -> Indexed:
        """Makes the points of those servers (of all) those of the active ones among the marks."""
        where = EVERYTHING if servers is None else Filter(must=(Condition("server", Op.IN, sorted(servers)),))
        active = {m.id: m for m in marks if m.is_active}
        model = self._embedder.model if self._embedder else ""
        points = await self._index.scroll(TOOLS, where=where, fields=["fingerprint"])
        held = {c.id: c.payload.get("fingerprint") for c in points}
        stale = [m for i, m in active.items() if held.get(i) != _fingerprint(m, model)]
        embedded = await self._write(stale, model, progress) if stale else 0
        gone = [i for i in held if i not in active]
        await self._index.delete(TOOLS, gone)
        return Indexed(len(stale), len(gone), embedded)

    async def _write(self, stale: Sequence[ItemMark], model: str, progress: Progress | None) -> int:
        """Writes the points of those items and returns how many texts had to be embedded for it."""
        known = await self._known(stale, model)
        made: dict[str, Vector] = {}
        for start in range(0, len(stale), BATCH):
            marks = stale[start : start + BATCH]
            items = await self._catalog.items([m.id for m in marks])
            new = [s.item for s in items if s.item.id not in known]
            if self._embedder and new:
                vectors = await self._embedder.embed_documents([item_text(i) for i in new])
                made.update(zip((i.id for i in new), vectors, strict=True))
                self.embedded += len(new)
            fingerprints = {m.id: _fingerprint(m, model) for m in marks}
            points = [_point(s, made.get(s.item.id, known.get(s.item.id)), fingerprints[s.item.id]) for s in items]
            await self._index.upsert(TOOLS, points)
            if progress:
                progress(min(start + BATCH, len(stale)), len(stale))
        if self._cache and (known or made):
            kept = {m.id: (_cache_key(m), v) for m in stale if (v := made.get(m.id, known.get(m.id))) is not None}
            await self._cache.keep(self._configured, model, kept)
        return len(made)

    async def _known(self, marks: Sequence[ItemMark], model: str) -> Mapping[str, Vector]:
        if self._cache is None or self._embedder is None:
            return {}
        return await self._cache.find(self._configured, model, {m.id: _cache_key(m) for m in marks})

    async def _take_over(self, marks: Sequence[ItemMark]) -> None:
        if self._cache and self._embedder and not await self._cache.has(self._configured):
            known = await self._known(marks, self._embedder.model)
            if known:
                kept = {m.id: (_cache_key(m), known[m.id]) for m in marks if m.id in known}
                await self._cache.keep(self._configured, self._embedder.model, kept)


def _point(stored: StoredItem, vector: Vector | None, fingerprint: str) -> Point:
    return Point(
        id=stored.item.id,
        vector=vector,
        terms=document_terms(item_frequencies(stored.item), ITEM_AVERAGE_LENGTH),
        payload={**item_payload(stored), "fingerprint": fingerprint},
    )


def _differs(mark: ItemMark, item: Item) -> bool:
    return not mark.is_active or mark.digest != item.digest


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


def _fingerprint(mark: ItemMark, model: str) -> str:
    skills = [[a.skill_id, a.is_primary] for a in mark.assignments]
    made_of = [RECIPE, model, mark.digest, mark.number, skills]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]


def _cache_key(mark: ItemMark) -> str:
    return f"{RECIPE}-{mark.digest}"
