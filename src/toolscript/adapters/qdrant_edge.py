"""The embedded index: Qdrant's own engine in this process, one folder per collection.

The engine keeps Python's global lock during every call, its optimiser included, so calls are made where they are
awaited (a thread would gain nothing) in small batches, and optimising happens in a child process on a copy of
the shard, which then takes the original's place. See docs/decisions/0005.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import qdrant_edge as qe
from filelock import FileLock, Timeout

from toolscript.adapters.qdrant_language import DENSE, ID_FIELD, TERMS, key, point_id, translated, with_ties
from toolscript.domain.errors import NotFound, Unavailable
from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.domain.search import Candidate, Collection, FieldType, Point, Terms, Vector, require_same

UPSERT_BATCH = 128
SCROLL_PAGE = 1000
# From here on a search over points without a graph takes longer than one with it.
WORTH_OPTIMISING = 20_000

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


class QdrantEdgeIndex:
    """A vector index in a folder. One process at a time holds the folder; a second is told so."""

    def __init__(self, root: Path, *, worth_optimising: int = WORTH_OPTIMISING) -> None:
        """Raises Unavailable when another process has the folder."""
        root.mkdir(parents=True, exist_ok=True)
        self._root = root
        self._worth_optimising = worth_optimising
        self._open: dict[str, Collection] = {}
        self._shards: dict[str, _Shard] = {}
        self._lock = FileLock(root / ".lock")
        try:
            self._lock.acquire(blocking=False)
        except Timeout as error:
            raise Unavailable(
                f"the index folder {root} is in use by another process: stop that one, talk to it over HTTP, or give "
                "this one a folder of its own with --data-dir",
                details={"folder": str(root)},
            ) from error

    async def describe(self, name: str) -> Collection | None:
        if name in self._open:
            return self._open[name]
        written = _read_manifest(self._root / name)
        return written[0] if written else None

    async def open(self, collection: Collection) -> None:
        held = await self.describe(collection.name)
        if held:
            require_same(held, collection)
        self._open[collection.name] = held or collection

    async def drop(self, name: str) -> None:
        self._open.pop(name, None)
        held = self._shards.pop(name, None)
        if held:
            await held.close()
        shutil.rmtree(self._root / name, ignore_errors=True)

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        await self._shard(name).upsert(points)

    async def delete(self, name: str, ids: Sequence[str]) -> None:
        if ids:
            await self._shard(name).delete([point_id(i) for i in ids])

    async def dense(
        self, name: str, vector: Vector, *, where: Filter = EVERYTHING, limit: int, floor: float | None = None
    ) -> list[Candidate]:
        query = qe.Query.Nearest(vector.tolist(), using=DENSE)
        return await self._shard(name).search(query, where, limit, floor)

    async def lexical(self, name: str, terms: Terms, *, where: Filter = EVERYTHING, limit: int) -> list[Candidate]:
        if not terms.ids:
            return []
        query = qe.Query.Nearest(qe.SparseVector(list(terms.ids), list(terms.weights)), using=TERMS)
        return [c for c in await self._shard(name).search(query, where, limit, None) if c.score > 0]

    async def count(self, name: str, where: Filter = EVERYTHING) -> int:
        return self._shard(name).count(where)

    async def scroll(
        self, name: str, *, where: Filter = EVERYTHING, fields: Sequence[str] | None = None
    ) -> list[Candidate]:
        return await self._shard(name).scroll(where, fields)

    async def close(self) -> None:
        for held in self._shards.values():
            await held.close()
        self._shards.clear()
        self._open.clear()
        self._lock.release()

    async def settled(self) -> None:
        """Waits until no optimisation is under way (benchmarks and tests want to know when)."""
        for held in self._shards.values():
            await held.settled()

    def _shard(self, name: str) -> _Shard:
        held = self._shards.get(name)
        if held is None:
            if name not in self._open:
                raise NotFound(f"collection {name!r} is not open", details={"collection": name})
            # Loading takes a tenth of a second: only for the collections that are used.
            held = self._shards[name] = _Shard(self._root / name, self._open[name], self._worth_optimising)
        return held


class _Shard:
    """One collection: a manifest that names the current generation, and that generation's folder.

    The manifest is replaced atomically, so after a crash it names a whole generation, old or new; other
    generations are leftovers.
    """

    def __init__(self, folder: Path, collection: Collection, worth_optimising: int) -> None:
        self._folder = folder
        self._worth_optimising = worth_optimising
        self._writing = asyncio.Lock()
        self._changed: set[str] | None = None
        self._task: asyncio.Task[None] | None = None
        self._child: asyncio.subprocess.Process | None = None
        written = _read_manifest(folder)
        self.collection, self._generation = written or (collection, 1)
        _sweep(folder, keep=_generation_name(self._generation) if written else None)
        if written:
            self._shard = qe.EdgeShard.load(str(self._place(self._generation)))
        else:
            self._place(1).mkdir(parents=True)
            self._shard = _create(self._place(1), collection)
            _write_manifest(folder, collection, 1)

    async def upsert(self, points: Sequence[Point]) -> None:
        for start in range(0, len(points), UPSERT_BATCH):
            batch = [_point(p) for p in points[start : start + UPSERT_BATCH]]
            async with self._writing:
                self._shard.update(qe.UpdateOperation.upsert_points(batch))
                if self._changed is not None:
                    self._changed.update(str(p.id) for p in batch)
            await asyncio.sleep(0)
        self._optimise_if_it_pays()

    async def delete(self, point_ids: Sequence[str]) -> None:
        async with self._writing:
            self._shard.update(qe.UpdateOperation.delete_points([*point_ids]))
            if self._changed is not None:
                self._changed.update(point_ids)

    async def search(self, query: Any, where: Filter, limit: int, floor: float | None) -> list[Candidate]:
        translated_filter = translated(where, _WORDS)

        async def fetch(wanted: int) -> list[Candidate]:
            request = qe.QueryRequest(
                limit=wanted, query=query, filter=translated_filter, with_payload=True, score_threshold=floor
            )
            return [_candidate(p.payload, p.score) for p in self._shard.query(request)]

        return await with_ties(fetch, limit)

    def count(self, where: Filter) -> int:
        return int(self._shard.count(qe.CountRequest(filter=translated(where, _WORDS), exact=True)))

    async def scroll(self, where: Filter, fields: Sequence[str] | None) -> list[Candidate]:
        payload = True if fields is None else [ID_FIELD, *map(key, fields)]
        found: list[Candidate] = []
        offset = None
        while True:
            page, offset = self._shard.scroll(
                qe.ScrollRequest(
                    offset=offset, limit=SCROLL_PAGE, filter=translated(where, _WORDS), with_payload=payload
                )
            )
            found += [_candidate(r.payload, 0.0) for r in page]
            if offset is None:
                return sorted(found, key=lambda c: c.id)
            await asyncio.sleep(0)

    async def settled(self) -> None:
        if self._task:
            await self._task

    async def close(self) -> None:
        if self._child and self._child.returncode is None:
            self._child.kill()
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)
        self._shard.flush()
        self._shard.close()

    def _place(self, generation: int) -> Path:
        return self._folder / _generation_name(generation)

    def _optimise_if_it_pays(self) -> None:
        if self._task and not self._task.done():
            return
        info = self._shard.info()
        if info.points_count - info.indexed_vectors_count >= self._worth_optimising:
            self._task = asyncio.create_task(self._optimise())

    async def _optimise(self) -> None:
        """Copies the shard, optimises the copy elsewhere, repeats on it what changed since, and swaps."""
        copy = self._place(self._generation + 1)
        try:
            async with self._writing:
                await asyncio.to_thread(shutil.copytree, self._place(self._generation), copy)
                self._changed = set()
            if await self._run_child(copy):
                async with self._writing:
                    self._take_over(copy)
        except OSError as error:
            log.warning("optimisation_failed", extra={"collection": self.collection.name, "reason": str(error)})
        finally:
            self._changed = None
            _sweep(self._folder, keep=_generation_name(self._generation))

    async def _run_child(self, copy: Path) -> bool:
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _OPTIMISE, str(copy), stderr=asyncio.subprocess.PIPE
        )
        _, said = await self._child.communicate()
        if self._child.returncode == 0:
            return True
        log.warning("optimisation_failed", extra={"collection": self.collection.name, "reason": said.decode()[-500:]})
        return False

    def _take_over(self, copy: Path) -> None:
        fresh = qe.EdgeShard.load(str(copy))
        changed = sorted(self._changed or ())
        for start in range(0, len(changed), UPSERT_BATCH):
            ids: list[Any] = changed[start : start + UPSERT_BATCH]
            now = self._shard.retrieve(ids, with_payload=True, with_vector=True)
            fresh.update(qe.UpdateOperation.delete_points(ids))
            if now:
                points = [qe.Point(id=r.id, vector=r.vector or {}, payload=r.payload) for r in now]
                fresh.update(qe.UpdateOperation.upsert_points(points))
        fresh.flush()
        _write_manifest(self._folder, self.collection, self._generation + 1)
        old, self._shard = self._shard, fresh
        self._generation += 1
        old.close()


class _EdgeWords:
    """qdrant_edge's classes."""

    def all_any_none(self, must: list[Any], should: list[Any], must_not: list[Any]) -> Any:
        return qe.Filter(must=must or None, should=should or None, must_not=must_not or None)

    def equals(self, key: str, value: str | bool) -> Any:
        return qe.FieldCondition(key=key, match=qe.MatchValue(value))

    def any_of(self, key: str, values: list[str]) -> Any:
        return qe.FieldCondition(key=key, match=qe.MatchAny(values))

    def substring(self, key: str, value: str) -> Any:
        return qe.FieldCondition(key=key, match=qe.MatchSubstring(value))

    def number_range(self, key: str, bounds: dict[str, float]) -> Any:
        return qe.FieldCondition(key=key, range=qe.RangeFloat(**bounds))

    def date_range(self, key: str, bounds: dict[str, str]) -> Any:
        return qe.FieldCondition(key=key, range=qe.RangeDateTime(**bounds))

    def is_empty(self, key: str) -> Any:
        return qe.IsEmptyCondition(key)

    def nothing(self) -> Any:
        return qe.HasIdCondition(set())


_WORDS = _EdgeWords()

_FIELD_INDEXES: dict[FieldType, Any] = {
    FieldType.KEYWORD: qe.KeywordIndexParams(),
    FieldType.TENANT: qe.KeywordIndexParams(is_tenant=True),
    FieldType.INTEGER: qe.PayloadSchemaType.Integer,
    FieldType.FLOAT: qe.PayloadSchemaType.Float,
    FieldType.BOOL: qe.PayloadSchemaType.Bool,
    FieldType.DATETIME: qe.PayloadSchemaType.Datetime,
}


def _create(place: Path, collection: Collection) -> qe.EdgeShard:
    shard = qe.EdgeShard.create(
        str(place),
        qe.EdgeConfig(
            vectors={DENSE: qe.EdgeVectorParams(size=collection.dimensions, distance=qe.Distance.Cosine)},
            sparse_vectors={TERMS: qe.EdgeSparseVectorParams()},
            hnsw_config=qe.HnswIndexConfig(m=16, ef_construct=100, full_scan_threshold=10_000, payload_m=16),
            optimizers=qe.EdgeOptimizersConfig(default_segment_number=1),
            payload_memory=qe.Memory.Cached,
        ),
    )
    for field, kind in collection.fields.items():
        shard.update(qe.UpdateOperation.create_field_index(key(field), _FIELD_INDEXES[kind]))
    return shard


def _point(point: Point) -> qe.Point:
    vectors: dict[str, Any] = {}
    if point.vector is not None:
        vectors[DENSE] = point.vector.tolist()
    if point.terms.ids:
        vectors[TERMS] = qe.SparseVector(list(point.terms.ids), list(point.terms.weights))
    return qe.Point(id=point_id(point.id), vector=vectors, payload={**point.payload, ID_FIELD: point.id})


def _candidate(payload: dict[str, Any] | None, score: float) -> Candidate:
    told = payload or {}
    return Candidate(told.pop(ID_FIELD), score, told)


def _generation_name(generation: int) -> str:
    return f"generation-{generation}"


def _read_manifest(folder: Path) -> tuple[Collection, int] | None:
    try:
        written = json.loads((folder / "collection.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    generation = written.pop("generation")
    fields = {name: FieldType(kind) for name, kind in written.pop("fields").items()}
    return Collection(**written, fields=fields), generation


def _write_manifest(folder: Path, collection: Collection, generation: int) -> None:
    draft = folder / "collection.json.new"
    with draft.open("w", encoding="utf-8") as file:
        json.dump({**asdict(collection), "generation": generation}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / "collection.json")


def _sweep(folder: Path, keep: str | None) -> None:
    """Removes the generations that the manifest does not name."""
    for leftover in folder.glob("generation-*"):
        if leftover.name != keep:
            shutil.rmtree(leftover, ignore_errors=True)
