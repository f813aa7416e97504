"""What every skill store promises of skills and assignments: SQLite in a file, SQLite in memory, PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.contracts.catalogue_items import PENDING, READ, TERMS, WRITE, get_fingerprint, list_pending
from toolscript.domain.catalog import (
    Assignment,
    ClassificationRecord,
    Item,
    Origin,
    Skill,
    Suggestion,
)
from toolscript.domain.errors import Invalid, NotFound
from toolscript.ports.stores import ItemStore, SkillStore

pytestmark = pytest.mark.req("X-02", "H-15")


async def test_a_skill_knows_when_it_was_last_changed(skill_store: SkillStore) -> None:
    assert await skill_store.get_update_time("files") is None
    before = datetime.now(UTC) - timedelta(seconds=5)  # times of SQLite have no fractions
    await skill_store.add_skill(Skill("files", "Files"))
    time = await skill_store.get_update_time("files")
    assert time is not None
    assert before <= time <= datetime.now(UTC) + timedelta(minutes=1)


async def test_skills_are_saved_changed_and_removed(skill_store: SkillStore) -> None:
    skill = Skill("files", "Files", "Reading and writing", "system", ("file", "größe"), ("read",))
    hidden = Skill("hidden", "Hidden", is_active=False)
    await skill_store.save_skills([skill, hidden])
    assert await skill_store.list_skills() == [skill]
    assert await skill_store.list_skills(active_only=False) == [skill, hidden]
    await skill_store.save_skills([replace(skill, name="All files", keywords=())])
    assert (await skill_store.list_skills())[0] == replace(skill, name="All files", keywords=())
    await skill_store.delete_skill("files")
    assert await skill_store.list_skills() == []
    with pytest.raises(NotFound, match=r"'files'.*list of skills"):
        await skill_store.delete_skill("files")


async def test_assignments_are_replaced_and_deleted_with_their_skill(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_skills([Skill("a", "A"), Skill("b", "B")])
    first = (Assignment("b", 0.9, True, Origin.HUMAN), Assignment("a", 0.6))
    await skill_store.assign(READ.id, first)
    assert (await item_store.get_items([READ.id]))[0].assignments == first
    await skill_store.delete_skill("b")
    assert (await item_store.get_items())[0].assignments == (Assignment("a", 0.6, True),)
    await skill_store.assign(READ.id, ())
    assert (await item_store.get_items())[0].assignments == ()


@pytest.mark.req("H-09")
async def test_when_the_primary_skill_is_deleted_the_one_with_the_next_confidence_becomes_primary(
    item_store: ItemStore,
    skill_store: SkillStore,
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_skills([Skill(i, i) for i in "abcd"])
    human = Origin.HUMAN
    await skill_store.assign(READ.id, [Assignment("d", 1.0, True, human), Assignment("c", 0.8, False, human)])
    equal = [Assignment("d", 1.0, True, human), Assignment("c", 0.8, False, human), Assignment("b", 0.8, False, human)]
    await skill_store.assign(WRITE.id, equal)
    await skill_store.delete_skill("d")
    assert (await get_fingerprint(item_store, READ)).assignments == (Assignment("c", 0.8, True, human),)
    assert [(a.skill_id, a.is_primary) for a in (await get_fingerprint(item_store, WRITE)).assignments] == [
        ("b", True),
        ("c", False),
    ]
    await skill_store.delete_skill("c")
    assert [(a.skill_id, a.is_primary) for a in (await get_fingerprint(item_store, WRITE)).assignments] == [("b", True)]


async def test_an_assignment_to_an_unknown_item_or_skill_changes_nothing(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    await skill_store.assign(READ.id, [Assignment("a", 0.7)])
    with pytest.raises(NotFound, match=r"'invented'.*list of skills"):
        await skill_store.assign(READ.id, [Assignment("a", 0.9), Assignment("invented", 0.9)])
    with pytest.raises(NotFound, match=r"'files__nobody'.*lists of tools"):
        await skill_store.assign("files__nobody", [Assignment("a", 0.9)])
    assert (await item_store.get_items())[0].assignments == (Assignment("a", 0.7),)


@pytest.mark.req("X-03")
async def test_a_value_that_violates_a_constraint_is_rejected_and_nothing_is_lost(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    with pytest.raises(Invalid, match="rejects"):
        await skill_store.assign(READ.id, [Assignment("a", 0.9), Assignment("a", 0.8)])
    assert [s.item for s in await item_store.get_items()] == [READ]


@pytest.mark.req("H-09")
async def test_a_seed_is_applied_once_and_removes_skills_of_earlier_seeds(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    mine = Skill("mine", "Mine")
    await skill_store.save_skills([mine])
    assert await skill_store.seed_skills("one", [Skill("a", "A"), Skill("b", "B")])
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_classifications([ClassificationRecord(READ.id, "stamp", (Assignment("a", 0.9, True),))])
    await skill_store.save_skills([Skill("b", "B, as a person likes it")])
    assert not await skill_store.seed_skills("one", [Skill("a", "A"), Skill("b", "B")])
    assert [s.name for s in await skill_store.list_skills()] == ["A", "B, as a person likes it", "Mine"]

    assert await skill_store.seed_skills("two", [Skill("b", "B"), Skill("c", "C"), Skill("mine", "The seed's")])
    persons = Skill("b", "B, as a person likes it")
    assert await skill_store.list_skills() == [persons, Skill("c", "C"), mine]
    assert (
        (await get_fingerprint(item_store, READ)).assignments,
        (await get_fingerprint(item_store, READ)).classified,
    ) == ((), "")
    assert await skill_store.seed_skills("one", [])
    assert await skill_store.list_skills() == [persons, mine]
    assert not await skill_store.seed_skills("one", [])


@pytest.mark.req("H-09")
async def test_a_seed_without_a_skill_keeps_the_assignments_of_people_to_it(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await skill_store.seed_skills("one", [Skill("a", "A"), Skill("b", "B")])
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    human, found = Assignment("a", 1.0, True, Origin.HUMAN), Assignment("a", 0.9, True)
    await skill_store.assign(READ.id, [human])
    await skill_store.save_classifications([ClassificationRecord(WRITE.id, "stamp", (found,))])
    await skill_store.seed_skills("two", [])
    assert await skill_store.list_skills() == []
    assert await skill_store.list_skills(active_only=False) == [Skill("a", "A", is_active=False)]
    assert (await get_fingerprint(item_store, READ)).assignments == (human,)
    assert (await get_fingerprint(item_store, WRITE)).classified == ""
    await skill_store.seed_skills("three", [Skill("a", "A, again")])
    assert await skill_store.list_skills() == [Skill("a", "A, again")]
    assert (await get_fingerprint(item_store, READ)).assignments == (human,)
    await skill_store.assign(READ.id, [])
    await skill_store.seed_skills("four", [])
    assert await skill_store.list_skills(active_only=False) == []


@pytest.mark.req("H-09")
@pytest.mark.parametrize("edited_before", [False, True])
async def test_a_seeded_skill_that_a_person_deleted_does_not_come_back(
    skill_store: SkillStore, edited_before: bool
) -> None:
    await skill_store.seed_skills("one", [Skill("a", "A"), Skill("b", "B")])
    if edited_before:
        await skill_store.save_skills([Skill("a", "Mine")])
    await skill_store.delete_skill("a")
    await skill_store.seed_skills("two", [Skill("a", "A2"), Skill("b", "B2")])
    await skill_store.seed_skills("three", [Skill("b", "B3")])
    await skill_store.seed_skills("four", [Skill("a", "A4"), Skill("b", "B4")])
    assert await skill_store.list_skills(active_only=False) == [Skill("b", "B4")]
    await skill_store.save_skills([Skill("a", "Made anew")])
    await skill_store.seed_skills("five", [Skill("a", "A5")])
    assert await skill_store.list_skills(active_only=False) == [Skill("a", "Made anew")]


@pytest.mark.req("H-09")
async def test_a_later_seed_may_bring_a_skill_that_an_earlier_seed_removed_or_never_had(
    skill_store: SkillStore,
) -> None:
    await skill_store.save_skills([Skill("own", "Own")])
    await skill_store.delete_skill("own")
    await skill_store.seed_skills("one", [Skill("a", "A")])
    await skill_store.seed_skills("two", [])
    both = [Skill("a", "A"), Skill("own", "Own")]
    await skill_store.seed_skills("three", both)
    assert await skill_store.list_skills() == both


@pytest.mark.req("H-09")
async def test_a_skill_that_was_deleted_and_added_again_no_longer_belongs_to_the_seed(skill_store: SkillStore) -> None:
    await skill_store.seed_skills("one", [Skill("a", "A")])
    await skill_store.delete_skill("a")
    await skill_store.save_skills([Skill("a", "Mine")])
    await skill_store.seed_skills("two", [])
    assert await skill_store.list_skills() == [Skill("a", "Mine")]


@pytest.mark.req("H-10")
async def test_a_classification_ignores_items_and_skills_that_no_longer_exist(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    await item_store.deactivate([WRITE.id])
    sure = (Assignment("a", 0.9, True),)
    await skill_store.save_classifications(
        [
            ClassificationRecord(READ.id, "stamp", (*sure, Assignment("gone", 0.8))),
            ClassificationRecord(WRITE.id, "stamp", sure, Suggestion("Nobody's")),
            ClassificationRecord("files__never", "stamp", sure, Suggestion("Nobody's")),
        ]
    )
    read, write = await get_fingerprint(item_store, READ), await get_fingerprint(item_store, WRITE)
    assert (read.assignments, read.classified) == (sure, "")
    assert (write.assignments, write.classified) == ((), "")
    assert await list_pending(skill_store) == []
    await skill_store.save_classifications([])


@pytest.mark.req("H-10")
async def test_hundreds_of_items_are_classified_at_once(item_store: ItemStore, skill_store: SkillStore) -> None:
    many = [Item("bulk", f"tool{n:04d}") for n in range(600)]
    await item_store.save_items([(item, TERMS) for item in many])
    await skill_store.save_skills([Skill("a", "A")])
    sure = (Assignment("a", 0.9, True),)
    half = [ClassificationRecord(item.id, "s", sure) for item in many[:300]]
    await skill_store.save_classifications(
        [*half, *(ClassificationRecord(item.id, "s", suggestion=Suggestion("New")) for item in many[300:])]
    )
    assert await skill_store.count_items() == {"a": 300}
    assert {m.classified for m in await item_store.get_fingerprints()} == {"s"}
    assert [source for _, source in await list_pending(skill_store)] == [item.id for item in many[300:]]


@pytest.mark.req("H-14")
async def test_saving_an_item_again_keeps_its_classification(item_store: ItemStore, skill_store: SkillStore) -> None:
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    await skill_store.save_classifications(
        [ClassificationRecord(READ.id, "stamp", (Assignment("a", 0.9, True),), Suggestion("Another"))]
    )
    await item_store.save_items([(replace(READ, description="Changed"), TERMS)])
    fingerprint = await get_fingerprint(item_store, READ)
    assert (fingerprint.classified, fingerprint.assignments) == ("stamp", (Assignment("a", 0.9, True),))
    assert await list_pending(skill_store) == [("Another", READ.id)]


@pytest.mark.req("H-09")
async def test_items_of_a_removed_skill_count_as_not_classified(item_store: ItemStore, skill_store: SkillStore) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_skills([Skill("a", "A"), Skill("b", "B")])
    both = (Assignment("a", 0.9, True), Assignment("b", 0.8))
    await skill_store.save_classifications(
        [ClassificationRecord(READ.id, "s", both), ClassificationRecord(WRITE.id, "s", both[:1])]
    )
    await skill_store.delete_skill("b")
    read, write = await get_fingerprint(item_store, READ), await get_fingerprint(item_store, WRITE)
    assert (read.assignments, read.classified) == (both[:1], "")
    assert (write.assignments, write.classified) == (both[:1], "s")


@pytest.mark.req("H-09", "H-14")
async def test_items_of_a_skill_that_is_made_inactive_count_as_not_classified(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_skills([Skill("a", "A"), Skill("b", "B")])
    await skill_store.save_classifications(
        [
            ClassificationRecord(READ.id, "s", (Assignment("a", 0.9, True), Assignment("b", 0.8))),
            ClassificationRecord(WRITE.id, "s", (Assignment("a", 0.9, True),)),
        ]
    )
    await skill_store.save_skills([Skill("a", "Another name"), Skill("b", "B", is_active=False)])
    assert [(await get_fingerprint(item_store, item)).classified for item in (READ, WRITE)] == ["", "s"]


@pytest.mark.req("H-10")
async def test_a_stamp_is_replaced_only_where_it_is_still_the_same(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    sure = (Assignment("a", 0.9, True),)
    idea = Suggestion("Gardening")
    await skill_store.save_classifications(
        [ClassificationRecord(READ.id, "old", sure), ClassificationRecord(WRITE.id, "new", suggestion=idea)]
    )
    await skill_store.replace_stamps(
        {READ.id: ("old", "newer"), WRITE.id: ("old", "newer"), "files__never": ("", "newer")}
    )
    read, write = await get_fingerprint(item_store, READ), await get_fingerprint(item_store, WRITE)
    assert (read.classified, read.assignments, write.classified) == ("newer", sure, "new")
    assert await list_pending(skill_store) == [("Gardening", WRITE.id)]


@pytest.mark.req("H-10", "H-14")
async def test_concurrent_writers_of_skills_and_items_wait_for_each_other(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    items = [Item("many", f"t{n:02d}") for n in range(40)]
    skills = [Skill(f"s{n}", "S") for n in range(10)]
    await item_store.save_items([(item, TERMS) for item in items])
    await skill_store.save_skills(skills)

    async def write(n: int) -> None:
        turn = 1 if n % 2 else -1
        sure = (Assignment(f"s{n % 9}", 0.9, True),)
        await skill_store.save_skills(skills[::turn])
        await skill_store.save_classifications(
            [ClassificationRecord(i.id, f"{n}", sure, Suggestion("New")) for i in items[::turn]]
        )
        await skill_store.assign(items[n].id, sure)
        await item_store.save_items([(item, TERMS) for item in items[::turn]])

    await asyncio.gather(*(write(n) for n in range(16)), skill_store.delete_skill("s9"))
    fingerprints = await item_store.get_fingerprints()
    assert all(len(m.assignments) == 1 for m in fingerprints)
    assert len(await skill_store.list_suggestions(PENDING)) <= len(items)
