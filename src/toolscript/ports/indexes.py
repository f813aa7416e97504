"""The vector index, and the cache of vectors for it."""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.domain.search import Candidate, Collection, Point, TermMatches, Terms, Vector

# The payload fields to read: all for None, or the named ones.
Fields = Sequence[str] | None


class VectorIndex(Protocol):
    """Stores points with a dense vector, weighted terms and a flat payload, in named collections. Everything in it can
    be rebuilt from a store. Rankings are best first, equal scores by id.

    >>> import asyncio
    >>> from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
    >>> async def search():
    ...     embedder, index = HashedEmbedder(), MemoryIndex()
    ...     await index.open(Collection("tools", embedder.model, embedder.dimensions))
    ...     for name in ("read a file", "send mail"):
    ...         await index.upsert("tools", [Point(name, await embedder.embed_query(name), Terms(), {})])
    ...     return await index.dense("tools", await embedder.embed_query("read a text file"), limit=1)
    >>> [candidate.id for candidate in asyncio.run(search())]
    ['read a file']
    """

    async def describe(self, name: str) -> Collection | None:
        """The model, dimensions and settings of a collection; None if it does not exist."""

    async def open(self, collection: Collection) -> None:
        """Creates the collection, or opens it. Raises Invalid when its model or dimensions differ."""

    async def drop(self, name: str) -> None:
        """Deletes the collection and all its points, if it exists."""

    async def require_space(self, name: str, points: int) -> None:
        """Raises Unavailable if the collection is known to have no room for so many points, or to take no changes:
        before something else is written that they belong to."""
        del name, points  # an index elsewhere does not know

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        """Adds points; replaces points with the same id completely."""

    async def delete(self, name: str, ids: Sequence[str]) -> None:
        """Deletes points; unknown ids are ignored."""

    async def dense(
        self,
        name: str,
        vector: Vector,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        fields: Fields = None,
    ) -> list[Candidate]:
        """The points with the largest cosines."""

    async def lexical(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, limit: int, fields: Fields = None
    ) -> list[Candidate]:
        """The points with the largest dot products of terms, without points that share no term."""

    async def match(
        self, name: str, terms: Terms, *, where: Filter = EVERYTHING, start: int = 0, end: int, max_total: int
    ) -> TermMatches:
        """Places `start` to `end - 1` of the points that share a term, without payloads, and the number of these
        points, counted up to `max_total`. Ranks by scores of SCORE_DIGITS digits, so that the pages of every engine
        are the same; a page far down takes no longer than the first."""

    async def count(self, name: str, where: Filter = EVERYTHING) -> int: ...

    async def scroll(self, name: str, *, where: Filter = EVERYTHING, fields: Fields = None) -> list[Candidate]:
        """Every matching point by id, score 0."""

    async def payloads(self, name: str, ids: Sequence[str], fields: Fields = None) -> dict[str, Mapping[str, Any]]:
        """The payloads of the named points that exist."""

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of the named points that exist and have one."""

    async def close(self) -> None: ...


class VectorCache(Protocol):
    """Keeps vectors of items between runs, so that nothing unchanged is embedded twice.

    >>> import asyncio, tempfile
    >>> from pathlib import Path
    >>> from toolscript.adapters.memory import HashedEmbedder
    >>> from toolscript.adapters.models.vector_cache_files import EmbeddingFiles
    >>> embedder, cache = HashedEmbedder(), EmbeddingFiles(Path(tempfile.mkdtemp()))
    >>> vector = asyncio.run(embedder.embed_query("show the log"))
    >>> asyncio.run(cache.keep(["git"], embedder.model, {"git__log": ("digest", vector)}))
    >>> list(asyncio.run(cache.find(["git"], embedder.model, {"git__log": "digest", "git__diff": "digest"})))
    ['git__log']
    """

    async def has(self, servers: Several[str]) -> bool:
        """Whether there are vectors for this list of servers."""

    async def find(self, servers: Several[str], model: str, wanted: Mapping[str, str]) -> dict[str, Vector]:
        """The cached vectors of the wanted items (id to digest) with that digest and model, from this list of servers
        or any other."""

    async def keep(self, servers: Several[str], model: str, vectors: Mapping[str, tuple[str, Vector]]) -> None:
        """Adds or replaces vectors (id to digest and vector) for this list of servers, and removes items of other
        servers. A full or read-only disk causes one warning in the log, never an error."""
