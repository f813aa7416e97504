"""The store of results that were too large for a context."""

from __future__ import annotations

from typing import Protocol

KEPT_SECONDS = 3600.0


class ResultStore(Protocol):
    """Keeps results for a while, each for the caller that got it.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.results import SqlResults
    >>> async def save_and_read():
    ...     database = Database("sqlite://")
    ...     store = SqlResults(database)
    ...     await store.save("r1", "ann", b"whole", now=100.0, expires_at=200.0)
    ...     read = [await store.read("r1", owner, now=150.0) for owner in ("ann", "bob")]
    ...     await database.close()
    ...     return read
    >>> asyncio.run(save_and_read())
    [b'whole', None]
    """

    async def save(self, handle: str, owner: str, content: bytes, *, now: float, expires_at: float) -> None:
        """Saves a result under a handle, instead of the owner's earlier result there. Deletes expired results. While
        this owner has more than a quarter of the room, deletes the owner's results that expire first; while all results
        together are too large, deletes the results of all owners that expire first."""

    async def read(self, handle: str, owner: str, *, now: float) -> bytes | None:
        """The content of a result of this owner that has not expired; else None."""
