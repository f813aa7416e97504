"""Skills as people change them: the store first, then unclassified items and the index."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from tests.fixtures.databases import open_memory_database
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.domain.catalog import Assignment, Classification, Item, Origin, Skill, Suggestion, SuggestionStatus
from toolscript.domain.errors import Conflict, Invalid, NotFound, Unavailable
from toolscript.domain.search import Point, Vector
from toolscript.services.catalogue.item_points import TOOLS, tools_collection
from toolscript.services.catalogue.skill_points import skills_collection
from toolscript.services.catalogue.sync import Sync
from toolscript.services.skills.skills import CountedSkill, Skills, find_free_id

pytestmark = pytest.mark.req("H-09")

READ = Item("files", "read", "Read a file")
WRITE = Item("files", "write", "Write a file")
SEND = Item("mail", "send", "Send a letter")
WATER = Item("garden", "water", "Water a plant")
PRUNE = Item("garden", "prune", "Prune a plant")
FILES = Skill("files", "Files", "Reading and writing", keywords=("file",))


class KeywordClassifier:
    """Classifies by the keywords of skills, or suggests a skill named after the last word of the description."""

    async def classify(
        self, items: Sequence[tuple[Item, Vector]], skills: Sequence[Skill]
    ) -> list[Classification | None]:
        return [self._sort(item, skills) for item, _ in items]

    def _sort(self, item: Item, skills: Sequence[Skill]) -> Classification:
        words = item.description.split()
        fitting = [s.id for s in skills if s.is_active and set(s.keywords) & set(words)][:3]
        if not fitting:
            return Classification(
                missing=Suggestion(words[-1].title(), "Why\0not", keywords=(words[-1], " ", "x" * 200))
            )
        return Classification(tuple(Assignment(s, 0.8 - n / 10, n == 0) for n, s in enumerate(fitting)))


class FailingIndex(MemoryIndex):
    """An index that fails on request."""

    failing = False

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        if self.failing:
            raise Unavailable("the index is away")
        await super().upsert(name, points)


class SyncedCatalogue:
    """A catalogue, its index and the service for skills."""

    def __init__(self) -> None:
        database = open_memory_database()
        self.item_store, self.skill_store = SqlItems(database), SqlSkills(database)
        self.index = FailingIndex()
        embedder = HashedEmbedder(16)
        self.sync = Sync(self.item_store, self.skill_store, self.index, embedder, classifier=KeywordClassifier())
        self.skills = Skills(self.item_store, self.skill_store, self.sync)

    async def open(self, *items: Item) -> SyncedCatalogue:
        await self.index.open(tools_collection("hashed-16", 16))
        await self.index.open(skills_collection("hashed-16", 16))
        await self.skill_store.save_skills([FILES])
        await self.sync.run(items)
        return self

    async def read_indexed(self) -> dict[str, object]:
        """The skills of each item in the index."""
        return {c.id: c.payload["skill_ids"] for c in await self.index.scroll(TOOLS)}

    async def get_assignments(self, item: Item) -> tuple[Assignment, ...]:
        return (await self.item_store.get_items([item.id]))[0].assignments

    async def numbers(self) -> dict[str | None, int]:
        """The numbers of the pending suggestions by item."""
        return {s.source_item_id: s.number or 0 for s in await self.skills.suggestions()}


@pytest.fixture
async def catalogue() -> AsyncIterator[SyncedCatalogue]:
    made = await SyncedCatalogue().open(READ, WRITE, SEND, WATER, PRUNE)
    yield made
    await made.item_store.close()


async def test_skills_are_listed_with_their_tools_counted(catalogue: SyncedCatalogue) -> None:
    await catalogue.skill_store.save_skills([Skill("old", "Old", is_active=False)])
    assert await catalogue.skills.all() == [
        CountedSkill(FILES, 2),
        CountedSkill(Skill("old", "Old", is_active=False), 0),
    ]
    assert await catalogue.skills.all(active_only=True) == [CountedSkill(FILES, 2)]
    assert [s.item for s in await catalogue.skills.tools("files")] == [READ, WRITE]


async def test_an_unknown_skill_is_refused_with_the_nearest_ids(catalogue: SyncedCatalogue) -> None:
    for query in (catalogue.skills.get, catalogue.skills.tools, catalogue.skills.remove):
        with pytest.raises(NotFound, match="did you mean files") as caught:
            await query("fils")
        assert caught.value.details["nearest"] == ["files"]
    with pytest.raises(NotFound, match="see the list"):
        await catalogue.skills.get("\ud800" * 10_000)


async def test_a_new_skill_gets_the_unclassified_items_and_the_index_is_updated(catalogue: SyncedCatalogue) -> None:
    made = await catalogue.skills.create(Skill("gardening", " Gardening ", keywords=("plant",)))
    assert made == CountedSkill(Skill("gardening", "Gardening", keywords=("plant",)), 2)
    assert (await catalogue.read_indexed())[WATER.id] == ["gardening"]
    assert (await catalogue.read_indexed())[READ.id] == ["files"]
    assert set(await catalogue.numbers()) == {SEND.id}


async def test_a_new_skill_leaves_the_items_of_others_where_they_are(catalogue: SyncedCatalogue) -> None:
    await catalogue.skills.create(Skill("another", "Another", keywords=("file",)))
    assert (await catalogue.read_indexed())[READ.id] == ["files"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("skill", "field"),
    [
        (Skill("", "N"), "id"),
        (Skill("Files", "N"), "id"),
        (Skill("a\n", "N"), "id"),
        (Skill("a" * 65, "N"), "id"),
        (Skill("a", " "), "name"),
        (Skill("a", "N" * 256), "name"),
        (Skill("a", "N", "d" * 4001), "description"),
        (Skill("a", "N", parent_domain="p" * 65), "parent_domain"),
        (Skill("a", "N", keywords=("fine", "")), "keywords[1]"),
        (Skill("a", "N", keywords=("k" * 101,)), "keywords[0]"),
        (Skill("a", "N", keywords=("k",) * 101), "keywords"),
        (Skill("a", "N", examples=("\x7f.",)), "examples[0]"),
    ],
)
async def test_an_invalid_skill_is_refused_naming_the_field(
    catalogue: SyncedCatalogue, skill: Skill, field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await catalogue.skills.create(skill)
    assert caught.value.details["field"] == field
    assert [s.skill for s in await catalogue.skills.all()] == [FILES]


async def test_a_skill_of_the_maximum_size_is_stored(catalogue: SyncedCatalogue) -> None:
    many_words = ("ä" * 100,) * 100
    skill = Skill("a" * 64, "N" * 255, "two\nlines" + "d" * 3991, "p" * 64, many_words, many_words)
    assert (await catalogue.skills.create(skill)).skill == skill


async def test_a_replaced_skill_gets_the_unclassified_items(catalogue: SyncedCatalogue) -> None:
    changed = replace(FILES, name="Papers", keywords=("file", "letter"))
    assert await catalogue.skills.replace("files", changed) == CountedSkill(changed, 3)
    with pytest.raises(Invalid, match="cannot change"):
        await catalogue.skills.replace("files", Skill("other", "Other"))
    with pytest.raises(NotFound, match="did you mean files"):
        await catalogue.skills.replace("filez", Skill("filez", "Files"))


async def test_items_of_a_skill_that_becomes_inactive_are_classified_again(catalogue: SyncedCatalogue) -> None:
    await catalogue.skills.assign(WRITE.id, ["files"])
    await catalogue.skills.replace("files", replace(FILES, is_active=False))
    assert await catalogue.get_assignments(READ) == ()
    assert [a.skill_id for a in await catalogue.get_assignments(WRITE)] == ["files"]
    assert READ.id in await catalogue.numbers()


async def test_items_of_a_removed_skill_are_classified_again(catalogue: SyncedCatalogue) -> None:
    await catalogue.skill_store.save_skills([Skill("papers", "Papers", keywords=("file",))])
    await catalogue.skills.remove("files")
    assert [s.skill.id for s in await catalogue.skills.all()] == ["papers"]
    assert (await catalogue.read_indexed())[READ.id] == ["papers"]
    await catalogue.skills.remove("papers")
    assert (await catalogue.read_indexed())[READ.id] == []
    assert {READ.id, WRITE.id} <= set(await catalogue.numbers())


@pytest.mark.req("H-10")
async def test_an_assignment_by_a_person_stays_until_it_is_released(catalogue: SyncedCatalogue) -> None:
    await catalogue.skill_store.save_skills([Skill("alpha", "Alpha"), Skill("beta", "Beta")])
    stored = await catalogue.skills.assign(READ.id, ["beta", "alpha"])
    human = (Assignment("beta", 1.0, True, Origin.HUMAN), Assignment("alpha", 1.0, False, Origin.HUMAN))
    assert stored.assignments == human
    assert (await catalogue.read_indexed())[READ.id] == ["beta", "alpha"]
    await catalogue.sync.run([replace(READ, description="Read any file"), WRITE, SEND, WATER, PRUNE])
    await catalogue.sync.reclassify(None)
    assert await catalogue.get_assignments(READ) == human

    released = await catalogue.skills.release(READ.id)
    assert released.assignments == (Assignment("files", 0.8, True),)
    assert (await catalogue.read_indexed())[READ.id] == ["files"]


@pytest.mark.req("H-10")
@pytest.mark.parametrize("skill_ids", [[], ["files", "files"], ["a", "b", "c", "d"]])
async def test_an_item_belongs_to_one_to_three_different_skills(
    catalogue: SyncedCatalogue, skill_ids: list[str]
) -> None:
    with pytest.raises(Invalid, match="1 to 3 different skills"):
        await catalogue.skills.assign(READ.id, skill_ids)


@pytest.mark.req("H-10")
async def test_unknown_items_and_skills_are_named(catalogue: SyncedCatalogue) -> None:
    for item_id in ("files__nothing", "\0", "\ud800"):
        with pytest.raises(NotFound, match="no such item"):
            await catalogue.skills.assign(item_id, ["files"])
        with pytest.raises(NotFound, match="no such item"):
            await catalogue.skills.release(item_id)
    with pytest.raises(NotFound, match="did you mean files"):
        await catalogue.skills.assign(READ.id, ["files", "filee"])
    assert [a.origin for a in await catalogue.get_assignments(READ)] == [Origin.EMBEDDING]


@pytest.mark.req("H-11")
async def test_an_approved_suggestion_becomes_a_skill_with_its_unclassified_items(
    catalogue: SyncedCatalogue,
) -> None:
    before = await catalogue.numbers()
    assert set(before) == {SEND.id, WATER.id, PRUNE.id}
    made = await catalogue.skills.approve(before[WATER.id], reviewed_by="ann")
    assert made == CountedSkill(Skill("plant", "Plant", "Why not", keywords=("plant", "x" * 100)), 2)
    assert await catalogue.get_assignments(WATER) == (Assignment("plant", 1.0, True, Origin.HUMAN),)
    assert await catalogue.get_assignments(PRUNE) == (Assignment("plant", 0.8, True),)
    assert [(await catalogue.read_indexed())[i.id] for i in (WATER, PRUNE, SEND)] == [["plant"], ["plant"], []]
    assert set(await catalogue.numbers()) == {SEND.id}
    (approved,) = await catalogue.skills.suggestions(SuggestionStatus.APPROVED)
    assert (approved.source_item_id, approved.reviewed_by) == (WATER.id, "ann")


@pytest.mark.req("H-11")
async def test_an_approval_may_change_name_and_description(catalogue: SyncedCatalogue) -> None:
    number = (await catalogue.numbers())[WATER.id]
    for wrong in ({"skill_id": "Not good"}, {"name": " "}, {"reviewed_by": "x" * 256}):
        with pytest.raises(Invalid):
            await catalogue.skills.approve(number, **wrong)
    with pytest.raises(Conflict, match="'files' already"):
        await catalogue.skills.approve(number, skill_id="files")
    made = await catalogue.skills.approve(number, skill_id="gardening", name="Gardening", description="Plants")
    assert (made.skill.id, made.skill.name, made.skill.description) == ("gardening", "Gardening", "Plants")


@pytest.mark.req("H-11")
async def test_a_rejected_suggestion_is_not_repeated_and_its_item_can_get_a_new_skill(
    catalogue: SyncedCatalogue,
) -> None:
    number = (await catalogue.numbers())[WATER.id]
    rejected = await catalogue.skills.reject(number, reviewed_by="ann")
    assert (rejected.status, rejected.reviewed_by) == (SuggestionStatus.REJECTED, "ann")
    await catalogue.skills.create(Skill("unrelated", "Unrelated"))
    assert set(await catalogue.numbers()) == {SEND.id, PRUNE.id}
    await catalogue.skills.create(Skill("gardening", "Gardening", keywords=("plant",)))
    assert [a.skill_id for a in await catalogue.get_assignments(WATER)] == ["gardening"]


@pytest.mark.req("H-11")
async def test_a_merged_suggestion_puts_its_item_into_the_skill(catalogue: SyncedCatalogue) -> None:
    number = (await catalogue.numbers())[SEND.id]
    with pytest.raises(NotFound, match="did you mean files"):
        await catalogue.skills.merge(number, "filess")
    merged = await catalogue.skills.merge(number, "files", reviewed_by=" ")
    assert (merged.status, merged.reviewed_by) == (SuggestionStatus.MERGED, None)
    assert await catalogue.get_assignments(SEND) == (Assignment("files", 1.0, True, Origin.HUMAN),)
    assert (await catalogue.read_indexed())[SEND.id] == ["files"]


@pytest.mark.req("H-11")
@pytest.mark.parametrize("number", [0, 10**30])
async def test_an_unknown_suggestion_cannot_be_reviewed(catalogue: SyncedCatalogue, number: int) -> None:
    for review in (
        catalogue.skills.approve(number),
        catalogue.skills.reject(number),
        catalogue.skills.merge(number, "files"),
    ):
        with pytest.raises(NotFound, match=f"no such suggestion: {number}"):
            await review


@pytest.mark.req("H-14")
async def test_a_change_is_stored_without_the_index_and_the_next_sync_indexes_it(
    catalogue: SyncedCatalogue, caplog: pytest.LogCaptureFixture
) -> None:
    catalogue.index.failing = True
    with caplog.at_level(logging.WARNING):
        await catalogue.skills.assign(SEND.id, ["files"])
    assert "the index is away" in caplog.text
    assert (await catalogue.read_indexed())[SEND.id] == []
    catalogue.index.failing = False
    await catalogue.sync.index_catalogue()
    assert (await catalogue.read_indexed())[SEND.id] == ["files"]


def test_an_id_is_derived_from_the_name_and_not_taken() -> None:
    assert find_free_id("Gärten & Parks!", ()) == "garten_parks"
    assert find_free_id("3D printing", ()) == "skill_3d_printing"
    assert find_free_id("园艺", {"skill"}) == "skill_2"
    assert find_free_id("Files", {"files", "files_2"}) == "files_3"
    long = find_free_id("word " * 40, ())
    assert len(long) <= 64
    assert len(find_free_id("word " * 40, {long})) <= 64
    assert find_free_id("word " * 40, {long}) != long
