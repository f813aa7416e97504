"""The number of points in every collection of the index."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from toolscript.domain.errors import NotFound, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.ports.indexes import VectorIndex


async def count_points(collections: Mapping[str, VectorIndex]) -> dict[str, int]:
    """The sizes of these collections, each with the index that holds it. Collections that are not open yet, and
    collections of an index that does not answer in time, are left out."""

    async def count(name: str, index: VectorIndex) -> int | None:
        try:
            async with asyncio.timeout(current_limits().count_points):
                return await index.count(name)
        except (NotFound, Unavailable, TimeoutError):
            return None

    counts = await asyncio.gather(*(count(name, index) for name, index in collections.items()))
    return {name: size for name, size in zip(collections, counts, strict=True) if size is not None}
