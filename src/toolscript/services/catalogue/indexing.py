"""Brings the index to what the store says of items and skills: embeds what changed, classifies it, writes points."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from toolscript.domain.agent_skills import get_item_id, is_agent_skill
from toolscript.domain.catalog import ItemFingerprint, ItemType, Origin, StoredItem, Suggestion, SuggestionStatus
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.domain.search import Vector
from toolscript.ports.indexes import VectorCache, VectorIndex
from toolscript.ports.models import Classifier, Embedder
from toolscript.ports.stores import CatalogueVersion, ItemStore, SkillStore
from toolscript.retrieval.reconcile import WRITE_BATCH, Payload, ReconcilePlan, Reconciler, split_batches
from toolscript.services.catalogue import classification_stamps as stamps
from toolscript.services.catalogue.classification_stamps import SkillSet
from toolscript.services.catalogue.item_points import (
    PASSAGE_OF,
    TOOLS,
    WITHOUT_PASSAGES,
    ToolDraft,
    compute_fingerprint,
    describe_text,
    describe_vector,
)
from toolscript.services.catalogue.skill_points import NO_SKILL, SkillPoints
from toolscript.services.catalogue.snapshot import Change
from toolscript.services.support.concurrency import Progress

BATCH = 64
# Of one server, with those that it no longer offers: five full lists. A store keeps a definition of each.
MAX_KNOWN_ITEMS = 50_000
# The fields of points that a sync compares.
SYNC_FIELDS = ("fingerprint", "vector_of", "skill_ids")


@dataclass(frozen=True, slots=True)
class SyncReport:
    """How many items were added, changed and vanished, and what bringing the index up to date took."""

    added: int = 0
    changed: int = 0
    vanished: int = 0
    left_out: int = 0
    """New items of servers that have offered too many."""
    problems: tuple[str, ...] = ()
    """What is left out of them, one sentence each."""
    indexed: int = 0
    removed: int = 0
    embedded: int = 0
    classified: int = 0


@dataclass(slots=True)
class IndexPass:
    """What one pass over the catalogue has to do, and has done."""

    existing: Mapping[str, Payload]
    """The points of the items in question, by id."""
    skills: SkillSet
    again: Collection[str] = ()
    """The items to classify again."""
    replace_human: bool = False
    replace_model: bool = False
    only_adds: bool = False
    """Whether nothing is classified and no point removed."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """The digests of the items whose points lack their vectors, by id."""
    cached: dict[str, Vector] = field(default_factory=dict)
    """The vectors of those items that are known, from the cache or from the model."""
    touched: set[str] = field(default_factory=set)
    """The skills whose items changed."""
    pending: Sequence[Suggestion] | None = None
    classified: int = 0

    def list_passages(self, items: Sequence[StoredItem]) -> list[str]:
        """The existing points of passages of these items."""
        ids = {stored.item.id for stored in items if stored.item.type is ItemType.AGENT_SKILL}
        return [point_id for point_id in self.existing if get_item_id(point_id) in ids - {point_id}] if ids else []


class CatalogueIndex:
    """The index of one catalogue. Callers make sure that only one pass runs at a time."""

    def __init__(
        self,
        item_store: ItemStore,
        skill_store: SkillStore,
        index: VectorIndex,
        embedder: Embedder | None,
        cache: VectorCache | None,
        classifier: Classifier | None,
        on_change: Callable[[Change], None],
        version: CatalogueVersion | None,
    ) -> None:
        self._item_store = item_store
        self._skill_store = skill_store
        self._index = index
        self._model = embedder.model if embedder else ""
        self._cache = cache if embedder else None
        self._classifier = classifier if embedder else None
        self._skill_points = SkillPoints(skill_store, index, embedder) if embedder and classifier else None
        self._skill_set = SkillSet()
        self._indexed_skills: str | None = None
        """The digest of the skills whose points are all current; None when a pass was begun and not completed."""
        self._reconciler = Reconciler(index, embedder, TOOLS, digest_field="vector_of")
        self.on_change = on_change
        self._version = version
        self.servers: frozenset[str] = frozenset()
        """The servers whose vectors the cache keeps."""
        self.embedded = 0
        """The number of texts embedded so far."""
        self.lacking_vectors = 0
        """The number of points that still lack their vectors."""

    @property
    def can_classify(self) -> bool:
        return self._classifier is not None

    async def read_skills(self) -> SkillSet:
        """The skills to classify items into."""
        if self._classifier is not None:
            self._skill_set = self._skill_set.update(await self._skill_store.list_skills())
        return self._skill_set

    def begin_skills(self, skills: SkillSet) -> bool:
        """Notes that points of skills may become stale; returns whether all were current before."""
        were_current, self._indexed_skills = self._indexed_skills == skills.digest, None
        return were_current

    async def find_points(self, servers: Collection[str] | None) -> dict[str, Payload]:
        """The points of these servers (None: of all) by id."""
        where = EVERYTHING if servers is None else Filter(must=(Condition("server", Op.IN, sorted(servers)),))
        return await self._reconciler.find(where, SYNC_FIELDS)

    async def find_points_by_id(self, item_ids: Collection[str]) -> dict[str, Payload]:
        found = await self._reconciler.find_by_id(sorted(item_ids), SYNC_FIELDS)
        return found | await self._find_passages(item_ids)

    async def remove(self, item_ids: Sequence[str]) -> None:
        """Removes the points of items, or single points."""
        await self._index.delete(TOOLS, [*item_ids, *await self._find_passages(item_ids)])

    async def count_items(self) -> int:
        """The number of items that have points."""
        return await self._index.count(TOOLS, WITHOUT_PASSAGES)

    async def _find_passages(self, item_ids: Collection[str]) -> dict[str, Payload]:
        agent_skills = sorted(filter(is_agent_skill, item_ids))
        if not agent_skills:
            return {}
        return await self._reconciler.find(Filter(must=(Condition(PASSAGE_OF, Op.IN, agent_skills),)), SYNC_FIELDS)

    async def update(
        self, items: Sequence[ItemFingerprint], work: IndexPass, progress: Progress | None = None
    ) -> SyncReport:
        """Replaces the existing points of the pass by the points of the active items, classified."""
        active = {item.id: item for item in items if item.is_active}
        # Fingerprints of 10 000 items take 0.1 s.
        stale = await asyncio.to_thread(lambda: [item for item in active.values() if self._is_stale(item, work)])
        others = [] if work.only_adds else [i for i in work.existing if get_item_id(i) not in active]
        gone = await self._find_gone(others)
        before = self.embedded
        is_pending = work.touched or self._indexed_skills != work.skills.digest
        if stale or gone or (is_pending and not work.only_adds):
            were_current = self.begin_skills(work.skills)
            try:
                if stale:
                    await self._write(stale, work, progress)
                await self.remove(gone)
                work.touched.update(skill for i in gone for skill in _skill_ids(work.existing[i]))
                await self.update_skills(work.touched if were_current else None, work.skills)
            except BaseException:
                self.lacking_vectors = 0
                self.on_change(Change.POINTS | Change.SKILLS)  # a part of it may be written
                raise
            self.lacking_vectors = 0
        embedded = self.embedded - before
        return SyncReport(indexed=len(stale), removed=len(gone), embedded=embedded, classified=work.classified)

    async def _find_gone(self, point_ids: Sequence[str]) -> list[str]:
        """The points of inactive items among these. Reads the store again: another gateway may have stored and indexed
        the others since the pass read it."""
        if not point_ids:
            return []
        item_ids = {get_item_id(point_id) for point_id in point_ids}
        active = {item.id for item in await self._item_store.get_fingerprints(item_ids=item_ids) if item.is_active}
        return [point_id for point_id in point_ids if get_item_id(point_id) not in active]

    async def update_skills(self, skill_ids: Collection[str] | None, skills: SkillSet) -> None:
        """Brings the points of these skills (None: of all) up to date, and the topics of tools without a skill."""
        if self._skill_points:
            await self._skill_points.refresh(None if skill_ids is None else {*skill_ids, NO_SKILL.id})
        self._indexed_skills = skills.digest
        self.on_change(Change.POINTS | Change.SKILLS)
        if self._version:
            await self._version.increase()

    def needs_classification(self, item: ItemFingerprint, work: IndexPass) -> bool:
        """Whether the pass has to classify the item."""
        if self._classifier is None or work.only_adds:
            return False
        if stamps.is_by_person(item):
            return work.replace_human and item.id in work.again
        if not stamps.is_classified(item, work.skills):
            return True
        return item.id in work.again and (work.replace_model or not stamps.is_by_model(item))

    async def compute_vectors(
        self, items: Sequence[StoredItem], existing: Mapping[str, Payload], cached: Mapping[str, Vector]
    ) -> dict[str, Vector]:
        """The vector of each point of the items by its id: the existing vector if it is still right, else the cached
        vector, else a new one. None without an embedder."""
        drafts = [ToolDraft(stored, self._model) for stored in items]
        sources = {point_id: source for draft in drafts for point_id, source in draft.sources.items()}
        points = {point_id: existing[point_id] for point_id in sources if point_id in existing}
        plan = await self._reconciler.plan(drafts, points)
        for draft in drafts:
            if draft.key in cached:
                plan.vectors.setdefault(draft.source, cached[draft.key])
        self.embedded += await self._reconciler.embed(plan)
        return {point_id: plan.vectors[source] for point_id, source in sources.items() if source in plan.vectors}

    async def read_vectors(self, item_ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of the items that have points, by id."""
        vectors: dict[str, Vector] = {}
        for some in split_batches(item_ids, WRITE_BATCH):
            vectors |= await self._index.vectors(TOOLS, some)
        return vectors

    async def write_points(
        self, items: Sequence[StoredItem], vectors: Mapping[str, Vector], existing: Collection[str] = ()
    ) -> None:
        """Writes the points of the items with vectors by the ids of points. `existing` has the ids of points that these
        replace: passages that a text no longer has are removed."""
        drafts = [ToolDraft(stored, self._model) for stored in items]
        sources = {point_id: source for draft in drafts for point_id, source in draft.sources.items()}
        by_source = {source: vectors[point_id] for point_id, source in sources.items() if point_id in vectors}
        obsolete = {"": [point_id for point_id in existing if point_id not in sources]}
        await self._reconciler.apply(ReconcilePlan(drafts, gone={}, existing=obsolete, vectors=by_source))

    async def copy_cache(self, items: Collection[ItemFingerprint]) -> None:
        """Copies what other configurations cached of these items, if nothing is cached for these servers yet."""
        if self._cache and not await self._cache.has(self.servers):
            digests = {item.id: item.digest for item in items}
            await self._write_cache(await self._read_cache(digests), digests)

    async def _read_cache(self, digests: Mapping[str, str]) -> dict[str, Vector]:
        if self._cache is None or not digests:
            return {}
        wanted = {i: describe_text(digest) for i, digest in digests.items()}
        return await self._cache.find(self.servers, self._model, wanted)

    async def _write_cache(self, vectors: Mapping[str, Vector], digests: Mapping[str, str]) -> None:
        if self._cache and vectors:
            described = {i: (describe_text(digests[i]), vector) for i, vector in vectors.items()}
            await self._cache.keep(self.servers, self._model, described)

    def _is_stale(self, item: ItemFingerprint, work: IndexPass) -> bool:
        expected = compute_fingerprint(self._model, item.number, item.digest, item.assignments)
        is_current = work.existing.get(item.id, {}).get("fingerprint") == expected
        return not is_current or self.needs_classification(item, work)

    async def _write(self, items: Sequence[ItemFingerprint], work: IndexPass, progress: Progress | None) -> None:
        sources = {item.id: describe_vector(self._model, item.digest) for item in items}
        lacking = {i for i, source in sources.items() if work.existing.get(i, {}).get("vector_of") != source}
        work.missing = {item.id: item.digest for item in items if item.id in lacking}
        work.cached = await self._read_cache(work.missing)
        new = [i for i in work.missing if i not in work.existing and i not in work.cached]
        if self._model and len(new) > BATCH:
            await self._write_words(new)
        for start in range(0, len(items), BATCH):
            batch = items[start : start + BATCH]
            stored = await self._item_store.get_items([item.id for item in batch])
            vectors = await self.compute_vectors(stored, work.existing, work.cached)
            work.cached.update({i: vector for i, vector in vectors.items() if i in work.missing})
            stored = await self._classify(batch, stored, vectors, work)
            await self.write_points(stored, vectors, work.list_passages(stored))
            self.lacking_vectors = max(0, self.lacking_vectors - len(batch))
            self.on_change(Change.POINTS)
            work.touched.update(s for i in batch if i.id in work.existing for s in _skill_ids(work.existing[i.id]))
            work.touched.update(a.skill_id for s in stored for a in s.assignments)
            if progress:
                progress(min(start + BATCH, len(items)), len(items))
        await self._write_cache(work.cached, work.missing)

    async def _write_words(self, item_ids: Sequence[str]) -> None:
        """Writes points without vectors, so that many new items can be found by their words before they are embedded,
        which takes a minute for 6 000. Without a model in their fingerprints, these points are never current."""
        for ids in split_batches(item_ids, WRITE_BATCH):
            drafts = [ToolDraft(stored, model="") for stored in await self._item_store.get_items(ids)]
            await self._reconciler.apply(ReconcilePlan(drafts, gone={}, existing={}))
            self.lacking_vectors += len(drafts)
            self.on_change(Change.POINTS)

    async def _classify(
        self, batch: Sequence[ItemFingerprint], items: list[StoredItem], vectors: Mapping[str, Vector], work: IndexPass
    ) -> list[StoredItem]:
        """Classifies the items that need it, and returns all items as they are then."""
        needed = {item.id: item for item in batch if self.needs_classification(item, work)}
        unclassified = {s.item.id: s.item for s in items if s.item.id in needed and s.item.id in vectors}
        if self._classifier is None or not unclassified:
            return items
        pairs = [(item, vectors[item.id]) for item in unclassified.values()]
        answers = dict(zip(unclassified, await self._classifier.classify(pairs, work.skills.all), strict=True))
        suggestions = await self._find_suggestions([needed[i] for i in unclassified], work)
        records = stamps.build_records(unclassified, answers, Origin.EMBEDDING, work.skills, suggestions)
        await self._skill_store.save_classifications(records, replace_human=work.replace_human)
        work.classified += len(records)
        return await self._item_store.get_items([s.item.id for s in items])

    async def _find_suggestions(self, items: Sequence[ItemFingerprint], work: IndexPass) -> dict[str, Suggestion]:
        """The pending suggestions for items that have not changed since: the language model names skills better than
        the classifier, and a person may be about to review them."""
        ids = {item.id for item in items if stamps.fits_nowhere(item)}
        if ids and work.pending is None:
            work.pending = await self._skill_store.list_suggestions(SuggestionStatus.PENDING)
        return {s.source_item_id: s for s in work.pending or () if s.source_item_id in ids}


def _skill_ids(point: Payload) -> Sequence[str]:
    return point.get("skill_ids") or ()
