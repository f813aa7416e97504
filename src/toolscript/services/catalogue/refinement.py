"""Classifies items again with a language model, in the background.

It is slower than the first classifier, and better: its usable answers replace the answers of the first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from toolscript.domain.catalog import Classification, ClassificationRecord, Item, ItemFingerprint, Origin, StoredItem
from toolscript.domain.search import Vector
from toolscript.ports.models import Classifier
from toolscript.ports.stores import ItemStore, SkillStore
from toolscript.services.catalogue import classification_stamps as stamps
from toolscript.services.catalogue.classification_stamps import SkillSet
from toolscript.services.catalogue.indexing import CatalogueIndex
from toolscript.services.support.background_run import BackgroundRun
from toolscript.services.support.concurrency import Progress

# Large enough for several prompts at a time, small enough to lose little when interrupted.
BATCH = 256
INTERVAL_SECONDS = 30.0

log = logging.getLogger(__name__)


class Refinement:
    """Refines items that only the classifier has seen. One run at a time; without a model it does nothing."""

    def __init__(
        self,
        item_store: ItemStore,
        skill_store: SkillStore,
        index: CatalogueIndex,
        model: Classifier | None,
        *,
        lock: asyncio.Lock,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        """`lock` is locked while store and index are written, but not while the model works. In the background a run
        starts at most every `interval` seconds."""
        self._item_store = item_store
        self._skill_store = skill_store
        self._index = index
        self._model = model if index.can_classify else None
        self._lock = lock
        self._running = asyncio.Lock()
        self._background = BackgroundRun(self.run, name="refining skills", interval=interval)
        self.refined = 0
        """The number of items refined so far."""

    async def run(self, item_ids: Collection[str] | None = None, *, progress: Progress | None = None) -> int:
        """Refines every item that only the classifier has seen, and these again; returns how many.

        An item without a usable answer keeps its classification and is not refined again. If the model is not
        available, the next run continues.
        """
        if self._model is None:
            return 0
        async with self._running:
            skills, again = await self._index.read_skills(), frozenset(item_ids or ())
            items = await self._item_store.get_fingerprints()
            items = [item for item in items if item.is_active and not stamps.is_by_person(item)]
            waiting = [item for item in items if item.id in again or not stamps.is_refined(item, skills)]
            total = 0
            for start in range(0, len(waiting), BATCH):
                refined = await self._refine(waiting[start : start + BATCH], skills)
                if refined is None:
                    break  # the model does not respond: leave the rest for the next run
                total += refined
                self.refined += refined
                if progress:
                    progress(min(start + BATCH, len(waiting)), len(waiting))
        return total

    def start_soon(self) -> None:
        """Refines new items in the background."""
        if self._model is not None:
            self._background.start_soon()

    async def close(self) -> None:
        """Ends the run in the background."""
        await self._background.close()

    async def _refine(self, batch: Sequence[ItemFingerprint], skills: SkillSet) -> int | None:
        """The number of items refined; None when the model is not available."""
        ids = [item.id for item in batch]
        async with self._lock:
            stored = await self._item_store.get_items(ids)
            existing = await self._index.find_points_by_id(ids)
            vectors = await self._index.compute_vectors(stored, existing, {})
        items = {s.item.id: s.item for s in stored}
        answers = await self._ask_model([(item, vectors[item.id]) for item in items.values()], skills)
        by_id = dict(zip(items, answers, strict=True))
        if not any(by_id.values()):
            return None if by_id else 0
        records = stamps.build_records(items, by_id, Origin.LLM, skills)
        async with self._lock:
            unclear = [item for item in batch if (answer := by_id.get(item.id)) and not answer.is_clear]
            marked = {item.id: stamps.mark_refused(item) for item in unclear if stamps.is_classified(item, skills)}
            if marked:
                await self._skill_store.replace_stamps(marked)
            before = await self._find_unchanged(records, items)
            if before:
                were_current = self._index.begin_skills(skills)
                await self._skill_store.save_classifications([r for r in records if r.item_id in before])
                after = await self._item_store.get_items(list(before))
                await self._index.write_points(after, vectors)
                touched = {a.skill_id for s in [*before.values(), *after] for a in s.assignments}
                await self._index.update_skills(touched if were_current else None, skills)
        return len(before)

    async def _find_unchanged(
        self, records: Sequence[ClassificationRecord], items: Mapping[str, Item]
    ) -> dict[str, StoredItem]:
        """The items with a record that is still valid: while the model answered, neither they nor their new skills
        changed or vanished, and no person assigned them."""
        skills = {skill.id for skill in await self._skill_store.list_skills()}
        fitting = [r.item_id for r in records if all(a.skill_id in skills for a in r.assignments)]
        now = await self._item_store.get_items(fitting)
        return {s.item.id: s for s in now if s.item.digest == items[s.item.id].digest and not stamps.is_by_person(s)}

    async def _ask_model(
        self, items: Sequence[tuple[Item, Vector]], skills: SkillSet
    ) -> Sequence[Classification | None]:
        try:
            return await self._model.classify(items, skills.all) if self._model else ()
        except Exception:  # the classifier's answers stay
            log.exception("refiner_failed", extra={"items": len(items)})
            return [None] * len(items)
