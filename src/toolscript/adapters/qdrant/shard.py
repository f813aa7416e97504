"""One collection of the embedded engine: a folder with a manifest and the generation of the shard that it names.

The engine holds Python's global lock during every call, so calls run where they are awaited (a thread would gain
nothing) and in small batches. The optimiser holds it too: it runs in a child process on a copy of the shard, and the
copy then replaces the original. See docs/decisions/0005.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, cast
from uuid import UUID

import qdrant_edge as qe

from toolscript.adapters.qdrant.conversion import DENSE, FLAGS_FIELD, ID_FIELD, TERMS, field_path, to_candidate
from toolscript.adapters.qdrant.index import SCROLL_PAGE, Selection
from toolscript.adapters.storage.disk_space import RESERVED_BYTES, measure_free_space, require_space
from toolscript.adapters.storage.private_files import FILE_MODE, make_private_folder, open_private, private_umask
from toolscript.domain.errors import DiskFull, IndexDamaged, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.search import Candidate, Collection, FieldType

UPSERT_BATCH = 128
# A filter that matches less than this (20 000 vectors of 384 dimensions) is searched exactly, in under 10 ms: the graph
# would be faster and miss points.
FULL_SCAN_KILOBYTES = 30_000
GRAPH_CANDIDATES = 128
GRAPH_LINKS = 16
GRAPH_FROM_KILOBYTES = 10_000
# The version of the folder's layout and of its manifest. Earlier manifests have none.
FORMAT = 1
MANIFEST = "collection.json"
# A file of this name says that the engine has failed on the collection: only dropping it helps.
DAMAGED = "damaged"
# While points keep coming, optimising waits until there are half as many as were optimised before: otherwise a long
# ingest would build the same graph over and over. Once nothing was written for a while, it does not wait.
GROWTH = 0.5
# Ids of points that are cached for searches without payloads: some 200 bytes each.
MAX_CACHED_IDS = 200_000

# The engine writes through memory maps: on a full disk the kernel ends the process (SIGBUS), and nothing can be caught.
# Opening a shard takes up to 42 MB, a point 4.7 kB with 384 dimensions and a payload of 1 kB.
OPEN_BYTES = 48 * 2**20
BYTES_PER_POINT = 16 * 2**10

# How the engine's errors begin that are not those of a request, and how it says that the disk is full.
_OWN_FAULT = "Service runtime error"
_DISK_FULL = "os error 28"

_OPTIMISE = """
import os, sys
import qdrant_edge
if hasattr(os, "nice"):
    os.nice(10)
os.umask(0o077)
shard = qdrant_edge.EdgeShard.load(sys.argv[1])
shard.optimize()
shard.flush()
shard.close()
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A collection, its current generation, and the number of points at that generation's optimisation."""

    collection: Collection
    generation: int
    optimised: int


def report_damage(folder: Path, error: BaseException) -> IndexDamaged:
    """Logs that a folder cannot be read, and returns the error. Callers of a gateway see it: it does not name the
    folder."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    log.warning("index_damaged", extra={"folder": str(folder), "reason": reason})
    return _describe_damage(folder, reason.replace(str(folder), folder.name))


def _describe_damage(folder: Path, reason: str) -> IndexDamaged:
    return IndexDamaged(
        f"the index {folder.name} is damaged ({reason}): run `toolscript index rebuild`, or start the gateway again, "
        "which rebuilds it. Nothing is lost",
        details={"collection": folder.name},
    )


def locate_generation(folder: Path, number: int) -> Path:
    return folder / f"generation-{number}"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest, or None for a new collection. Raises Unavailable for a damaged one, and for one of a newer
    version."""
    if (folder / DAMAGED).exists():
        raise _describe_damage(folder, "the engine failed on it")
    try:
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if (version := document.get("format", 1)) > FORMAT:
            raise Unavailable(
                f"the index {folder.name} has format {version}, and this version of Toolscript reads up to {FORMAT}: "
                "install a newer version, or run `toolscript index rebuild`",
                details={"format": version, "supported": FORMAT},
            )
        stored = document["collection"]
        fields = {name: FieldType(kind) for name, kind in stored["fields"].items()}
        collection = Collection(
            stored["name"], stored["model"], stored["dimensions"], fields, stored.get("exact", False)
        )
        return Manifest(collection, document["generation"], document["optimised"])
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise Unavailable(
            f"the index {folder.name} cannot be read: {error.strerror}. Allow your user to read it, or choose another "
            "folder with --data-dir",
            details={"collection": folder.name},
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise report_damage(folder, error) from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replaces the manifest atomically: readers see the old one or the new one."""
    draft = folder / f"{MANIFEST}.new"
    draft.unlink(missing_ok=True)
    with open(draft, "w", encoding="utf-8", opener=open_private) as file:
        json.dump({"format": FORMAT, **asdict(manifest)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / MANIFEST)


def remove_other_generations(folder: Path, keep: Path | None) -> None:
    """Removes the generations that the manifest does not name: leftovers of a crash."""
    for leftover in folder.glob("generation-*"):
        if leftover != keep:
            shutil.rmtree(leftover, ignore_errors=True)


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
        self._timer: asyncio.TimerHandle | None = None
        self._child: asyncio.subprocess.Process | None = None
        self._own_ids: dict[int, str] = {}
        existing = read_manifest(folder)
        self._manifest = (
            replace(existing, collection=replace(existing.collection, exact=collection.exact))
            if existing
            else Manifest(collection, generation=1, optimised=0)
        )
        remove_other_generations(folder, keep=self._place if existing else None)
        require_space(folder, OPEN_BYTES)
        if existing:
            self._shard = _load(self._place)
        else:
            make_private_folder(self._place)
            self._shard = _create(self._place, collection)
            write_manifest(folder, self._manifest)

    @property
    def collection(self) -> Collection:
        return self._manifest.collection

    def require_space(self, points: int) -> None:
        """Raises DiskFull unless there is room for so many points more."""
        require_space(self._folder, points * BYTES_PER_POINT)

    async def upsert(self, points: list[Any]) -> None:
        async with self._writing:
            self.require_space(len(points))
            with private_umask():
                self._shard.update(qe.UpdateOperation.upsert_points(points))
            self._upserted += len(points)
            if self._changed is not None:
                self._changed.update(str(p.id) for p in points)

    async def delete(self, ids: list[Any]) -> None:
        async with self._writing:
            self.require_space(0)
            with private_umask():
                self._shard.update(qe.UpdateOperation.delete_points(ids))
            if self._changed is not None:
                self._changed.update(ids)

    async def query(self, query: Any, using: str, conditions: Any, limit: int, payload: Selection) -> list[Any]:
        return self.search(query, using, conditions, limit, False if payload == [ID_FIELD] else payload)

    def to_candidates(self, points: Sequence[Any], payload: Selection) -> list[Candidate]:
        if payload == [ID_FIELD]:
            return [Candidate(own_id, p.score) for own_id, p in zip(self._read_ids(points), points, strict=True)]
        return [to_candidate(p.payload, p.score) for p in points]

    def search(self, query: Any, using: str, conditions: Any, limit: int, payload: Selection = False) -> list[Any]:
        """The engine's own answer to a query: points with ids of the engine."""
        # Without a graph every search is exact; saying so spares the engine an estimate of the filter: up to 0.3 ms of
        # 2 ms with 10 000 tools, nothing where the filter matches few.
        is_exact = self.collection.exact or not self._manifest.optimised
        return self._shard.query(
            qe.QueryRequest(
                limit=limit,
                query=qe.Query.Nearest(query, using=using),
                filter=conditions,
                with_payload=payload,
                params=qe.SearchParams(exact=True) if is_exact else qe.SearchParams(hnsw_ef=GRAPH_CANDIDATES),
            )
        )

    async def read_ids(self, points: Sequence[Any]) -> list[str | None]:
        return [*self._read_ids(points)]

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

    async def count(self, conditions: Any) -> int:
        return int(self._shard.count(qe.CountRequest(filter=conditions, exact=True)))

    async def scroll(self, conditions: Any, offset: Any, payload: Selection) -> tuple[list[Any], Any]:
        request = qe.ScrollRequest(offset=offset, limit=SCROLL_PAGE, filter=conditions, with_payload=payload)
        return self._shard.scroll(request)

    async def retrieve(self, ids: list[Any], payload: Selection, *, vectors: bool = False) -> list[Any]:
        return self._shard.retrieve(ids, with_payload=payload, with_vector=vectors) if ids else []

    def optimise_if_due(self) -> None:
        """Starts optimising in the background when enough points were written since the last time, at once or when the
        writers pause."""
        self._cancel_timer()
        if self._is_due():
            self._start_optimising()
        elif self._is_due(growth=0.0):
            self._timer = asyncio.get_running_loop().call_later(current_limits().optimise_after, self._start_optimising)

    async def wait_until_idle(self) -> None:
        while self._timer or (self._task and not self._task.done()):
            if self._timer:
                self._cancel_timer()
                self._start_optimising()
            if self._task:
                await self._task

    async def close(self) -> None:
        self._is_stopping = True
        self._cancel_timer()
        if self._child and self._child.returncode is None:
            self._child.kill()
        if self._task:
            await self._task
        for end in (self._shard.flush, self._shard.close):
            try:
                with private_umask():
                    end()
            except Exception as error:  # noqa: BLE001  (on a full disk: what was written is in the engine's log)
                details = {"collection": self.collection.name, "reason": str(error)[-500:]}
                log.warning("index_not_flushed", extra=details)

    @property
    def _place(self) -> Path:
        return locate_generation(self._folder, self._manifest.generation)

    def _is_due(self, growth: float = GROWTH) -> bool:
        optimised = self._manifest.optimised
        unoptimised = max(self._upserted, self._shard.info().points_count - optimised)
        return unoptimised >= max(self._optimise_from, growth * optimised) and not self._is_stopping

    def _cancel_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _start_optimising(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._optimise_while_due())

    async def _optimise_while_due(self) -> None:
        """Never raises: logs the first error and leaves the shard as it is until it is opened again."""
        try:
            is_due = self._is_due(growth=0.0)
            while is_due:
                await self._optimise()
                is_due = self._is_due()
            self.optimise_if_due()  # what was written meanwhile, when the writers pause
        except DiskFull as error:  # tried again after the next write
            log.warning("optimisation_postponed", extra={"collection": self.collection.name, "reason": error.message})
        except Exception as error:  # noqa: BLE001  (the engine's errors have no common class)
            if not self._is_stopping:
                details = {"collection": self.collection.name, "reason": str(error)[-500:]}
                log.warning("optimisation_failed", extra=details)
            self._is_stopping = True
        finally:
            self._changed = None
            remove_other_generations(self._folder, keep=self._place)

    async def _optimise(self) -> None:
        """Copies the shard, optimises the copy in a child process, repeats later changes on it, and swaps the two."""
        async with self._writing:
            # The copy, and what the optimiser makes of it.
            require_space(self._folder, 2 * sum(f.stat().st_blocks * 512 for f in self._place.rglob("*")))
            optimised, self._upserted = self._shard.info().points_count, 0
            after = replace(self._manifest, generation=self._manifest.generation + 1, optimised=optimised)
            copy = locate_generation(self._folder, after.generation)
            await asyncio.to_thread(shutil.copytree, self._place, copy)
            self._changed = set()
        await self._run_child(copy)
        fresh = _load(copy)
        try:
            # Most changes are repeated while writers go on; writers wait only for the last batch.
            while len(self._changed) > UPSERT_BATCH:
                await self._repeat_changes(fresh)
            async with self._writing:
                await self._repeat_changes(fresh)
                with private_umask():
                    fresh.flush()
                write_manifest(self._folder, after)
                fresh, self._shard, self._manifest = self._shard, fresh, after
        finally:
            fresh.close()

    async def _run_child(self, copy: Path) -> None:
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _OPTIMISE, str(copy), stderr=asyncio.subprocess.PIPE
        )
        if self._is_stopping:  # since before there was a child to kill
            self._child.kill()
        _, message = await self._child.communicate()
        if self._child.returncode:
            raise ChildProcessError(message.decode() or f"exit code {self._child.returncode}")

    async def _repeat_changes(self, fresh: qe.EdgeShard) -> None:
        changed, self._changed = sorted(self._changed or ()), set()
        for start in range(0, len(changed), UPSERT_BATCH):
            ids: list[Any] = changed[start : start + UPSERT_BATCH]
            now = self._shard.retrieve(ids, with_payload=True, with_vector=True)
            self.require_space(len(ids))
            with private_umask():
                fresh.update(qe.UpdateOperation.delete_points(ids))
                if now:
                    points = [qe.Point(id=r.id, vector=r.vector or {}, payload=r.payload) for r in now]
                    fresh.update(qe.UpdateOperation.upsert_points(points))
            await asyncio.sleep(0)


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
    config = qe.EdgeConfig(
        vectors={DENSE: qe.EdgeVectorParams(size=collection.dimensions, distance=qe.Distance.Cosine)},
        sparse_vectors={TERMS: qe.EdgeSparseVectorParams()},
        # Links among the points of one value of a field cost as much as the graph again. Without them, a search that
        # keeps a tenth of 300 000 points finds 15 % of the best.
        hnsw_config=qe.HnswIndexConfig(
            m=links, ef_construct=100, full_scan_threshold=FULL_SCAN_KILOBYTES, payload_m=links
        ),
        optimizers=qe.EdgeOptimizersConfig(default_segment_number=1, indexing_threshold=GRAPH_FROM_KILOBYTES),
        # Cached would map all pages of files that are mostly empty: 33 MB a collection, and no faster (44 µs for five
        # payloads).
        payload_memory=qe.Memory.Cold,
    )
    indexes = {
        field_path(field): _FIELD_INDEXES[kind] for field, kind in collection.fields.items() if kind in _FIELD_INDEXES
    }
    with private_umask():
        shard = qe.EdgeShard.create(str(place), config)
        for path, kind in {**indexes, FLAGS_FIELD: qe.KeywordIndexParams()}.items():
            shard.update(qe.UpdateOperation.create_field_index(path, kind))
    return _guard(shard, place.parent)


def _load(place: Path) -> qe.EdgeShard:
    try:
        with private_umask():
            return _guard(qe.EdgeShard.load(str(place)), place.parent)
    except BaseException as error:
        if isinstance(error, Exception) or _is_panic(error):
            raise report_damage(place.parent, error) from error
        raise


class _GuardedShard:
    """Passes calls on to the engine's shard. Where files have other contents than it has written, the engine fails, or
    it panics and pyo3 raises a BaseException that ends the process. Here both become IndexDamaged. The engine is not
    called again afterwards, because a panic leaves its locks taken."""

    def __init__(self, shard: qe.EdgeShard, folder: Path) -> None:
        self._guarded, self._folder = shard, folder
        self._damage: IndexDamaged | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._guarded, name)

        def call(*values: Any, **named: Any) -> Any:
            if self._damage:
                raise IndexDamaged(self._damage.message, details=self._damage.details)
            try:
                return method(*values, **named)
            except BaseException as error:
                if _is_panic(error) or str(error).startswith(_OWN_FAULT):
                    self._raise(error)
                raise

        return call

    def _raise(self, error: BaseException) -> NoReturn:
        if _DISK_FULL in str(error):
            raise DiskFull(measure_free_space(self._folder), RESERVED_BYTES) from error
        self._damage = report_damage(self._folder, error)
        with suppress(OSError):
            (self._folder / DAMAGED).touch(FILE_MODE)
        raise self._damage from error


def _guard(shard: qe.EdgeShard, folder: Path) -> qe.EdgeShard:
    return cast("qe.EdgeShard", _GuardedShard(shard, folder))


def _is_panic(error: BaseException) -> bool:
    """Whether the engine has panicked. pyo3's class for that cannot be imported."""
    return type(error).__name__ == "PanicException"
