"""The catalogue as a map: every tool has a place, near to tools that do similar things."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.requests import current_request
from toolscript.ports.indexes import VectorIndex
from toolscript.retrieval.projection import find_near_pairs, project
from toolscript.services.catalogue.item_points import TOOLS
from toolscript.services.catalogue.snapshot import CatalogueSnapshots, Change
from toolscript.services.catalogue.visibility import FindView
from toolscript.services.support.background_run import BackgroundRun

# Cosines from here on are drawn as nearly the same: of tools of one server, and of different ones. Measured with
# toolscript-small. Siblings share the words of their server: in 81 servers (1 361 tools, each pair read) all 11 pairs
# from 0.98 on are equal, and none of the 12 from 0.92 to 0.98 (before and after, left and right). Across servers all 6
# from 0.90 on are equal, 4 of the 6 from 0.88 to 0.90. In a registry of 5 792 tools some 8 of 97 pairs across servers
# do the same with another service (not each was read), while 0.97 finds 16; within servers 2 of 4 are opposites.
MIN_WITHIN_SERVER, MIN_ACROSS_SERVERS = 0.98, 0.90
MAX_PAIRS = 1000
SKILL = "primary_skill_id"


@dataclass(frozen=True, slots=True)
class PlacedTool:
    """A tool on the map: its coordinates from -1 to 1, and its skill."""

    id: str
    x: float
    y: float
    skill: str | None


@dataclass(frozen=True, slots=True)
class ToolMap:
    """All places, and the pairs of tools that are nearly the same, with their similarity."""

    tools: tuple[PlacedTool, ...] = ()
    duplicates: tuple[tuple[str, str, float], ...] = ()


class DrawToolMap:
    """Draws the map of the catalogue, once for each version of it: when somebody asks for it, and in the background."""

    def __init__(self, index: VectorIndex, snapshots: CatalogueSnapshots, find_view: FindView) -> None:
        self._index = index
        self._snapshots = snapshots
        self._find_view = find_view
        self._lock = asyncio.Lock()
        self._drawn: tuple[int, ToolMap] = (-1, ToolMap())
        self._background = BackgroundRun(self._prepare, name="drawing the map", interval=current_limits().map_interval)

    def start_following(self) -> None:
        """Draws the map whenever the catalogue changes, in the background and not all the time, so that nobody who asks
        for it has to wait."""
        self._snapshots.watch(self._background.start_soon, ~Change(0))
        self._background.start_soon()

    async def close(self) -> None:
        """Ends drawing in the background."""
        await self._background.close()

    async def draw(self) -> ToolMap:
        """The part of the map that the caller may see. Tools without a vector are left out. Raises Unavailable."""
        await self._update()
        drawn, view = self._drawn[1], await self._find_view(current_request())
        if view.ids is None:
            return drawn
        return ToolMap(
            tuple(tool for tool in drawn.tools if view.shows(tool.id)),
            tuple(pair for pair in drawn.duplicates if view.shows(pair[0]) and view.shows(pair[1])),
        )

    async def _prepare(self) -> None:
        await asyncio.sleep(current_limits().map_after)
        with suppress(Unavailable):  # whoever asks for the map gets the reason
            await self._update()

    async def _update(self) -> None:
        async with self._lock:
            version = self._snapshots.current().version
            if self._drawn[0] != version:
                self._drawn = version, await self._draw_everything()

    async def _draw_everything(self) -> ToolMap:
        facts = (await self._snapshots.current().facts()).items
        skills = {point.id: point.payload.get(SKILL) for point in await self._index.scroll(TOOLS, fields=(SKILL,))}
        vectors = await self._index.vectors(TOOLS, [item_id for item_id in skills if item_id in facts])
        ids, values = list(vectors), list(vectors.values())
        places = await asyncio.to_thread(project, values)
        pairs = await asyncio.to_thread(
            find_near_pairs,
            values,
            [facts[item_id].server for item_id in ids],
            within=MIN_WITHIN_SERVER,
            across=MIN_ACROSS_SERVERS,
            max_pairs=MAX_PAIRS,
        )
        tools = (
            PlacedTool(item_id, float(x), float(y), skills[item_id])
            for item_id, (x, y) in zip(ids, places, strict=True)
        )
        return ToolMap(tuple(tools), tuple((ids[a], ids[b], similar) for a, b, similar in pairs))
