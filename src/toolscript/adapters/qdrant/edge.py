"""The embedded index: Qdrant's own engine in this process, one folder per collection."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from toolscript.adapters.qdrant.manifest import read_manifest
from toolscript.adapters.qdrant.shard import Shard
from toolscript.domain.errors import NotFound, Unavailable
from toolscript.domain.filters import EVERYTHING, Filter, Payload
from toolscript.domain.search import Candidate, Collection, Point, Terms, Vector, require_same_model

# From this many points without a graph, a search through the graph is faster.
OPTIMISE_FROM = 50_000


class QdrantEdgeIndex:
    """A vector index in a folder, which one process at a time can open."""

    def __init__(self, root: Path, *, optimise_from: int = OPTIMISE_FROM) -> None:
        """Raises Unavailable when another process uses the folder, or the folder cannot be written."""
        self._root = root
        self._optimise_from = optimise_from
        self._open: dict[str, Collection] = {}
        self._shards: dict[str, Shard] = {}
        self._lock = FileLock(root / ".lock")
        try:
            root.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(blocking=False)
        except Timeout as error:
            raise Unavailable(
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
        shard = self._shards.pop(name, None)
        if shard:
            await shard.close()
        folder = self._root / name
        if folder.is_dir():
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        await self._shard(name).upsert(points)

    async def delete(self, name: str, ids: Sequence[str]) -> None:
        if ids:
            await self._shard(name).delete(ids)

    async def dense(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        floor: float | None = None,
        fields: Sequence[str] | None = None,
    ) -> list[Candidate]:
        return await self._shard(name).dense(vector, where, limit, floor, fields)

    async def nearest(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        floor: float,
        count_to: int,
        fields: Sequence[str] | None = None,
    ) -> tuple[list[Candidate], int]:
        return await self._shard(name).nearest(vector, where, limit, floor, count_to, fields)

    async def lexical(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, limit: int, fields: Sequence[str] | None = None
    ) -> list[Candidate]:
        return await self._shard(name).lexical(terms, where, limit, fields) if terms.ids else []

    async def count(self, name: str, where: Filter = EVERYTHING) -> int:
        return self._shard(name).count(where)

    async def scroll(
        self, name: str, *, where: Filter = EVERYTHING, fields: Sequence[str] | None = None
    ) -> list[Candidate]:
        return await self._shard(name).scroll(where, fields)

    async def payloads(self, name: str, ids: Sequence[str], fields: Sequence[str] | None = None) -> dict[str, Payload]:
        return await self._shard(name).payloads(ids, fields)

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        return await self._shard(name).vectors(ids)

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

    def _shard(self, name: str) -> Shard:
        shard = self._shards.get(name)
        if shard is None:
            if name not in self._open:
                raise NotFound(f"collection {name!r} is not open", details={"collection": name})
            # Loading takes 0.1 s: only for collections that are used.
            shard = self._shards[name] = Shard(self._root / name, self._open[name], self._optimise_from)
        return shard
