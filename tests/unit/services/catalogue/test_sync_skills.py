"""Sync classifies items and brings the points of skills up to date, in the same sync."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.catalogue import (
    FETCH,
    FILES,
    ITEMS,
    LIST,
    MAIL,
    MONEY,
    READ,
    SAVE,
    SEND,
    STRANGE,
    WRITE,
    CountingEmbedder,
    Near,
    SyncedCatalogue,
)
from tests.fixtures.examples import choose
from toolscript.adapters.memory import MemoryIndex
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.adapters.sql.database import Database
from toolscript.domain.catalog import Assignment, Item, Origin, Skill, SuggestionStatus
from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.domain.search import Candidate, Point, Vector
from toolscript.retrieval.text.item_text import build_item_text, build_skill_text
from toolscript.services.catalogue.item_points import TOOLS
from toolscript.services.catalogue.skill_points import ALL_FACETS, MAX_FACETS, NO_SKILL, SKILLS
from toolscript.services.catalogue.sync import Sync
from toolscript.services.skills.skills_file import load_skills

pytestmark = [pytest.mark.req("H-13", "H-14"), pytest.mark.slow]


@pytest.fixture(params=choose(["memory", "qdrant-edge", "postgres"], "memory"))
async def catalogue(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SyncedCatalogue]:
    """Three skills and no items, in different stores and indexes."""
    url = request.getfixturevalue("postgres") if request.param == "postgres" else "sqlite://"
    index = QdrantEdgeIndex(tmp_path / "index") if request.param == "qdrant-edge" else MemoryIndex()
    made = await SyncedCatalogue(database=Database(url), index=index).open(FILES, MAIL, MONEY)
    yield made
    await made.close()


@pytest.fixture
async def quick() -> AsyncIterator[SyncedCatalogue]:
    """Three skills in memory."""
    made = await SyncedCatalogue().open(FILES, MAIL, MONEY)
    yield made
    await made.close()


def build_counted(catalogue: SyncedCatalogue) -> CountingEmbedder:
    assert isinstance(catalogue.embedder, CountingEmbedder)
    return catalogue.embedder


async def vector(catalogue: SyncedCatalogue, text: str) -> Vector:
    return (await catalogue.embedder.embed_documents([text]))[0]


async def compute_expected(catalogue: SyncedCatalogue, skill_id: str) -> Vector:
    """The weighted mean as the specification computes it (update_skill_embedding)."""
    members = (await catalogue.skill_store.get_members([skill_id]))[skill_id]
    items = {s.item.id: s.item for s in await catalogue.item_store.get_items()}
    rows = [await vector(catalogue, build_item_text(items[m.item_id])) for m in members]
    mean = np.average(np.array(rows, dtype=np.float64), axis=0, weights=[m.confidence for m in members])
    return np.asarray(mean / np.linalg.norm(mean))


async def assert_vector(catalogue: SyncedCatalogue, skill_id: str) -> None:
    _, vector_now = (await catalogue.skill_points())[skill_id]
    np.testing.assert_allclose(vector_now, await compute_expected(catalogue, skill_id), atol=1e-5)


async def counts(catalogue: SyncedCatalogue) -> dict[str, int]:
    """The number of tools of each skill in the index."""
    return {i: p["tool_count"] for i, (p, _) in (await catalogue.skill_points()).items() if not p["is_facet"]}


@pytest.mark.req("H-10", "H-11")
async def test_new_items_are_classified_in_the_same_sync(catalogue: SyncedCatalogue) -> None:
    report = await catalogue.sync.run(ITEMS)
    assert (report.added, report.classified, report.indexed) == (7, 7, 7)
    for item, skill in [(READ, "files"), (LIST, "files"), (SAVE, "files"), (SEND, "mail"), (FETCH, "mail")]:
        assert await catalogue.get_assignments(item) == [(skill, Origin.EMBEDDING)]
    assert await catalogue.get_assignments(STRANGE) == []
    (waiting,) = await catalogue.skill_store.list_suggestions(SuggestionStatus.PENDING)
    assert waiting.source_item_id == STRANGE.id
    payload = await catalogue.index.payloads(TOOLS, [READ.id, STRANGE.id], ["skill_ids", "primary_skill_id"])
    assert payload[READ.id] == {"skill_ids": ["files"], "primary_skill_id": "files"}
    assert payload[STRANGE.id]["skill_ids"] == []


async def test_the_vector_of_a_skill_is_the_weighted_mean_of_its_tools(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(ITEMS)
    assert await counts(catalogue) == {"files": 4, "mail": 2, "money": 0}
    await assert_vector(catalogue, "files")
    await assert_vector(catalogue, "mail")
    confidences = {m.confidence for m in (await catalogue.skill_store.get_members(["files"]))["files"]}
    assert len(confidences) > 1  # otherwise the weights have no effect


async def test_the_payload_of_a_skill_is_what_searches_return(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(ITEMS)
    payload, _ = (await catalogue.skill_points())["mail"]
    assert (payload["skill_id"], payload["name"], payload["description"]) == ("mail", MAIL.name, MAIL.description)
    assert (payload["tool_count"], payload["is_active"], payload["is_facet"], payload["parts"]) == (2, True, False, 4)


async def test_a_skill_without_tools_has_the_vector_of_its_description(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run([SEND])
    payload, vector_now = (await catalogue.skill_points())["money"]
    assert (payload["tool_count"], payload["parts"]) == (0, 1)
    np.testing.assert_allclose(vector_now, await vector(catalogue, build_skill_text(MONEY)), atol=1e-6)
    await catalogue.sync.run([])
    _, vector_now = (await catalogue.skill_points())["mail"]
    np.testing.assert_allclose(vector_now, await vector(catalogue, build_skill_text(MAIL)), atol=1e-6)


async def test_each_of_a_few_tools_is_a_facet_of_its_skill(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(ITEMS)
    points = await catalogue.skill_points()
    facets = [(p, vector_now) for i, (p, vector_now) in points.items() if p["is_facet"] and i.startswith("mail#")]
    texts = [build_item_text(SEND), build_item_text(FETCH), build_skill_text(MAIL)]
    assert Near([v.tolist() for _, v in facets]) == Near([(await vector(catalogue, t)).tolist() for t in texts])
    assert [p["tightness"] for p, _ in facets] == pytest.approx([1.0, 1.0, 1.0])


async def test_many_tools_share_a_bounded_number_of_facets(quick: SyncedCatalogue) -> None:
    many = [Item("disk", f"file_{n}", f"Read a file of kind{n}") for n in range(300)]
    await quick.sync.run(many[: ALL_FACETS + 1])
    assert (
        await quick.index.count(SKILLS) == 1 + ALL_FACETS + 1 + 1 + 2
    )  # own, ⌈√(16 · 17)⌉ facets, description, two others
    await quick.sync.run(many)
    payload, _ = (await quick.skill_points())["files"]
    assert payload["tool_count"] == 300
    assert payload["parts"] - 2 == 70 < MAX_FACETS
    await assert_vector(quick, "files")


async def test_surplus_facets_are_removed(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(ITEMS)
    assert {"files#4", "files#5"} <= (await catalogue.skill_points()).keys()
    await catalogue.sync.run([READ, WRITE, SEND])
    left = {"files", "files#1", "files#2", "files#3", "mail", "mail#1", "mail#2", "money"}
    assert (await catalogue.skill_points()).keys() == left
    await catalogue.assert_index_is_current()


async def test_a_changed_tool_changes_its_skills_vectors_in_the_same_sync(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(ITEMS)
    before = (await catalogue.skill_points())["files"][1]
    changed = replace(READ, description="Read an old file")
    await catalogue.sync.run([changed, *ITEMS[1:]])
    assert not np.allclose((await catalogue.skill_points())["files"][1], before, atol=1e-3)
    await assert_vector(catalogue, "files")
    moved = replace(READ, description="Email message: send an email message", name="read_file")
    assert moved.id == READ.id
    await catalogue.sync.run([moved, *ITEMS[1:]])
    assert [s for s, _ in await catalogue.get_assignments(READ)] == ["mail"]
    assert await counts(catalogue) == {"files": 3, "mail": 3, "money": 0}
    await catalogue.assert_index_is_current()


async def test_a_vanished_tool_leaves_its_skill_in_the_same_sync_and_can_return(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(ITEMS)
    full = await catalogue.dump()
    await catalogue.sync.run([i for i in ITEMS if i not in (READ, STRANGE)])
    assert (await counts(catalogue))["files"] == 3
    await assert_vector(catalogue, "files")
    assert await catalogue.skill_store.list_suggestions(SuggestionStatus.PENDING) == []
    await catalogue.sync.run(ITEMS)
    assert await catalogue.dump() == full


@pytest.mark.req("H-10")
async def test_an_assignment_by_a_person_changes_the_skills_vectors(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(ITEMS)
    await catalogue.skills.assign(READ.id, ["money", "mail"])
    assert await counts(catalogue) == {"files": 3, "mail": 3, "money": 1}
    for skill_id in ("files", "mail", "money"):
        await assert_vector(catalogue, skill_id)
    (payload,) = (await catalogue.index.payloads(TOOLS, [READ.id], ["skill_ids"])).values()
    assert payload == {"skill_ids": ["money", "mail"]}
    await catalogue.skills.release(READ.id)
    assert await counts(catalogue) == {"files": 4, "mail": 2, "money": 0}
    await catalogue.assert_index_is_current()


@pytest.mark.req("H-09")
async def test_a_deleted_or_inactive_skill_is_removed_from_the_index(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(ITEMS)
    await catalogue.skills.remove("files")
    assert await counts(catalogue) == {"mail": 2, "money": 0}
    assert {i.partition("#")[0] for i in await catalogue.skill_points()} == {"mail", "money", NO_SKILL.id}
    assert await catalogue.get_assignments(READ) == []
    await catalogue.skills.replace("mail", replace(MAIL, is_active=False))
    assert await counts(catalogue) == {"money": 0}
    payload = await catalogue.index.scroll(TOOLS, fields=["skill_ids"])
    assert [c.payload["skill_ids"] for c in payload] == [[]] * 7
    await catalogue.assert_index_is_current()


@pytest.mark.req("H-09")
async def test_a_changed_description_of_a_skill_is_indexed(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(ITEMS)
    await catalogue.skills.replace("money", replace(MONEY, description="Cash and coins"))
    payload, vector_now = (await catalogue.skill_points())["money"]
    assert payload["description"] == "Cash and coins"
    np.testing.assert_allclose(vector_now, await vector(catalogue, "Money: Cash and coins"), atol=1e-6)


async def test_a_second_sync_writes_embeds_and_reports_nothing(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(ITEMS)
    before, changes = await catalogue.dump(), catalogue.skill_changes
    build_counted(catalogue).embedded.clear()
    report = await catalogue.sync.run(ITEMS)
    assert (report.indexed, report.removed, report.embedded, report.classified) == (0, 0, 0, 0)
    assert build_counted(catalogue).embedded == []
    assert catalogue.skill_changes == changes
    assert await catalogue.dump() == before
    catalogue.start()
    await catalogue.sync.run(ITEMS)
    assert build_counted(catalogue).embedded == []
    assert await catalogue.dump() == before


async def test_vectors_are_taken_from_the_index_when_only_skills_change(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run(ITEMS)
    build_counted(catalogue).embedded.clear()
    await catalogue.skills.assign(READ.id, ["money"])
    await catalogue.sync.reclassify(None, force=True)
    assert await catalogue.get_assignments(READ) == [("files", Origin.EMBEDDING)]
    tools = {build_item_text(item) for item in ITEMS}
    assert [text for text in build_counted(catalogue).embedded if text in tools] == []
    await catalogue.assert_index_is_current()


async def test_without_a_model_nothing_is_classified_and_terms_are_indexed(quick: SyncedCatalogue) -> None:
    sync = Sync(quick.item_store, quick.skill_store, quick.index, None, classifier=None)
    report = await sync.run(ITEMS)
    assert (report.indexed, report.classified, report.embedded) == (7, 0, 0)
    assert await quick.get_assignments(READ) == []
    assert await quick.skill_store.list_suggestions() == []
    assert await quick.index.count(SKILLS) == 0
    await sync.reclassify(None, force=True)
    assert await sync.refinement.run() == 0
    report = await quick.sync.run(ITEMS)
    assert (report.indexed, report.classified, report.embedded) == (7, 7, 7)
    await quick.assert_index_is_current()


@pytest.mark.req("H-11")
async def test_without_any_skill_every_item_gets_a_suggestion(quick: SyncedCatalogue) -> None:
    for skill in (FILES, MAIL, MONEY):
        await quick.skill_store.delete_skill(skill.id)
    report = await quick.sync.run(ITEMS)
    assert report.classified == 7
    waiting = await quick.skill_store.list_suggestions(SuggestionStatus.PENDING)
    assert {s.source_item_id for s in waiting} == {item.id for item in ITEMS}
    assert {p["skill_id"] for p, _ in (await quick.skill_points()).values()} == {NO_SKILL.id}
    assert (await quick.sync.run(ITEMS)).classified == 0
    await quick.skill_store.save_skills([FILES])
    assert (await quick.sync.run(ITEMS)).classified == 7
    assert await counts(quick) == {"files": 4}


@pytest.mark.req("H-10")
async def test_a_persons_assignments_are_replaced_only_by_force_and_for_the_named_items(quick: SyncedCatalogue) -> None:
    await quick.sync.run(ITEMS)
    await quick.skills.assign(READ.id, ["money"])
    await quick.skills.assign(WRITE.id, ["money"])
    await quick.sync.run([replace(READ, description="Read any file"), replace(WRITE, title="W"), *ITEMS[2:]])
    human, embedding = ("money", Origin.HUMAN), ("files", Origin.EMBEDDING)
    await quick.sync.reclassify(None)
    await quick.sync.reclassify([READ.id])
    assert (await quick.get_assignments(READ), await quick.get_assignments(WRITE)) == ([human], [human])
    await quick.sync.reclassify([READ.id], force=True)
    assert (await quick.get_assignments(READ), await quick.get_assignments(WRITE)) == ([embedding], [human])
    await quick.sync.reclassify(None, force=True)
    assert await quick.get_assignments(WRITE) == [embedding]
    await quick.assert_index_is_current()


async def test_a_tool_whose_sync_failed_counts_for_its_skill_once_it_is_indexed(quick: SyncedCatalogue) -> None:
    """Another server's sync writes the skill with the old vector in between."""
    await quick.sync.run(ITEMS)
    post = [replace(SEND, description="Send an email message soon"), FETCH, SAVE]
    quick.fuse.left = 4
    with pytest.raises(ConnectionError):
        await quick.sync.run(post, servers=["post"])
    assert (await quick.item_store.get_items([SEND.id]))[0].item == post[0]
    await quick.sync.run([replace(READ, description="Email message: an email message"), WRITE], servers=["disk"])
    assert (await counts(quick))["mail"] == 3
    await quick.sync.run(post, servers=["post"])
    await assert_vector(quick, "mail")
    await quick.assert_index_is_current()


@pytest.mark.extended
async def test_skill_vectors_are_right_with_the_packaged_model(tool_model: OnnxEmbedder) -> None:
    catalogue = await SyncedCatalogue(embedder=tool_model).open(*load_skills())
    await catalogue.sync.run(ITEMS)
    assert [s for s, _ in await catalogue.get_assignments(SEND)] == ["email"]
    assert (await catalogue.get_assignments(READ))[0][0] == "file_operations"
    await assert_vector(catalogue, "email")
    await assert_vector(catalogue, "file_operations")
    await catalogue.sync.close()
    await catalogue.item_store.close()


async def test_a_skill_with_only_human_assignments_is_weighted_the_same(quick: SyncedCatalogue) -> None:
    await quick.sync.run(ITEMS)
    both = [Assignment("money", 1.0, True, Origin.HUMAN), Assignment("mail", 0.25, False, Origin.HUMAN)]
    await quick.skill_store.assign(STRANGE.id, both)
    await quick.sync.run(ITEMS)
    await assert_vector(quick, "money")
    await assert_vector(quick, "mail")


class WatchedIndex(MemoryIndex):
    """Records which collections are listed; calls a function once before points are written."""

    def __init__(self) -> None:
        super().__init__()
        self.scrolled: list[str] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def scroll(
        self, name: str, *, where: Filter = EVERYTHING, fields: Sequence[str] | None = None
    ) -> list[Candidate]:
        self.scrolled.append(name)
        return await super().scroll(name, where=where, fields=fields)

    async def upsert(self, name: str, points: Sequence[Point]) -> None:
        happens, self.meanwhile = self.meanwhile if name == SKILLS else None, None if name == SKILLS else self.meanwhile
        if happens:
            await happens()
        await super().upsert(name, points)


@pytest.fixture
async def watched() -> AsyncIterator[SyncedCatalogue]:
    made = await SyncedCatalogue(index=WatchedIndex()).open(FILES, MAIL, MONEY)
    await made.sync.run(ITEMS)
    yield made
    await made.close()


@pytest.mark.req("H-10")
async def test_after_one_assignment_only_that_item_is_read(watched: SyncedCatalogue) -> None:
    assert isinstance(watched.index, WatchedIndex)
    (suggested,) = await watched.skill_store.list_suggestions(SuggestionStatus.PENDING)
    watched.index.scrolled.clear()
    await watched.skills.assign(READ.id, ["money"])
    await watched.skills.release(READ.id)
    await watched.skills.merge(suggested.number or 0, "money")
    assert TOOLS not in watched.index.scrolled
    assert await watched.get_assignments(STRANGE) == [("money", Origin.HUMAN)]
    await watched.assert_index_is_current()


async def test_when_two_processes_write_a_skill_the_index_ends_as_the_store(watched: SyncedCatalogue) -> None:
    """Another process assigns an item and writes the skill after this one has read its members."""
    assert isinstance(watched.index, WatchedIndex)
    other = SyncedCatalogue(database=watched.database, index=watched.index)
    watched.index.meanwhile = lambda: other.skills.assign(WRITE.id, ["money"])
    await watched.skills.assign(READ.id, ["money"])
    assert (await counts(watched))["money"] == 2
    await watched.assert_index_is_current()


async def test_the_next_sync_empties_a_skill_that_became_inactive(quick: SyncedCatalogue) -> None:
    """The process that changed the skill stopped before the index was updated."""
    await quick.sync.run(ITEMS)
    await quick.skill_store.save_skills([replace(FILES, is_active=False)])
    await quick.sync.run(ITEMS)
    assert await quick.get_assignments(READ) == []
    await quick.assert_index_is_current()


async def test_a_skill_whose_tools_all_vanish_is_kept(quick: SyncedCatalogue) -> None:
    await quick.skill_store.save_skills([Skill("zoo", "Zoo", "Zebras", keywords=("zebra", "hay"))])
    await quick.sync.run([STRANGE])
    assert (await counts(quick))["zoo"] == 1
    await quick.sync.run([])
    assert (await counts(quick))["zoo"] == 0
