"""The write path of the catalogue: compare what servers offer with the store, store what changed, update the index.

No transaction spans store and index. Every point has a fingerprint of what it was built from, so the next sync
completes one that was interrupted at any moment, and a sync without changes writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace

from toolscript.domain.catalog import Item, ItemFingerprint, ItemType
from toolscript.domain.servers import TrustPolicy
from toolscript.domain.tool_overrides import apply_override, get_catalogue_id
from toolscript.ports.indexes import VectorCache, VectorIndex
from toolscript.ports.models import Classifier, Embedder
from toolscript.ports.stores import CatalogueVersion, FeedbackStore, ItemStore, PinStore, SkillStore
from toolscript.retrieval.text.item_text import count_item_terms
from toolscript.services.catalogue.classification_stamps import SkillSet
from toolscript.services.catalogue.indexing import MAX_KNOWN_ITEMS, CatalogueIndex, IndexPass, SyncReport
from toolscript.services.catalogue.learning import Learning
from toolscript.services.catalogue.quarantine_review import QuarantineReview
from toolscript.services.catalogue.refinement import INTERVAL_SECONDS, Refinement
from toolscript.services.catalogue.snapshot import Change
from toolscript.services.catalogue.tool_overrides import describe_taken
from toolscript.services.support.concurrency import Progress
from toolscript.services.trust.definition_reader import DefinitionReader
from toolscript.services.trust.definition_review import DefinitionReview
from toolscript.services.trust.screening import Screening

# The number of items of each type, by server.
ItemCounts = Mapping[str, Mapping[str, int]]

# After so long without a gateway or a sync that uses it, a configuration is forgotten.
MAX_UNSEEN_SECONDS = 7 * 86_400.0

log = logging.getLogger(__name__)


class Sync:
    """Brings catalogue and index to what the servers offer. One sync at a time; others wait."""

    def __init__(
        self,
        item_store: ItemStore,
        skill_store: SkillStore,
        index: VectorIndex,
        embedder: Embedder | None,
        *,
        cache: VectorCache | None = None,
        classifier: Classifier | None = None,
        refiner: Classifier | None = None,
        refine_every: float = INTERVAL_SECONDS,
        on_change: Callable[[Change], None] = lambda _: None,
        version: CatalogueVersion | None = None,
        configuration: str = "",
        feedback: FeedbackStore | None = None,
        learns: bool = True,
        screening: Screening | None = None,
        reader: DefinitionReader | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`classifier` classifies every new item; `refiner` classifies it again in the background, at most every
        `refine_every` seconds. `on_change` is called after every write that may change search results; `version` is
        increased after every pass over the index, where other processes search it too. `configuration` identifies the
        configuration that names the servers. Unless `learns`, nothing is learnt from `feedback`. `screening` decides on
        quarantine for each definition; without it nothing goes into quarantine. `reader` reads the definitions that
        `screening` approves, in the background."""
        self._item_store = item_store
        self._index = CatalogueIndex(item_store, skill_store, index, embedder, cache, classifier, on_change, version)
        self._configuration, self._is_shared = configuration, version is not None
        self._configured: frozenset[str] = frozenset()
        """The servers of the configuration."""
        self._clock = clock
        self._screening = screening
        self._lock = asyncio.Lock()
        self.refinement = Refinement(
            item_store, skill_store, self._index, refiner, lock=self._lock, interval=refine_every
        )
        self.learning = Learning(item_store, feedback, self._index, embedder, is_on=learns, lock=self._lock)
        self._review = None
        if screening and reader:
            self._review = DefinitionReview(screening.pins, reader, self.open_review(screening.pins).record_verdicts)

    @property
    def embedded(self) -> int:
        """The number of texts embedded so far."""
        return self._index.embedded

    def open_review(self, pins: PinStore) -> QuarantineReview:
        """The review of what is in quarantine in this catalogue. Its decisions and syncs wait for each other."""
        return QuarantineReview(pins, self._item_store, self._index, lock=self._lock)

    def count_lacking_vectors(self) -> int:
        """The number of points that still lack their vectors."""
        return self._index.lacking_vectors

    async def configure(self, servers: Collection[str], *, progress: Progress | None = None) -> ItemCounts:
        """Makes these the servers of the configuration, and returns how many items of each type the catalogue has of
        each server.

        Items of servers that no configuration names become inactive, vectors that other configurations cached are
        copied, unclassified items are classified, and missing points are written. Where other processes write too,
        their configurations count; elsewhere the configuration replaces all others.
        """
        async with self._lock:
            self._index.servers = self._configured = frozenset(servers)
            named = await self._record_servers()
            items = [item for item in await self._item_store.get_fingerprints() if item.is_active]
            await self._retire([item.id for item in items if item.server not in named])
            kept = [item for item in items if item.server in named]
            skills = await self._index.read_skills()
            if not await self._is_complete(kept, skills):
                await self._index.update(kept, IndexPass(await self._index.find_points(None), skills), progress)
            await self._index.copy_cache(kept)
            await self._index.update_skills(None, skills)
        self.learning.start_soon()  # another gateway may have recorded successes, or the model has changed
        counts: dict[str, Counter[str]] = {}
        for item in kept:
            counts.setdefault(item.server, Counter())[item.type.value] += 1
        return counts

    async def _is_complete(self, items: Sequence[ItemFingerprint], skills: SkillSet) -> bool:
        """Whether all items have points. A sync that was interrupted leaves points without vectors, and items that are
        not classified."""
        is_complete = await self._index.count_items() == len(items)
        nothing = IndexPass({}, skills)
        return is_complete and not any(self._index.needs_classification(item, nothing) for item in items)

    async def renew(self) -> bool:
        """Records that the configuration is in use, so that it is not forgotten, and retires what no other gateway has
        served for a week. A gateway does this every hour. Returns whether somebody had forgotten this configuration:
        then its servers have to be listed again."""
        async with self._lock:
            known = await self._item_store.list_configurations()
            await self._retire_others(await self._record_servers())
        return bool(self._configured) and self._configuration not in known

    async def retire_configuration(self, configuration: str) -> None:
        """Forgets another configuration, whose file was renamed: items of servers that only it names become inactive.
        Does nothing if the store does not know it."""
        async with self._lock:
            if configuration in (await self._item_store.list_configurations()).keys() - {self._configuration}:
                await self._retire_others(await self._item_store.forget_configuration(configuration))

    async def _record_servers(self) -> frozenset[str]:
        return await self._item_store.set_servers(
            self._configuration,
            self._configured,
            only=not self._is_shared,
            now=self._clock(),
            max_age=MAX_UNSEEN_SECONDS,
        )

    async def _retire_others(self, named: Collection[str]) -> None:
        items = await self._item_store.get_fingerprints()
        await self._retire([item.id for item in items if item.is_active and item.server not in named])

    async def complete_index(self, progress: Progress | None = None) -> frozenset[str]:
        """Writes the points that the index lacks, and returns the servers of the catalogue's items. For commands that
        only read: removes no point, changes no item in the store, and increases the version only when it has written
        points."""
        async with self._lock:
            items = [item for item in await self._item_store.get_fingerprints() if item.is_active]
            self._index.servers = frozenset(item.server for item in items)
            skills = await self._index.read_skills()
            if not await self._is_complete(items, skills):
                points = await self._index.find_points(None)
                await self._index.update(items, IndexPass(points, skills, only_adds=True), progress)
            return self._index.servers

    async def run(
        self,
        items: Sequence[Item],
        *,
        servers: Collection[str] | None = None,
        policy: TrustPolicy | None = None,
        approved: Collection[str] = (),
        progress: Progress | None = None,
    ) -> SyncReport:
        """Makes the catalogue of these servers (None: of all) exactly these items.

        The last of several items with the same id counts. Items that are no longer offered become inactive. `policy`
        decides what goes into quarantine; None: the policy of the settings. Items with ids in `approved` go there only
        if their texts address the model.
        """
        async with self._lock:
            if servers is None:
                self._index.servers = frozenset(item.server for item in items)
            stored = {item.id: item for item in await self._item_store.get_fingerprints(servers)}
            kept = _leave_out_new(items, stored)
            shown = await self._screening.screen(kept, stored, policy, approved) if self._screening else kept
            offered = {item.id: item for item in map(apply_override, shown)}
            # Hashes and words of 10 000 items take a second, in which others get their turn.
            changed = await asyncio.to_thread(_find_changed, offered, stored)
            problems = await self._leave_out_taken(offered, changed)
            changed = [item for item in changed if item.id in offered]
            added = [item for item in offered.values() if item.id not in stored]
            vanished = [item.id for item in stored.values() if item.is_active and item.id not in offered]
            if added or changed:
                await self._item_store.save_items(await asyncio.to_thread(_count_terms, [*added, *changed]))
            if vanished:
                await self._item_store.deactivate(vanished)
            if added or changed or vanished:
                self._index.on_change(Change.ITEMS)
                stored = {item.id: item for item in await self._item_store.get_fingerprints(servers)}
            work = IndexPass(await self._index.find_points(servers), await self._index.read_skills())
            done = await self._index.update(list(stored.values()), work, progress)
        if added or changed:
            self.learning.start_soon()  # a changed text has a new vector, from which its step starts again
        report = replace(done, added=len(added), changed=len(changed), vanished=len(vanished))
        left_out = len(items) - len(kept)
        if left_out:
            problems.append(
                f"it has offered more than {MAX_KNOWN_ITEMS} different tools, prompts and resources: "
                f"{left_out} new ones are left out"
            )
        report = replace(report, left_out=left_out, problems=tuple(problems))
        log.info("synced", extra=asdict(report))
        return report

    async def _leave_out_taken(self, offered: dict[str, Item], changed: Sequence[Item]) -> list[str]:
        """Removes tools with the id of another tool of their server, by an earlier configuration: skills, feedback,
        rules and programs that name the id mean that one. Returns why, for each."""
        tools = [item.id for item in changed if item.type is ItemType.TOOL]
        before = [stored.item for stored in await self._item_store.get_items(tools, active_only=False)] if tools else []
        taken = [item for item in before if item.listed_name != offered[item.id].listed_name]
        return [describe_taken(offered.pop(item.id), item) for item in taken]

    async def index_catalogue(self, progress: Progress | None = None) -> SyncReport:
        """Makes the index contain exactly the active items of the catalogue, and its skills."""
        return await self.reclassify((), progress=progress)

    async def reclassify(
        self,
        item_ids: Collection[str] | None,
        *,
        force: bool = False,
        replace_model: bool = False,
        progress: Progress | None = None,
    ) -> SyncReport:
        """Classifies these items (None: all) again and brings the index up to date.

        The refiner's answers about unchanged items stay, unless `replace_model`; a person's assignments stay, unless
        `force`.
        """
        async with self._lock:
            items = await self._item_store.get_fingerprints()
            self._index.servers = self._index.servers or frozenset(item.server for item in items)
            work = IndexPass(
                await self._index.find_points(None),
                await self._index.read_skills(),
                {item.id for item in items} if item_ids is None else set(item_ids),
                replace_human=force,
                replace_model=replace_model or force,
            )
            self._index.begin_skills(work.skills)
            return await self._index.update(items, work, progress)

    async def follow(self, item_ids: Collection[str]) -> SyncReport:
        """Brings the index to what the store says of these items, and classifies unclassified items."""
        async with self._lock:
            items = await self._item_store.get_fingerprints(item_ids=item_ids)
            work = IndexPass(await self._index.find_points_by_id(item_ids), await self._index.read_skills())
            # A confidence may be all that changed, which the items' own points do not have.
            work.touched.update(a.skill_id for item in items for a in item.assignments)
            return await self._index.update(items, work)

    def start_model_work(self) -> None:
        """Has the language model, where there is one, classify and review new items in the background."""
        self.refinement.start_soon()
        if self._review:
            self._review.start_soon()

    async def review_definitions(self) -> None:
        """Has the language model, where there is one, review all definitions that await it."""
        if self._review:
            await self._review.run()

    async def close(self) -> None:
        await self.refinement.close()
        if self._review:
            await self._review.close()
        await self.learning.close()

    async def _retire(self, item_ids: Sequence[str]) -> None:
        if item_ids:
            await self._item_store.deactivate(item_ids)
            self._index.on_change(Change.ITEMS)
            await self._index.remove(item_ids)


def _leave_out_new(items: Sequence[Item], stored: Mapping[str, ItemFingerprint]) -> Sequence[Item]:
    """The items, without new items beyond the maximum of their server. Items that the server no longer offers count:
    forgetting them would let it change an approved definition by offering it again later."""
    ids: defaultdict[str, set[str]] = defaultdict(set)
    for known in stored.values():
        ids[known.server].add(known.id)
    kept = []
    for item in items:
        names, item_id = ids[item.server], get_catalogue_id(item)
        if item_id in names or len(names) < MAX_KNOWN_ITEMS:
            names.add(item_id)
            kept.append(item)
    return kept


def _find_changed(offered: Mapping[str, Item], stored: Mapping[str, ItemFingerprint]) -> list[Item]:
    pairs = ((item, stored[item.id]) for item in offered.values() if item.id in stored)
    return [item for item, before in pairs if not before.is_active or before.digest != item.digest]


def _count_terms(items: Sequence[Item]) -> list[tuple[Item, frozenset[int]]]:
    return [(item, count_item_terms(item)) for item in items]
