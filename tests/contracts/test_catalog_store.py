"""What every catalogue store promises: SQLite in a file, SQLite in memory, PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from toolscript.adapters.sql_catalog import SqlCatalog
from toolscript.adapters.sql_database import Database
from toolscript.domain.catalog import Assignment, Item, ItemType, Origin, Skill, Suggestion, SuggestionStatus
from toolscript.domain.errors import Invalid, NotFound
from toolscript.ports import CatalogStore

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


@pytest.fixture
def catalog(database: Database) -> CatalogStore:
    return SqlCatalog(database)


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


async def test_items_can_be_asked_for_by_id_in_any_number(catalog: CatalogStore) -> None:
    many = [Item("bulk", f"tool{n:05d}") for n in range(5000)]
    await catalog.save_items([(item, frozenset({n})) for n, item in enumerate(many)])
    asked = [item.id for item in many[:4000]]
    assert [s.item.id for s in await catalog.items([*asked, "unknown"])] == asked
    assert await catalog.items([]) == []


async def test_term_counts_follow_the_active_items(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, frozenset({1, 2})), (WRITE, frozenset({2, 3}))])
    counts = await catalog.term_counts([1, 2, 3, 4])
    assert (counts.documents, counts.holding) == (2, {1: 1, 2: 2, 3: 1})
    await catalog.save_items([(READ, frozenset({3}))])
    assert (await catalog.term_counts([1, 2, 3])).holding == {2: 1, 3: 2}
    await catalog.deactivate([WRITE.id])
    await catalog.deactivate([WRITE.id])
    counts = await catalog.term_counts([1, 2, 3])
    assert (counts.documents, counts.holding) == (1, {3: 1})


async def test_an_empty_catalogue_counts_nothing(catalog: CatalogStore) -> None:
    counts = await catalog.term_counts([1])
    assert (counts.documents, counts.holding) == (0, {})


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
    with pytest.raises(NotFound, match="files"):
        await catalog.delete_skill("files")


async def test_assignments_are_replaced_and_go_with_their_skill(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    await catalog.save_skills([Skill("a", "A"), Skill("b", "B")])
    first = (Assignment("b", 0.9, True, Origin.HUMAN), Assignment("a", 0.6))
    await catalog.assign(READ.id, first)
    assert (await catalog.items([READ.id]))[0].assignments == first
    await catalog.delete_skill("b")
    assert (await catalog.items())[0].assignments == (Assignment("a", 0.6),)
    await catalog.assign(READ.id, ())
    assert (await catalog.items())[0].assignments == ()


async def test_an_assignment_to_nothing_changes_nothing(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    await catalog.save_skills([Skill("a", "A")])
    await catalog.assign(READ.id, [Assignment("a", 0.7)])
    with pytest.raises(NotFound, match="invented"):
        await catalog.assign(READ.id, [Assignment("a", 0.9), Assignment("invented", 0.9)])
    with pytest.raises(NotFound, match="files__nobody"):
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
    with pytest.raises(NotFound, match="999"):
        await catalog.review(999, SuggestionStatus.APPROVED)


async def test_writers_at_once_lose_nothing(catalog: CatalogStore) -> None:
    async def save(n: int) -> None:
        await catalog.save_items([(Item("many", f"t{n}"), frozenset({7, n + 100}))])

    await asyncio.gather(*(save(n) for n in range(40)))
    counts = await catalog.term_counts([7])
    assert (counts.documents, counts.holding) == (40, {7: 40})
    assert len(await catalog.items()) == 40


async def test_a_store_that_answers_says_so(catalog: CatalogStore) -> None:
    await catalog.ping()


async def test_writers_of_the_same_items_count_them_once(catalog: CatalogStore) -> None:
    items = [(Item("many", f"t{n:02d}"), frozenset({7, n + 100})) for n in range(30)]
    await asyncio.gather(*(catalog.save_items(items if n % 2 else items[::-1]) for n in range(12)))
    counts = await catalog.term_counts([7, 100])
    assert (counts.documents, counts.holding) == (30, {7: 30, 100: 1})


@pytest.mark.req("X-03")
async def test_a_value_that_breaks_a_rule_is_refused_and_nothing_is_lost(catalog: CatalogStore) -> None:
    await catalog.save_items([(READ, TERMS)])
    await catalog.save_skills([Skill("a", "A")])
    with pytest.raises(Invalid, match="refuses"):
        await catalog.assign(READ.id, [Assignment("a", 0.9), Assignment("a", 0.8)])
    assert [s.item for s in await catalog.items()] == [READ]
