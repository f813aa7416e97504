"""The catalogue in memory: read once, taken over by digest, never older than what was written (H-05, H-14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.fixtures.catalogue import FILES, ITEMS, READ, SEND, SyncedCatalogue
from tests.fixtures.clock import Clock
from tests.fixtures.databases import open_memory_database
from tests.fixtures.limits import set_limits
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.sql.catalogue_version import SqlCatalogueVersion
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.items import SqlItems
from toolscript.domain.catalog import Schemas, StoredItem
from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Candidate, SimilarityRange
from toolscript.services.catalogue import snapshot as snapshot_module
from toolscript.services.catalogue.snapshot import CatalogueSnapshots, Change

pytestmark = pytest.mark.req("H-05")

EVERYTHING = Change.ITEMS | Change.POINTS | Change.SKILLS
SCHEMA = {"type": "object"}
PLAIN = SimilarityRange(0.0, 1.0)


class CountingStore(SqlItems):
    """Counts reads; can be made to wait or to fail."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.items_read: list[str] = []
        self.schemas_read: list[list[str]] = []
        self.is_broken = False
        self.has_begun = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def get_items(self, item_ids: Sequence[str] | None = None, *, active_only: bool = True) -> list[StoredItem]:
        found = await super().get_items(item_ids, active_only=active_only)
        self.items_read += [stored.item.id for stored in found]
        self.has_begun.set()
        await self.may_answer.wait()
        if self.is_broken:
            raise Unavailable("gone")
        return found

    async def get_schemas(self, item_ids: Sequence[str]) -> dict[str, Schemas]:
        self.schemas_read.append(list(item_ids))
        return await super().get_schemas(item_ids)


class CountingIndex(MemoryIndex):
    """Counts the listings of points."""

    scrolls = 0

    async def scroll(self, *args: Any, **named: Any) -> list[Candidate]:
        self.scrolls += 1
        return await super().scroll(*args, **named)


class Kit:
    """A synced catalogue, its snapshots and their clock."""

    def __init__(self) -> None:
        self.database = database = open_memory_database()
        self.store, self.index, self.clock = CountingStore(database), CountingIndex(), Clock()
        self.version = SqlCatalogueVersion(database)
        self.catalogue = SyncedCatalogue(database=database, index=self.index, embedder=HashedEmbedder(16))

    async def open(self) -> Kit:
        await self.catalogue.open(FILES)
        await self.catalogue.sync.run([replace(item, input_schema=SCHEMA) for item in ITEMS])
        self.forget_reads()
        return self

    def snapshots(self, similarity: SimilarityRange = PLAIN) -> CatalogueSnapshots:
        return CatalogueSnapshots(self.store, self.index, similarity, clock=self.clock)

    def forget_reads(self) -> None:
        self.store.items_read.clear()
        self.store.schemas_read.clear()
        self.store.has_begun.clear()
        self.index.scrolls = 0


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    kit = await Kit().open()
    yield kit
    await kit.catalogue.close()


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is read all the time."""
    set_limits(monkeypatch, catalogue_poll=0.01)
    set_limits(monkeypatch, catalogue_pause=0.0)


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_nothing_is_read_before_it_is_needed_and_then_once(kit: Kit) -> None:
    snapshots = kit.snapshots()
    current = snapshots.current()
    assert (kit.store.items_read, kit.index.scrolls) == ([], 0)
    first, second = await asyncio.gather(current.facts(), current.facts())
    assert first is second is await snapshots.current().facts()
    assert sorted(kit.store.items_read) == sorted(first.items) == sorted(item.id for item in ITEMS)
    maps = await asyncio.gather(current.skill_map(), snapshots.current().skill_map())
    assert maps[0] is maps[1]
    assert ([skill.id for skill in maps[0].skills], kit.index.scrolls) == (["files"], 1)


@pytest.mark.req("H-07")
async def test_the_skill_map_has_the_range_for_skills(kit: Kit) -> None:
    (vector,) = (await kit.index.vectors("mcp_skills", ["files"])).values()
    scores = []
    for similarity in (PLAIN, SimilarityRange(0.0, 2.0, skills=1.0), SimilarityRange(0.0, 2.0)):
        skill_map = await kit.snapshots(similarity).current().skill_map()
        ((_, score),) = skill_map.rank_skills(skill_map.compare(vector))
        scores.append(score)
    assert scores[0] == scores[1] > scores[2]


async def test_a_change_gives_the_next_version_and_keeps_the_parts_that_did_not_change(kit: Kit) -> None:
    snapshots = kit.snapshots()
    before = snapshots.current()
    facts, skill_map = await before.facts(), await before.skill_map()
    snapshots.advance(Change.POINTS)
    after = snapshots.current()
    assert after.version == before.version + 1
    assert (await after.facts(), await after.skill_map()) == (facts, skill_map)
    snapshots.advance(Change.SKILLS)
    assert await snapshots.current().facts() is facts
    assert await snapshots.current().skill_map() is not skill_map
    assert await before.skill_map() is skill_map


@pytest.mark.req("H-14")
async def test_after_a_change_only_changed_items_are_read(kit: Kit) -> None:
    snapshots = kit.snapshots()
    old = await snapshots.current().facts()
    changed = replace(READ, description="Juggles quinces")
    await kit.catalogue.sync.run([changed, *ITEMS[1:-1]])
    kit.forget_reads()
    snapshots.advance(Change.ITEMS)
    facts = await snapshots.current().facts()
    assert facts.items[READ.id].description == "Juggles quinces"
    assert facts.items[SEND.id].digest != ""
    assert ITEMS[-1].id not in facts.items
    assert old.items[READ.id].description == READ.description
    assert set(kit.store.items_read) == {item.id for item in [changed, *ITEMS[1:-1]]} - {
        item_id for item_id, each in facts.items.items() if old.items[item_id] is each
    }


async def test_unchanged_items_are_the_same_facts(kit: Kit) -> None:
    snapshots = kit.snapshots()
    facts = await snapshots.current().facts()
    kit.forget_reads()
    snapshots.advance(Change.ITEMS)
    assert await snapshots.current().facts() is facts
    assert kit.store.items_read == []


async def test_schemas_are_read_for_the_items_that_need_them_and_once(kit: Kit) -> None:
    snapshots = kit.snapshots()
    for _ in range(2):
        found = await snapshots.current().schemas([READ.id, SEND.id])
        assert found == {READ.id: (SCHEMA, None, None), SEND.id: (SCHEMA, None, None)}
    assert (kit.store.schemas_read, kit.store.items_read) == ([[READ.id, SEND.id]], [])
    assert await snapshots.current().schemas([READ.id, "gone"]) == {READ.id: (SCHEMA, None, None), "gone": None}
    assert kit.store.schemas_read[1:] == [["gone"]]


async def test_schemas_of_known_items_are_not_read_at_all(kit: Kit) -> None:
    snapshots = kit.snapshots()
    await snapshots.current().facts()
    assert (await snapshots.current().schemas([READ.id]))[READ.id] == (SCHEMA, None, None)
    assert kit.store.schemas_read == []


async def test_schemas_read_before_a_change_are_not_used_after_it(kit: Kit) -> None:
    snapshots = kit.snapshots()
    await snapshots.current().schemas([READ.id])
    await kit.catalogue.sync.run([replace(READ, input_schema={"n": 1})], servers=["disk"])
    snapshots.advance(EVERYTHING)
    assert (await snapshots.current().schemas([READ.id]))[READ.id] == ({"n": 1}, None, None)


@pytest.mark.req("H-14")
async def test_a_search_that_begins_after_a_write_waits_for_what_was_written(kit: Kit) -> None:
    snapshots = kit.snapshots()
    kit.store.may_answer.clear()
    old = asyncio.create_task(snapshots.current().facts())
    await kit.store.has_begun.wait()
    kit.store.may_answer.set()
    await kit.catalogue.sync.run([replace(READ, description="Juggles quinces")], servers=["disk"])
    snapshots.advance(Change.ITEMS)
    assert (await snapshots.current().facts()).items[READ.id].description == "Juggles quinces"
    assert (await old).items[READ.id].description == READ.description


async def test_a_cancelled_caller_does_not_cancel_the_reading(kit: Kit) -> None:
    snapshots = kit.snapshots()
    kit.store.may_answer.clear()
    first = asyncio.create_task(snapshots.current().facts())
    await kit.store.has_begun.wait()
    second = asyncio.create_task(snapshots.current().facts())
    await asyncio.sleep(0)
    first.cancel()
    kit.store.may_answer.set()
    assert READ.id in (await second).items
    assert kit.store.items_read.count(READ.id) == 1


async def test_after_a_failure_the_store_is_read_again(kit: Kit) -> None:
    snapshots = kit.snapshots()
    kit.store.is_broken = True
    with pytest.raises(Unavailable):
        await snapshots.current().facts()
    kit.store.is_broken = False
    assert READ.id in (await snapshots.current().facts()).items


@pytest.mark.req("H-14")
@pytest.mark.usefixtures("_quick")
async def test_what_another_process_writes_is_in_the_next_snapshot_without_a_search(kit: Kit) -> None:
    snapshots = kit.snapshots()
    first = snapshots.current()
    facts, skill_map = await first.facts(), await first.skill_map()
    snapshots.start_following(kit.version)
    await kit.catalogue.sync.run([replace(READ, description="Juggles quinces")], servers=["disk"])
    await kit.version.increase()  # a sync without a version of its own does not tell that points changed

    async def is_new() -> bool:
        now = snapshots._current
        return now._facts.value not in {None, facts} and now._skill_map.value not in {None, skill_map}

    await wait_until(is_new)
    assert (await snapshots.current().facts()).items[READ.id].description == "Juggles quinces"
    assert (await snapshots.current().schemas([READ.id]))[READ.id] == (None, None, None)
    assert (await first.facts()).items[READ.id].description == READ.description
    await snapshots.close()


@pytest.mark.usefixtures("_quick")
async def test_nothing_is_read_while_the_version_stays(kit: Kit) -> None:
    snapshots = kit.snapshots()
    await snapshots.current().facts()
    reads = 0

    class CountedVersion(SqlCatalogueVersion):
        async def read(self) -> int:
            nonlocal reads
            reads += 1
            return await super().read()

    snapshots.start_following(CountedVersion(kit.database))
    await wait_until(lambda: asyncio.sleep(0, reads > 2))
    version = snapshots.current().version
    kit.forget_reads()
    await wait_until(lambda: asyncio.sleep(0, reads > 5))
    assert (snapshots.current().version, kit.store.items_read, kit.index.scrolls) == (version, [], 0)
    await snapshots.close()


@pytest.mark.usefixtures("_quick")
async def test_a_store_that_fails_is_logged_once_and_followed_again_when_it_works(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    snapshots = kit.snapshots()
    facts = await snapshots.current().facts()
    await kit.catalogue.sync.run([replace(READ, description="Juggles quinces")], servers=["disk"])
    kit.store.is_broken = True
    kit.forget_reads()
    snapshots.start_following(kit.version)
    await wait_until(lambda: asyncio.sleep(0, len(kit.store.items_read) > 3))
    assert await snapshots.current().facts() is facts
    assert [record.getMessage() for record in caplog.records].count("catalogue_not_followed") == 1
    kit.store.is_broken = False
    await wait_until(lambda: asyncio.sleep(0, snapshots._current._facts.value is not facts))
    assert (await snapshots.current().facts()).items[READ.id].description == "Juggles quinces"
    await snapshots.close()


@pytest.mark.usefixtures("_quick")
async def test_a_write_of_this_process_wins_over_a_refresh_that_began_before_it(kit: Kit) -> None:
    snapshots = kit.snapshots()
    await snapshots.current().facts()
    await kit.catalogue.sync.run([replace(READ, description="Juggles plums")], servers=["disk"])
    kit.forget_reads()
    kit.store.may_answer.clear()
    snapshots.start_following(kit.version)
    await kit.store.has_begun.wait()
    await kit.store.save_items([(replace(READ, description="Juggles quinces"), frozenset())])
    snapshots.advance(Change.ITEMS)
    version = snapshots.current().version
    kit.store.may_answer.set()
    assert (await snapshots.current().facts()).items[READ.id].description == "Juggles quinces"
    await wait_until(lambda: asyncio.sleep(0, snapshots.current().version > version))
    assert (await snapshots.current().facts()).items[READ.id].description == "Juggles quinces"
    await snapshots.close()


async def test_closing_ends_what_is_being_read(kit: Kit) -> None:
    snapshots = kit.snapshots()
    kit.store.may_answer.clear()
    reading = asyncio.create_task(snapshots.current().facts())
    await kit.store.has_begun.wait()
    await snapshots.close()
    await snapshots.close()
    with pytest.raises(asyncio.CancelledError):
        await reading


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[float]:
    """The pauses of a warm-up; each lasts until the test ends."""
    taken: asyncio.Queue[float] = asyncio.Queue()

    async def rest(seconds: float) -> None:
        taken.put_nowait(seconds)
        await asyncio.Event().wait()

    monkeypatch.setattr(snapshot_module, "PAGE", 3)
    monkeypatch.setattr("toolscript.services.catalogue.snapshot.asyncio.sleep", rest)
    return taken


@pytest.mark.req("S-01")
async def test_a_warm_up_rests_while_somebody_searches_and_no_search_waits_for_that(
    kit: Kit, rests: asyncio.Queue[float]
) -> None:
    snapshots = kit.snapshots()
    snapshots.current()
    warming = asyncio.create_task(snapshots.warm_up())
    assert await rests.get() > 0
    assert len(kit.store.items_read) == 3
    assert len((await snapshots.current().facts()).items) == len(ITEMS)
    assert len(kit.store.items_read) == len(ITEMS)
    assert not warming.done()
    warming.cancel()


@pytest.mark.req("S-01")
async def test_while_nobody_searches_a_warm_up_does_not_rest_and_leaves_nothing_to_read(
    kit: Kit, rests: asyncio.Queue[float]
) -> None:
    snapshots = kit.snapshots()
    await snapshots.warm_up()
    kit.forget_reads()
    await snapshots.current().facts()
    await snapshots.warm_up()
    assert (kit.store.items_read, rests.empty()) == ([], True)


@pytest.mark.req("S-01", "H-14")
async def test_what_changes_during_a_warm_up_is_found_as_it_is_now(kit: Kit, rests: asyncio.Queue[float]) -> None:
    snapshots = kit.snapshots()
    snapshots.current()
    warming = asyncio.create_task(snapshots.warm_up())
    await rests.get()
    changed = [replace(item, description="Juggles quinces") for item in ITEMS[:2]]
    await kit.catalogue.sync.run([*changed, *ITEMS[3:]])
    snapshots.advance(Change.ITEMS)
    facts = await snapshots.current().facts()
    assert {facts.items[item.id].description for item in changed} == {"Juggles quinces"}
    assert ITEMS[2].id not in facts.items
    warming.cancel()
