"""What every catalogue store promises: SQLite in a file, SQLite in memory, PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.domain.catalog import (
    Assignment,
    ClassificationRecord,
    Item,
    ItemFingerprint,
    ItemType,
    Origin,
    Skill,
    Suggestion,
    SuggestionStatus,
)
from toolscript.domain.errors import Conflict, Invalid, NotFound
from toolscript.ports.stores import ItemStore, SkillStore

pytestmark = pytest.mark.req("X-02", "H-15")

READ = Item(
    "files",
    "read",
    "Read a file",
    input_schema={"type": "object", "properties": {"z": {}, "a": {"enum": [1, None, "x"]}}, "required": ["z"]},
    output_schema={"type": "string"},
    annotations={"readOnlyHint": True},
    title="Reader",
)
WRITE = Item("files", "write")
PROMPT = Item("files", "read", "A prompt of the same name", type=ItemType.PROMPT)
TERMS = frozenset({1, 2, 4_000_000})
PENDING = SuggestionStatus.PENDING


@pytest.fixture
def item_store(database: Database) -> ItemStore:
    return SqlItems(database)


@pytest.fixture
def skill_store(database: Database) -> SkillStore:
    return SqlSkills(database)


async def get_fingerprint(item_store: ItemStore, item: Item) -> ItemFingerprint:
    return next(m for m in await item_store.get_fingerprints() if m.id == item.id)


async def pending(skill_store: SkillStore) -> list[tuple[str, str | None]]:
    return [(s.name, s.source_item_id) for s in await skill_store.list_suggestions(PENDING)]


async def test_an_item_comes_back_as_it_was_saved(item_store: ItemStore) -> None:
    await item_store.save_items([(READ, TERMS)])
    (stored,) = await item_store.get_items()
    assert stored.item == READ
    assert list(stored.item.input_schema["properties"]) == ["z", "a"]  # type: ignore[index]
    assert (stored.terms, stored.is_active, stored.assignments) == (TERMS, True, ())


async def test_a_tool_and_a_prompt_may_share_their_name(item_store: ItemStore) -> None:
    await item_store.save_items([(READ, TERMS), (PROMPT, TERMS)])
    assert [s.item for s in await item_store.get_items()] == [PROMPT, READ]


async def test_saving_again_replaces_and_keeps_the_number(item_store: ItemStore) -> None:
    await item_store.save_items([(READ, TERMS)])
    (before,) = await item_store.get_items()
    changed = replace(READ, description="Read it", input_schema=None)
    await item_store.save_items([(changed, frozenset({9}))])
    (after,) = await item_store.get_items()
    assert (after.number, after.item, after.terms) == (before.number, changed, frozenset({9}))


async def test_marks_tell_what_there_is_to_compare_by_server(item_store: ItemStore, skill_store: SkillStore) -> None:
    elsewhere = Item("mail", "send")
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS), (elsewhere, TERMS)])
    await item_store.deactivate([WRITE.id])
    await skill_store.save_skills([Skill("reading", "Reading")])
    await skill_store.assign(READ.id, [Assignment("reading", 0.9, True)])
    numbers = {s.item.id: s.number for s in await item_store.get_items(active_only=False)}
    marks = await item_store.get_fingerprints(["files"])
    assert [(m.id, m.server, m.number, m.digest, m.is_active) for m in marks] == [
        (READ.id, "files", numbers[READ.id], READ.digest, True),
        (WRITE.id, "files", numbers[WRITE.id], WRITE.digest, False),
    ]
    assert marks[0].assignments == (Assignment("reading", 0.9, True),)
    assert [m.id for m in await item_store.get_fingerprints()] == sorted([READ.id, WRITE.id, elsewhere.id])
    assert await item_store.get_fingerprints([]) == []


async def test_a_vanished_item_is_kept_inactive_until_it_returns(item_store: ItemStore) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await item_store.deactivate([READ.id, "files__nothing"])
    assert [s.item for s in await item_store.get_items()] == [WRITE]
    assert [s.is_active for s in await item_store.get_items(active_only=False)] == [False, True]
    await item_store.save_items([(READ, TERMS)])
    assert [s.item for s in await item_store.get_items()] == [READ, WRITE]


async def test_schemas_are_told_of_the_active_items_that_are_named(item_store: ItemStore) -> None:
    """H-05."""
    whole = Item("s", "whole", input_schema={"z": 1, "a": [2]}, output_schema={"b": {}}, annotations={"readOnly": True})
    bare, gone, other = Item("s", "bare"), Item("s", "gone", input_schema={}), Item("s", "other")
    await item_store.save_items([(item, TERMS) for item in (whole, bare, gone, other)])
    await item_store.deactivate([gone.id])
    found = await item_store.get_schemas([bare.id, "unknown", gone.id, whole.id])
    assert found == {
        bare.id: (None, None, None),
        whole.id: (whole.input_schema, whole.output_schema, whole.annotations),
    }
    assert list(found[whole.id][0] or ()) == ["z", "a"]
    assert await item_store.get_schemas([]) == {}


async def test_items_can_be_asked_for_by_id_in_any_number(item_store: ItemStore) -> None:
    many = [Item("bulk", f"tool{n:05d}") for n in range(5000)]
    await item_store.save_items([(item, frozenset({n})) for n, item in enumerate(many)])
    asked = [item.id for item in many[:4000]]
    assert [s.item.id for s in await item_store.get_items([*asked, "unknown"])] == asked
    assert await item_store.get_items([]) == []


async def test_term_counts_follow_the_active_items(item_store: ItemStore) -> None:
    await item_store.save_items([(READ, frozenset({1, 2})), (WRITE, frozenset({2, 3}))])
    counts = await item_store.count_terms([1, 2, 3, 4])
    assert (counts.documents, counts.documents_with_term) == (2, {1: 1, 2: 2, 3: 1})
    await item_store.save_items([(READ, frozenset({3}))])
    assert (await item_store.count_terms([1, 2, 3])).documents_with_term == {2: 1, 3: 2}
    await item_store.deactivate([WRITE.id])
    await item_store.deactivate([WRITE.id])
    counts = await item_store.count_terms([1, 2, 3])
    assert (counts.documents, counts.documents_with_term) == (1, {3: 1})


async def test_an_empty_catalogue_counts_nothing(item_store: ItemStore) -> None:
    counts = await item_store.count_terms([1])
    assert (counts.documents, counts.documents_with_term) == (0, {})


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


async def test_assignments_are_replaced_and_go_with_their_skill(item_store: ItemStore, skill_store: SkillStore) -> None:
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
async def test_when_the_primary_skill_of_an_item_goes_the_surest_of_the_others_takes_its_place(
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


async def test_an_assignment_to_nothing_changes_nothing(item_store: ItemStore, skill_store: SkillStore) -> None:
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    await skill_store.assign(READ.id, [Assignment("a", 0.7)])
    with pytest.raises(NotFound, match=r"'invented'.*list of skills"):
        await skill_store.assign(READ.id, [Assignment("a", 0.9), Assignment("invented", 0.9)])
    with pytest.raises(NotFound, match=r"'files__nobody'.*lists of tools"):
        await skill_store.assign("files__nobody", [Assignment("a", 0.9)])
    assert (await item_store.get_items())[0].assignments == (Assignment("a", 0.7),)


async def test_suggestions_wait_for_a_person(item_store: ItemStore, skill_store: SkillStore) -> None:
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


async def test_writers_at_once_lose_nothing(item_store: ItemStore) -> None:
    async def save(n: int) -> None:
        await item_store.save_items([(Item("many", f"t{n}"), frozenset({7, n + 100}))])

    await asyncio.gather(*(save(n) for n in range(40)))
    counts = await item_store.count_terms([7])
    assert (counts.documents, counts.documents_with_term) == (40, {7: 40})
    assert len(await item_store.get_items()) == 40


async def test_a_store_that_answers_says_so(item_store: ItemStore) -> None:
    await item_store.ping()


async def test_writers_of_the_same_items_count_them_once(item_store: ItemStore) -> None:
    items = [(Item("many", f"t{n:02d}"), frozenset({7, n + 100})) for n in range(30)]
    await asyncio.gather(*(item_store.save_items(items if n % 2 else items[::-1]) for n in range(12)))
    counts = await item_store.count_terms([7, 100])
    assert (counts.documents, counts.documents_with_term) == (30, {7: 30, 100: 1})


@pytest.mark.req("X-03")
async def test_a_value_that_breaks_a_rule_is_refused_and_nothing_is_lost(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    with pytest.raises(Invalid, match="rejects"):
        await skill_store.assign(READ.id, [Assignment("a", 0.9), Assignment("a", 0.8)])
    assert [s.item for s in await item_store.get_items()] == [READ]


async def test_the_size_of_definitions_counts_the_characters_of_what_is_active(item_store: ItemStore) -> None:
    assert await item_store.count_definition_characters() == 0
    item = Item("s", "größe", "Größe 尺寸", input_schema={"äöü": "尺"}, output_schema={"a": 1}, annotations={"b": 2})
    await item_store.save_items([(item, TERMS)])
    assert await item_store.count_definition_characters() == len("größe") + len("Größe 尺寸") + len(
        '{"äöü": "尺"}'
    ) + len('{"a": 1}')
    await item_store.save_items([(WRITE, TERMS)])
    await item_store.deactivate([item.id])
    assert await item_store.count_definition_characters() == len("write")


@pytest.mark.req("H-09")
async def test_a_seed_is_planted_once_and_takes_its_own_skills_back(
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
async def test_a_seed_that_lacks_a_skill_leaves_what_people_have_put_into_it(
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
async def test_a_seeded_skill_that_a_person_has_removed_does_not_come_back(
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
async def test_a_skill_that_a_seed_itself_took_back_or_that_was_never_its_own_may_come_with_a_later_one(
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
async def test_a_skill_that_was_removed_and_made_anew_is_no_longer_the_seeds(skill_store: SkillStore) -> None:
    await skill_store.seed_skills("one", [Skill("a", "A")])
    await skill_store.delete_skill("a")
    await skill_store.save_skills([Skill("a", "Mine")])
    await skill_store.seed_skills("two", [])
    assert await skill_store.list_skills() == [Skill("a", "Mine")]


@pytest.mark.req("H-09")
async def test_items_of_a_skill_come_surest_first_and_are_counted(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(item, TERMS) for item in (READ, WRITE, PROMPT)])
    await skill_store.save_skills([Skill("a", "A"), Skill("b", "B"), Skill("empty", "Empty")])
    await skill_store.assign(READ.id, [Assignment("a", 0.7), Assignment("b", 0.9, True)])
    await skill_store.assign(WRITE.id, [Assignment("a", 0.8, True)])
    await skill_store.assign(PROMPT.id, [Assignment("a", 0.7, True)])
    found = await item_store.get_items_of_skill("a")
    assert [s.item for s in found] == [WRITE, PROMPT, READ]
    assert found[2].assignments == (Assignment("b", 0.9, True), Assignment("a", 0.7))
    assert await skill_store.count_items() == {"a": 3, "b": 1}
    await item_store.deactivate([WRITE.id])
    assert [s.item for s in await item_store.get_items_of_skill("a")] == [PROMPT, READ]
    assert await skill_store.count_items() == {"a": 2, "b": 1}
    assert await item_store.get_items_of_skill("empty") == await item_store.get_items_of_skill("unknown") == []


async def test_of_equally_sure_skills_the_primary_one_comes_first(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_skills([Skill("a", "A"), Skill("b", "B")])
    both = (Assignment("b", 1.0, True, Origin.HUMAN), Assignment("a", 1.0, False, Origin.HUMAN))
    await skill_store.assign(READ.id, both[::-1])
    assert (await item_store.get_items())[0].assignments == both


@pytest.mark.req("H-10")
async def test_a_classification_replaces_assignments_stamp_and_what_is_pending(
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
    assert await pending(skill_store) == [("Elsewhere", PROMPT.id), ("From nowhere", None), ("Gardening", WRITE.id)]
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
    assert await pending(skill_store) == [("Elsewhere", PROMPT.id), ("From nowhere", None)]


@pytest.mark.req("H-10")
async def test_what_is_gone_meanwhile_is_left_out_of_a_classification(
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
    assert await pending(skill_store) == []
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
    assert [source for _, source in await pending(skill_store)] == [item.id for item in many[300:]]


@pytest.mark.req("H-14")
async def test_saving_an_item_again_leaves_what_was_decided_of_it(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    await skill_store.save_classifications(
        [ClassificationRecord(READ.id, "stamp", (Assignment("a", 0.9, True),), Suggestion("Another"))]
    )
    await item_store.save_items([(replace(READ, description="Changed"), TERMS)])
    mark = await get_fingerprint(item_store, READ)
    assert (mark.classified, mark.assignments) == ("stamp", (Assignment("a", 0.9, True),))
    assert await pending(skill_store) == [("Another", READ.id)]


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
    assert await pending(skill_store) == [("Gardening", WRITE.id)]


async def test_marks_can_be_asked_for_by_id(item_store: ItemStore, skill_store: SkillStore) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    await skill_store.assign(WRITE.id, [Assignment("a", 0.9, True)])
    (mark,) = await item_store.get_fingerprints(item_ids=[WRITE.id, "files__never"])
    assert mark == await get_fingerprint(item_store, WRITE)
    assert await item_store.get_fingerprints(item_ids=[]) == []


@pytest.mark.req("H-10", "H-11")
async def test_a_person_who_assigns_an_item_settles_what_was_pending_for_it(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    await skill_store.save_classifications(
        [ClassificationRecord(i.id, "s", suggestion=Suggestion("New")) for i in (READ, WRITE)]
    )
    await skill_store.assign(READ.id, [Assignment("a", 1.0, True, Origin.HUMAN)])
    assert await pending(skill_store) == [("New", WRITE.id)]
    assert (await get_fingerprint(item_store, READ)).classified == "s"
    await skill_store.assign(READ.id, ())
    assert (await get_fingerprint(item_store, READ)).classified == ""


@pytest.mark.req("H-11", "H-14")
async def test_what_is_pending_for_a_vanished_item_is_withdrawn(item_store: ItemStore, skill_store: SkillStore) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_classifications(
        [ClassificationRecord(i.id, "s", suggestion=Suggestion("New")) for i in (READ, WRITE)]
    )
    await item_store.deactivate([READ.id])
    assert await pending(skill_store) == [("New", WRITE.id)]


@pytest.mark.req("H-11")
async def test_the_number_of_a_withdrawn_suggestion_never_names_another(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS)])
    first = await skill_store.add_suggestion(Suggestion("First", "", READ.id))
    await skill_store.assign(READ.id, ())
    assert (await skill_store.add_suggestion(Suggestion("Second", "", READ.id))).number != first.number


@pytest.mark.req("H-11")
async def test_what_is_suggested_again_under_the_same_name_keeps_its_number(
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
async def test_what_a_person_has_rejected_does_not_come_back_for_the_same_item(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    first = await skill_store.add_suggestion(Suggestion("Gardening", "", READ.id))
    await skill_store.review_suggestion(first.number or 0, SuggestionStatus.REJECTED)
    await skill_store.save_classifications(
        [ClassificationRecord(i.id, "s", suggestion=Suggestion("gardening")) for i in (READ, WRITE)]
    )
    assert await pending(skill_store) == [("gardening", WRITE.id)]
    await skill_store.save_classifications([ClassificationRecord(READ.id, "s", suggestion=Suggestion("Reading"))])
    assert await pending(skill_store) == [("gardening", WRITE.id), ("Reading", READ.id)]


@pytest.mark.req("H-11")
async def test_an_approved_suggestion_becomes_a_skill_with_its_item_in_one_go(
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
async def test_only_one_of_several_reviews_at_once_counts(item_store: ItemStore, skill_store: SkillStore) -> None:
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
    assert all("approved already" in r.message for r in refused)
    assert [f"p{s.id[1:]}" for s in await skill_store.list_skills()] == [won.reviewed_by]


@pytest.mark.req("H-10", "H-14")
async def test_writers_of_skills_and_items_at_once_take_turns(item_store: ItemStore, skill_store: SkillStore) -> None:
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
    marks = await item_store.get_fingerprints()
    assert all(len(m.assignments) == 1 for m in marks)
    assert len(await skill_store.list_suggestions(PENDING)) <= len(items)
