"""What every skill store promises of suggested skills and their review."""

from __future__ import annotations

import asyncio

import pytest

from tests.contracts.catalogue_items import PENDING, PROMPT, READ, TERMS, WRITE, get_fingerprint, list_pending
from toolscript.domain.catalog import (
    Assignment,
    ClassificationRecord,
    Origin,
    Skill,
    Suggestion,
    SuggestionStatus,
)
from toolscript.domain.errors import Conflict, NotFound
from toolscript.ports.stores import ItemStore, SkillStore

pytestmark = pytest.mark.req("X-02", "H-15")


async def test_suggestions_are_pending_until_a_person_reviews_them(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS)])
    first = await skill_store.add_suggestion(Suggestion("Gardening", "Plants", READ.id))
    second = await skill_store.add_suggestion(Suggestion("Cooking"))
    assert [s.name for s in await skill_store.list_suggestions(SuggestionStatus.PENDING)] == ["Gardening", "Cooking"]
    assert first.source_item_id == READ.id
    decided = await skill_store.review_suggestion(second.number or 0, SuggestionStatus.REJECTED, "ann")
    assert (decided.status, decided.reviewed_by) == (SuggestionStatus.REJECTED, "ann")
    assert [s.name for s in await skill_store.list_suggestions(SuggestionStatus.PENDING)] == ["Gardening"]
    assert len(await skill_store.list_suggestions()) == 2
    with pytest.raises(NotFound, match=r"999.*list of suggestions"):
        await skill_store.review_suggestion(999, SuggestionStatus.APPROVED)


async def test_a_review_puts_the_chosen_items_that_are_still_there_into_the_skill(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS), (PROMPT, TERMS)])
    chosen = Suggestion("Gardening", item_ids=(READ.id, "gone__since", WRITE.id))
    made = await skill_store.add_suggestion(chosen)
    assert await skill_store.list_suggestions() == [chosen]
    await skill_store.review_suggestion(made.number or 0, SuggestionStatus.APPROVED, into=Skill("garden", "Gardening"))
    for item, expected in ((READ, ["garden"]), (WRITE, ["garden"]), (PROMPT, [])):
        assert [a.skill_id for a in (await get_fingerprint(item_store, item)).assignments] == expected


@pytest.mark.req("H-10")
async def test_a_review_adds_to_the_skills_of_chosen_items_and_keeps_those_of_people(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS), (PROMPT, TERMS)])
    await skill_store.save_skills([Skill(each, each) for each in "abc"])
    by_people = [Assignment(each, 1.0, each == "a", Origin.HUMAN) for each in "abc"]
    found = tuple(Assignment(each, c, c == 0.9, Origin.LLM) for each, c in (("a", 0.9), ("b", 0.8), ("c", 0.7)))
    await skill_store.assign(READ.id, by_people[:1])
    await skill_store.assign(PROMPT.id, by_people)
    await skill_store.save_classifications([ClassificationRecord(WRITE.id, "first", found)])
    made = await skill_store.add_suggestion(Suggestion("Gardening", item_ids=(READ.id, WRITE.id, PROMPT.id)))
    await skill_store.review_suggestion(made.number or 0, SuggestionStatus.APPROVED, into=Skill("garden", "Gardening"))
    added = Assignment("garden", 1.0, False, Origin.HUMAN)
    for item, expected in ((READ, [by_people[0], added]), (WRITE, [*found[:2], added]), (PROMPT, by_people)):
        assert {*(await get_fingerprint(item_store, item)).assignments} == {*expected}


@pytest.mark.req("H-10")
async def test_a_classification_replaces_assignments_stamp_and_pending_suggestions(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS), (PROMPT, TERMS)])
    await skill_store.save_skills([Skill("a", "A"), Skill("b", "B")])
    await skill_store.add_suggestion(Suggestion("Old idea", "", READ.id))
    await skill_store.add_suggestion(Suggestion("Elsewhere", "", PROMPT.id))
    await skill_store.add_suggestion(Suggestion("From nowhere"))
    idea = Suggestion("Gardening", "Plants", keywords=("plant", "größe"), examples=("water it",))
    await skill_store.save_classifications(
        [
            ClassificationRecord(
                READ.id, "first", (Assignment("a", 0.9, True, Origin.LLM), Assignment("b", 0.5, False, Origin.LLM))
            ),
            ClassificationRecord(WRITE.id, "first", suggestion=idea),
        ]
    )
    read, write = await get_fingerprint(item_store, READ), await get_fingerprint(item_store, WRITE)
    assert [(a.skill_id, a.origin) for a in read.assignments] == [("a", Origin.LLM), ("b", Origin.LLM)]
    assert (read.classified, write.classified, (await get_fingerprint(item_store, PROMPT)).classified) == (
        "first",
        "first",
        "",
    )
    assert await list_pending(skill_store) == [
        ("Elsewhere", PROMPT.id),
        ("From nowhere", None),
        ("Gardening", WRITE.id),
    ]
    kept = (await skill_store.list_suggestions(PENDING))[2]
    assert (kept.description, kept.keywords, kept.examples) == ("Plants", ("plant", "größe"), ("water it",))

    await skill_store.save_classifications(
        [
            ClassificationRecord(READ.id, "second"),
            ClassificationRecord(WRITE.id, "second", (Assignment("b", 0.6, True),)),
        ]
    )
    read, write = await get_fingerprint(item_store, READ), await get_fingerprint(item_store, WRITE)
    assert (read.assignments, read.classified) == ((), "second")
    assert (write.assignments, write.classified) == ((Assignment("b", 0.6, True),), "second")
    assert await list_pending(skill_store) == [("Elsewhere", PROMPT.id), ("From nowhere", None)]


@pytest.mark.req("H-10", "H-11")
async def test_an_assignment_by_a_person_deletes_pending_suggestions(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    await skill_store.save_classifications(
        [ClassificationRecord(i.id, "s", suggestion=Suggestion("New")) for i in (READ, WRITE)]
    )
    await skill_store.assign(READ.id, [Assignment("a", 1.0, True, Origin.HUMAN)])
    assert await list_pending(skill_store) == [("New", WRITE.id)]
    assert (await get_fingerprint(item_store, READ)).classified == "s"
    await skill_store.assign(READ.id, ())
    assert (await get_fingerprint(item_store, READ)).classified == ""


@pytest.mark.req("H-11", "H-14")
async def test_pending_suggestions_of_a_vanished_item_are_deleted(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_classifications(
        [ClassificationRecord(i.id, "s", suggestion=Suggestion("New")) for i in (READ, WRITE)]
    )
    await item_store.deactivate([READ.id])
    assert await list_pending(skill_store) == [("New", WRITE.id)]


@pytest.mark.req("H-11")
async def test_the_number_of_a_deleted_suggestion_is_never_used_again(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS)])
    first = await skill_store.add_suggestion(Suggestion("First", "", READ.id))
    await skill_store.assign(READ.id, ())
    assert (await skill_store.add_suggestion(Suggestion("Second", "", READ.id))).number != first.number


@pytest.mark.req("H-11")
async def test_a_suggestion_made_again_under_the_same_name_keeps_its_number(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_classifications(
        [ClassificationRecord(i.id, "s", suggestion=Suggestion("Gärten")) for i in (READ, WRITE)]
    )
    read, write = await skill_store.list_suggestions(PENDING)
    await skill_store.save_classifications(
        [
            ClassificationRecord(READ.id, "t", suggestion=Suggestion("GÄRTEN")),
            ClassificationRecord(WRITE.id, "t", suggestion=Suggestion("Zoo")),
        ]
    )
    kept, new = await skill_store.list_suggestions(PENDING)
    assert (kept.number, kept.source_item_id) == (read.number, READ.id)
    assert (new.name, new.source_item_id) == ("Zoo", WRITE.id)
    assert new.number != write.number


@pytest.mark.req("H-11")
async def test_a_rejected_suggestion_is_not_made_again_for_the_same_item(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    first = await skill_store.add_suggestion(Suggestion("Gardening", "", READ.id))
    await skill_store.review_suggestion(first.number or 0, SuggestionStatus.REJECTED)
    await skill_store.save_classifications(
        [ClassificationRecord(i.id, "s", suggestion=Suggestion("gardening")) for i in (READ, WRITE)]
    )
    assert await list_pending(skill_store) == [("gardening", WRITE.id)]
    await skill_store.save_classifications([ClassificationRecord(READ.id, "s", suggestion=Suggestion("Reading"))])
    assert await list_pending(skill_store) == [("gardening", WRITE.id), ("Reading", READ.id)]


@pytest.mark.req("H-11")
async def test_an_approved_suggestion_becomes_a_skill_with_its_item_in_one_transaction(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_skills([Skill("taken", "Taken")])
    number = (await skill_store.add_suggestion(Suggestion("Gardening", "Plants", READ.id))).number or 0
    await skill_store.add_suggestion(Suggestion("Another for the same item", "", READ.id))
    with pytest.raises(Conflict, match="'taken' already"):
        await skill_store.review_suggestion(number, SuggestionStatus.APPROVED, into=Skill("taken", "Gardening"))
    with pytest.raises(NotFound, match="'unknown'"):
        await skill_store.review_suggestion(number, SuggestionStatus.MERGED, into="unknown")
    assert [s.name for s in await skill_store.list_skills()] == ["Taken"]
    assert len(await skill_store.list_suggestions(PENDING)) == 2

    decided = await skill_store.review_suggestion(
        number, SuggestionStatus.APPROVED, "ann", into=Skill("gardening", "Gardening")
    )
    assert (decided.status, decided.reviewed_by) == (SuggestionStatus.APPROVED, "ann")
    assert [s.id for s in await skill_store.list_skills()] == ["gardening", "taken"]
    assert (await get_fingerprint(item_store, READ)).assignments == (Assignment("gardening", 1.0, True, Origin.HUMAN),)
    assert await skill_store.list_suggestions(PENDING) == []


@pytest.mark.req("H-11")
async def test_a_merged_suggestion_puts_its_item_into_the_skill(item_store: ItemStore, skill_store: SkillStore) -> None:
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    for source in (READ.id, None):
        made = await skill_store.add_suggestion(Suggestion("Gardening", "Plants", source))
        await skill_store.review_suggestion(made.number or 0, SuggestionStatus.MERGED, into="a")
    assert (await get_fingerprint(item_store, READ)).assignments == (Assignment("a", 1.0, True, Origin.HUMAN),)
    assert [s.status for s in await skill_store.list_suggestions()] == [SuggestionStatus.MERGED] * 2


@pytest.mark.req("H-11")
async def test_only_one_of_several_concurrent_reviews_counts(item_store: ItemStore, skill_store: SkillStore) -> None:
    await item_store.save_items([(READ, TERMS)])
    number = (await skill_store.add_suggestion(Suggestion("Gardening", "", READ.id))).number or 0
    answers = await asyncio.gather(
        *(
            skill_store.review_suggestion(number, SuggestionStatus.APPROVED, f"p{n}", into=Skill(f"s{n}", "S"))
            for n in range(6)
        ),
        return_exceptions=True,
    )
    refused = [a for a in answers if isinstance(a, Conflict)]
    (won,) = [a for a in answers if isinstance(a, Suggestion)]
    assert len(refused) == 5
    assert all("already approved" in r.message for r in refused)
    assert [f"p{s.id[1:]}" for s in await skill_store.list_skills()] == [won.reviewed_by]
