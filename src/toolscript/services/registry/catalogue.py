"""Servers that are not connected: reads registries into a catalogue of its own, and searches in it.

The store is the truth, the index is derived from it. An entry is no tool: nothing here lists, calls or installs one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from toolscript.domain.catalog import Item
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import IndexDamaged, Invalid, NotFound
from toolscript.domain.limits import current_limits
from toolscript.domain.registry.entry import RegistryEntry, RegistryStatus, choose_latest
from toolscript.domain.registry.launch import list_launches
from toolscript.domain.requests import current_request
from toolscript.domain.search import MAX_TASK_CHARACTERS, SearchReport
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.observability import EventSink
from toolscript.ports.registries import RegistrySource, RegistryStore
from toolscript.retrieval.calibration import calibrate
from toolscript.retrieval.fusion import sort_scores, sum_weighted
from toolscript.retrieval.query import QueryRules
from toolscript.retrieval.reconcile import Reconciler
from toolscript.retrieval.retriever import Retriever
from toolscript.retrieval.text.item_text import registry_frequencies
from toolscript.retrieval.text.words import words
from toolscript.services.registry.points import REGISTRY, EntryDraft, registry_collection
from toolscript.services.support.search_events import record_tool_search
from toolscript.services.trust.scanner import load_scanner

RULES = QueryRules(has_content=words, blank_error=Invalid, length_error=Invalid, max_characters=MAX_TASK_CHARACTERS)
DEFAULT_LIMIT = 3
MAX_LIMIT = 20
DEPTH = 100
ALPHA = 0.7
# Below it the nearest servers have little to do with the request.
MIN_CONFIDENCE = 0.25
# For servers that nobody asked for: reached for 88 of 100 requests that a server of 625 serves, 27 of 100 chats, and 1
# of 100 texts without sense.
MIN_SUGGESTED = 0.35
DIGITS = 4
# The clocks of a registry's replicas may differ, and its answer is as old as its cache.
OVERLAP = timedelta(minutes=5)
MAX_NAMED = 10

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RegistryHit:
    """A server that may serve the request."""

    entry: RegistryEntry
    confidence: float


@dataclass(frozen=True, slots=True)
class RegistrySyncReport:
    """What a synchronisation has changed."""

    registry: str
    added: int
    changed: int
    removed: int
    total: int
    withheld: Sequence[str]
    """Entries that are not kept because their texts address the model, with the reasons; the first ones."""
    problems: Sequence[str]
    """Why other entries cannot be used; the first ones."""


class RegistryCatalogue:
    """The servers that registries list."""

    def __init__(
        self,
        source: RegistrySource,
        store: RegistryStore,
        index: VectorIndex,
        embedder: Embedder | None,
        events: EventSink | None = None,
    ) -> None:
        self._source = source
        self._store = store
        self._index = index
        self._embedder = embedder
        self._events = events
        self._retriever = Retriever(embedder, index)
        self._reconciler = Reconciler(index, embedder, REGISTRY)
        self._changing = asyncio.Lock()
        self._is_open = False

    async def sync(self, url: str, *, full: bool = False) -> RegistrySyncReport:
        """Reads a registry: what changed since the last time, or with `full` everything. Raises Unavailable or Invalid
        when it cannot be read; then everything stays as it was."""
        url = url.rstrip("/")
        since = "" if full else _subtract_overlap((await self._store.list_registries()).get(url, ""))
        listing = await self._source.list_entries(url, changed_since=since)
        async with self._changing:
            existing = {entry.id: entry for entry in await self._store.list_entries(url)}
            offered, withheld = await asyncio.to_thread(_choose, listing.entries, existing)
            gone = {i for i in existing if i not in offered} if not since else set[str]()
            gone |= {i for i, entry in offered.items() if entry is None and i in existing}
            changed = [entry for i, entry in offered.items() if entry and entry != existing.get(i)]
            terms = await asyncio.to_thread(lambda: {e.id: frozenset(registry_frequencies(e)) for e in changed})
            now = datetime.now(UTC).isoformat()  # a registry may state any time
            times = [e.updated_at for e in (*existing.values(), *listing.entries) if e.updated_at <= now]
            await self._store.save(url, max(times, default=""), changed, terms, gone)
            await self._refresh_index()
        added = sum(entry.id not in existing for entry in changed)
        for name in withheld:
            log.warning("registry_entry_withheld", extra={"entry": name, "registry": url})
        return RegistrySyncReport(
            url,
            added,
            len(changed) - added,
            len(gone),
            len(existing) + added - len(gone),
            withheld[:MAX_NAMED],
            listing.problems[:MAX_NAMED],
        )

    async def remove(self, url: str) -> None:
        """Removes a registry and its entries. Raises NotFound, naming the registries that were read."""
        async with self._changing:
            if not await self._store.remove_registry(url.rstrip("/")):
                known = [*await self._store.list_registries()]
                raise NotFound(
                    f"no such registry was read: {url}: {' or '.join(known) or 'none was'}", details={"nearest": known}
                )
            await self._refresh_index()

    async def search(self, text: str, *, limit: int = DEFAULT_LIMIT, recorded: bool = True) -> list[RegistryHit]:
        """The servers that may serve a request, best first; the server itself for its name. Raises Invalid for a blank
        or overlong text, and NotFound while no registry was read."""
        if not await self._store.list_registries():
            raise NotFound("no registry was read yet: run `toolscript registry sync`", details={"field": "registry"})
        report, context = SearchReport(), current_request()
        with record_tool_search(self._events if recorded else None, "registry.search", text, report, context):
            hits = await self._search(text, limit, report)
            report.counts["returned"] = len(hits)
        return hits

    async def suggest(self, text: str) -> list[RegistryHit]:
        """The same for an answer that found no tool, where this must not fail: no hits without a registry."""
        if not await self._store.list_registries():
            return []
        hits = await self._search(text, DEFAULT_LIMIT, SearchReport())
        return [hit for hit in hits if hit.confidence >= MIN_SUGGESTED]

    async def _search(self, text: str, limit: int, report: SearchReport) -> list[RegistryHit]:
        named = await self._store.find_by_name(text.strip())
        if named:
            return [RegistryHit(entry, 1.0) for entry in named[:limit]]
        await self._open_index()
        deadline = Deadline(current_limits().tool_embedding, "servers")
        prepared = await self._retriever.prepare(
            text, deadline, report, rules=RULES, count_terms=self._store.count_terms
        )
        legs = await self._retriever.rank(prepared, REGISTRY, report, depth=DEPTH, fields=())
        similarity, full = self._retriever.similarity, prepared.terms.full_score or 1.0
        meaning = {c.id: calibrate(c.score, similarity) for c in legs.dense}
        by_words = {c.id: min(1.0, c.score / full) for c in legs.lexical}
        weight = ALPHA if legs.dense else 0.0
        ranked = sort_scores(sum_weighted([(weight, meaning), (1 - weight, by_words)]))
        near = [(i, round(score, DIGITS)) for i, score in ranked if score >= MIN_CONFIDENCE][:DEPTH]
        entries = await self._store.get_entries([i for i, _ in near])
        hits = [RegistryHit(entries[i], score) for i, score in near if i in entries]
        # What its publisher gave up is behind the others.
        hits.sort(key=lambda hit: hit.entry.status is RegistryStatus.DEPRECATED)
        return hits[:limit]

    async def _open_index(self) -> None:
        """Opens the collection once; where it is not that of this model and store, builds it again."""
        if self._is_open:
            return
        async with self._changing:
            if not self._is_open:
                await self._refresh_index()

    async def _refresh_index(self) -> None:
        model, dimensions = (self._embedder.model, self._embedder.dimensions) if self._embedder else ("none", 1)
        if not self._is_open:
            try:
                existing = await self._index.describe(REGISTRY)
                if existing and (existing.model, existing.dimensions) != (model, dimensions):
                    await self._index.drop(REGISTRY)
                await self._index.open(registry_collection(model, dimensions))
            except IndexDamaged:
                await self._index.drop(REGISTRY)
                await self._index.open(registry_collection(model, dimensions))
        drafts = [EntryDraft(entry) for entry in await self._store.list_entries()]
        plan = await self._reconciler.plan(drafts, await self._reconciler.find())
        await self._reconciler.embed(plan)
        await self._reconciler.apply(plan)
        self._is_open = True


def _choose(
    listed: Sequence[RegistryEntry], existing: dict[str, RegistryEntry]
) -> tuple[dict[str, RegistryEntry | None], list[str]]:
    """The version of each listed server to keep by its id, None if there is none to offer; and what is withheld."""
    versions: dict[str, list[RegistryEntry]] = defaultdict(list)
    for entry in listed:
        versions[entry.id].append(entry)
    chosen: dict[str, RegistryEntry | None] = {}
    withheld = []
    for entry_id, entries in versions.items():
        former = existing.get(entry_id)
        if former and all(entry.version != former.version for entry in entries):
            entries.append(former)
        best = choose_latest(entries)
        if best.status is RegistryStatus.DELETED:
            chosen[entry_id] = None
        elif best is not former and (reason := _find_order(best)):
            withheld.append(f"{best.name} {best.version}: {reason}")
            chosen[entry_id] = None
        else:
            chosen[entry_id] = best
    return chosen, withheld


def _find_order(entry: RegistryEntry) -> str:
    """Why a text that a model would read addresses it; empty if none does."""
    inputs = {i.name: i.description for launch in list_launches(entry) for i in launch.inputs}
    shown = {"inputs": inputs, "version": entry.version, "status": entry.status_message}
    item = Item("registry", entry.name, entry.description, title=entry.title, definition=shown)
    findings = load_scanner().scan(item)
    return findings[0].describe() if findings else ""


def _subtract_overlap(changed_until: str) -> str:
    try:
        return (datetime.fromisoformat(changed_until) - OVERLAP).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):  # none is known, or it is the year 1
        return ""
