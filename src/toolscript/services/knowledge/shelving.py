"""Puts a source on the shelf: into the store (the truth), then into the index.

No transaction spans the two. All that takes long is done before anything is written, and a source is only called ready
once the index holds it: what a crash interrupts is completed by doing it again, and whoever searches meanwhile finds
what was there before, or what is there now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from toolscript.domain.errors import Unavailable
from toolscript.domain.knowledge import Chunk, Extraction, Source, SourceStatus
from toolscript.domain.search import Vector
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.stores import KnowledgeStore
from toolscript.services.knowledge.points import (
    CHUNKS,
    EXTRACTIONS,
    Draft,
    Drafting,
    chunks_collection,
    extractions_collection,
    of_source,
)

EMBEDDED_TOGETHER = 32
WRITTEN_TOGETHER = 256

Progress = Callable[[int, int], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What has to be done to a collection for it to hold what it should of a source."""

    write: list[Draft]
    remove: list[str]
    vectors: dict[str, Vector]
    """Those that are known, by the digests of their texts."""


class Shelving:
    """Makes store and index hold sources, and no longer hold them."""

    def __init__(self, store: KnowledgeStore, index: VectorIndex, embedder: Embedder | None) -> None:
        self._store = store
        self._index = index
        self._embedder = embedder

    @property
    def embedder(self) -> Embedder:
        """The model. Raises Unavailable where there is none."""
        if self._embedder is None:
            raise Unavailable(
                "knowledge is found by meaning, and there is no embedding model: the log tells why, "
                "and TOOLSCRIPT_SEARCH_MODEL chooses one",
                details={"adapter": "embedder"},
            )
        return self._embedder

    async def open(self) -> None:
        """Opens the collections, or makes them. Raises Invalid when another model has made them."""
        model, dimensions = self.embedder.model, self.embedder.dimensions
        await self._index.open(chunks_collection(model, dimensions))
        await self._index.open(extractions_collection(model, dimensions))

    async def keep(
        self,
        source: Source,
        chunks: Sequence[Chunk],
        extractions: Sequence[Extraction],
        progress: Progress | None = None,
    ) -> int:
        """Makes the source be as given, with exactly these chunks and extractions; returns how many of them had to be
        embedded. `progress` is told how many have their vectors, of how many. Its status is that of a source on its way
        until all is done."""
        plans = await self._plans(source, chunks, extractions)
        embedded = await self._embed(plans, len(chunks) + len(extractions), progress)
        await self._store.replace(source.with_status(SourceStatus.INDEXING), chunks, extractions)
        await self._carry_out(plans)
        await self._store.set_status(source.id, source.status)
        return embedded

    async def add(
        self,
        source: Source,
        fresh: Sequence[Extraction],
        chunks: Sequence[Chunk],
        extractions: Sequence[Extraction],
        *,
        notes: Mapping[str, Any] | None = None,
    ) -> int:
        """Adds extractions to a source that is on the shelf with these chunks, and with these extractions then; returns
        how many had to be embedded. Costs what is added, however large the source is. `notes` are the metadata that it
        has from then on."""
        touched = {each.chunk_id for each in fresh}
        about = [each for each in chunks if each.id in touched]
        plans = {}
        for name, drafts in (
            await self._drafts(source, about, [e for e in extractions if e.chunk_id in touched])
        ).items():
            held: dict[str, Mapping[str, Any]] = {}
            for some in _batches([draft.id for draft in drafts], WRITTEN_TOGETHER):
                held |= await self._index.payloads(name, some)
            plans[name] = await self._plan(name, drafts, held)
        embedded = await self._embed(plans, 0, None)
        await self._store.set_status(source.id, SourceStatus.INDEXING)
        await self._store.add_extractions(source.id, fresh)
        await self._carry_out(plans)
        await self._store.set_status(source.id, source.status, notes)
        return embedded

    async def holds(self, source_id: str, chunks: int, extractions: int) -> bool:
        """Whether the index has that many points of a source."""
        where = of_source(source_id)
        counts = await self._index.count(CHUNKS, where), await self._index.count(EXTRACTIONS, where)
        return counts == (chunks, extractions)

    async def drop(self, source_id: str) -> bool:
        """Takes a source out of index and store; whether it was there."""
        await self._store.set_status(source_id, SourceStatus.INDEXING)
        for name in (CHUNKS, EXTRACTIONS):
            if held := await self._index.describe(name):
                await self._index.open(held)
                found = await self._index.scroll(name, where=of_source(source_id), fields=[])
                await self._index.delete(name, [point.id for point in found])
        return await self._store.remove(source_id)

    async def index_all(self, progress: Progress | None = None) -> int:
        """Makes the index hold exactly what is stored; returns how many points it lacked, had differently, or had too
        many. How far a source has come is not touched: one that was interrupted still wants to be ingested again.
        Raises Unavailable where there are sources and no model."""
        sources = await self._store.list_sources()
        if not sources and self._embedder is None:
            return 0
        await self.open()
        written = await self._remove_strangers({source.id for source in sources})
        for number, source in enumerate(sources):
            if progress:
                progress(number, len(sources))
            plans = await self._plans(source, *await self._store.get_contents(source.id))
            await self._embed(plans, 0, None)
            await self._carry_out(plans)
            written += sum(len(plan.write) + len(plan.remove) for plan in plans.values())
        if progress and sources:
            progress(len(sources), len(sources))
        return written

    async def _remove_strangers(self, known: set[str]) -> int:
        removed = 0
        for name in (CHUNKS, EXTRACTIONS):
            found = await self._index.scroll(name, fields=["source_id"])
            strangers = [point.id for point in found if point.payload.get("source_id") not in known]
            await self._index.delete(name, strangers)
            removed += len(strangers)
        return removed

    async def _plans(
        self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]
    ) -> dict[str, _Plan]:
        plans = {}
        for name, drafts in (await self._drafts(source, chunks, extractions)).items():
            held = await self._index.scroll(name, where=of_source(source.id))
            plans[name] = await self._plan(name, drafts, {point.id: point.payload for point in held})
        return plans

    async def _drafts(
        self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]
    ) -> dict[str, list[Draft]]:
        await self.open()
        drafting = Drafting(source, self.embedder)
        return {
            CHUNKS: await asyncio.to_thread(drafting.chunks, chunks, extractions),
            EXTRACTIONS: await asyncio.to_thread(drafting.extractions, extractions, chunks),
        }

    async def _plan(self, name: str, drafts: Sequence[Draft], held: Mapping[str, Mapping[str, Any]]) -> _Plan:
        """What makes a collection that holds these points hold those."""
        write = [draft for draft in drafts if not draft.is_held(held.get(draft.id, {}))]
        remove = sorted(held.keys() - {draft.id for draft in drafts})
        wanted = {draft.digest for draft in write}
        made = {str(p["digest"]): point_id for point_id, p in held.items() if p.get("digest") in wanted}
        found: dict[str, Vector] = {}
        for some in _batches([*made.values()], WRITTEN_TOGETHER):
            found |= await self._index.vectors(name, some)
        return _Plan(write, remove, {digest: found[i] for digest, i in made.items() if i in found})

    async def _embed(self, plans: Mapping[str, _Plan], total: int, progress: Progress | None) -> int:
        """Makes the vectors that are not known yet; returns how many."""
        embedded = 0
        waiting = sum(draft.digest not in plan.vectors for plan in plans.values() for draft in plan.write)
        for plan in plans.values():
            missing = {draft.digest: draft.text for draft in plan.write if draft.digest not in plan.vectors}
            for some in _batches([*missing], EMBEDDED_TOGETHER):
                if progress:
                    progress(total - waiting + embedded, total)
                made = await self.embedder.embed_documents([missing[digest] for digest in some])
                plan.vectors.update(zip(some, made, strict=True))
                embedded += len(some)
        if progress:
            progress(total, total)
        return embedded

    async def _carry_out(self, plans: Mapping[str, _Plan]) -> None:
        for name, plan in plans.items():
            for some in _batches(plan.write, WRITTEN_TOGETHER):
                await self._index.upsert(name, [draft.point(plan.vectors[draft.digest]) for draft in some])
        for name, plan in plans.items():
            for ids in _batches(plan.remove, WRITTEN_TOGETHER):
                await self._index.delete(name, ids)


def _batches(things: Sequence[T], most: int) -> Iterator[list[T]]:
    for start in range(0, len(things), most):
        yield list(things[start : start + most])
