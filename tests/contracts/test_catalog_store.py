"""What every catalogue store promises: SQLite in a file, SQLite in memory, PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from toolscript.adapters.sql.catalog import SqlCatalog
from toolscript.adapters.sql.database import Database
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
from toolscript.ports.stores import CatalogStore

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
def catalog(database: Database) -> CatalogStore:
    return SqlCatalog(database)


async def marked(catalog: CatalogStore, item: Item) -> ItemFingerprint:
    return next(m for m in await catalog.marks() if m.id == item.id)


async def pending(catalog: CatalogStore) -> list[tuple[str, str | None]]:
    return [(s.name, s.source_item_id) for s in await catalog.suggestions(PENDING)]


async def test_an_item_comes_back_as_it_was_saved(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    (stored,) = await catalog.items()
    assert stored.item == READ
    assert list(stored.item.input_schema["properties"]) == ["z", "a"]  # type: ignore[index]
    assert (stored.terms, stored.is_active, stored.assignments) == (TERMS, True, ())


async def test_a_tool_and_a_prompt_may_share_their_name(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (PROMPT, TERMS)])
    assert [s.item for s in await catalog.items()] == [PROMPT, READ]


async def test_saving_again_replaces_and_keeps_the_number(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    (before,) = await catalog.items()
    changed = replace(READ, description="Read it", input_schema=None)
    await catalog.save_items([(changed, frozenset({9}))])
    (after,) = await catalog.items()
    assert (after.number, after.item, after.terms) == (before.number, changed, frozenset({9}))


async def test_marks_tell_what_there_is_to_compare_by_server(catalog: CatalogStore) -> None:
    elsewhere = Item("mail", "send")
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS), (elsewhere, TERMS)])
    await catalog.deactivate([WRITE.id])
    await catalog.save_skills([Skill("reading", "Reading")])
    await catalog.assign(READ.id, [Assignment("reading", 0.9, True)])
    numbers = {s.item.id: s.number for s in await catalog.items(active_only=False)}
    marks = await catalog.marks(["files"])
    assert [(m.id, m.server, m.number, m.digest, m.is_active) for m in marks] == [
        (READ.id, "files", numbers[READ.id], READ.digest, True),
        (WRITE.id, "files", numbers[WRITE.id], WRITE.digest, False),
    ]
    assert marks[0].assignments == (Assignment("reading", 0.9, True),)
    assert [m.id for m in await catalog.marks()] == sorted([READ.id, WRITE.id, elsewhere.id])
    assert await catalog.marks([]) == []


async def test_a_vanished_item_is_kept_inactive_until_it_returns(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    await catalog.deactivate([READ.id, "files__nothing"])
    assert [s.item for s in await catalog.items()] == [WRITE]
    assert [s.is_active for s in await catalog.items(active_only=False)] == [False, True]
    await catalog.save_items([(READ, TERMS)])
    assert [s.item for s in await catalog.items()] == [READ, WRITE]


async def test_schemas_are_told_of_the_active_items_that_are_named(catalog: CatalogStore) -> None:
    """H-05."""
    whole = Item("s", "whole", input_schema={"z": 1, "a": [2]}, output_schema={"b": {}}, annotations={"readOnly": True})
    bare, gone, other = Item("s", "bare"), Item("s", "gone", input_schema={}), Item("s", "other")
    await catalog.save_items([(item, TERMS) for item in (whole, bare, gone, other)])
    await catalog.deactivate([gone.id])
    found = await catalog.schemas([bare.id, "unknown", gone.id, whole.id])
    assert found == {
        bare.id: (None, None, None),
        whole.id: (whole.input_schema, whole.output_schema, whole.annotations),
    }
    assert list(found[whole.id][0] or ()) == ["z", "a"]
    assert await catalog.schemas([]) == {}


async def test_schemas_can_be_read_a_few_at_a_time(catalog: CatalogStore) -> None:
    """In the order of code points, wherever capitals and letters of other languages stand; vanished items are left
    out."""
    items = [Item("s", name, input_schema={"name": name}) for name in ("b", "B", "ä", "_", "a", "gone", "Z", "z")]
    await catalog.save_items([(item, TERMS) for item in items])
    await catalog.deactivate(["s__gone"])
    read: list[str] = []
    last = ""
    while page := await catalog.schemas_after(last, 3):
        assert len(page) <= 3
        assert all(schemas == ({"name": i.removeprefix("s__")}, None, None) for i, schemas in page.items())
        read += page
        last = read[-1]
    assert read == sorted(i.id for i in items if i.name != "gone")


async def test_items_can_be_asked_for_by_id_in_any_number(catalog: CatalogStore) -> None:
    many = [Item("bulk", f"tool{n:05d}") for n in range(5000)]
    await catalog.save_items([(item, frozenset({n})) for n, item in enumerate(many)])
    asked = [item.id for item in many[:4000]]
    assert [s.item.id for s in await catalog.items([*asked, "unknown"])] == asked
    assert await catalog.items([]) == []


async def test_term_counts_follow_the_active_items(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, frozenset({1, 2})), (WRITE, frozenset({2, 3}))])
    counts = await catalog.term_counts([1, 2, 3, 4])
    assert (counts.documents, counts.documents_with_term) == (2, {1: 1, 2: 2, 3: 1})
    await catalog.save_items([(READ, frozenset({3}))])
    assert (await catalog.term_counts([1, 2, 3])).documents_with_term == {2: 1, 3: 2}
    await catalog.deactivate([WRITE.id])
    await catalog.deactivate([WRITE.id])
    counts = await catalog.term_counts([1, 2, 3])
    assert (counts.documents, counts.documents_with_term) == (1, {3: 1})


async def test_an_empty_catalogue_counts_nothing(catalog: CatalogStore) -> None:
    counts = await catalog.term_counts([1])
    assert (counts.documents, counts.documents_with_term) == (0, {})


async def test_skills_are_saved_changed_and_removed(catalog: CatalogStore) -> None:
    skill = Skill("files", "Files", "Reading and writing", "system", ("file", "größe"), ("read",))
    hidden = Skill("hidden", "Hidden", is_active=False)
    await catalog.save_skills([skill, hidden])
    assert await catalog.skills() == [skill]
    assert await catalog.skills(active_only=False) == [skill, hidden]
    await catalog.save_skills([replace(skill, name="All files", keywords=())])
    assert (await catalog.skills())[0] == replace(skill, name="All files", keywords=())
    await catalog.delete_skill("files")
    assert await catalog.skills() == []
    with pytest.raises(NotFound, match=r"'files'.*list of skills"):
        await catalog.delete_skill("files")


async def test_assignments_are_replaced_and_go_with_their_skill(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    await catalog.save_skills([Skill("a", "A"), Skill("b", "B")])
    first = (Assignment("b", 0.9, True, Origin.HUMAN), Assignment("a", 0.6))
    await catalog.assign(READ.id, first)
    assert (await catalog.items([READ.id]))[0].assignments == first
    await catalog.delete_skill("b")
    assert (await catalog.items())[0].assignments == (Assignment("a", 0.6, True),)
    await catalog.assign(READ.id, ())
    assert (await catalog.items())[0].assignments == ()


@pytest.mark.req("H-09")
async def test_when_the_primary_skill_of_an_item_goes_the_surest_of_the_others_takes_its_place(
    catalog: CatalogStore,
) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    await catalog.save_skills([Skill(i, i) for i in "abcd"])
    human = Origin.HUMAN
    await catalog.assign(READ.id, [Assignment("d", 1.0, True, human), Assignment("c", 0.8, False, human)])
    equal = [Assignment("d", 1.0, True, human), Assignment("c", 0.8, False, human), Assignment("b", 0.8, False, human)]
    await catalog.assign(WRITE.id, equal)
    await catalog.delete_skill("d")
    assert (await marked(catalog, READ)).assignments == (Assignment("c", 0.8, True, human),)
    assert [(a.skill_id, a.is_primary) for a in (await marked(catalog, WRITE)).assignments] == [
        ("b", True),
        ("c", False),
    ]
    await catalog.delete_skill("c")
    assert [(a.skill_id, a.is_primary) for a in (await marked(catalog, WRITE)).assignments] == [("b", True)]


async def test_an_assignment_to_nothing_changes_nothing(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    await catalog.save_skills([Skill("a", "A")])
    await catalog.assign(READ.id, [Assignment("a", 0.7)])
    with pytest.raises(NotFound, match=r"'invented'.*list of skills"):
        await catalog.assign(READ.id, [Assignment("a", 0.9), Assignment("invented", 0.9)])
    with pytest.raises(NotFound, match=r"'files__nobody'.*lists of tools"):
        await catalog.assign("files__nobody", [Assignment("a", 0.9)])
    assert (await catalog.items())[0].assignments == (Assignment("a", 0.7),)


async def test_suggestions_wait_for_a_person(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    first = await catalog.suggest(Suggestion("Gardening", "Plants", READ.id))
    second = await catalog.suggest(Suggestion("Cooking"))
    assert [s.name for s in await catalog.suggestions(SuggestionStatus.PENDING)] == ["Gardening", "Cooking"]
    assert first.source_item_id == READ.id
    decided = await catalog.review(second.number or 0, SuggestionStatus.REJECTED, "ann")
    assert (decided.status, decided.reviewed_by) == (SuggestionStatus.REJECTED, "ann")
    assert [s.name for s in await catalog.suggestions(SuggestionStatus.PENDING)] == ["Gardening"]
    assert len(await catalog.suggestions()) == 2
    with pytest.raises(NotFound, match=r"999.*list of suggestions"):
        await catalog.review(999, SuggestionStatus.APPROVED)


async def test_writers_at_once_lose_nothing(catalog: CatalogStore) -> None:
    async def save(n: int) -> None:
        await catalog.save_items([(Item("many", f"t{n}"), frozenset({7, n + 100}))])

    await asyncio.gather(*(save(n) for n in range(40)))
    counts = await catalog.term_counts([7])
    assert (counts.documents, counts.documents_with_term) == (40, {7: 40})
    assert len(await catalog.items()) == 40


async def test_a_store_that_answers_says_so(catalog: CatalogStore) -> None:
    await catalog.ping()


async def test_writers_of_the_same_items_count_them_once(catalog: CatalogStore) -> None:
    items = [(Item("many", f"t{n:02d}"), frozenset({7, n + 100})) for n in range(30)]
    await asyncio.gather(*(catalog.save_items(items if n % 2 else items[::-1]) for n in range(12)))
    counts = await catalog.term_counts([7, 100])
    assert (counts.documents, counts.documents_with_term) == (30, {7: 30, 100: 1})


@pytest.mark.req("X-03")
async def test_a_value_that_breaks_a_rule_is_refused_and_nothing_is_lost(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    await catalog.save_skills([Skill("a", "A")])
    with pytest.raises(Invalid, match="refuses"):
        await catalog.assign(READ.id, [Assignment("a", 0.9), Assignment("a", 0.8)])
    assert [s.item for s in await catalog.items()] == [READ]


async def test_the_size_of_definitions_counts_the_characters_of_what_is_active(catalog: CatalogStore) -> None:
    assert await catalog.size_of_definitions() == 0
    item = Item("s", "größe", "Größe 尺寸", input_schema={"äöü": "尺"}, output_schema={"a": 1}, annotations={"b": 2})
    await catalog.save_items([(item, TERMS)])
    assert await catalog.size_of_definitions() == len("größe") + len("Größe 尺寸") + len('{"äöü": "尺"}') + len(
        '{"a": 1}'
    )
    await catalog.save_items([(WRITE, TERMS)])
    await catalog.deactivate([item.id])
    assert await catalog.size_of_definitions() == len("write")


@pytest.mark.req("H-09")
async def test_a_seed_is_planted_once_and_takes_its_own_skills_back(catalog: CatalogStore) -> None:
    mine = Skill("mine", "Mine")
    await catalog.save_skills([mine])
    assert await catalog.seed_skills("one", [Skill("a", "A"), Skill("b", "B")])
    await catalog.save_items([(READ, TERMS)])
    await catalog.classify([ClassificationRecord(READ.id, "stamp", (Assignment("a", 0.9, True),))])
    await catalog.save_skills([Skill("b", "B, as a person likes it")])
    assert not await catalog.seed_skills("one", [Skill("a", "A"), Skill("b", "B")])
    assert [s.name for s in await catalog.skills()] == ["A", "B, as a person likes it", "Mine"]

    assert await catalog.seed_skills("two", [Skill("b", "B"), Skill("c", "C"), Skill("mine", "The seed's")])
    persons = Skill("b", "B, as a person likes it")
    assert await catalog.skills() == [persons, Skill("c", "C"), mine]
    assert ((await marked(catalog, READ)).assignments, (await marked(catalog, READ)).classified) == ((), "")
    assert await catalog.seed_skills("one", [])
    assert await catalog.skills() == [persons, mine]
    assert not await catalog.seed_skills("one", [])


@pytest.mark.req("H-09")
async def test_a_seed_that_lacks_a_skill_leaves_what_people_have_put_into_it(catalog: CatalogStore) -> None:
    await catalog.seed_skills("one", [Skill("a", "A"), Skill("b", "B")])
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    human, found = Assignment("a", 1.0, True, Origin.HUMAN), Assignment("a", 0.9, True)
    await catalog.assign(READ.id, [human])
    await catalog.classify([ClassificationRecord(WRITE.id, "stamp", (found,))])
    await catalog.seed_skills("two", [])
    assert await catalog.skills() == []
    assert await catalog.skills(active_only=False) == [Skill("a", "A", is_active=False)]
    assert (await marked(catalog, READ)).assignments == (human,)
    assert (await marked(catalog, WRITE)).classified == ""
    await catalog.seed_skills("three", [Skill("a", "A, again")])
    assert await catalog.skills() == [Skill("a", "A, again")]
    assert (await marked(catalog, READ)).assignments == (human,)
    await catalog.assign(READ.id, [])
    await catalog.seed_skills("four", [])
    assert await catalog.skills(active_only=False) == []


@pytest.mark.req("H-09")
@pytest.mark.parametrize("edited_before", [False, True])
async def test_a_seeded_skill_that_a_person_has_removed_does_not_come_back(
    catalog: CatalogStore, edited_before: bool
) -> None:
    await catalog.seed_skills("one", [Skill("a", "A"), Skill("b", "B")])
    if edited_before:
        await catalog.save_skills([Skill("a", "Mine")])
    await catalog.delete_skill("a")
    await catalog.seed_skills("two", [Skill("a", "A2"), Skill("b", "B2")])
    await catalog.seed_skills("three", [Skill("b", "B3")])
    await catalog.seed_skills("four", [Skill("a", "A4"), Skill("b", "B4")])
    assert await catalog.skills(active_only=False) == [Skill("b", "B4")]
    await catalog.save_skills([Skill("a", "Made anew")])
    await catalog.seed_skills("five", [Skill("a", "A5")])
    assert await catalog.skills(active_only=False) == [Skill("a", "Made anew")]


@pytest.mark.req("H-09")
async def test_a_skill_that_a_seed_itself_took_back_or_that_was_never_its_own_may_come_with_a_later_one(
    catalog: CatalogStore,
) -> None:
    await catalog.save_skills([Skill("own", "Own")])
    await catalog.delete_skill("own")
    await catalog.seed_skills("one", [Skill("a", "A")])
    await catalog.seed_skills("two", [])
    both = [Skill("a", "A"), Skill("own", "Own")]
    await catalog.seed_skills("three", both)
    assert await catalog.skills() == both


@pytest.mark.req("H-09")
async def test_a_skill_that_was_removed_and_made_anew_is_no_longer_the_seeds(catalog: CatalogStore) -> None:
    await catalog.seed_skills("one", [Skill("a", "A")])
    await catalog.delete_skill("a")
    await catalog.save_skills([Skill("a", "Mine")])
    await catalog.seed_skills("two", [])
    assert await catalog.skills() == [Skill("a", "Mine")]


@pytest.mark.req("H-09")
async def test_items_of_a_skill_come_surest_first_and_are_counted(catalog: CatalogStore) -> None:
    await catalog.save_items([(item, TERMS) for item in (READ, WRITE, PROMPT)])
    await catalog.save_skills([Skill("a", "A"), Skill("b", "B"), Skill("empty", "Empty")])
    await catalog.assign(READ.id, [Assignment("a", 0.7), Assignment("b", 0.9, True)])
    await catalog.assign(WRITE.id, [Assignment("a", 0.8, True)])
    await catalog.assign(PROMPT.id, [Assignment("a", 0.7, True)])
    found = await catalog.items_in("a")
    assert [s.item for s in found] == [WRITE, PROMPT, READ]
    assert found[2].assignments == (Assignment("b", 0.9, True), Assignment("a", 0.7))
    assert await catalog.tool_counts() == {"a": 3, "b": 1}
    await catalog.deactivate([WRITE.id])
    assert [s.item for s in await catalog.items_in("a")] == [PROMPT, READ]
    assert await catalog.tool_counts() == {"a": 2, "b": 1}
    assert await catalog.items_in("empty") == await catalog.items_in("unknown") == []


async def test_of_equally_sure_skills_the_primary_one_comes_first(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    await catalog.save_skills([Skill("a", "A"), Skill("b", "B")])
    both = (Assignment("b", 1.0, True, Origin.HUMAN), Assignment("a", 1.0, False, Origin.HUMAN))
    await catalog.assign(READ.id, both[::-1])
    assert (await catalog.items())[0].assignments == both


@pytest.mark.req("H-10")
async def test_a_classification_replaces_assignments_stamp_and_what_is_pending(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS), (PROMPT, TERMS)])
    await catalog.save_skills([Skill("a", "A"), Skill("b", "B")])
    await catalog.suggest(Suggestion("Old idea", "", READ.id))
    await catalog.suggest(Suggestion("Elsewhere", "", PROMPT.id))
    await catalog.suggest(Suggestion("From nowhere"))
    idea = Suggestion("Gardening", "Plants", keywords=("plant", "größe"), examples=("water it",))
    await catalog.classify(
        [
            ClassificationRecord(
                READ.id, "first", (Assignment("a", 0.9, True, Origin.LLM), Assignment("b", 0.5, False, Origin.LLM))
            ),
            ClassificationRecord(WRITE.id, "first", suggestion=idea),
        ]
    )
    read, write = await marked(catalog, READ), await marked(catalog, WRITE)
    assert [(a.skill_id, a.origin) for a in read.assignments] == [("a", Origin.LLM), ("b", Origin.LLM)]
    assert (read.classified, write.classified, (await marked(catalog, PROMPT)).classified) == ("first", "first", "")
    assert await pending(catalog) == [("Elsewhere", PROMPT.id), ("From nowhere", None), ("Gardening", WRITE.id)]
    kept = (await catalog.suggestions(PENDING))[2]
    assert (kept.description, kept.keywords, kept.examples) == ("Plants", ("plant", "größe"), ("water it",))

    await catalog.classify(
        [
            ClassificationRecord(READ.id, "second"),
            ClassificationRecord(WRITE.id, "second", (Assignment("b", 0.6, True),)),
        ]
    )
    read, write = await marked(catalog, READ), await marked(catalog, WRITE)
    assert (read.assignments, read.classified) == ((), "second")
    assert (write.assignments, write.classified) == ((Assignment("b", 0.6, True),), "second")
    assert await pending(catalog) == [("Elsewhere", PROMPT.id), ("From nowhere", None)]


@pytest.mark.req("H-10")
async def test_what_is_gone_meanwhile_is_left_out_of_a_classification(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    await catalog.save_skills([Skill("a", "A")])
    await catalog.deactivate([WRITE.id])
    sure = (Assignment("a", 0.9, True),)
    await catalog.classify(
        [
            ClassificationRecord(READ.id, "stamp", (*sure, Assignment("gone", 0.8))),
            ClassificationRecord(WRITE.id, "stamp", sure, Suggestion("Nobody's")),
            ClassificationRecord("files__never", "stamp", sure, Suggestion("Nobody's")),
        ]
    )
    read, write = await marked(catalog, READ), await marked(catalog, WRITE)
    assert (read.assignments, read.classified) == (sure, "")
    assert (write.assignments, write.classified) == ((), "")
    assert await pending(catalog) == []
    await catalog.classify([])


@pytest.mark.req("H-10")
async def test_hundreds_of_items_are_classified_at_once(catalog: CatalogStore) -> None:
    many = [Item("bulk", f"tool{n:04d}") for n in range(600)]
    await catalog.save_items([(item, TERMS) for item in many])
    await catalog.save_skills([Skill("a", "A")])
    sure = (Assignment("a", 0.9, True),)
    half = [ClassificationRecord(item.id, "s", sure) for item in many[:300]]
    await catalog.classify(
        [*half, *(ClassificationRecord(item.id, "s", suggestion=Suggestion("New")) for item in many[300:])]
    )
    assert await catalog.tool_counts() == {"a": 300}
    assert {m.classified for m in await catalog.marks()} == {"s"}
    assert [source for _, source in await pending(catalog)] == [item.id for item in many[300:]]


@pytest.mark.req("H-14")
async def test_saving_an_item_again_leaves_what_was_decided_of_it(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    await catalog.save_skills([Skill("a", "A")])
    await catalog.classify(
        [ClassificationRecord(READ.id, "stamp", (Assignment("a", 0.9, True),), Suggestion("Another"))]
    )
    await catalog.save_items([(replace(READ, description="Changed"), TERMS)])
    mark = await marked(catalog, READ)
    assert (mark.classified, mark.assignments) == ("stamp", (Assignment("a", 0.9, True),))
    assert await pending(catalog) == [("Another", READ.id)]


@pytest.mark.req("H-09")
async def test_items_of_a_removed_skill_count_as_not_classified(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    await catalog.save_skills([Skill("a", "A"), Skill("b", "B")])
    both = (Assignment("a", 0.9, True), Assignment("b", 0.8))
    await catalog.classify([ClassificationRecord(READ.id, "s", both), ClassificationRecord(WRITE.id, "s", both[:1])])
    await catalog.delete_skill("b")
    read, write = await marked(catalog, READ), await marked(catalog, WRITE)
    assert (read.assignments, read.classified) == (both[:1], "")
    assert (write.assignments, write.classified) == (both[:1], "s")


@pytest.mark.req("H-09", "H-14")
async def test_items_of_a_skill_that_is_made_inactive_count_as_not_classified(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    await catalog.save_skills([Skill("a", "A"), Skill("b", "B")])
    await catalog.classify(
        [
            ClassificationRecord(READ.id, "s", (Assignment("a", 0.9, True), Assignment("b", 0.8))),
            ClassificationRecord(WRITE.id, "s", (Assignment("a", 0.9, True),)),
        ]
    )
    await catalog.save_skills([Skill("a", "Another name"), Skill("b", "B", is_active=False)])
    assert [(await marked(catalog, item)).classified for item in (READ, WRITE)] == ["", "s"]


@pytest.mark.req("H-10")
async def test_a_stamp_is_replaced_only_where_it_is_still_the_same(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    await catalog.save_skills([Skill("a", "A")])
    sure = (Assignment("a", 0.9, True),)
    idea = Suggestion("Gardening")
    await catalog.classify(
        [ClassificationRecord(READ.id, "old", sure), ClassificationRecord(WRITE.id, "new", suggestion=idea)]
    )
    await catalog.stamp({READ.id: ("old", "newer"), WRITE.id: ("old", "newer"), "files__never": ("", "newer")})
    read, write = await marked(catalog, READ), await marked(catalog, WRITE)
    assert (read.classified, read.assignments, write.classified) == ("newer", sure, "new")
    assert await pending(catalog) == [("Gardening", WRITE.id)]


async def test_marks_can_be_asked_for_by_id(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    await catalog.save_skills([Skill("a", "A")])
    await catalog.assign(WRITE.id, [Assignment("a", 0.9, True)])
    (mark,) = await catalog.marks(item_ids=[WRITE.id, "files__never"])
    assert mark == await marked(catalog, WRITE)
    assert await catalog.marks(item_ids=[]) == []


@pytest.mark.req("H-10", "H-11")
async def test_a_person_who_assigns_an_item_settles_what_was_pending_for_it(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    await catalog.save_skills([Skill("a", "A")])
    await catalog.classify([ClassificationRecord(i.id, "s", suggestion=Suggestion("New")) for i in (READ, WRITE)])
    await catalog.assign(READ.id, [Assignment("a", 1.0, True, Origin.HUMAN)])
    assert await pending(catalog) == [("New", WRITE.id)]
    assert (await marked(catalog, READ)).classified == "s"
    await catalog.assign(READ.id, ())
    assert (await marked(catalog, READ)).classified == ""


@pytest.mark.req("H-11", "H-14")
async def test_what_is_pending_for_a_vanished_item_is_withdrawn(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    await catalog.classify([ClassificationRecord(i.id, "s", suggestion=Suggestion("New")) for i in (READ, WRITE)])
    await catalog.deactivate([READ.id])
    assert await pending(catalog) == [("New", WRITE.id)]


@pytest.mark.req("H-11")
async def test_the_number_of_a_withdrawn_suggestion_never_names_another(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    first = await catalog.suggest(Suggestion("First", "", READ.id))
    await catalog.assign(READ.id, ())
    assert (await catalog.suggest(Suggestion("Second", "", READ.id))).number != first.number


@pytest.mark.req("H-11")
async def test_what_is_suggested_again_under_the_same_name_keeps_its_number(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    await catalog.classify([ClassificationRecord(i.id, "s", suggestion=Suggestion("Gärten")) for i in (READ, WRITE)])
    read, write = await catalog.suggestions(PENDING)
    await catalog.classify(
        [
            ClassificationRecord(READ.id, "t", suggestion=Suggestion("GÄRTEN")),
            ClassificationRecord(WRITE.id, "t", suggestion=Suggestion("Zoo")),
        ]
    )
    kept, new = await catalog.suggestions(PENDING)
    assert (kept.number, kept.source_item_id) == (read.number, READ.id)
    assert (new.name, new.source_item_id) == ("Zoo", WRITE.id)
    assert new.number != write.number


@pytest.mark.req("H-11")
async def test_what_a_person_has_rejected_does_not_come_back_for_the_same_item(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS), (WRITE, TERMS)])
    first = await catalog.suggest(Suggestion("Gardening", "", READ.id))
    await catalog.review(first.number or 0, SuggestionStatus.REJECTED)
    await catalog.classify([ClassificationRecord(i.id, "s", suggestion=Suggestion("gardening")) for i in (READ, WRITE)])
    assert await pending(catalog) == [("gardening", WRITE.id)]
    await catalog.classify([ClassificationRecord(READ.id, "s", suggestion=Suggestion("Reading"))])
    assert await pending(catalog) == [("gardening", WRITE.id), ("Reading", READ.id)]


@pytest.mark.req("H-11")
async def test_an_approved_suggestion_becomes_a_skill_with_its_item_in_one_go(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    await catalog.save_skills([Skill("taken", "Taken")])
    number = (await catalog.suggest(Suggestion("Gardening", "Plants", READ.id))).number or 0
    await catalog.suggest(Suggestion("Another for the same item", "", READ.id))
    with pytest.raises(Conflict, match="'taken' already"):
        await catalog.review(number, SuggestionStatus.APPROVED, into=Skill("taken", "Gardening"))
    with pytest.raises(NotFound, match="'unknown'"):
        await catalog.review(number, SuggestionStatus.MERGED, into="unknown")
    assert [s.name for s in await catalog.skills()] == ["Taken"]
    assert len(await catalog.suggestions(PENDING)) == 2

    decided = await catalog.review(number, SuggestionStatus.APPROVED, "ann", into=Skill("gardening", "Gardening"))
    assert (decided.status, decided.reviewed_by) == (SuggestionStatus.APPROVED, "ann")
    assert [s.id for s in await catalog.skills()] == ["gardening", "taken"]
    assert (await marked(catalog, READ)).assignments == (Assignment("gardening", 1.0, True, Origin.HUMAN),)
    assert await catalog.suggestions(PENDING) == []


@pytest.mark.req("H-11")
async def test_a_merged_suggestion_puts_its_item_into_the_skill(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    await catalog.save_skills([Skill("a", "A")])
    for source in (READ.id, None):
        made = await catalog.suggest(Suggestion("Gardening", "Plants", source))
        await catalog.review(made.number or 0, SuggestionStatus.MERGED, into="a")
    assert (await marked(catalog, READ)).assignments == (Assignment("a", 1.0, True, Origin.HUMAN),)
    assert [s.status for s in await catalog.suggestions()] == [SuggestionStatus.MERGED] * 2


@pytest.mark.req("H-11")
async def test_only_one_of_several_reviews_at_once_counts(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    number = (await catalog.suggest(Suggestion("Gardening", "", READ.id))).number or 0
    answers = await asyncio.gather(
        *(catalog.review(number, SuggestionStatus.APPROVED, f"p{n}", into=Skill(f"s{n}", "S")) for n in range(6)),
        return_exceptions=True,
    )
    refused = [a for a in answers if isinstance(a, Conflict)]
    (won,) = [a for a in answers if isinstance(a, Suggestion)]
    assert len(refused) == 5
    assert all("approved already" in r.message for r in refused)
    assert [f"p{s.id[1:]}" for s in await catalog.skills()] == [won.reviewed_by]


@pytest.mark.req("H-10", "H-14")
async def test_writers_of_skills_and_items_at_once_take_turns(catalog: CatalogStore) -> None:
    items = [Item("many", f"t{n:02d}") for n in range(40)]
    skills = [Skill(f"s{n}", "S") for n in range(10)]
    await catalog.save_items([(item, TERMS) for item in items])
    await catalog.save_skills(skills)

    async def write(n: int) -> None:
        turn = 1 if n % 2 else -1
        sure = (Assignment(f"s{n % 9}", 0.9, True),)
        await catalog.save_skills(skills[::turn])
        await catalog.classify([ClassificationRecord(i.id, f"{n}", sure, Suggestion("New")) for i in items[::turn]])
        await catalog.assign(items[n].id, sure)
        await catalog.save_items([(item, TERMS) for item in items[::turn]])

    await asyncio.gather(*(write(n) for n in range(16)), catalog.delete_skill("s9"))
    marks = await catalog.marks()
    assert all(len(m.assignments) == 1 for m in marks)
    assert len(await catalog.suggestions(PENDING)) <= len(items)
