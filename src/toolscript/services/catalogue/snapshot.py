"""The catalogue in memory, for searches to read instead of the store.

A `CatalogueSnapshot` is one version of the catalogue: the facts and terms of its items, their schemas, the map of its
skills. It never changes: a write replaces it by the next version. The next version takes over every part that the write
left alone. A part is read when it is first needed, so a command that searches once does not read the whole catalogue.
Results are cached by the version of the snapshot that they were computed from.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, Generic, TypeVar

from toolscript.domain.catalog import Item, Schemas, StoredItem
from toolscript.domain.errors import ToolscriptError
from toolscript.domain.feedback import Step
from toolscript.domain.limits import current_limits
from toolscript.domain.search import SimilarityRange
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.stores import CatalogueVersion, ItemStore
from toolscript.retrieval.capabilities import Capabilities, load_capabilities
from toolscript.retrieval.catalogue import CatalogueFacts, ItemFacts, build_facts
from toolscript.retrieval.skill_map import SkillMap
from toolscript.services.catalogue.skill_points import SKILLS
from toolscript.services.catalogue.tool_steps import ToolSteps

SKILL_MAP_FIELDS = (
    *("skill_id", "name", "description", "tool_count", "is_active"),
    *("tightness", "is_facet", "tools", "also"),
)
# While somebody searches, `warm_up` reads this many items at a time, then rests twice as long as that took.
PAGE, REST = 16, 2
SEARCHING_SECONDS = 1.0

T = TypeVar("T")

log = logging.getLogger(__name__)


class Change(Flag):
    """What a write has changed."""

    ITEMS = auto()
    """Items in the store."""
    POINTS = auto()
    """Points of items in the index."""
    SKILLS = auto()
    """Points of skills in the index."""
    STEPS = auto()
    """What was learnt from use."""


class _Part(Generic[T]):
    """A value that is read when it is first needed, once for all who wait for it."""

    def __init__(self, start: Callable[..., Any], read: Callable[[], Coroutine[Any, Any, tuple[T, bool]]]) -> None:
        """`read` returns the value and whether it is complete: an incomplete one is used once and read again."""
        self._start = start
        self._read = read
        self._reading: asyncio.Task[T] | None = None
        self.value: T | None = None
        self.is_incomplete = False

    async def get(self) -> T:
        if self.value is not None:
            return self.value
        if self._reading is None or self._reading.done():
            self._reading = self._start(self._load())
        return await asyncio.shield(self._reading)  # a search that stops waiting does not end the reading

    async def _load(self) -> T:
        value, is_complete = await self._read()
        self.is_incomplete = not is_complete
        if is_complete:
            self.value = value
        return value


@dataclass(frozen=True, slots=True)
class CatalogueSnapshot:
    """One version of the catalogue. Its methods raise what store and index raise."""

    version: int
    _facts: _Part[CatalogueFacts]
    _skill_map: _Part[SkillMap]
    _steps: _Part[Mapping[str, Step]]
    _read_schemas: Callable[[Sequence[str]], Awaitable[Mapping[str, Schemas]]]
    _schemas: dict[str, Schemas] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was read could be read: results may be kept."""
        return not (self._facts.is_incomplete or self._skill_map.is_incomplete or self._steps.is_incomplete)

    async def facts(self) -> CatalogueFacts:
        """The facts and terms of all active items."""
        return await self._facts.get()

    async def skill_map(self) -> SkillMap:
        """The map of all active skills. Raises Unavailable for vectors that hold no numbers."""
        return await self._skill_map.get()

    async def steps(self) -> Mapping[str, Step]:
        """The steps of tools, also steps of texts that have changed since."""
        return await self._steps.get()

    async def schemas(self, item_ids: Sequence[str]) -> dict[str, Schemas | None]:
        """The schemas of these items by id; None for an item that the catalogue no longer has."""
        facts = self._facts.value
        if facts is not None:
            self._schemas.update({i: facts.items[i].schemas for i in item_ids if i in facts.items})
        unknown = [i for i in item_ids if i not in self._schemas]
        if unknown:
            schemas = await self._read_schemas(unknown)
            self._schemas.update({i: (given, returned, notes) for i, (given, returned, notes) in schemas.items()})
        return {i: self._schemas.get(i) for i in item_ids}


class CatalogueSnapshots:
    """Holds the current snapshot. What this process writes is in the next one at once; what other processes write is,
    where `follow` runs, a moment later."""

    def __init__(
        self,
        item_store: ItemStore,
        index: VectorIndex,
        similarity: SimilarityRange,
        *,
        steps: ToolSteps | None = None,
        capabilities: Capabilities | None = None,
        read_timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`capabilities` default to the package's. `read_timeout` bounds the reading of the skill map, and of what
        other processes have written."""
        self._item_store = item_store
        self._index = index
        self._similarity = similarity
        self._steps = steps or ToolSteps()
        self.capabilities = capabilities or load_capabilities()
        self._read_timeout = read_timeout
        self._clock = clock
        self._known: dict[str, ItemFacts] = {}
        """Facts that were read for any snapshot: taken over where the digest is the same."""
        self._latest: CatalogueFacts | None = None
        self._searched_at = -math.inf
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watchers: list[tuple[Change, Callable[[], object]]] = []
        self._current = self._build(
            1,
            _Part(self._start, self._read_facts),
            _Part(self._start, self._read_skill_map),
            _Part(self._start, self._read_steps),
        )

    def current(self) -> CatalogueSnapshot:
        """The snapshot for one search to read from beginning to end."""
        self._searched_at = self._clock()
        return self._current

    def find_item(self, item_id: str, *, outdated: bool = False) -> Item | None:
        """The active item, if the facts of the current snapshot are in memory; with `outdated` also if the facts of an
        earlier snapshot are. Reads nothing."""
        facts = self.current()._facts.value or (self._latest if outdated else None)
        item = facts.items.get(item_id) if facts else None
        return item.to_item() if item else None

    def watch(self, watcher: Callable[[], object], changes: Change = Change.ITEMS) -> None:
        """Calls the watcher whenever one of these may have changed. It must not raise."""
        self._watchers.append((changes, watcher))

    def advance(self, change: Change) -> None:
        """Swaps in the next version. To be called after every write, with what it may have changed."""
        old = self._current
        facts = _Part(self._start, self._read_facts) if Change.ITEMS in change else old._facts
        skill_map = _Part(self._start, self._read_skill_map) if Change.SKILLS in change else old._skill_map
        steps = _Part(self._start, self._read_steps) if Change.STEPS in change else old._steps
        self._current = self._build(old.version + 1, facts, skill_map, steps)
        self._call_watchers(change)

    async def warm_up(self) -> None:
        """Reads the facts that the next hybrid search would wait for; while somebody searches a page at a time, with
        rests, because reading slows searches down. A search that needs the facts reads what is left at once."""
        digests = await self._read_digests()
        unknown = [i for i, digest in digests.items() if not self._is_known(i, digest)]
        for start in range(0, len(unknown), PAGE):
            if self._current._facts.value is not None:
                return
            began = time.monotonic()
            read = await self._item_store.get_items(unknown[start : start + PAGE])
            self._known |= await asyncio.to_thread(self._build_facts, read, digests)
            if self._clock() - self._searched_at < SEARCHING_SECONDS:
                await asyncio.sleep(REST * (time.monotonic() - began))
        await self._current.facts()

    def start_following(self, version: CatalogueVersion) -> None:
        """Runs `follow` until these snapshots are closed."""
        self._start(self.follow(version))

    async def follow(self, version: CatalogueVersion) -> None:
        """Swaps in the next snapshot whenever the version in the store has changed, until cancelled. While store or
        index fail, the last snapshot stays; the first failure is logged."""
        seen, is_failing = -1, False
        while True:
            try:
                async with asyncio.timeout(self._read_timeout):
                    newest = await version.read()
                    if newest != seen:
                        await self._refresh()
                        seen = newest
                is_failing = False
            except Exception as error:  # noqa: BLE001  (whatever fails now is tried again)
                if not is_failing:
                    log.warning("catalogue_not_followed", extra={"reason": f"{type(error).__name__}: {error}"})
                is_failing = True
            await asyncio.sleep(current_limits().catalogue_pause)
            await version.wait_for_change(current_limits().catalogue_poll)

    async def close(self) -> None:
        """Cancels the running reads, and following."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _build(
        self,
        version: int,
        facts: _Part[CatalogueFacts],
        skill_map: _Part[SkillMap],
        steps: _Part[Mapping[str, Step]],
    ) -> CatalogueSnapshot:
        return CatalogueSnapshot(version, facts, skill_map, steps, self._item_store.get_schemas)

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return task

    async def _refresh(self) -> None:
        """Swaps in a version that has what other processes wrote. Parts that are in use are read before, so that no
        search waits for them."""
        old = self._current
        facts, skill_map = _Part(self._start, self._read_facts), _Part(self._start, self._read_skill_map)
        steps = _Part(self._start, self._read_steps)
        if old._facts.value is not None:
            await facts.get()
        if old._skill_map.value is not None:
            await skill_map.get()
        now = self._current  # a write of this process that came meanwhile is newer than what was read
        self._current = self._build(
            now.version + 1,
            facts if now._facts is old._facts else now._facts,
            skill_map if now._skill_map is old._skill_map else now._skill_map,
            steps if now._steps is old._steps else now._steps,
        )
        self._call_watchers(~Change(0))

    def _call_watchers(self, change: Change) -> None:
        for changes, watcher in self._watchers:
            if changes & change:
                watcher()

    async def _read_facts(self) -> tuple[CatalogueFacts, bool]:
        digests = await self._read_digests()
        same = {i: self._known[i] for i, digest in digests.items() if self._is_known(i, digest)}
        if self._latest is None or len(same) < len(digests) or same != self._latest.items:
            read = await self._item_store.get_items([i for i in digests if i not in same])
            facts = same | await asyncio.to_thread(self._build_facts, read, digests)
            self._latest = await asyncio.to_thread(CatalogueFacts, facts, self.capabilities)
            self._known = dict(self._latest.items)
        return self._latest, True

    async def _read_steps(self) -> tuple[Mapping[str, Step], bool]:
        """The steps; none where they cannot be read, because searches work without them."""
        try:
            async with asyncio.timeout(self._read_timeout):
                return await self._steps.read(), True
        except (ToolscriptError, TimeoutError) as error:
            log.warning("steps_not_read", extra={"reason": str(error)})
            return {}, False

    async def _read_digests(self) -> dict[str, str]:
        return {state.id: state.digest for state in await self._item_store.get_fingerprints() if state.is_active}

    def _is_known(self, item_id: str, digest: str) -> bool:
        return item_id in self._known and self._known[item_id].digest == digest

    def _build_facts(self, read: Sequence[StoredItem], digests: Mapping[str, str]) -> dict[str, ItemFacts]:
        return {s.item.id: build_facts(s, digests[s.item.id], self.capabilities) for s in read}

    async def _read_skill_map(self) -> tuple[SkillMap, bool]:
        """The map; incomplete when points vanished between the two reads."""
        async with asyncio.timeout(self._read_timeout):
            points = await self._index.scroll(SKILLS, fields=SKILL_MAP_FIELDS)
            vectors = await self._index.vectors(SKILLS, [point.id for point in points])
        return SkillMap(points, vectors, self._similarity.narrow_to_skills()), len(vectors) == len(points)
