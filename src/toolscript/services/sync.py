"""The write path of the catalogue: fetch, compare, store (the truth), embed what changed, index.

No transaction spans store and index. Every point carries a fingerprint of what it was made from, so a sync that
was cut short, at any moment, is completed by the next one, and a sync of nothing new does nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from toolscript.domain import search
from toolscript.domain.catalog import Item, StoredItem
from toolscript.domain.search import FieldType, Point
from toolscript.ports import CatalogStore, Embedder, VectorIndex
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
RECIPE = 1

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


class Sync:
    """Brings catalogue and index to what the servers offer now."""

    def __init__(
        self,
        catalog: CatalogStore,
        index: VectorIndex,
        embedder: Embedder | None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called whenever a sync has changed the catalogue."""
        self._on_change = on_change
        self._catalog = catalog
        self._index = index
        self._embedder = embedder

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
        offered = {item.id: item for item in items}
        stored = {s.item.id: s for s in await self._catalog.items(active_only=False)}
        ours = [s for s in stored.values() if servers is None or s.item.server in servers]
        added = [i for i in offered.values() if i.id not in stored]
        changed = [i for i in offered.values() if i.id in stored and _differs(stored[i.id], i)]
        vanished = [s.item.id for s in ours if s.is_active and s.item.id not in offered]
        if added or changed:
            await self._catalog.save_items([(i, frozenset(item_frequencies(i))) for i in [*added, *changed]])
        if vanished:
            await self._catalog.deactivate(vanished)
        if added or changed or vanished:
            self._on_change()
        indexed, removed = await self.index_catalogue(progress)
        report = SyncReport(len(added), len(changed), len(vanished), indexed, removed)
        log.info("synced", extra=asdict(report))
        return report

    async def index_catalogue(self, progress: Progress | None = None) -> tuple[int, int]:
        """Makes the index hold exactly the active items of the catalogue; returns points written and removed."""
        active = {s.item.id: s for s in await self._catalog.items()}
        model = self._embedder.model if self._embedder else ""
        held = {c.id: c.payload.get("fingerprint") for c in await self._index.scroll(TOOLS, fields=["fingerprint"])}
        stale = [s for i, s in active.items() if held.get(i) != _fingerprint(s, model)]
        for start in range(0, len(stale), BATCH):
            await self._index.upsert(TOOLS, await self._points(stale[start : start + BATCH], model))
            if progress:
                progress(min(start + BATCH, len(stale)), len(stale))
        gone = [i for i in held if i not in active]
        await self._index.delete(TOOLS, gone)
        return len(stale), len(gone)

    async def _points(self, stored: Sequence[StoredItem], model: str) -> list[Point]:
        texts = [item_text(s.item) for s in stored]
        vectors = await self._embedder.embed_documents(texts) if self._embedder else [None] * len(texts)
        return [
            Point(
                id=s.item.id,
                vector=vector,
                terms=document_terms(item_frequencies(s.item), ITEM_AVERAGE_LENGTH),
                payload={**item_payload(s), "fingerprint": _fingerprint(s, model)},
            )
            for s, vector in zip(stored, vectors, strict=True)
        ]


def _differs(stored: StoredItem, item: Item) -> bool:
    return not stored.is_active or stored.item.digest != item.digest


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


def _fingerprint(stored: StoredItem, model: str) -> str:
    made_of = [RECIPE, model, stored.item.digest, item_payload(stored)]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:32]
