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

# From here on a search over points without a graph takes longer than one with it.
WORTH_OPTIMISING = 50_000
# A process that searches more often than this is worth a copy of the collection in memory, where it has none yet.
SEARCHES_BEFORE_COPY = 3


class QdrantEdgeIndex:
    """A vector index in a folder. One process at a time holds the folder; a second is told so."""

    def __init__(
        self,
        root: Path,
        *,
        worth_optimising: int = WORTH_OPTIMISING,
        searches_before_copy: int | None = SEARCHES_BEFORE_COPY,
    ) -> None:
        """With `searches_before_copy` None the engine answers everything. Raises Unavailable when another process has
        the folder."""
        self._root = root
        self._effort = worth_optimising, searches_before_copy
        self._open: dict[str, Collection] = {}
        self._shards: dict[str, Shard] = {}
        self._lock = FileLock(root / ".lock")
        try:
            root.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(blocking=False)
        except Timeout as error:
            raise Unavailable(
                f"the index folder {root} is in use by another process, a gateway or a command that is still at work: "
                "wait for it or stop it, talk to a gateway over HTTP, or give this one a folder of its own with "
                "--data-dir",
                details={"folder": str(root)},
            ) from error
        except OSError as error:
            raise Unavailable(
                f"the index folder {root} cannot be used ({error.strerror}): choose another with --data-dir",
                details={"field": "--data-dir", "folder": str(root)},
            ) from error

    async def describe(self, name: str) -> Collection | None:
        if name in self._open:
            return self._open[name]
        written = read_manifest(self._root / name)
        return written.collection if written else None

    async def open(self, collection: Collection) -> None:
        held = await self.describe(collection.name)
        if held:
            require_same_model(held, collection)
        self._open[collection.name] = replace(held, exact=collection.exact) if held else collection

    async def drop(self, name: str) -> None:
        self._open.pop(name, None)
        held = self._shards.pop(name, None)
        if held:
            await held.close()
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
            for held in self._shards.values():
                await held.close()
        finally:
            self._shards.clear()
            self._open.clear()
            self._lock.release()

    async def wait_until_idle(self) -> None:
        """Waits until no optimising or copying is under way (benchmarks and tests want to know when)."""
        for held in self._shards.values():
            await held.wait_until_idle()

    def _shard(self, name: str) -> Shard:
        held = self._shards.get(name)
        if held is None:
            if name not in self._open:
                raise NotFound(f"collection {name!r} is not open", details={"collection": name})
            # Loading takes a tenth of a second: only for the collections that are used.
            held = self._shards[name] = Shard(self._root / name, self._open[name], *self._effort)
        return held
