"""A sync that is cut short, at any moment whatever, is made good by the next; and how things came about never shows."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.catalogue import (
    FILES,
    HALVES,
    ITEMS,
    LIST,
    MAIL,
    MONEY,
    READ,
    SAVE,
    SEND,
    STRANGE,
    WRITE,
    Fuse,
    House,
    ScriptedRefiner,
)
from toolscript.domain.catalog import Item, Skill

pytestmark = pytest.mark.req("H-13", "H-14")

Step = Callable[[House], Awaitable[Any]]

GREEN = Skill("green", "Gardening", "Plants", keywords=("plant",))
# One stays, one says something else, one goes to another skill, one is gone, one is gone that waited, one is new.
LATER = [
    READ,
    replace(WRITE, description="Write a long file"),
    replace(LIST, description="Email message: an email message"),
    SEND,
    SAVE,
    Item("post", "water_plant", "Water a plant"),
]


async def sync_later(house: House) -> None:
    await house.sync.run(LATER)


async def sync_each_server(house: House) -> None:
    await house.sync.configure(["disk", "post"])
    for server in ("disk", "post"):
        await house.sync.run([i for i in LATER if i.server == server], servers=[server])


async def a_skill_is_made(house: House) -> None:
    if GREEN not in await house.skill_store.list_skills():
        await house.skill_store.save_skills([GREEN])
    await house.sync.run(LATER)


async def a_skill_is_deleted(house: House) -> None:
    if any(s.id == "files" for s in await house.skill_store.list_skills()):
        await house.skill_store.delete_skill("files")
    await house.sync.run(ITEMS)


async def a_person_decides(house: House) -> None:
    await house.skills.assign(READ.id, ["money"])
    await house.sync.run(ITEMS)


async def all_is_sorted_anew(house: House) -> None:
    await house.skill_store.save_skills([replace(MAIL, description="Mail", keywords=("email", "file"))])
    await house.sync.reclassify(None, force=True)


async def all_is_refined(house: House) -> None:
    await house.sync.run(LATER)
    await house.sync.refinement.run()


STEPS: list[Step] = [
    sync_later,
    sync_each_server,
    a_skill_is_made,
    a_skill_is_deleted,
    a_person_decides,
    all_is_sorted_anew,
    all_is_refined,
]


async def furnished(fuse: Fuse, *, empty: bool = False) -> House:
    refiner = ScriptedRefiner({READ.id: [("mail", 0.9), ("files", 0.6)], SEND.id: [("mail", 0.5123)], WRITE.id: None})
    house = await House(fuse=fuse, refiner=refiner).opened(FILES, MAIL, MONEY)
    if not empty:
        await house.sync.run(ITEMS)
        await house.skills.assign(SAVE.id, ["mail"])
    return house


async def nothing_happens(house: House) -> None:
    """The same process tries again."""


async def the_process_starts_anew(house: House) -> None:
    house.start()


async def another_server_comes_first(house: House) -> None:
    await house.sync.run([STRANGE, Item("zoo", "mail_zebra", "Send an email message")], servers=["zoo"])
    await house.sync.run([STRANGE], servers=["zoo"])


def named(step: Step) -> str:
    return getattr(step, "__name__", "")


async def outcome(step: Step, *, empty: bool = False) -> dict[str, Any]:
    """What the step leads to when nothing goes wrong."""
    house = await furnished(Fuse(), empty=empty)
    await step(house)
    held = await house.dump()
    await house.assert_index_is_current()
    await house.close()
    return held


async def attempt(step: Step, meanwhile: Step, fuse: Fuse, at: int) -> House:
    """The step with a failure at that call, then what happens meanwhile, then the step again."""
    house = await furnished(fuse)
    fuse.left = at
    try:
        await step(house)
    except ConnectionError:
        await meanwhile(house)
        await step(house)
    fuse.left = -1
    return house


@pytest.mark.parametrize(
    ("step", "meanwhile"),
    [
        *((step, nothing_happens) for step in STEPS),
        *((step, the_process_starts_anew) for step in (sync_later, all_is_sorted_anew, all_is_refined)),
        *((step, another_server_comes_first) for step in (sync_each_server, all_is_refined)),
    ],
    ids=named,
)
async def test_whatever_call_fails_the_next_attempt_ends_where_the_first_would_have(
    step: Step, meanwhile: Step
) -> None:
    expected = await outcome(step)
    for at in itertools.count(1):
        for halfway in (False, True):
            fuse = Fuse(halfway=halfway)
            house = await attempt(step, meanwhile, fuse, at)
            assert await house.dump() == expected, f"cut off at call {at}, {fuse.burnt_at}"
            await house.close()
            if fuse.burnt_at not in HALVES:
                break
        if not fuse.burnt_at:
            break
    assert at > 8


@pytest.mark.parametrize("step", [sync_later, sync_each_server], ids=named)
async def test_a_first_sync_may_fail_again_and_again(step: Step) -> None:
    expected = await outcome(step, empty=True)
    fuse = Fuse(halfway=True)
    house = await furnished(fuse, empty=True)
    for at in itertools.count(1):  # always the same house: each time it gets a little further
        fuse.left, fuse.burnt_at = at, ""
        with suppress(ConnectionError):
            await step(house)
        if not fuse.burnt_at:
            break
    fuse.left = -1
    assert await house.dump() == expected
    await house.close()
    assert at > 5


@pytest.mark.parametrize("step", STEPS, ids=named)
async def test_after_a_step_that_failed_a_plain_sync_leaves_the_index_at_what_the_store_says(step: Step) -> None:
    for at in itertools.count(1):
        fuse = Fuse()
        house = await furnished(fuse)
        fuse.left = at
        with suppress(ConnectionError):
            await step(house)
        fuse.left = -1
        await house.sync.run(ITEMS)
        await house.assert_index_is_current()
        await house.close()
        if not fuse.burnt_at:
            break


async def test_whoever_keeps_something_of_the_index_is_told_after_a_failure_too() -> None:
    fuse = Fuse()
    house = await furnished(fuse)
    for at in itertools.count(1):
        house.start()
        await house.sync.configure({item.server for item in ITEMS})
        changed = [*ITEMS[:-1], replace(STRANGE, title=f"Title {at}")]  # it has no skill whose points would change
        changes, fuse.left, fuse.burnt_at = house.skill_changes, at, ""
        with suppress(ConnectionError):
            await house.sync.run(changed)
        fuse.left = -1
        await house.sync.run(changed)
        assert house.skill_changes > changes, f"cut off at call {at}"
        if not fuse.burnt_at:
            break
    await house.close()


DESCRIPTIONS = st.sampled_from(
    ["Read a file", "A folder of files", "An email message", "An invoice file", "Hay for zebras", "Water a plant", ""]
)
NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta"])
SERVERS = st.sampled_from(["one", "two"])
SKILLS = {s.id: s for s in (FILES, MAIL, MONEY, GREEN)}
ACTIONS = st.one_of(
    st.tuples(st.just("offer"), SERVERS, NAMES, DESCRIPTIONS),
    st.tuples(st.just("withdraw"), SERVERS, NAMES),
    st.tuples(st.just("make"), st.sampled_from(sorted(SKILLS)), st.booleans()),
    st.tuples(st.just("remove"), st.sampled_from(sorted(SKILLS))),
    st.tuples(st.just("assign"), SERVERS, NAMES, st.sampled_from(sorted(SKILLS))),
    st.tuples(st.just("release"), SERVERS, NAMES),
    st.tuples(st.just("reclassify")),
    st.tuples(st.just("restart")),
)


class World:
    """What a house should know: what is offered, the skills, what people have decided."""

    def __init__(self) -> None:
        self.offered: dict[str, Item] = {}
        self.skills = {s.id: s for s in (FILES, MAIL)}
        self.decided: dict[str, str] = {}
        self.known: set[str] = set()

    async def do(self, house: House, action: tuple[Any, ...]) -> None:
        kind, *about = action
        await getattr(self, f"_{kind}")(house, *about)

    async def _offer(self, house: House, server: str, name: str, description: str) -> None:
        item = Item(server, name, description)
        self.offered[item.id] = item
        self.known.add(item.id)
        await self._sync(house, server)

    async def _withdraw(self, house: House, server: str, name: str) -> None:
        self.offered.pop(Item(server, name).id, None)
        await self._sync(house, server)

    async def _sync(self, house: House, server: str) -> None:
        await house.sync.run([i for i in self.offered.values() if i.server == server], servers=[server])

    async def _make(self, house: House, skill_id: str, is_other: bool) -> None:
        skill = replace(SKILLS[skill_id], description="Else", keywords=("hay",)) if is_other else SKILLS[skill_id]
        await (house.skills.replace(skill_id, skill) if skill_id in self.skills else house.skills.create(skill))
        self.skills[skill_id] = skill

    async def _remove(self, house: House, skill_id: str) -> None:
        if skill_id in self.skills:
            await house.skills.remove(skill_id)
            del self.skills[skill_id]
            self.decided = {i: s for i, s in self.decided.items() if s != skill_id}

    async def _assign(self, house: House, server: str, name: str, skill_id: str) -> None:
        item_id = Item(server, name).id
        if item_id in self.known and skill_id in self.skills:
            await house.skills.assign(item_id, [skill_id])
            self.decided[item_id] = skill_id

    async def _release(self, house: House, server: str, name: str) -> None:
        if Item(server, name).id in self.known:
            await house.skills.release(Item(server, name).id)
            self.decided.pop(Item(server, name).id, None)

    async def _reclassify(self, house: House) -> None:
        await house.sync.reclassify(None)

    async def _restart(self, house: House) -> None:
        house.start()

    async def fresh(self) -> House:
        """A house that has known nothing but what is the case now."""
        house = await House().opened(*self.skills.values())
        await house.sync.run(list(self.offered.values()))
        for item_id, skill_id in self.decided.items():
            if item_id in self.offered:
                await house.skills.assign(item_id, [skill_id])
        return house


async def lives(actions: list[tuple[Any, ...]]) -> None:
    house, world = await House().opened(FILES, MAIL), World()
    await house.sync.run([])
    for action in actions:
        await world.do(house, action)
        await house.assert_index_is_current()
    await house.sync.reclassify(None)  # what is sorted stays where it is when better skills come: until now
    fresh = await world.fresh()
    assert unstamped(await house.dump()) == unstamped(await fresh.dump())
    for each in (house, fresh):
        await each.close()


def unstamped(dump: dict[str, Any]) -> dict[str, Any]:
    """Without the stamps of what people have decided: they tell what a classifier last looked at."""
    fingerprints = {
        i: (digest, None if _by_people(a) else stamp, a) for i, (digest, stamp, a) in dump["fingerprints"].items()
    }
    return {**dump, "fingerprints": fingerprints}


def _by_people(assignments: Any) -> bool:
    return any(a.origin == "human" for a in assignments)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTIONS, max_size=12))
def test_what_has_happened_does_not_show_only_what_is_the_case(actions: list[tuple[Any, ...]]) -> None:
    asyncio.run(lives(actions))
