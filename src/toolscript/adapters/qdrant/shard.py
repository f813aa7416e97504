"""One collection of the embedded engine: a folder with a manifest and the generation of the shard that it names.

The engine keeps Python's global lock during every call, its optimiser included, so calls are made where they are
awaited (a thread would gain nothing) in small batches, and optimising happens in a child process on a copy of
the shard, which then takes the original's place. See docs/decisions/0005.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import qdrant_edge as qe

from toolscript.adapters.qdrant.edge_points import FLAGS_FIELD, WORDS, candidate, edge_point
from toolscript.adapters.qdrant.filters import DENSE, ID_FIELD, TERMS, key, payload_of, point_id, translated, with_ties
from toolscript.adapters.qdrant.manifest import (
    Manifest,
    damaged,
    generation_folder,
    read_manifest,
    sweep,
    write_manifest,
)
from toolscript.adapters.qdrant.memory_copy import Copied, Copy, CopyKeeper
from toolscript.domain.filters import Filter, Payload
from toolscript.domain.search import Candidate, Collection, FieldType, Point, Terms, Vector, sort_candidates

UPSERT_BATCH = 128
# A filter that keeps less than this much (20 000 vectors of 384 dimensions) is searched exactly, in under 10 ms:
# through the graph it would be faster, and lose points.
FULL_SCAN_KILOBYTES = 30_000
GRAPH_CANDIDATES = 128
GRAPH_LINKS = 16
GRAPH_FROM_KILOBYTES = 10_000
SCROLL_PAGE = 1000
VECTORS_PAGE = 128
COPY_PAGE = 16
# For how much longer than a page took it rests: nothing else runs while the engine reads one.
COPY_REST = 2
# Our ids that are kept beside the engine's, for searches that want nothing else: some 200 bytes each.
MOST_NAMES = 200_000

_OPTIMISE = """
import os, sys
import qdrant_edge
if hasattr(os, "nice"):
    os.nice(10)
shard = qdrant_edge.EdgeShard.load(sys.argv[1])
shard.optimize()
shard.flush()
shard.close()
"""

log = logging.getLogger(__name__)


class Shard:
    """One collection: a manifest that names the current generation, and that generation's folder.

    The manifest is replaced atomically, so after a crash it names a whole generation, old or new; other
    generations are leftovers.
    """

    def __init__(
        self, folder: Path, collection: Collection, worth_optimising: int, searches_before_copy: int | None
    ) -> None:
        self._folder = folder
        self._worth_optimising = worth_optimising
        self._writing = asyncio.Lock()
        self._changed: set[str] | None = None
        self._leave_as_it_is = False
        self._written = 0
        self._task: asyncio.Task[None] | None = None
        self._child: asyncio.subprocess.Process | None = None
        written = read_manifest(folder)
        self._manifest = (
            replace(written, collection=replace(written.collection, exact=collection.exact))
            if written
            else Manifest(collection, generation=1, optimised=0)
        )
        self._names: dict[int, str] = {}
        sweep(folder, keep=self._place if written else None)
        if written:
            self._shard = _load(self._place)
        else:
            self._place.mkdir(parents=True)
            self._shard = _create(self._place, collection)
            write_manifest(folder, self._manifest)
        is_empty = self._shard.info().points_count == 0
        self._copy = CopyKeeper(self._manifest.collection, searches_before_copy, is_empty=is_empty)

    async def upsert(self, points: Sequence[Point]) -> None:
        for start in range(0, len(points), UPSERT_BATCH):
            page = points[start : start + UPSERT_BATCH]
            batch = [edge_point(p) for p in page]
            async with self._writing:
                self._shard.update(qe.UpdateOperation.upsert_points(batch))
                self._copy.put(page)
                self._written += len(batch)
                if self._changed is not None:
                    self._changed.update(str(p.id) for p in batch)
            await asyncio.sleep(0)
        self._optimise_if_it_pays()

    async def delete(self, ids: Sequence[str]) -> None:
        point_ids: list[Any] = [point_id(i) for i in ids]
        async with self._writing:
            self._shard.update(qe.UpdateOperation.delete_points(point_ids))
            self._copy.drop(ids)
            if self._changed is not None:
                self._changed.update(point_ids)

    async def dense(
        self, vector: Vector, where: Filter, limit: int, floor: float | None, fields: Sequence[str] | None
    ) -> list[Candidate]:
        copy = self._copied(where)
        if copy is None:
            return await self._search(_nearest_to(vector), where, limit, floor, fields)
        return copy.nearest(vector, where, limit, floor, limit, fields)[0]

    async def nearest(
        self, vector: Vector, where: Filter, limit: int, floor: float, count_to: int, fields: Sequence[str] | None
    ) -> tuple[list[Candidate], int]:
        """Counts hits without looking at them, and reads the payloads of the best alone: most of what a hit costs."""
        copy = self._copied(where)
        if copy is not None:
            return copy.nearest(vector, where, limit, floor, count_to, fields)
        query = _nearest_to(vector)
        found = self._shard.query(self._request(query, where, floor)(count_to + 1, False))
        if len(found) <= limit:
            head = found
        else:
            head = [p for p in found if p.score >= found[limit - 1].score]
            if len(head) > count_to:  # all are equally good: which of them are first is a matter of their ids
                ranked = await self._search(query, where, count_to, floor, fields)
                return ranked[:limit], len(ranked)
        scores = {str(p.id): p.score for p in head}
        ids: list[Any] = [*scores]
        records = self._shard.retrieve(ids, with_payload=payload_of(fields), with_vector=False) if ids else []
        told = [candidate(r.payload, scores[str(r.id)]) for r in records]
        return sort_candidates(told)[:limit], min(len(found), count_to)

    async def lexical(self, terms: Terms, where: Filter, limit: int, fields: Sequence[str] | None) -> list[Candidate]:
        query = qe.Query.Nearest(qe.SparseVector(list(terms.ids), list(terms.weights)), using=TERMS)
        return [c for c in await self._search(query, where, limit, None, fields) if c.score > 0]

    async def _search(
        self, query: Any, where: Filter, limit: int, floor: float | None, fields: Sequence[str] | None
    ) -> list[Candidate]:
        request = self._request(query, where, floor)

        async def fetch(wanted: int) -> list[Candidate]:
            if fields is not None and not fields:
                found = self._shard.query(request(wanted, False))
                return [Candidate(own_id, p.score) for own_id, p in zip(self._named(found), found, strict=True)]
            found = self._shard.query(request(wanted, payload_of(fields)))
            return [candidate(p.payload, p.score) for p in found]

        return await with_ties(fetch, limit)

    def _named(self, found: Sequence[Any]) -> list[str]:
        """Our ids of the engine's points. Each is read once: what a point is called is made of our id, and stays."""
        numbers = [p.id.int for p in found]
        unknown = [n for n in numbers if n not in self._names]
        if len(self._names) + len(unknown) > MOST_NAMES:
            self._names, unknown = {}, numbers
        if unknown:
            point_ids: list[Any] = [UUID(int=n) for n in unknown]
            records: list[Any] = self._shard.retrieve(point_ids, with_payload=[ID_FIELD], with_vector=False)
            for record in records:
                self._names[record.id.int] = record.payload[ID_FIELD] if record.payload else ""
        return [self._names[n] for n in numbers]

    def _copied(self, where: Filter) -> Copy | None:
        return self._copy.find(where, lambda: self._shard.info().points_count, self._pages)

    async def _pages(self) -> AsyncIterator[list[Copied]]:
        offset = None
        while True:
            began = time.perf_counter()
            page, offset = self._shard.scroll(
                qe.ScrollRequest(offset=offset, limit=COPY_PAGE, with_payload=True, with_vector=True)
            )
            told = [(candidate(r.payload, 0.0), _dense(r)) for r in page]
            yield [(c.id, vector, c.payload) for c, vector in told]
            if offset is None:
                return
            await asyncio.sleep(COPY_REST * (time.perf_counter() - began))

    def _request(self, query: Any, where: Filter, floor: float | None) -> Callable[[int, bool | list[str]], Any]:
        translated_filter = self._translated(where)
        is_exact = self._manifest.collection.exact
        params = qe.SearchParams(exact=True) if is_exact else qe.SearchParams(hnsw_ef=GRAPH_CANDIDATES)
        return lambda wanted, payload: qe.QueryRequest(
            limit=wanted,
            query=query,
            filter=translated_filter,
            with_payload=payload,
            score_threshold=floor,
            params=params,
        )

    def count(self, where: Filter) -> int:
        return int(self._shard.count(qe.CountRequest(filter=self._translated(where), exact=True)))

    async def scroll(self, where: Filter, fields: Sequence[str] | None) -> list[Candidate]:
        payload = payload_of(fields)
        found: list[Candidate] = []
        offset = None
        while True:
            page, offset = self._shard.scroll(
                qe.ScrollRequest(offset=offset, limit=SCROLL_PAGE, filter=self._translated(where), with_payload=payload)
            )
            found += [candidate(r.payload, 0.0) for r in page]
            if offset is None:
                return sorted(found, key=lambda c: c.id)
            await asyncio.sleep(0)

    async def payloads(self, ids: Sequence[str], fields: Sequence[str] | None) -> dict[str, Payload]:
        copy = self._copy.whole
        found = {} if copy is None else copy.payloads(ids, fields)
        point_ids = [point_id(i) for i in ids if i not in found]
        for start in range(0, len(point_ids), SCROLL_PAGE):
            page: list[Any] = [*point_ids[start : start + SCROLL_PAGE]]
            for record in self._shard.retrieve(page, with_payload=payload_of(fields), with_vector=False):
                told = candidate(record.payload, 0.0)
                found[told.id] = told.payload
            await asyncio.sleep(0)
        return found

    async def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        copy = self._copy.whole
        if copy is not None:
            return copy.vectors(ids)
        named = {point_id(i): i for i in ids}
        point_ids, found = list(named), dict[str, Vector]()
        for start in range(0, len(point_ids), VECTORS_PAGE):
            page: list[Any] = [*point_ids[start : start + VECTORS_PAGE]]
            for record in self._shard.retrieve(page, with_payload=False, with_vector=True):
                held = _dense(record)
                if held is not None:
                    found[named[str(record.id)]] = held
            await asyncio.sleep(0)
        return found

    async def wait_until_idle(self) -> None:
        await self._copy.wait_until_idle()
        if self._task:
            await self._task

    async def close(self) -> None:
        self._leave_as_it_is = True
        if self._child and self._child.returncode is None:
            self._child.kill()
        await self._copy.close()
        if self._task:
            await self._task
        self._shard.flush()
        self._shard.close()

    def _translated(self, where: Filter) -> Any:
        return translated(where, WORDS, self._manifest.collection.fields)

    @property
    def _place(self) -> Path:
        return generation_folder(self._folder, self._manifest.generation)

    def _optimise_if_it_pays(self) -> None:
        if self._pays() and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._optimise_while_it_pays())

    def _pays(self) -> bool:
        unoptimised = max(self._written, self._shard.info().points_count - self._manifest.optimised)
        return unoptimised >= self._worth_optimising and not self._leave_as_it_is

    async def _optimise_while_it_pays(self) -> None:
        """Never fails a caller: what goes wrong is told once, and the shard stays as it is until it is reopened."""
        try:
            while self._pays():
                await self._optimise()
        except Exception as error:  # noqa: BLE001  (the engine's errors share no class)
            if not self._leave_as_it_is:
                told = {"collection": self._manifest.collection.name, "reason": str(error)[-500:]}
                log.warning("optimisation_failed", extra=told)
            self._leave_as_it_is = True
        finally:
            self._changed = None
            sweep(self._folder, keep=self._place)

    async def _optimise(self) -> None:
        """Copies the shard, optimises the copy elsewhere, repeats on it what changed since, and swaps."""
        async with self._writing:
            optimised, self._written = self._shard.info().points_count, 0
            after = replace(self._manifest, generation=self._manifest.generation + 1, optimised=optimised)
            copy = generation_folder(self._folder, after.generation)
            await asyncio.to_thread(shutil.copytree, self._place, copy)
            self._changed = set()
        await self._run_child(copy)
        fresh = qe.EdgeShard.load(str(copy))
        try:
            # Most of what changed is repeated while others go on writing; only the last of it while they wait.
            while len(self._changed) > UPSERT_BATCH:
                await self._repeat_changes(fresh)
            async with self._writing:
                await self._repeat_changes(fresh)
                fresh.flush()
                write_manifest(self._folder, after)
                fresh, self._shard, self._manifest = self._shard, fresh, after
        finally:
            fresh.close()

    def _must_stop(self) -> bool:
        return self._leave_as_it_is

    async def _run_child(self, copy: Path) -> None:
        if self._must_stop():
            raise InterruptedError("closing")
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _OPTIMISE, str(copy), stderr=asyncio.subprocess.PIPE
        )
        if self._must_stop():
            self._child.kill()
        _, said = await self._child.communicate()
        if self._child.returncode:
            raise ChildProcessError(said.decode() or f"ended with {self._child.returncode}")

    async def _repeat_changes(self, fresh: qe.EdgeShard) -> None:
        changed, self._changed = sorted(self._changed or ()), set()
        for start in range(0, len(changed), UPSERT_BATCH):
            ids: list[Any] = changed[start : start + UPSERT_BATCH]
            now = self._shard.retrieve(ids, with_payload=True, with_vector=True)
            fresh.update(qe.UpdateOperation.delete_points(ids))
            if now:
                points = [qe.Point(id=r.id, vector=r.vector or {}, payload=r.payload) for r in now]
                fresh.update(qe.UpdateOperation.upsert_points(points))
            await asyncio.sleep(0)


def _nearest_to(vector: Vector) -> qe.Query:
    return qe.Query.Nearest(vector.tolist(), using=DENSE)


def _dense(record: Any) -> Vector | None:
    held: Any = record.vector.get(DENSE) if isinstance(record.vector, dict) else None
    return None if held is None else np.fromiter(held, np.float32, len(held))


# A BOOL field needs none: see FLAGS_FIELD.
_FIELD_INDEXES: dict[FieldType, Any] = {
    FieldType.KEYWORD: qe.KeywordIndexParams(),
    FieldType.TENANT: qe.KeywordIndexParams(is_tenant_name=True),
    FieldType.INTEGER: qe.PayloadSchemaType.Integer,
    FieldType.FLOAT: qe.PayloadSchemaType.Float,
    FieldType.DATETIME: qe.PayloadSchemaType.Datetime,
}


def _create(place: Path, collection: Collection) -> qe.EdgeShard:
    links = 0 if collection.exact else GRAPH_LINKS
    shard = qe.EdgeShard.create(
        str(place),
        qe.EdgeConfig(
            vectors={DENSE: qe.EdgeVectorParams(size=collection.dimensions, distance=qe.Distance.Cosine)},
            sparse_vectors={TERMS: qe.EdgeSparseVectorParams()},
            hnsw_config=qe.HnswIndexConfig(
                m=links, ef_construct=100, full_scan_threshold=FULL_SCAN_KILOBYTES, payload_m=links
            ),
            optimizers=qe.EdgeOptimizersConfig(default_segment_number=1, indexing_threshold=GRAPH_FROM_KILOBYTES),
            payload_memory=qe.Memory.Cached,
        ),
    )
    indexes = {key(field): _FIELD_INDEXES[kind] for field, kind in collection.fields.items() if kind in _FIELD_INDEXES}
    for path, wanted in {**indexes, FLAGS_FIELD: qe.KeywordIndexParams()}.items():
        shard.update(qe.UpdateOperation.create_field_index(path, wanted))
    return shard


def _load(place: Path) -> qe.EdgeShard:
    try:
        return qe.EdgeShard.load(str(place))
    except Exception as error:
        raise damaged(place.parent, error) from error
