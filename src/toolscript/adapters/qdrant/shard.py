"""One collection of the embedded engine: a folder with a manifest and the generation of the shard that it names.

The engine holds Python's global lock during every call, so calls run where they are awaited (a thread would gain
nothing) and in small batches. The optimiser holds it too: it runs in a child process on a copy of the shard, which then
replaces the original. See docs/decisions/0005.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import qdrant_edge as qe

from toolscript.adapters.qdrant.edge_points import EDGE_CONDITIONS, FLAGS_FIELD, to_candidate, to_edge_point
from toolscript.adapters.qdrant.filters import (
    DENSE,
    ID_FIELD,
    TERMS,
    fetch_with_ties,
    field_path,
    point_id,
    select_payload,
    translate_filter,
)
from toolscript.adapters.qdrant.manifest import (
    Manifest,
    generation_folder,
    index_damage,
    read_manifest,
    remove_other_generations,
    write_manifest,
)
from toolscript.domain.filters import Filter, Payload
from toolscript.domain.search import Candidate, Collection, FieldType, Point, Terms, Vector, sort_candidates

UPSERT_BATCH = 128
# A filter that matches less than this (20 000 vectors of 384 dimensions) is searched exactly, in under 10 ms: the graph
# would be faster and miss points.
FULL_SCAN_KILOBYTES = 30_000
GRAPH_CANDIDATES = 128
GRAPH_LINKS = 16
GRAPH_FROM_KILOBYTES = 10_000
SCROLL_PAGE = 1000
# The engine needs 0.05 to 0.08 ms for a vector, and nothing else runs meanwhile: 2 to 3 ms for a page.
VECTORS_PAGE = 32
# Ids of points that are cached for searches without payloads: some 200 bytes each.
MAX_CACHED_IDS = 200_000

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

    def __init__(self, folder: Path, collection: Collection, optimise_from: int) -> None:
        self._folder = folder
        self._optimise_from = optimise_from
        self._writing = asyncio.Lock()
        self._changed: set[str] | None = None
        self._is_stopping = False
        self._upserted = 0
        self._task: asyncio.Task[None] | None = None
        self._child: asyncio.subprocess.Process | None = None
        self._own_ids: dict[int, str] = {}
        existing = read_manifest(folder)
        self._manifest = (
            replace(existing, collection=replace(existing.collection, exact=collection.exact))
            if existing
            else Manifest(collection, generation=1, optimised=0)
        )
        remove_other_generations(folder, keep=self._place if existing else None)
        if existing:
            self._shard = _load(self._place)
        else:
            self._place.mkdir(parents=True)
            self._shard = _create(self._place, collection)
            write_manifest(folder, self._manifest)

    async def upsert(self, points: Sequence[Point]) -> None:
        for start in range(0, len(points), UPSERT_BATCH):
            batch = [to_edge_point(p) for p in points[start : start + UPSERT_BATCH]]
            async with self._writing:
                self._shard.update(qe.UpdateOperation.upsert_points(batch))
                self._upserted += len(batch)
                if self._changed is not None:
                    self._changed.update(str(p.id) for p in batch)
            await asyncio.sleep(0)
        self._optimise_if_due()

    async def delete(self, ids: Sequence[str]) -> None:
        point_ids: list[Any] = [point_id(i) for i in ids]
        async with self._writing:
            self._shard.update(qe.UpdateOperation.delete_points(point_ids))
            if self._changed is not None:
                self._changed.update(point_ids)

    async def dense(
        self, vector: Vector, where: Filter, limit: int, floor: float | None, fields: Sequence[str] | None
    ) -> list[Candidate]:
        return await self._search(_nearest_query(vector), where, limit, floor, fields)

    async def nearest(
        self, vector: Vector, where: Filter, limit: int, floor: float, count_to: int, fields: Sequence[str] | None
    ) -> tuple[list[Candidate], int]:
        """Counts hits without their payloads and reads those of the best only: they cost more than the search."""
        query = _nearest_query(vector)
        found = self._shard.query(self._request(query, where, floor)(count_to + 1, False))
        if len(found) <= limit:
            best = found
        else:
            best = [p for p in found if p.score >= found[limit - 1].score]
            if len(best) > count_to:  # all have one score: their ids decide the order
                ranked = await self._search(query, where, count_to, floor, fields)
                return ranked[:limit], len(ranked)
        scores = {str(p.id): p.score for p in best}
        ids: list[Any] = [*scores]
        records = self._shard.retrieve(ids, with_payload=select_payload(fields), with_vector=False) if ids else []
        candidates = [to_candidate(r.payload, scores[str(r.id)]) for r in records]
        return sort_candidates(candidates)[:limit], min(len(found), count_to)

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
                return [Candidate(own_id, p.score) for own_id, p in zip(self._read_ids(found), found, strict=True)]
            found = self._shard.query(request(wanted, select_payload(fields)))
            return [to_candidate(p.payload, p.score) for p in found]

        return await fetch_with_ties(fetch, limit)

    def _read_ids(self, found: Sequence[Any]) -> list[str]:
        """Our ids of the engine's points. Each is read once: the engine's id is derived from ours and never changes."""
        numbers = [p.id.int for p in found]
        unknown = [n for n in numbers if n not in self._own_ids]
        if len(self._own_ids) + len(unknown) > MAX_CACHED_IDS:
            self._own_ids, unknown = {}, numbers
        if unknown:
            point_ids: list[Any] = [UUID(int=n) for n in unknown]
            records: list[Any] = self._shard.retrieve(point_ids, with_payload=[ID_FIELD], with_vector=False)
            for record in records:
                self._own_ids[record.id.int] = record.payload[ID_FIELD] if record.payload else ""
        return [self._own_ids[n] for n in numbers]

    def _request(self, query: Any, where: Filter, floor: float | None) -> Callable[[int, bool | list[str]], Any]:
        conditions = self._translate(where)
        # Without a graph every search is exact; saying so spares the engine an estimate of the filter: up to 0.3 ms of
        # 2 ms with 10 000 tools, nothing where the filter matches few.
        is_exact = self._manifest.collection.exact or not self._manifest.optimised
        params = qe.SearchParams(exact=True) if is_exact else qe.SearchParams(hnsw_ef=GRAPH_CANDIDATES)
        return lambda wanted, payload: qe.QueryRequest(
            limit=wanted,
            query=query,
            filter=conditions,
            with_payload=payload,
            score_threshold=floor,
            params=params,
        )

    def count(self, where: Filter) -> int:
        return int(self._shard.count(qe.CountRequest(filter=self._translate(where), exact=True)))

    async def scroll(self, where: Filter, fields: Sequence[str] | None) -> list[Candidate]:
        payload = select_payload(fields)
        found: list[Candidate] = []
        offset = None
        while True:
            page, offset = self._shard.scroll(
                qe.ScrollRequest(offset=offset, limit=SCROLL_PAGE, filter=self._translate(where), with_payload=payload)
            )
            found += [to_candidate(r.payload, 0.0) for r in page]
            if offset is None:
                return sorted(found, key=lambda c: c.id)
            await asyncio.sleep(0)

    async def payloads(self, ids: Sequence[str], fields: Sequence[str] | None) -> dict[str, Payload]:
        point_ids, found = [point_id(i) for i in ids], dict[str, Payload]()
        for start in range(0, len(point_ids), SCROLL_PAGE):
            page: list[Any] = [*point_ids[start : start + SCROLL_PAGE]]
            for record in self._shard.retrieve(page, with_payload=select_payload(fields), with_vector=False):
                candidate = to_candidate(record.payload, 0.0)
                found[candidate.id] = candidate.payload
            await asyncio.sleep(0)
        return found

    async def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        own_ids = {point_id(i): i for i in ids}
        point_ids, found = list(own_ids), dict[str, Vector]()
        for start in range(0, len(point_ids), VECTORS_PAGE):
            page: list[Any] = [*point_ids[start : start + VECTORS_PAGE]]
            for record in self._shard.retrieve(page, with_payload=False, with_vector=True):
                values: Any = record.vector.get(DENSE) if isinstance(record.vector, dict) else None
                if values is not None:
                    found[own_ids[str(record.id)]] = np.fromiter(values, np.float32, len(values))
            await asyncio.sleep(0)
        return found

    async def wait_until_idle(self) -> None:
        if self._task:
            await self._task

    async def close(self) -> None:
        self._is_stopping = True
        if self._child and self._child.returncode is None:
            self._child.kill()
        if self._task:
            await self._task
        self._shard.flush()
        self._shard.close()

    def _translate(self, where: Filter) -> Any:
        return translate_filter(where, EDGE_CONDITIONS, self._manifest.collection.fields)

    @property
    def _place(self) -> Path:
        return generation_folder(self._folder, self._manifest.generation)

    def _optimise_if_due(self) -> None:
        if self._is_due() and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._optimise_while_due())

    def _is_due(self) -> bool:
        unoptimised = max(self._upserted, self._shard.info().points_count - self._manifest.optimised)
        return unoptimised >= self._optimise_from and not self._is_stopping

    async def _optimise_while_due(self) -> None:
        """Never raises: logs the first error and leaves the shard as it is until it is opened again."""
        try:
            while self._is_due():
                await self._optimise()
        except Exception as error:  # noqa: BLE001  (the engine's errors have no common class)
            if not self._is_stopping:
                details = {"collection": self._manifest.collection.name, "reason": str(error)[-500:]}
                log.warning("optimisation_failed", extra=details)
            self._is_stopping = True
        finally:
            self._changed = None
            remove_other_generations(self._folder, keep=self._place)

    async def _optimise(self) -> None:
        """Copies the shard, optimises the copy in a child process, repeats later changes on it, and swaps the two."""
        async with self._writing:
            optimised, self._upserted = self._shard.info().points_count, 0
            after = replace(self._manifest, generation=self._manifest.generation + 1, optimised=optimised)
            copy = generation_folder(self._folder, after.generation)
            await asyncio.to_thread(shutil.copytree, self._place, copy)
            self._changed = set()
        await self._run_child(copy)
        fresh = qe.EdgeShard.load(str(copy))
        try:
            # Most changes are repeated while writers go on; writers wait only for the last batch.
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
        return self._is_stopping

    async def _run_child(self, copy: Path) -> None:
        if self._must_stop():
            raise InterruptedError("closing")
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _OPTIMISE, str(copy), stderr=asyncio.subprocess.PIPE
        )
        if self._must_stop():
            self._child.kill()
        _, message = await self._child.communicate()
        if self._child.returncode:
            raise ChildProcessError(message.decode() or f"exit code {self._child.returncode}")

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


def _nearest_query(vector: Vector) -> qe.Query:
    return qe.Query.Nearest(vector.tolist(), using=DENSE)


# BOOL fields have no index of their own: see FLAGS_FIELD.
_FIELD_INDEXES: dict[FieldType, Any] = {
    FieldType.KEYWORD: qe.KeywordIndexParams(),
    FieldType.TENANT: qe.KeywordIndexParams(is_tenant=True),
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
    indexes = {
        field_path(field): _FIELD_INDEXES[kind] for field, kind in collection.fields.items() if kind in _FIELD_INDEXES
    }
    for path, kind in {**indexes, FLAGS_FIELD: qe.KeywordIndexParams()}.items():
        shard.update(qe.UpdateOperation.create_field_index(path, kind))
    return shard


def _load(place: Path) -> qe.EdgeShard:
    try:
        return qe.EdgeShard.load(str(place))
    except Exception as error:
        raise index_damage(place.parent, error) from error
