"""The vector index, and the cache of vectors that fills it."""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.domain.search import Candidate, Collection, Point, Terms, Vector

# The payload fields that are read: all for None, or those named.
Fields = Sequence[str] | None


class VectorIndex(Protocol):
    """Points with a dense vector, weighted terms and a flat payload, in named collections. Derived data: everything in
    it can be rebuilt from a store. Rankings are best first, equal scores by id."""

    async def describe(self, name: str) -> Collection | None:
        """What the named collection was made with, or None where there is none."""

    async def open(self, collection: Collection) -> None:
        """Creates the collection, or opens it. Raises Invalid when it was made with another model or size."""

    async def drop(self, name: str) -> None:
        """Forgets the collection and all its points, if it exists."""

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        """Adds points, replacing those with the same id whole."""

    async def delete(self, name: str, ids: Sequence[str]) -> None:
        """Removes points; ids that are not there are no error."""

    async def dense(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        floor: float | None = None,
        fields: Fields = None,
    ) -> list[Candidate]:
        """The points nearest by cosine, those below `floor` left out."""

    async def nearest(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        floor: float,
        count_to: int,
        fields: Fields = None,
    ) -> tuple[list[Candidate], int]:
        """What `dense` answers, and how many points are not below the floor, counted up to `count_to` (≥ the limit)."""

    async def lexical(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, limit: int, fields: Fields = None
    ) -> list[Candidate]:
        """The points with the largest dot product of terms; points that share no term are left out."""

    async def count(self, name: str, where: Filter = EVERYTHING) -> int: ...

    async def scroll(self, name: str, *, where: Filter = EVERYTHING, fields: Fields = None) -> list[Candidate]:
        """Every matching point by id, score 0."""

    async def payloads(self, name: str, ids: Sequence[str], fields: Fields = None) -> dict[str, Mapping[str, Any]]:
        """The payloads of the named points that exist."""

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of the named points that exist and have one."""

    async def close(self) -> None: ...


class VectorCache(Protocol):
    """Vectors of items from earlier runs, so that nothing unchanged is embedded twice."""

    async def has(self, servers: Several[str]) -> bool:
        """Whether anything was kept for this list of servers."""

    async def find(self, servers: Several[str], model: str, wanted: Mapping[str, str]) -> dict[str, Vector]:
        """The vectors of the wanted items (id to digest) that were kept with that digest by that model: from the
        file of this list of servers, and for the rest from those of other configurations."""

    async def keep(self, servers: Several[str], model: str, vectors: Mapping[str, tuple[str, Vector]]) -> None:
        """Adds or replaces vectors (id to digest and vector) in the file of this list of servers, and forgets items
        of servers that are not in it. Never raises for a disk that is full or read-only: it logs a warning once."""
