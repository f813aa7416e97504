"""Keeps the map of the skills at hand, and draws it anew when they have changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from toolscript.ports import VectorIndex
from toolscript.retrieval.skill_map import SkillMap
from toolscript.services.skill_points import SKILLS


class SkillFinder:
    """The map of the skills' collection, as old as its age allows where others may change the collection too."""

    def __init__(
        self, index: VectorIndex, *, oldest: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`oldest` is how many seconds a map is good for; without it, until it is told of a change."""
        self._index = index
        self._oldest = oldest
        self._clock = clock
        self._map: SkillMap | None = None
        self._changes = 0
        self._seen = -1
        self._drawn_at = 0.0
        self._drawing = asyncio.Lock()

    def changed(self) -> None:
        """To be called when the collection has changed."""
        self._changes += 1

    async def map(self) -> SkillMap:
        """The map as it is now. Raises what the index raises, and Unavailable for vectors that are none."""
        if self._map is not None and self._is_current():
            return self._map
        async with self._drawing:
            if self._map is None or not self._is_current():
                changes = self._changes
                points = await self._index.scroll(SKILLS)
                vectors = await self._index.vectors(SKILLS, [p.id for p in points])
                drawn = SkillMap([p for p in points if p.payload["is_active"]], vectors)
                if len(vectors) < len(points):
                    return drawn  # some went while it was drawn: good for once
                self._map, self._seen, self._drawn_at = drawn, changes, self._clock()
            return self._map

    def _is_current(self) -> bool:
        is_young = self._oldest is None or self._clock() - self._drawn_at < self._oldest
        return is_young and self._seen == self._changes
