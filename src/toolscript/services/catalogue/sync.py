"""The write path of the catalogue: fetch, compare, store (the truth), embed what changed, sort it into skills, index.

No transaction spans store and index. Every point carries a fingerprint of what it was made from, so a sync that
was cut short, at any moment, is completed by the next one, and a sync of nothing new does nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from toolscript.domain.catalog import (
    Classification,
    ClassificationRecord,
    Item,
    ItemFingerprint,
    Origin,
    StoredItem,
    Suggestion,
    SuggestionStatus,
)
from toolscript.domain.search import Vector
from toolscript.ports.indexes import VectorCache, VectorIndex
from toolscript.ports.models import Classifier, Embedder
from toolscript.ports.stores import ItemStore, SkillStore
from toolscript.retrieval.text.item_text import item_frequencies
from toolscript.services.catalogue import classification_stamps as stamps
from toolscript.services.catalogue.classification_stamps import SkillSet, by_people
from toolscript.services.catalogue.skill_points import SkillPoints
from toolscript.services.catalogue.snapshot import Change
from toolscript.services.catalogue.tool_points import IndexedTool, ToolPoints

BATCH = 64
# So many that a language model is asked several questions at a time, so few that little is lost when it is cut short.
REFINED_TOGETHER = 256
REFINE_EVERY_SECONDS = 30.0

Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did."""

    added: int
    changed: int
    vanished: int
    indexed: int
    removed: int
    embedded: int
    classified: int


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What making the index current took."""

    written: int = 0
    removed: int = 0
    embedded: int = 0
    classified: int = 0


@dataclass(slots=True)
class _SyncPass:
    """What one pass over the catalogue has to do, and has done."""

    held: Mapping[str, IndexedTool]
    skills: SkillSet
    again: Collection[str] = ()
    replace_human: bool = False
    over_model: bool = False
    pending: Sequence[Suggestion] | None = None
    kept: dict[str, Vector] = field(default_factory=dict)
    made: dict[str, tuple[str, Vector]] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    classified: int = 0


class Sync:
    """Brings catalogue and index to what the servers offer now. One sync at a time; others wait."""

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
        refine_every: float = REFINE_EVERY_SECONDS,
        on_change: Callable[[Change], None] = lambda _: None,
    ) -> None:
        """`classifier` sorts every new item at once; `refiner` may take its time, and has the last word where it says
        anything; in the background it begins once in `refine_every` seconds at most. `on_change` is called after every
        write that searches may notice."""
        self._item_store = item_store
        self._skill_store = skill_store
        self._points = ToolPoints(index, embedder, cache)
        self._skill_points = SkillPoints(skill_store, index, embedder) if embedder and classifier else None
        self._classifier = classifier if embedder else None
        self._refiner = refiner if self._classifier else None
        self._refine_every = refine_every
        self._on_change = on_change
        self._turn = asyncio.Lock()
        self._followed: str | None = None
        """Which skills the index was last brought to, all of them; None when something was begun, by whoever ran
        before too, and not seen to its end."""
        self._skill_set = SkillSet()
        self._refining = asyncio.Lock()
        self.refined = 0
        """For how many items the refiner has known better or agreed so far."""
        self._background: asyncio.Task[None] | None = None
        self._asked_to_refine = False
        self._may_refine_at = 0.0

    @property
    def embedded(self) -> int:
        """How many texts had to be embedded so far."""
        return self._points.embedded

    async def configure(self, servers: Collection[str], *, progress: Progress | None = None) -> frozenset[str]:
        """Says which servers there are, and returns those of which something is known. What the catalogue holds of
        others is retired, vectors that other configurations left behind are taken over, what was never sorted into
        skills is, and an index that has lost its points gets them back."""
        async with self._turn:
            configured = self._points.configured = frozenset(servers)
            marks = await self._item_store.get_fingerprints()
            gone = [m for m in marks if m.is_active and m.server not in configured]
            if gone:
                await self._item_store.deactivate([m.id for m in gone])
                self._on_change(Change.ITEMS)
            await self._points.remove([m.id for m in gone])
            kept = [m for m in marks if m.is_active and m.server in configured]
            skills = await self._skills()
            nothing_held = _SyncPass({}, skills)
            if await self._points.count() != len(kept) or any(self._needs_sorting(m, nothing_held) for m in kept):
                await self._index_marks(kept, _SyncPass(await self._points.held(None), skills), progress)
            await self._points.take_over({m.id: m.digest for m in kept})
            await self._follow(None, skills)
            return frozenset(m.server for m in kept)

    async def run(
        self,
        items: Sequence[Item],
        *,
        servers: Collection[str] | None = None,
        progress: Progress | None = None,
    ) -> SyncReport:
        """Makes the catalogue of the named servers (all, when none are named) exactly these items.

        Of items with the same id the last counts. Items that are no longer offered become inactive.
        """
        async with self._turn:
            if servers is None:
                self._points.configured = frozenset(item.server for item in items)
            offered = {item.id: item for item in items}
            stored = {m.id: m for m in await self._item_store.get_fingerprints(servers)}
            added = [i for i in offered.values() if i.id not in stored]
            changed = [i for i in offered.values() if i.id in stored and _differs(stored[i.id], i)]
            vanished = [m.id for m in stored.values() if m.is_active and m.id not in offered]
            if added or changed:
                await self._item_store.save_items([(i, frozenset(item_frequencies(i))) for i in [*added, *changed]])
            if vanished:
                await self._item_store.deactivate(vanished)
            if added or changed or vanished:
                self._on_change(Change.ITEMS)
                stored = {m.id: m for m in await self._item_store.get_fingerprints(servers)}
            work = _SyncPass(await self._points.held(servers), await self._skills())
            done = await self._index_marks(list(stored.values()), work, progress)
        report = SyncReport(
            len(added), len(changed), len(vanished), done.written, done.removed, done.embedded, done.classified
        )
        log.info("synced", extra=asdict(report))
        return report

    async def index_catalogue(self, progress: Progress | None = None) -> IndexReport:
        """Makes the index hold exactly the active items of the catalogue, and its skills."""
        return await self.reclassify((), progress=progress)

    async def reclassify(
        self,
        item_ids: Collection[str] | None,
        *,
        force: bool = False,
        over_model: bool = False,
        progress: Progress | None = None,
    ) -> IndexReport:
        """Sorts these items (all, for None) anew and makes the index follow the catalogue. What the refiner has said of
        an item as it is now stays, unless it is to be asked again (`over_model`); what a person has decided stays,
        unless forced."""
        async with self._turn:
            self._followed = None
            marks = await self._item_store.get_fingerprints()
            self._points.configured = self._points.configured or frozenset(m.server for m in marks)
            again = {m.id for m in marks} if item_ids is None else set(item_ids)
            held = await self._points.held(None)
            work = _SyncPass(held, await self._skills(), again, replace_human=force, over_model=over_model or force)
            return await self._index_marks(marks, work, progress)

    async def follow(self, item_ids: Collection[str]) -> IndexReport:
        """Makes the index follow what the store says of these items, and sorts those of them that are not sorted."""
        async with self._turn:
            marks = await self._item_store.get_fingerprints(item_ids=item_ids)
            work = _SyncPass(await self._points.held_of(item_ids), await self._skills())
            # How surely they belong may be all that is new, which their own points do not tell.
            work.touched.update(a.skill_id for m in marks for a in m.assignments)
            return await self._index_marks(marks, work, None)

    async def refine(self, item_ids: Collection[str] | None = None, *, progress: Progress | None = None) -> int:
        """Has the refiner look at every item (at these once more) that only the classifier has sorted, and returns for
        how many it knew better or agreed. What it has nothing usable to say of stays as it is, and is not asked again;
        what it could not be asked is, another time."""
        if self._refiner is None:
            return 0
        async with self._refining:
            skills, again = await self._skills(), frozenset(item_ids or ())
            marks = [m for m in await self._item_store.get_fingerprints() if m.is_active and not by_people(m)]
            waiting = [m for m in marks if m.id in again or not stamps.is_refined(m, skills)]
            done = 0
            for start in range(0, len(waiting), REFINED_TOGETHER):
                decided = await self._refine_some(waiting[start : start + REFINED_TOGETHER], skills)
                if decided is None:
                    break  # it is not there: no more time for it now
                done += decided
                self.refined += decided
                if progress:
                    progress(min(start + REFINED_TOGETHER, len(waiting)), len(waiting))
        return done

    def refine_soon(self) -> None:
        """Has the refiner look at what is new, while everything else goes on."""
        if self._refiner is None:
            return
        self._asked_to_refine = True  # what comes while it is at work, it looks at in the next round
        if self._background is None or self._background.done():
            self._background = asyncio.create_task(self._refine_quietly(), name="refining skills")

    async def close(self) -> None:
        """Ends what goes on in the background."""
        if self._background is not None:
            self._background.cancel()
            with suppress(asyncio.CancelledError):
                await self._background

    async def _refine_quietly(self) -> None:
        now = asyncio.get_running_loop().time
        try:
            while self._asked_to_refine:
                await asyncio.sleep(self._may_refine_at - now())
                self._asked_to_refine, self._may_refine_at = False, now() + self._refine_every
                await self.refine()
        except Exception:  # whatever it is, the classifier's word stands
            log.exception("refining_failed")

    async def _refine_some(self, marks: Sequence[ItemFingerprint], skills: SkillSet) -> int | None:
        """For how many of the items the refiner knew better or agreed; None when it could not be asked."""
        async with self._turn:
            stored = await self._item_store.get_items([m.id for m in marks])
            vectors = await self._points.vectors(stored, await self._points.held_of([m.id for m in marks]), {})
        asked = {s.item.id: s.item for s in stored}
        answers = await self._second_opinion([(item, vectors[item.id]) for item in asked.values()], skills)
        said = dict(zip(asked, answers, strict=True))
        if not any(said.values()):
            return None if said else 0
        unclear = [m for m in marks if (each := said.get(m.id)) and not each.is_clear and stamps.is_sorted(m, skills)]
        decisions = stamps.decisions(asked, said, Origin.LLM, skills)
        async with self._turn:
            if unclear:
                await self._skill_store.replace_stamps({m.id: stamps.asked_in_vain(m) for m in unclear})
            before = await self._unchanged(decisions, asked)
            if before:
                is_followed, self._followed = self._followed == skills.digest, None
                await self._skill_store.save_classifications([d for d in decisions if d.item_id in before])
                after = await self._item_store.get_items(list(before))
                await self._points.write(after, vectors)
                touched = {a.skill_id for s in [*before.values(), *after] for a in s.assignments}
                await self._follow(touched if is_followed else None, skills)
        return len(before)

    async def _unchanged(
        self, decisions: Sequence[ClassificationRecord], asked: Mapping[str, Item]
    ) -> dict[str, StoredItem]:
        """The items for which the decision still holds: neither they nor the skills that they are to go into have
        changed or gone while it was made, and no person has decided meanwhile."""
        there = {skill.id for skill in await self._skill_store.list_skills()}
        fitting = [d.item_id for d in decisions if all(a.skill_id in there for a in d.assignments)]
        now = await self._item_store.get_items(fitting)
        return {s.item.id: s for s in now if s.item.digest == asked[s.item.id].digest and not by_people(s)}

    async def _second_opinion(
        self, items: Sequence[tuple[Item, Vector]], skills: SkillSet
    ) -> Sequence[Classification | None]:
        try:
            return await self._refiner.classify(items, skills.all) if self._refiner else ()
        except Exception:  # whatever it is, the classifier's word stands
            log.exception("refiner_failed", extra={"items": len(items)})
            return [None] * len(items)

    async def _index_marks(
        self, marks: Sequence[ItemFingerprint], work: _SyncPass, progress: Progress | None
    ) -> IndexReport:
        """Makes the points that are held those of the active ones among the marks, sorted into skills."""
        active = {m.id: m for m in marks if m.is_active}
        behind = [m for m in active.values() if self._is_behind(m, work)]
        before = self._points.embedded
        gone = [i for i in work.held if i not in active]
        is_followed = self._followed == work.skills.digest
        if behind or gone or work.touched or not is_followed:
            self._followed = None
            try:
                if behind:
                    await self._write(behind, work, progress)
                await self._points.remove(gone)
                work.touched.update(skill for i in gone for skill in work.held[i].skill_ids)
                await self._follow(work.touched if is_followed else None, work.skills)
            except BaseException:
                self._on_change(Change.POINTS | Change.SKILLS)  # a part of it may be there
                raise
        return IndexReport(len(behind), len(gone), self._points.embedded - before, work.classified)

    async def _write(self, marks: Sequence[ItemFingerprint], work: _SyncPass, progress: Progress | None) -> None:
        lacking = {m.id: m.digest for m in marks if not self._points.has_vector(work.held.get(m.id), m.digest)}
        work.kept = await self._points.kept(lacking)
        for start in range(0, len(marks), BATCH):
            await self._write_some(marks[start : start + BATCH], work)
            if progress:
                progress(min(start + BATCH, len(marks)), len(marks))
        await self._points.keep(work.made)

    async def _write_some(self, marks: Sequence[ItemFingerprint], work: _SyncPass) -> None:
        items = await self._item_store.get_items([m.id for m in marks])
        vectors = await self._points.vectors(items, work.held, work.kept)
        for stored in items:
            item = stored.item
            if item.id in vectors and not self._points.has_vector(work.held.get(item.id), item.digest):
                work.made[item.id] = item.digest, vectors[item.id]
        items = await self._sort(marks, items, vectors, work)
        await self._points.write(items, vectors)
        self._on_change(Change.POINTS)
        work.touched.update(skill for m in marks if m.id in work.held for skill in work.held[m.id].skill_ids)
        work.touched.update(a.skill_id for s in items for a in s.assignments)

    async def _sort(
        self, marks: Sequence[ItemFingerprint], items: list[StoredItem], vectors: Mapping[str, Vector], work: _SyncPass
    ) -> list[StoredItem]:
        """Sorts those of the items that need it, and returns all as they then are."""
        asked = {m.id: m for m in marks if self._needs_sorting(m, work)}
        unsorted = {s.item.id: s.item for s in items if s.item.id in asked and s.item.id in vectors}
        if self._classifier is None or not unsorted:
            return items
        answers = await self._classifier.classify([(i, vectors[i.id]) for i in unsorted.values()], work.skills.all)
        said = dict(zip(unsorted, answers, strict=True))
        named = await self._named([asked[i] for i in unsorted], work)
        decisions = stamps.decisions(unsorted, said, Origin.EMBEDDING, work.skills, named)
        await self._skill_store.save_classifications(decisions, replace_human=work.replace_human)
        work.classified += len(decisions)
        return await self._item_store.get_items([s.item.id for s in items])

    async def _named(self, marks: Sequence[ItemFingerprint], work: _SyncPass) -> dict[str, Suggestion]:
        """What is suggested for those of these items that are as they were then: the refiner has better names than the
        classifier, and people may be about to decide on them."""
        named = {m.id for m in marks if stamps.fits_nowhere(m)}
        if named and work.pending is None:
            work.pending = await self._skill_store.list_suggestions(SuggestionStatus.PENDING)
        return {s.source_item_id: s for s in work.pending or () if s.source_item_id in named}

    def _is_behind(self, mark: ItemFingerprint, work: _SyncPass) -> bool:
        held = work.held.get(mark.id)
        current = self._points.fingerprint(mark.number, mark.digest, mark.assignments)
        return held is None or held.fingerprint != current or self._needs_sorting(mark, work)

    def _needs_sorting(self, mark: ItemFingerprint, work: _SyncPass) -> bool:
        if self._classifier is None:
            return False
        if by_people(mark):
            return work.replace_human and mark.id in work.again
        if not stamps.is_sorted(mark, work.skills):
            return True
        return mark.id in work.again and (work.over_model or not stamps.by_model(mark))

    async def _skills(self) -> SkillSet:
        if self._classifier is not None:
            self._skill_set = self._skill_set.now(await self._skill_store.list_skills())
        return self._skill_set

    async def _follow(self, skill_ids: Collection[str] | None, skills: SkillSet) -> None:
        """Brings the points of those skills (of all) along, and tells whoever keeps something of the index."""
        if self._skill_points and (skill_ids is None or skill_ids):
            await self._skill_points.refresh(skill_ids)
        self._followed = skills.digest
        self._on_change(Change.POINTS | Change.SKILLS)


def _differs(mark: ItemFingerprint, item: Item) -> bool:
    return not mark.is_active or mark.digest != item.digest
