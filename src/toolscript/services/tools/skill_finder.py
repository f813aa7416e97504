"""Keeps the map of the skills at hand, and draws it anew when they have changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from toolscript.domain.search import SimilarityRange
from toolscript.ports.indexes import VectorIndex
from toolscript.retrieval.skill_map import SkillMap
from toolscript.services.catalogue.skill_points import SKILLS

FIELDS = ("skill_id", "name", "description", "tool_count", "is_active", "tightness", "is_facet")


class SkillFinder:
    """The map of the skills' collection. What this process has changed is on it at once; what others may have changed
    in the meantime is looked for beside the searches, which have the map of before until then."""

    def __init__(
        self,
        index: VectorIndex,
        similarity: SimilarityRange,
        *,
        oldest: float | None = None,
        within: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`oldest` is how many seconds a map is good for where others may write; without it, until told of a change.
        `within` is how many seconds drawing one may take."""
        self._index = index
        self._similarity = similarity
        self._oldest = oldest
        self._within = within
        self._clock = clock
        self._map: SkillMap | None = None
        self._changes = 0
        self._seen = -1
        self._drawn_at = 0.0
        self._drawing: asyncio.Task[tuple[SkillMap, int]] | None = None

    def changed(self) -> None:
        """To be called when the collection has changed."""
        self._changes += 1

    async def map(self) -> SkillMap:
        """The map as it is now. Raises what the index raises, and Unavailable for vectors that are none."""
        if self._map is None or self._seen != self._changes:
            drawn, changes = await asyncio.shield(self._draw())
            if changes != self._changes:  # it was begun before the change; where changes never end, once more will do
                drawn, _ = await asyncio.shield(self._draw())
            return drawn
        if self._oldest is not None and self._clock() - self._drawn_at >= self._oldest:
            self._draw()
        return self._map

    async def close(self) -> None:
        """Ends what is under way."""
        if self._drawing is not None:
            self._drawing.cancel()
            await asyncio.gather(self._drawing, return_exceptions=True)

    def _draw(self) -> asyncio.Task[tuple[SkillMap, int]]:
        """The drawing that is under way, in a task of its own: a search that stops waiting does not end it."""
        if self._drawing is None or self._drawing.done():
            self._drawing = asyncio.create_task(self._drawn())
            self._drawing.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._drawing

    async def _drawn(self) -> tuple[SkillMap, int]:
        """The map, and how many changes there had been when it was begun. One that points went from while it was
        drawn is good for once."""
        changes, at = self._changes, self._clock()
        async with asyncio.timeout(self._within):
            points = [p for p in await self._index.scroll(SKILLS, fields=FIELDS) if p.payload["is_active"]]
            vectors = await self._index.vectors(SKILLS, [p.id for p in points])
        drawn = SkillMap(points, vectors, self._similarity)
        if len(vectors) == len(points):
            self._map, self._seen, self._drawn_at = drawn, changes, at
        return drawn, changes
