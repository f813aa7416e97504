"""The next sync completes an interrupted one, and the result does not depend on the history."""

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
    ScriptedRefiner,
    SyncedCatalogue,
)
from tests.fixtures.examples import choose, is_thorough, scale_examples
from toolscript.domain.catalog import Item, Skill
from toolscript.services.catalogue import indexing

pytestmark = [pytest.mark.req("H-13", "H-14"), pytest.mark.slow]

Step = Callable[[SyncedCatalogue], Awaitable[Any]]

GREEN = Skill("green", "Gardening", "Plants", keywords=("plant",))
# One item is unchanged, one changed, one moves to another skill, two vanish (one of them unclassified), one is new.
LATER = [
    READ,
    replace(WRITE, description="Write a long file"),
    replace(LIST, description="Email message: an email message"),
    SEND,
    SAVE,
    Item("post", "water_plant", "Water a plant"),
]


async def sync_later(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(LATER)


async def sync_each_server(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.configure(["disk", "post"])
    for server in ("disk", "post"):
        await catalogue.sync.run([i for i in LATER if i.server == server], servers=[server])


async def a_skill_is_made(catalogue: SyncedCatalogue) -> None:
    if GREEN not in await catalogue.skill_store.list_skills():
        await catalogue.skill_store.save_skills([GREEN])
    await catalogue.sync.run(LATER)


async def a_skill_is_deleted(catalogue: SyncedCatalogue) -> None:
    if any(s.id == "files" for s in await catalogue.skill_store.list_skills()):
        await catalogue.skill_store.delete_skill("files")
    await catalogue.sync.run(ITEMS)


async def a_person_decides(catalogue: SyncedCatalogue) -> None:
    await catalogue.skills.assign(READ.id, ["money"])
    await catalogue.sync.run(ITEMS)


async def all_is_sorted_anew(catalogue: SyncedCatalogue) -> None:
    await catalogue.skill_store.save_skills([replace(MAIL, description="Mail", keywords=("email", "file"))])
    await catalogue.sync.reclassify(None, force=True)


async def all_is_refined(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(LATER)
    await catalogue.sync.refinement.run()


# A failure at every call is tried in `make test-all` only.
STRIDE = 1 if is_thorough() else 9

STEPS: list[Step] = [
    sync_later,
    sync_each_server,
    a_skill_is_made,
    a_skill_is_deleted,
    a_person_decides,
    all_is_sorted_anew,
    all_is_refined,
]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches, and points that are first written without vectors."""
    monkeypatch.setattr(indexing, "BATCH", 3)


async def furnish(fuse: Fuse, *, empty: bool = False) -> SyncedCatalogue:
    refiner = ScriptedRefiner({READ.id: [("mail", 0.9), ("files", 0.6)], SEND.id: [("mail", 0.5123)], WRITE.id: None})
    catalogue = await SyncedCatalogue(fuse=fuse, refiner=refiner).open(FILES, MAIL, MONEY)
    if not empty:
        await catalogue.sync.run(ITEMS)
        await catalogue.skills.assign(SAVE.id, ["mail"])
    return catalogue


async def nothing_happens(catalogue: SyncedCatalogue) -> None:
    """The same process repeats the step."""


async def the_process_starts_anew(catalogue: SyncedCatalogue) -> None:
    catalogue.start()


async def another_server_comes_first(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run([STRANGE, Item("zoo", "mail_zebra", "Send an email message")], servers=["zoo"])
    await catalogue.sync.run([STRANGE], servers=["zoo"])


def get_name(step: Step) -> str:
    return getattr(step, "__name__", "")


async def outcome(step: Step, *, empty: bool = False) -> dict[str, Any]:
    """The state after the step without failures."""
    catalogue = await furnish(Fuse(), empty=empty)
    await step(catalogue)
    content = await catalogue.dump()
    await catalogue.assert_index_is_current()
    await catalogue.close()
    return content


async def attempt(step: Step, meanwhile: Step, fuse: Fuse, at: int) -> SyncedCatalogue:
    """The step with a failure at that call, then another change, then the step again."""
    catalogue = await furnish(fuse)
    fuse.left = at
    try:
        await step(catalogue)
    except ConnectionError:
        await meanwhile(catalogue)
        await step(catalogue)
    fuse.left = -1
    return catalogue


@pytest.mark.parametrize(
    "case",
    choose(
        [
            *((step, nothing_happens) for step in STEPS),
            *((step, the_process_starts_anew) for step in (sync_later, all_is_sorted_anew, all_is_refined)),
            *((step, another_server_comes_first) for step in (sync_each_server, all_is_refined)),
        ],
        # Each step once, and each event in between.
        *((step, nothing_happens) for step in (sync_later, a_skill_is_made, a_skill_is_deleted, a_person_decides)),
        *((step, the_process_starts_anew) for step in (all_is_sorted_anew, all_is_refined)),
        (sync_each_server, another_server_comes_first),
    ),
    ids=lambda case: "-".join(map(get_name, case)),
)
async def test_after_any_failed_call_the_next_attempt_gives_the_same_result(case: tuple[Step, Step]) -> None:
    step, meanwhile = case
    expected = await outcome(step)
    for at in itertools.count(1, STRIDE):
        for halfway in (False, True):
            fuse = Fuse(halfway=halfway)
            catalogue = await attempt(step, meanwhile, fuse, at)
            assert await catalogue.dump() == expected, f"cut off at call {at}, {fuse.burnt_at}"
            await catalogue.close()
            if fuse.burnt_at not in HALVES:
                break
        if not fuse.burnt_at:
            break
    assert at > 8


@pytest.mark.parametrize("step", [sync_later, sync_each_server], ids=get_name)
async def test_a_first_sync_may_fail_repeatedly(step: Step) -> None:
    expected = await outcome(step, empty=True)
    fuse = Fuse(halfway=True)
    catalogue = await furnish(fuse, empty=True)
    for at in itertools.count(1):  # the same catalogue each time: every attempt gets further
        fuse.left, fuse.burnt_at = at, ""
        with suppress(ConnectionError):
            await step(catalogue)
        if not fuse.burnt_at:
            break
    fuse.left = -1
    assert await catalogue.dump() == expected
    await catalogue.close()
    assert at > 5


@pytest.mark.parametrize(
    "step", choose(STEPS, sync_later, a_skill_is_deleted, all_is_sorted_anew, all_is_refined), ids=get_name
)
async def test_after_a_failed_step_a_sync_brings_the_index_to_the_state_of_the_store(step: Step) -> None:
    for at in itertools.count(1, STRIDE):
        fuse = Fuse()
        catalogue = await furnish(fuse)
        fuse.left = at
        with suppress(ConnectionError):
            await step(catalogue)
        fuse.left = -1
        await catalogue.sync.run(ITEMS)
        await catalogue.assert_index_is_current()
        await catalogue.close()
        if not fuse.burnt_at:
            break


async def test_a_change_is_reported_after_a_failure_too() -> None:
    fuse = Fuse()
    catalogue = await furnish(fuse)
    for at in itertools.count(1):
        catalogue.start()
        await catalogue.sync.configure({item.server for item in ITEMS})
        changed = [*ITEMS[:-1], replace(STRANGE, title=f"Title {at}")]  # without a skill, no other point changes
        changes, fuse.left, fuse.burnt_at = catalogue.skill_changes, at, ""
        with suppress(ConnectionError):
            await catalogue.sync.run(changed)
        fuse.left = -1
        await catalogue.sync.run(changed)
        assert catalogue.skill_changes > changes, f"cut off at call {at}"
        if not fuse.burnt_at:
            break
    await catalogue.close()


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
    """The expected state: offered items, skills, and decisions of people."""

    def __init__(self) -> None:
        self.offered: dict[str, Item] = {}
        self.skills = {s.id: s for s in (FILES, MAIL)}
        self.decided: dict[str, str] = {}
        self.known: set[str] = set()

    async def do(self, catalogue: SyncedCatalogue, action: tuple[Any, ...]) -> None:
        kind, *about = action
        await getattr(self, f"_{kind}")(catalogue, *about)

    async def _offer(self, catalogue: SyncedCatalogue, server: str, name: str, description: str) -> None:
        item = Item(server, name, description)
        self.offered[item.id] = item
        self.known.add(item.id)
        await self._sync(catalogue, server)

    async def _withdraw(self, catalogue: SyncedCatalogue, server: str, name: str) -> None:
        self.offered.pop(Item(server, name).id, None)
        await self._sync(catalogue, server)

    async def _sync(self, catalogue: SyncedCatalogue, server: str) -> None:
        await catalogue.sync.run([i for i in self.offered.values() if i.server == server], servers=[server])

    async def _make(self, catalogue: SyncedCatalogue, skill_id: str, is_other: bool) -> None:
        skill = replace(SKILLS[skill_id], description="Else", keywords=("hay",)) if is_other else SKILLS[skill_id]
        await (catalogue.skills.replace(skill_id, skill) if skill_id in self.skills else catalogue.skills.create(skill))
        self.skills[skill_id] = skill

    async def _remove(self, catalogue: SyncedCatalogue, skill_id: str) -> None:
        if skill_id in self.skills:
            await catalogue.skills.remove(skill_id)
            del self.skills[skill_id]
            self.decided = {i: s for i, s in self.decided.items() if s != skill_id}

    async def _assign(self, catalogue: SyncedCatalogue, server: str, name: str, skill_id: str) -> None:
        item_id = Item(server, name).id
        if item_id in self.known and skill_id in self.skills:
            await catalogue.skills.assign(item_id, [skill_id])
            self.decided[item_id] = skill_id

    async def _release(self, catalogue: SyncedCatalogue, server: str, name: str) -> None:
        if Item(server, name).id in self.known:
            await catalogue.skills.release(Item(server, name).id)
            self.decided.pop(Item(server, name).id, None)

    async def _reclassify(self, catalogue: SyncedCatalogue) -> None:
        await catalogue.sync.reclassify(None)

    async def _restart(self, catalogue: SyncedCatalogue) -> None:
        catalogue.start()

    async def fresh(self) -> SyncedCatalogue:
        """A catalogue that was built from the final state only."""
        catalogue = await SyncedCatalogue().open(*self.skills.values())
        await catalogue.sync.run(list(self.offered.values()))
        for item_id, skill_id in self.decided.items():
            if item_id in self.offered:
                await catalogue.skills.assign(item_id, [skill_id])
        return catalogue


async def lives(actions: list[tuple[Any, ...]]) -> None:
    catalogue, world = await SyncedCatalogue().open(FILES, MAIL), World()
    await catalogue.sync.run([])
    for action in actions:
        await world.do(catalogue, action)
        await catalogue.assert_index_is_current()
    await catalogue.sync.reclassify(None)  # classified items keep their skills when new ones are added
    fresh = await world.fresh()
    assert remove_stamps(await catalogue.dump()) == remove_stamps(await fresh.dump())
    for each in (catalogue, fresh):
        await each.close()


def remove_stamps(dump: dict[str, Any]) -> dict[str, Any]:
    """Without the stamps of items that people assigned: these depend on the history."""
    fingerprints = {
        i: (digest, None if _by_people(a) else stamp, a) for i, (digest, stamp, a) in dump["fingerprints"].items()
    }
    return {**dump, "fingerprints": fingerprints}


def _by_people(assignments: Any) -> bool:
    return any(a.origin == "human" for a in assignments)


@settings(max_examples=scale_examples(30), deadline=None)
@given(st.lists(ACTIONS, max_size=12))
def test_the_result_depends_on_the_final_state_not_on_the_history(actions: list[tuple[Any, ...]]) -> None:
    asyncio.run(lives(actions))
