"""Decides on the tools that the caller of the current request may see. Every use case asks here: what a caller cannot
find, it can neither list, describe, generate a client for, nor call.

Every method requires the context of the request, whose profile decides, so that no use case can forget to pass it on.
Work outside of requests sees everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from toolscript.domain.catalog import Item
from toolscript.domain.filters import Condition, Op, Subset
from toolscript.domain.profiles import Profile
from toolscript.domain.requests import RequestContext
from toolscript.ports.stores import ItemStore
from toolscript.retrieval.catalogue import ItemFacts
from toolscript.services.catalogue.snapshot import CatalogueSnapshots

READ_ONLY = Profile("read-only gateway", read_only=True)


@dataclass(frozen=True, slots=True)
class View:
    """What a caller sees of one version of the catalogue. Without ids, everything."""

    profile: Profile | None = None
    ids: frozenset[str] | None = None
    subset: Subset | None = None
    """The same for the index."""

    def shows(self, item_id: str) -> bool:
        return self.ids is None or item_id in self.ids

    def select(self, ranked: list[tuple[str, float]]) -> list[tuple[str, float]]:
        """The candidates that the caller sees."""
        return ranked if self.ids is None else [each for each in ranked if each[0] in self.ids]


FindView = Callable[[RequestContext], Awaitable[View]]
CountBySkill = Callable[[RequestContext], Awaitable[Mapping[str, int] | None]]


async def see_everything(_: RequestContext) -> View:
    """The view of callers without a profile."""
    return View()


async def count_everything(_: RequestContext) -> None:
    """Callers without a profile see the counts of the catalogue."""


class Visibility:
    """Applies the profile of a request to the catalogue."""

    def __init__(
        self,
        find_profile: Callable[[str], Profile | None],
        snapshots: CatalogueSnapshots,
        item_store: ItemStore,
        *,
        read_only: bool = False,
    ) -> None:
        """`find_profile` returns the profile of a name, None for one that shows everything. With `read_only` nobody
        sees a tool that may change something."""
        self._find_profile = find_profile
        self._snapshots = snapshots
        self._item_store = item_store
        self._read_only = read_only
        self._views: dict[Profile, tuple[int, View]] = {}

    def find_profile(self, context: RequestContext) -> Profile | None:
        """The profile of the request; None if it may see everything. Raises NotFound if a new configuration has removed
        it."""
        profile = None if context.profile is None else self._find_profile(context.profile)
        if not self._read_only:
            return profile
        return replace(profile, read_only=True) if profile else READ_ONLY

    async def find_view(self, context: RequestContext) -> View:
        """What the caller sees of the current snapshot. Raises what the store raises."""
        profile = self.find_profile(context)
        if profile is None:
            return View()
        snapshot = self._snapshots.current()
        version, view = self._views.get(profile, (0, View()))
        if version != snapshot.version:
            view = await self._build_view(profile)
            known = {each: kept for each, kept in self._views.items() if kept[0] == snapshot.version}
            self._views = {**known, profile: (snapshot.version, view)}  # without those of former configurations
        return view

    async def shows(self, item: Item, context: RequestContext) -> bool:
        """Whether the caller may see the item. Reads nothing, unless skills decide."""
        profile = self.find_profile(context)
        if profile is None or not profile.depends_on_skills:
            return profile is None or profile.shows(item)
        return (await self.find_view(context)).shows(item.id)

    def shows_unlisted(self, item: Item, context: RequestContext) -> bool:
        """Whether the caller may learn that the server of this item is configured, while nobody knows what it offers:
        not if the profile may hide everything of it."""
        profile = None if context.profile is None else self._find_profile(context.profile)
        return profile is None or (not profile.depends_on_skills and profile.shows(item))

    def shows_registry(self, context: RequestContext) -> bool:
        """Whether the caller may learn of servers that are not connected: not with a profile, which says what there is
        for its callers."""
        return context.profile is None or self._find_profile(context.profile) is None

    async def shows_server(self, server: str, context: RequestContext) -> bool:
        """Whether the caller may see an item of that server, or everything."""
        view = await self.find_view(context)
        if view.ids is None:
            return True
        facts = (await self._snapshots.current().facts()).items
        return any(facts[item_id].server == server for item_id in view.ids if item_id in facts)

    async def select(self, items: Iterable[Item], context: RequestContext) -> list[Item]:
        """The items that the caller may see."""
        profile = self.find_profile(context)
        if profile is None or not profile.depends_on_skills:
            return [item for item in items if profile is None or profile.shows(item)]
        view = await self.find_view(context)
        return [item for item in items if view.shows(item.id)]

    async def count_by_skill(self, context: RequestContext) -> Mapping[str, int] | None:
        """The number of visible items of each skill that has any; None if the caller sees everything."""
        view = await self.find_view(context)
        if view.ids is None:
            return None
        skills = await self._read_skills()
        return Counter(skill for item_id in view.ids for skill in skills.get(item_id, ()))

    async def _build_view(self, profile: Profile) -> View:
        facts = (await self._snapshots.current().facts()).items
        skills = await self._read_skills() if profile.depends_on_skills else {}
        ids = frozenset(i for i, each in facts.items() if profile.shows(each.to_item(), skills.get(i, ())))
        return View(profile, ids, _build_subset(ids, facts))

    async def _read_skills(self) -> dict[str, list[str]]:
        stored = await self._item_store.get_fingerprints()
        return {item.id: [a.skill_id for a in item.assignments] for item in stored if item.is_active}


def _build_subset(visible: frozenset[str], facts: Mapping[str, ItemFacts]) -> Subset:
    """The shortest way to name them: whole servers by name, other items by id, either the visible or the hidden
    items."""
    shown = Counter(facts[i].server for i in visible)
    total = Counter(each.server for each in facts.values())
    whole = sorted(server for server, count in total.items() if shown[server] == count)
    hidden = sorted(server for server in total if not shown[server])
    others = frozenset(p for i in visible if facts[i].server not in whole for p in facts[i].list_points(i))
    left = frozenset(
        p for i, each in facts.items() if i not in visible and each.server not in hidden for p in each.list_points(i)
    )
    if len(left) < len(others):
        return Subset(left, (Condition("server", Op.IN, hidden),), excluded=True)
    return Subset(others, (Condition("server", Op.IN, whole),))
