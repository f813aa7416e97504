"""Sync brings catalogue and index to what the servers offer: once, again, after a change, after a crash."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.fixtures.databases import open_memory_database
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.sql import pins
from toolscript.adapters.sql.catalogue_version import SqlCatalogueVersion
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.domain.catalog import Item
from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.domain.search import Point, Terms, Vector
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.text.words import term_frequencies
from toolscript.services.catalogue import indexing
from toolscript.services.catalogue import sync as sync_module
from toolscript.services.catalogue.item_points import TOOLS, tools_collection
from toolscript.services.catalogue.skill_points import skills_collection
from toolscript.services.catalogue.sync import Sync
from toolscript.services.skills.embedding_classifier import EmbeddingClassifier
from toolscript.services.trust.screening import Screening

pytestmark = pytest.mark.req("H-14")

A, B, C = Item("one", "a", "Read a file"), Item("one", "b", "Write a file"), Item("two", "c", "Send mail")


class CountingEmbedder(HashedEmbedder):
    def __init__(self) -> None:
        super().__init__(16)
        self.embedded: list[str] = []

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        self.embedded += texts
        return await super().embed_documents(texts)


class InterruptedIndex(MemoryIndex):
    """Runs something, once, between a pass's first read of the store and its reads of the index."""

    def __init__(self) -> None:
        super().__init__()
        self.interruption: Callable[[], Awaitable[object]] | None = None

    async def count(self, name: str, where: Filter = EVERYTHING) -> int:
        await self._interrupt()
        return await super().count(name, where)

    async def scroll(self, name: str, *, where: Filter = EVERYTHING, fields: Sequence[str] | None = None) -> Any:
        await self._interrupt()
        return await super().scroll(name, where=where, fields=fields)

    async def _interrupt(self) -> None:
        interruption, self.interruption = self.interruption, None
        if interruption:
            await interruption()


class SyncedCatalogue:
    """A catalogue, its index and the sync."""

    def __init__(self, index: MemoryIndex | None = None) -> None:
        self.database = database = open_memory_database()
        self.item_store, self.skill_store = SqlItems(database), SqlSkills(database)
        self.index = index or MemoryIndex()
        self.embedder = CountingEmbedder()
        self.sync = Sync(self.item_store, self.skill_store, self.index, self.embedder)

    async def open(self) -> SyncedCatalogue:
        await self.index.open(tools_collection(self.embedder.model, self.embedder.dimensions))
        return self

    async def read_indexed(self) -> dict[str, object]:
        return {c.id: c.payload["description"] for c in await self.index.scroll(TOOLS)}

    async def close(self) -> None:
        await self.item_store.close()


@pytest.fixture
async def catalogue() -> AsyncIterator[SyncedCatalogue]:
    made = await SyncedCatalogue().open()
    yield made
    await made.close()


async def test_offered_items_are_stored_and_indexed(catalogue: SyncedCatalogue) -> None:
    report = await catalogue.sync.run([A, B, C])
    assert (report.added, report.changed, report.vanished, report.indexed) == (3, 0, 0, 3)
    assert await catalogue.read_indexed() == {"one__a": "Read a file", "one__b": "Write a file", "two__c": "Send mail"}


async def test_many_new_items_are_found_by_words_before_they_are_embedded(catalogue: SyncedCatalogue) -> None:
    found: list[list[str]] = []

    class Watched(CountingEmbedder):
        async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
            for word in ("number0", "number99"):
                hits = await catalogue.index.lexical(TOOLS, document_terms(term_frequencies(word), 1.0), limit=5)
                found.append([hit.id for hit in hits])
            return await super().embed_documents(texts)

    many = [Item("one", f"tool{n}", f"Does number{n}") for n in range(100)]
    sync = Sync(catalogue.item_store, catalogue.skill_store, catalogue.index, Watched())
    report = await sync.run(many)
    await sync.close()
    assert (report.indexed, report.embedded) == (100, 100)
    assert found[:2] == [["one__tool0"], ["one__tool99"]]
    assert found == found[:2] * (len(found) // 2)
    assert len(await catalogue.index.vectors(TOOLS, [item.id for item in many])) == 100


async def test_an_index_without_vectors_is_completed_by_a_command_that_reads(catalogue: SyncedCatalogue) -> None:
    """As a sync leaves it that is interrupted while it embeds."""

    class Stopped(CountingEmbedder):
        async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
            raise ConnectionError

    many = [Item("one", f"tool{n}", "Read a file") for n in range(100)]
    stores = catalogue.item_store, catalogue.skill_store
    interrupted = Sync(*stores, catalogue.index, Stopped())
    with pytest.raises(ConnectionError):
        await interrupted.run(many)
    await interrupted.close()
    assert (await catalogue.index.count(TOOLS), await catalogue.index.vectors(TOOLS, [many[0].id])) == (100, {})
    await catalogue.index.open(skills_collection(catalogue.embedder.model, catalogue.embedder.dimensions))
    classifier = EmbeddingClassifier(catalogue.embedder)
    reader = Sync(*stores, catalogue.index, catalogue.embedder, classifier=classifier)
    await reader.complete_index()
    await reader.close()
    assert len(await catalogue.index.vectors(TOOLS, [item.id for item in many])) == 100


async def test_only_changed_items_are_embedded_again(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run([A, B, C])
    catalogue.embedder.embedded.clear()
    report = await catalogue.sync.run([A, replace(B, input_schema={"properties": {"path": {}}}), C])
    assert (report.changed, report.indexed) == (1, 1)
    assert catalogue.embedder.embedded == ["one b: Write a file Parameters: path"]


async def test_a_vanished_item_is_inactive_and_not_indexed_until_it_returns(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run([A, B])
    assert (await catalogue.sync.run([A])).vanished == 1
    assert await catalogue.read_indexed() == {"one__a": "Read a file"}
    assert [s.is_active for s in await catalogue.item_store.get_items(active_only=False)] == [True, False]
    assert (await catalogue.sync.run([A, B])).changed == 1
    assert set(await catalogue.read_indexed()) == {"one__a", "one__b"}


async def test_a_sync_of_one_server_leaves_the_others_alone(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run([A, B, C])
    report = await catalogue.sync.run([A], servers={"one"})
    assert report.vanished == 1
    assert set(await catalogue.read_indexed()) == {"one__a", "two__c"}


@pytest.mark.req("X-11")
async def test_a_server_that_always_lists_other_items_does_not_fill_the_store(
    catalogue: SyncedCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_module, "MAX_KNOWN_ITEMS", 3)
    await catalogue.sync.run([A, B, C])
    lists = [[A, *(Item("one", f"{number}-{n}", "Read") for n in range(2))] for number in range(4)]
    reports = [await catalogue.sync.run(items, servers={"one"}) for items in lists]
    assert [(report.added, report.left_out) for report in reports] == [(1, 1), (0, 2), (0, 2), (0, 2)]
    assert len(await catalogue.item_store.get_items(active_only=False)) == 4
    # What it has offered before may come back, and other servers are not concerned.
    assert (await catalogue.sync.run([A, B], servers={"one"})).left_out == 0
    assert (await catalogue.sync.run([C, Item("two", "d", "Read")], servers={"two"})).added == 1


async def test_the_last_of_two_items_with_one_id_counts(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run([A, replace(A, description="Newer")])
    assert await catalogue.read_indexed() == {"one__a": "Newer"}


async def test_missing_and_surplus_points_are_repaired(catalogue: SyncedCatalogue) -> None:
    await catalogue.sync.run([A, B])
    await catalogue.index.delete(TOOLS, ["one__a"])
    (left,) = await catalogue.index.scroll(TOOLS)
    stray = await catalogue.embedder.embed_query("stray")
    await catalogue.index.upsert(TOOLS, [Point("stray__x", stray, Terms((1,), (1.0,)), dict(left.payload))])
    report = await catalogue.sync.run([A, B])
    assert (report.indexed, report.removed) == (1, 1)
    assert set(await catalogue.read_indexed()) == {"one__a", "one__b"}


async def test_progress_ends_at_the_total(catalogue: SyncedCatalogue) -> None:
    reported: list[tuple[int, int]] = []
    await catalogue.sync.run([Item("bulk", f"t{n}") for n in range(130)], progress=lambda a, b: reported.append((a, b)))
    assert reported == [(64, 130), (128, 130), (130, 130)]


async def test_a_gateway_retires_only_tools_of_servers_that_no_configuration_names() -> None:
    """Two gateways with different configurations on one database."""
    database, index, embedder = open_memory_database(), MemoryIndex(), HashedEmbedder(16)
    await index.open(tools_collection(embedder.model, embedder.dimensions))
    stores, version = (SqlItems(database), SqlSkills(database)), SqlCatalogueVersion(database)
    mine = Sync(*stores, index, embedder, version=version, configuration="mine")
    theirs = Sync(*stores, index, embedder, version=version, configuration="theirs")

    async def find_tools() -> list[str]:
        return [stored.item.id for stored in await stores[0].get_items()]

    for gateway, servers in ((mine, ["a", "both"]), (theirs, ["b", "both"])):
        await gateway.configure(servers)
        for server in servers:
            await gateway.run([Item(server, "do")], servers=[server])
    assert await find_tools() == ["a__do", "b__do", "both__do"]
    await mine.configure(["c"])
    assert await find_tools() == ["b__do", "both__do"]
    await theirs.configure(["b"])
    assert await find_tools() == ["b__do"]
    assert await index.count(TOOLS) == 1
    await database.close()


@pytest.mark.req("X-08", "G-20")
async def test_tools_of_a_configuration_that_nobody_uses_are_retired_after_a_rename_and_after_a_week() -> None:
    """A configuration file was renamed: the tools of the old name have no gateway."""
    database, index, embedder = open_memory_database(), MemoryIndex(), HashedEmbedder(16)
    await index.open(tools_collection(embedder.model, embedder.dimensions))
    stores, version = (SqlItems(database), SqlSkills(database)), SqlCatalogueVersion(database)
    now = 1_000_000.0

    def open_sync(configuration: str) -> Sync:
        return Sync(*stores, index, embedder, version=version, configuration=configuration, clock=lambda: now)

    async def find_tools() -> list[str]:
        return [stored.item.id for stored in await stores[0].get_items()]

    old, new = open_sync("/old.json"), open_sync("/new.json")
    for gateway, servers in ((old, ["a", "both"]), (new, ["both", "c"])):
        await gateway.configure(servers)
        for server in servers:
            await gateway.run([Item(server, "do")], servers=[server])
    for configuration in ("/unknown.json", "/new.json"):
        await new.retire_configuration(configuration)
    assert await find_tools() == ["a__do", "both__do", "c__do"]
    await new.retire_configuration("/old.json")
    assert await find_tools() == ["both__do", "c__do"]
    assert await index.count(TOOLS) == 2

    assert await old.renew()  # it is still in use: its servers have to be listed again
    assert not await old.renew()
    await old.run([Item("a", "do")], servers=["a"])
    now += sync_module.MAX_UNSEEN_SECONDS - 1
    assert not await new.renew()
    assert await find_tools() == ["a__do", "both__do", "c__do"]
    now += 2
    await new.renew()
    assert await find_tools() == ["both__do", "c__do"]
    await database.close()


@pytest.mark.parametrize("name", ["configure", "complete_index", "index_catalogue"])
async def test_what_another_gateway_indexes_meanwhile_keeps_its_points(name: str) -> None:
    database, index, embedder = open_memory_database(), InterruptedIndex(), HashedEmbedder(16)
    await index.open(tools_collection(embedder.model, embedder.dimensions))
    stores, version = (SqlItems(database), SqlSkills(database)), SqlCatalogueVersion(database)
    mine = Sync(*stores, index, embedder, version=version, configuration="mine")
    theirs = Sync(*stores, index, embedder, version=version, configuration="theirs")
    for gateway, item in ((mine, A), (theirs, C)):
        await gateway.configure([item.server])
    await mine.run([A], servers=["one"])
    index.interruption = lambda: theirs.run([C], servers=["two"])
    await (mine.configure(["one"]) if name == "configure" else getattr(mine, name)())
    assert sorted(point.id for point in await index.scroll(TOOLS)) == ["one__a", "two__c"]
    await database.close()


async def test_completing_the_index_removes_nothing_and_announces_only_what_it_wrote(
    catalogue: SyncedCatalogue,
) -> None:
    await catalogue.sync.run([A, B])
    await catalogue.item_store.deactivate(["one__b"])  # and its point stays, as after a crash
    version = SqlCatalogueVersion(catalogue.database)
    reader = Sync(catalogue.item_store, catalogue.skill_store, catalogue.index, catalogue.embedder, version=version)
    before = await version.read()
    assert await reader.complete_index() == {"one"}
    assert await catalogue.index.count(TOOLS) == 2
    assert await version.read() == before
    await catalogue.index.delete(TOOLS, ["one__a", "one__b"])
    await reader.complete_index()
    assert [*await catalogue.read_indexed()] == ["one__a"]
    assert await version.read() > before


@pytest.mark.req("X-12")
async def test_items_are_compared_in_a_thread_where_requests_get_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed for every item of a server: 10 000 of them would hold up all requests for a second."""
    threads: dict[str, set[str]] = {}

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def work(*values: Any) -> Any:
            threads.setdefault(name, set()).add(threading.current_thread().name)
            return real(*values)

        return work

    for module, name in ((sync_module, "count_item_terms"), (indexing, "compute_fingerprint"), (pins, "_row")):
        monkeypatch.setattr(module, name, noting(name, getattr(module, name)))
    database, index, embedder = open_memory_database(), MemoryIndex(), CountingEmbedder()
    await index.open(tools_collection(embedder.model, embedder.dimensions))
    items = SqlItems(database)
    screening = Screening(pins.SqlPins(database), items)
    sync = Sync(items, SqlSkills(database), index, embedder, screening=screening)
    for changed in (A, replace(A, description="Read it all")):
        await sync.run([changed, B, C])
    await sync.close()
    assert threads.keys() == {"count_item_terms", "compute_fingerprint", "_row"}
    assert all(threading.current_thread().name not in names for names in threads.values())
