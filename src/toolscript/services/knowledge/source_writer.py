"""Writes sources: into the store (the truth), then into the index.

No transaction spans the two. Texts are embedded before anything is written (this takes most of the time), and a source
gets the status `ready` after the index has it. A write that fails is undone. Repeating an interrupted write completes
it; searches in between find the old source or the new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from toolscript.domain.documents import TERMS_VERSION
from toolscript.domain.errors import Unavailable
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.knowledge import Chunk, Extraction, Source, SourceStatus
from toolscript.domain.search import SearchPart
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.stores import KnowledgeStore
from toolscript.retrieval.reconcile import ReconcilePlan, Reconciler
from toolscript.services.knowledge.points import (
    CHUNKS,
    EXTRACTIONS,
    KnowledgeDraft,
    SourceDrafter,
    count_terms,
    knowledge_collection,
    of_source,
)
from toolscript.services.support.concurrency import Progress

Drafts = Mapping[str, Sequence[KnowledgeDraft]]
Plans = Mapping[str, ReconcilePlan[KnowledgeDraft]]

log = logging.getLogger(__name__)


class SourceWriter:
    """Saves and deletes sources in store and index."""

    def __init__(self, store: KnowledgeStore, index: VectorIndex, embedder: Embedder | None) -> None:
        self._store = store
        self._index = index
        self._embedder = embedder
        self._reconcilers = {name: Reconciler(index, embedder, name) for name in (CHUNKS, EXTRACTIONS)}

    @property
    def embedder(self) -> Embedder:
        """The model. Raises Unavailable without one."""
        if self._embedder is None:
            raise Unavailable(
                "there is no embedding model, and knowledge is searched by meaning: the log says why, and "
                "TOOLSCRIPT_SEARCH_MODEL chooses one",
                details={"adapter": SearchPart.EMBEDDER.value},
            )
        return self._embedder

    @property
    def model(self) -> str | None:
        """The name of the model; None without one."""
        return self._embedder.model if self._embedder else None

    async def open(self) -> None:
        """Opens the collections, or creates them. Raises Invalid when another model made them."""
        for name in self._reconcilers:
            await self._index.open(knowledge_collection(name, self.embedder.model, self.embedder.dimensions))

    async def save(
        self,
        source: Source,
        chunks: Sequence[Chunk],
        extractions: Sequence[Extraction],
        progress: Progress | None = None,
    ) -> int:
        """Saves the source with exactly these chunks and extractions; returns how many had to be embedded. `progress`
        gets the number of texts with a vector and the total. Until the end the source has the status `indexing`. After
        an error the source is as before."""
        drafts = await self._draft(source, chunks, extractions)
        plans = await self._plan(drafts, of_source(source.id))
        await self._require_space(plans)
        embedded = await self._embed(plans, len(chunks) + len(extractions), progress)
        async with self._undo_on_failure(source.id):
            await self._store.replace(source.with_status(SourceStatus.INDEXING), chunks, extractions)
            await self._store.set_term_counts(source.id, count_terms(drafts[CHUNKS]))
            await self._apply(plans)
            await self._store.set_status(source.id, source.status)
        return embedded

    async def add_extractions(
        self,
        source: Source,
        fresh: Sequence[Extraction],
        chunks: Sequence[Chunk],
        extractions: Sequence[Extraction],
        *,
        notes: Mapping[str, Any] | None = None,
    ) -> int:
        """Adds extractions to a saved source that has these chunks, and will have these extractions; returns how many
        had to be embedded. Costs what is added, however large the source is. `notes` become its metadata."""
        touched = {extraction.chunk_id for extraction in fresh}
        drafts = await self._draft(
            source, [c for c in chunks if c.id in touched], [e for e in extractions if e.chunk_id in touched]
        )
        plans = await self._plan(drafts)
        await self._require_space(plans)
        embedded = await self._embed(plans)
        await self._store.set_status(source.id, SourceStatus.INDEXING)
        await self._store.add_extractions(source.id, fresh)
        await self._apply(plans)
        await self._store.set_status(source.id, source.status, notes)
        return embedded

    async def is_indexed(self, source_id: str, chunks: int, extractions: int) -> bool:
        """Whether the index has that many points of a source, with terms of the current version."""
        where = of_source(source_id).with_conditions(Condition("terms", Op.EQ, TERMS_VERSION))
        counts = await self._index.count(CHUNKS, where), await self._index.count(EXTRACTIONS, where)
        return counts == (chunks, extractions)

    async def is_complete(self) -> bool:
        """Whether the index is of this model, and has as many points of chunks and extractions as the store has
        records of them, with terms of the current version."""
        if not await self.open_existing():
            return False
        stored = (await self._store.count_contents()).values()
        current = Filter(must=(Condition("terms", Op.EQ, TERMS_VERSION),))
        counts = await self._index.count(CHUNKS, current), await self._index.count(EXTRACTIONS, current)
        return counts == (sum(chunks for chunks, _ in stored), sum(others for _, others in stored))

    async def open_existing(self, *, creating: bool = False) -> bool:
        """Opens the collections if they are of this model; returns whether they are. Unless `creating`, they must
        exist: a gateway may have permission only to read."""
        states = [await self._index.describe(name) for name in self._reconcilers]
        model = self.model
        if model is None or not all(state.model == model if state else creating for state in states):
            return False
        await self.open()
        return True

    async def repair(self, source_id: str, chunks: int, extractions: int, *, completing: bool = False) -> bool:
        """Writes the points of a ready source with that many records again, if an earlier version has read their terms;
        returns whether it did. Points that other programs have written stay as they are. Embeds nothing, unless
        `completing`: then a source that lacks points gets them, too."""
        if await self.is_indexed(source_id, chunks, extractions):
            return False
        with_digest = of_source(source_id).with_conditions(Condition("digest", Op.EXISTS, value=True))
        counts = (await self._index.count(CHUNKS, with_digest), await self._index.count(EXTRACTIONS, with_digest))
        if counts != (chunks, extractions):
            where = of_source(source_id)
            others = (await self._index.count(CHUNKS, where), await self._index.count(EXTRACTIONS, where)) != counts
            if others or not completing:
                return False
        source = await self._find_ready(source_id)
        if source is None:
            return False
        drafts = await self._draft(source, *await self._store.get_contents(source_id))
        plans = await self._plan(drafts, of_source(source_id))
        if completing:
            await self._embed(plans)
        # Another process may have ingested it meanwhile.
        if any(plan.missing for plan in plans.values()) or source != await self._find_ready(source_id):
            return False
        await self._store.set_term_counts(source_id, count_terms(drafts[CHUNKS]))
        await self._apply(plans)
        return True

    async def delete(self, source_id: str) -> bool:
        """Deletes a source from index and store; returns whether it existed. After an error it is as before."""
        collections = [stored for name in self._reconcilers if (stored := await self._index.describe(name))]
        for collection in collections:
            await self._index.open(collection)
            await self._index.require_space(collection.name, 0)
        async with self._undo_on_failure(source_id):
            await self._store.set_status(source_id, SourceStatus.INDEXING)
            for collection in collections:
                reconciler = self._reconcilers[collection.name]
                existing = await reconciler.find(of_source(source_id), fields=[])
                await reconciler.apply(await reconciler.plan([], existing))
            return await self._store.remove(source_id)

    async def index_all(self, progress: Progress | None = None) -> int:
        """Makes the index hold exactly what is stored; returns how many points had to change. The status of sources
        stays: an interrupted one has to be ingested again. Raises Unavailable when there are sources and no model."""
        sources = await self._store.list_sources()
        if not sources and self._embedder is None:
            return 0
        await self.open()
        written = await self._remove_orphans({source.id for source in sources})
        for number, source in enumerate(sources):
            if progress:
                progress(number, len(sources))
            written += await self._reindex(source, *await self._store.get_contents(source.id))
        if progress and sources:
            progress(len(sources), len(sources))
        return written

    @asynccontextmanager
    async def _undo_on_failure(self, source_id: str) -> AsyncIterator[None]:
        """Brings store and index back when the block fails: a caller who gets an error may rely on nothing being done.
        The store first: what the index lacks then is completed by `repair`."""
        before = (await self._store.get_records([source_id], [], [])).sources.get(source_id)
        contents = await self._store.get_contents(source_id)
        try:
            yield
        except Exception:
            try:
                if before:
                    await self._store.replace(before, *contents)
                    await self._reindex(before, *contents, is_replaced=True)
                elif await self._store.remove(source_id):
                    for reconciler in self._reconcilers.values():
                        existing = await reconciler.find(of_source(source_id), fields=[])
                        await reconciler.apply(await reconciler.plan([], existing))
            except Exception as error:  # noqa: BLE001  (the first error is the one to report)
                reason = f"{type(error).__name__}: {error}"
                log.warning("refused_change_not_undone_completely", extra={"source": source_id, "reason": reason})
            raise

    async def _reindex(
        self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction], *, is_replaced: bool = False
    ) -> int:
        """Makes the index hold these records of a stored source; returns how many points had to change. A source that
        was just replaced in the store has lost its counts of terms."""
        drafts = await self._draft(source, chunks, extractions)
        plans = await self._plan(drafts, of_source(source.id))
        await self._embed(plans)
        if is_replaced or plans[CHUNKS].changes:
            # Before the points: while they are stale, a repetition counts again.
            await self._store.set_term_counts(source.id, count_terms(drafts[CHUNKS]))
        await self._apply(plans)
        return sum(plan.changes for plan in plans.values())

    async def _require_space(self, plans: Plans) -> None:
        for name, plan in plans.items():
            await self._index.require_space(name, len(plan.stale))

    async def _find_ready(self, source_id: str) -> Source | None:
        source = (await self._store.get_records([source_id], [], [])).sources.get(source_id)
        return source if source and source.status == SourceStatus.READY else None

    async def _remove_orphans(self, source_ids: set[str]) -> int:
        """Removes the points of sources that the store does not have; returns how many there were."""
        removed = 0
        for reconciler in self._reconcilers.values():
            existing = await reconciler.find(fields=["source_id"])
            orphans = {i: payload for i, payload in existing.items() if payload.get("source_id") not in source_ids}
            await reconciler.apply(await reconciler.plan([], orphans))
            removed += len(orphans)
        return removed

    async def _draft(self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> Drafts:
        drafter = SourceDrafter(source, self.embedder)
        return {
            CHUNKS: await asyncio.to_thread(drafter.draft_chunks, chunks, extractions),
            EXTRACTIONS: await asyncio.to_thread(drafter.draft_extractions, extractions, chunks),
        }

    async def _plan(self, drafts: Drafts, replaced: Filter | None = None) -> Plans:
        """What writes the drafts in place of the `replaced` points (None: of the same ids)."""
        await self.open()
        plans = {}
        for name, reconciler in self._reconcilers.items():
            ids = [draft.key for draft in drafts[name]]
            existing = await (reconciler.find_by_id(ids) if replaced is None else reconciler.find(replaced))
            plans[name] = await reconciler.plan(drafts[name], existing)
        return plans

    async def _embed(self, plans: Plans, total: int = 0, progress: Progress | None = None) -> int:
        """Embeds what has no vector yet; returns how many. `progress` counts what had a vector before as done."""
        done = total - sum(len(plan.missing) for plan in plans.values())
        embedded = 0
        for name, plan in plans.items():

            def report(count: int, before: int = embedded) -> None:
                if progress:
                    progress(done + before + count, total)

            embedded += await self._reconcilers[name].embed(plan, report)
        if progress:
            progress(total, total)
        return embedded

    async def _apply(self, plans: Plans) -> None:
        for name, plan in plans.items():
            await self._reconcilers[name].apply(plan)
