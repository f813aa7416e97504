"""What agents read about the tools before they search: the tools that their profile pins, the servers, the skills."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from toolscript.domain.catalog import Item, ItemType, get_server
from toolscript.domain.errors import Unavailable
from toolscript.domain.profiles import MAX_PINNED, Profile
from toolscript.domain.requests import RequestContext, current_request
from toolscript.domain.spelling import suggest
from toolscript.retrieval.catalogue import ItemFacts
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.visibility import View, Visibility
from toolscript.services.servers.gateway import Gateway
from toolscript.services.servers.starting_servers import StartingServers
from toolscript.services.skills.skills import Skills

# What MCP allows in the name of a tool (SEP-986). Clients reject the whole list for a name with other characters.
_NATIVE_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True)
class ToolOverview:
    """What a caller sees of the catalogue. Equal ones have the same text."""

    pinned: tuple[Item, ...] = ()
    servers: tuple[tuple[str, int], ...] = ()
    """Servers with their number of tools, those with the most first."""
    skills: tuple[str, ...] = ()
    """The ids of the skills that have tools, the largest first."""
    has_agent_skills: bool = False


class ToolOverviews:
    """Builds the overview of the caller's profile, once for every version of the catalogue."""

    def __init__(
        self,
        snapshots: CatalogueSnapshots,
        gateway: Gateway,
        visibility: Visibility,
        skills: Skills,
        list_profiles: Callable[[], Sequence[Profile]],
    ) -> None:
        self._snapshots = snapshots
        self._gateway = gateway
        self._visibility = visibility
        self._skills = skills
        self._list_profiles = list_profiles
        self._starting = StartingServers(gateway, visibility)
        self._known: dict[Profile | None, tuple[int, ToolOverview]] = {}

    async def read(self) -> ToolOverview:
        """The overview for the caller of the current request, with the pinned tools that can be called now. Raises what
        the stores raise, and NotFound for a profile that a new configuration has removed."""
        overview = await self._find()
        offered = tuple(item for item in overview.pinned if not item.quarantine and self._gateway.offers(item))
        return replace(overview, pinned=offered)

    async def is_pinned(self, item_id: str) -> bool:
        """Whether the caller may call that tool by its id. It stays so in quarantine, where the call says why not. Of a
        tool that is pinned and not known yet, waits for the server."""
        if any(item.id == item_id for item in (await self._find()).pinned):
            return True
        profile = self._visibility.find_profile(current_request())
        if profile is None or not any(fnmatchcase(item_id, entry) for entry in profile.pinned):
            return False
        await self._starting.wait_for_item(item_id)
        return any(item.id == item_id for item in (await self._find()).pinned)

    def list_starting(self) -> list[str]:
        """The servers that are still starting and that the catalogue has nothing of."""
        return self._starting.list_names()

    async def list_warnings(self) -> list[str]:
        """What is wrong with the pinned tools of each profile, one sentence each; nothing while the catalogue cannot be
        read."""
        pinning = [profile for profile in self._list_profiles() if profile.pinned]
        try:
            return await self._find_problems(pinning) if pinning else []
        except Unavailable:
            return []

    async def _find_problems(self, profiles: Sequence[Profile]) -> list[str]:
        facts = (await self._snapshots.current().facts()).items
        tools = [i for i, each in facts.items() if each.type is ItemType.TOOL]
        listed = {each.server for each in facts.values()}
        coming = {status.name for status in self._gateway.statuses} - listed
        warnings = []
        for profile in profiles:
            view = await self._visibility.find_view(RequestContext(profile=profile.name))
            problems = _find_problems(profile.pinned, tools, view, coming)
            warnings += [f"profiles.{profile.name}.pinned: {problem}" for problem in problems]
        return warnings

    async def _find(self) -> ToolOverview:
        context, version = current_request(), self._snapshots.current().version
        profile = self._visibility.find_profile(context)
        known_version, overview = self._known.get(profile, (0, ToolOverview()))
        if known_version != version:
            try:
                overview = await self._build(profile, context)
            except Unavailable:  # as other calls do, those of pinned tools need no store
                if not known_version:
                    raise
                return overview
            kept = {each: known for each, known in self._known.items() if known[0] == version}
            self._known = {**kept, profile: (version, overview)}
        return overview

    async def _build(self, profile: Profile | None, context: RequestContext) -> ToolOverview:
        view = await self._visibility.find_view(context)
        facts = (await self._snapshots.current().facts()).items
        visible = {i: each for i, each in facts.items() if view.shows(i)}
        # 20 patterns take 0.2 s among 10 000 tools, and calls must not wait for that.
        pinned = await asyncio.to_thread(_find_pinned, profile.pinned, visible) if profile and profile.pinned else ()
        skills = [each for each in await self._skills.all(active_only=True) if each.tool_count]
        largest = sorted(skills, key=lambda each: (-each.tool_count, each.skill.id))
        return ToolOverview(
            pinned=tuple(facts[i].to_item() for i in pinned),
            servers=_count_tools(visible),
            skills=tuple(each.skill.id for each in largest),
            has_agent_skills=any(each.type is ItemType.AGENT_SKILL for each in visible.values()),
        )


def _count_tools(visible: Mapping[str, ItemFacts]) -> tuple[tuple[str, int], ...]:
    """The servers of the items with their number of tools, without tools in quarantine."""
    counts: Counter[str] = Counter()
    for each in visible.values():
        if not each.quarantine:
            counts[each.server] += each.type is ItemType.TOOL
    return tuple(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def _find_pinned(pinned: Sequence[str], visible: Mapping[str, ItemFacts]) -> list[str]:
    tools = [i for i, each in visible.items() if each.type is ItemType.TOOL]
    found = dict.fromkeys(i for entry in pinned for i in _match(entry, tools))
    return [i for i in found if _NATIVE_NAME.fullmatch(i)][:MAX_PINNED]


def _match(entry: str, tools: Collection[str]) -> list[str]:
    """The ids that an entry names: one id, or the ids that fit its pattern, in their order."""
    return [entry] if entry in tools else sorted(i for i in tools if fnmatchcase(i, entry))


def _find_problems(pinned: Sequence[str], tools: Sequence[str], view: View, coming: Collection[str]) -> Iterator[str]:
    """`coming` are servers that nothing is known of yet: what is pinned of them may exist."""
    shown: dict[str, None] = {}
    for entry in pinned:
        found = _match(entry, tools)
        visible = [i for i in found if view.shows(i)]
        shown |= dict.fromkeys(i for i in visible if _NATIVE_NAME.fullmatch(i))
        if not found and get_server(entry) not in coming:
            yield f"{entry!r} matches no tool{suggest(entry, tools)}"
        elif found and not visible:
            yield f"{entry!r} matches only tools that the profile does not show"
        for item_id in (i for i in visible if not _NATIVE_NAME.fullmatch(i)):
            yield f"{item_id!r} cannot be listed: names in MCP have 1 to 128 letters, digits, '.', '-' and '_'"
    if len(shown) > MAX_PINNED:
        yield f"{len(shown)} tools match, and agents see the first {MAX_PINNED}: name fewer, or use narrower patterns"
