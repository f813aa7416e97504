"""The embedded index: Qdrant's own engine in this process, one folder per collection."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import qdrant_edge as qe
from filelock import FileLock, Timeout

from toolscript.adapters.qdrant.conversion import QdrantPackage
from toolscript.adapters.qdrant.index import QdrantIndex
from toolscript.adapters.qdrant.shard import MANIFEST, UPSERT_BATCH, Shard, read_manifest
from toolscript.adapters.storage.private_files import FILE_MODE, make_private_folder, restrict_tree
from toolscript.domain.errors import FolderInUse, IndexDamaged, NotFound, Unavailable
from toolscript.domain.search import Collection, Point, require_same_model

_PACKAGE = QdrantPackage(
    models=qe,
    point=qe.Point,
    number_range=qe.RangeFloat,
    date_range=qe.RangeDateTime,
    is_empty=qe.IsEmptyCondition,
    has_id=qe.HasIdCondition,
    has_flags=True,
)

# From this many points without a graph, a search through the graph is faster.
OPTIMISE_FROM = 50_000
LOCK = ".lock"


def is_in_use(root: Path) -> bool:
    """Whether a process has opened the index folder. Creates nothing. Raises OSError if its lock cannot be opened."""
    if not (root / LOCK).is_file():
        return False
    lock = FileLock(root / LOCK, mode=FILE_MODE)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    lock.release()
    return False


def find_damage(root: Path) -> list[str]:
    """Why collections of the index folder cannot be read. Only manifests are read."""
    problems = []
    for folder in sorted(each for each in root.glob("*") if each.is_dir()):
        try:
            read_manifest(folder)
        except Unavailable as error:
            problems.append(error.message)
    return problems


class QdrantEdgeIndex(QdrantIndex):
    """A vector index in a folder. One process at a time can open it."""

    package = _PACKAGE
    upsert_batch = UPSERT_BATCH
    # The engine needs 0.05 to 0.08 ms for a vector, and nothing else runs meanwhile: 2 to 3 ms for a page.
    vectors_page = 32

    def __init__(self, root: Path, *, optimise_from: int = OPTIMISE_FROM) -> None:
        """Raises FolderInUse when another process uses the folder, Unavailable when the folder cannot be written."""
        self._root = root
        self._optimise_from = optimise_from
        self._open: dict[str, Collection] = {}
        self._shards: dict[str, Shard] = {}
        self._damaged: dict[str, IndexDamaged] = {}
        self._lock = FileLock(root / LOCK, mode=FILE_MODE)
        try:
            restrict_tree(root)
            make_private_folder(root)
            self._lock.acquire(blocking=False)
        except Timeout as error:
            raise FolderInUse(
                f"the index folder {root} is in use by another process, a gateway or a running command: wait for it or "
                "stop it, use the gateway over HTTP, or choose another folder with --data-dir",
                details={"folder": str(root)},
            ) from error
        except OSError as error:
            raise Unavailable(
                f"the index folder {root} cannot be opened ({error.strerror}): choose another with --data-dir",
                details={"field": "--data-dir", "folder": str(root)},
            ) from error

    async def describe(self, name: str) -> Collection | None:
        if name in self._open:
            return self._open[name]
        manifest = read_manifest(self._root / name)
        return manifest.collection if manifest else None

    async def open(self, collection: Collection) -> None:
        existing = await self.describe(collection.name)
        if existing:
            require_same_model(existing, collection)
        self._open[collection.name] = replace(existing, exact=collection.exact) if existing else collection

    async def drop(self, name: str) -> None:
        self._open.pop(name, None)
        self._damaged.pop(name, None)
        shard = self._shards.pop(name, None)
        if shard:
            await shard.close()
        folder = self._root / name
        if folder.is_dir():
            # First: a process that ends before the rest is removed leaves no manifest that names a broken generation.
            with suppress(OSError):
                (folder / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)

    async def require_space(self, name: str, points: int) -> None:
        self._collection(name).require_space(points)

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        await super().upsert(name, points)
        self._collection(name).optimise_if_due()

    async def close(self) -> None:
        try:
            for shard in self._shards.values():
                await shard.close()
        finally:
            self._shards.clear()
            self._open.clear()
            self._lock.release()

    async def wait_until_idle(self) -> None:
        """Waits until no optimisation is running, for benchmarks and tests."""
        for shard in self._shards.values():
            await shard.wait_until_idle()

    def _collection(self, name: str) -> Shard:
        shard = self._shards.get(name)
        if shard is None:
            if name in self._damaged:
                raise IndexDamaged(self._damaged[name].message, details=self._damaged[name].details)
            if name not in self._open:
                read_manifest(self._root / name)  # raises for a damaged one, which could not be opened
                raise NotFound(f"collection {name!r} is not open", details={"collection": name})
            # Loading takes 0.1 s: only for collections that are used.
            try:
                shard = self._shards[name] = Shard(self._root / name, self._open[name], self._optimise_from)
            except IndexDamaged as error:
                self._damaged[name] = error
                raise
            shard.optimise_if_due()
        return shard
