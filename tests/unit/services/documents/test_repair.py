"""A repair completes all pending documents, even if some of them fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fixtures.catalogue import CountingEmbedder
from tests.fixtures.databases import open_memory_database
from tests.fixtures.document_ingest import Ingest, sentences
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.domain.documents import Document, StoredDocument
from toolscript.domain.errors import InvalidArguments, Unavailable
from toolscript.domain.filters import Filter
from toolscript.domain.search import Point, Terms, Vector
from toolscript.ports.stores import DocumentStore
from toolscript.retrieval.text.item_text import document_frequencies
from toolscript.services.documents import ingest as ingest_documents
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.points import DOCUMENTS, documents_collection, in_tenant
from toolscript.surfaces.cli.commands import gateway

pytestmark = pytest.mark.req("D-09")

LONG = Document("long", sentences(1, 2, 3), "Facts")
SHORT = Document("short", "A short text about red wine.")


@pytest.fixture
async def ingest() -> Ingest:
    return await Ingest().open_all()


def list_stored(*documents: Document) -> list[StoredDocument]:
    return [StoredDocument(d, frozenset(document_frequencies(d))) for d in documents]


async def test_documents_put_without_a_model_stay_pending_until_there_is_one(ingest: Ingest) -> None:
    bare = IngestDocuments(ingest.store, ingest.index, None)
    await bare.put("acme", [SHORT, LONG])
    assert await bare.repair() == 0
    assert await ingest.store.list_pending() == {"acme": ["long", "short"]}
    assert await ingest.service.repair() == 2
    await ingest.assert_whole()


async def test_in_an_index_without_a_model_nothing_stays_pending(ingest: Ingest) -> None:
    await ingest.index.drop(DOCUMENTS)
    await ingest.index.open(documents_collection("none", 1))
    await IngestDocuments(ingest.store, ingest.index, None).put("acme", [SHORT])
    assert await ingest.store.list_pending() == {}


class PoisonedEmbedder(CountingEmbedder):
    """Fails for one text."""

    error: Exception = Unavailable("refused")
    poison = "poison"

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        if any(self.poison in text for text in texts):
            raise self.error
        return await super().embed_documents(texts)


@pytest.mark.parametrize("error", [Unavailable("refused"), ValueError("nonsense")])
async def test_a_failing_document_does_not_stop_the_others(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    embedder = PoisonedEmbedder()
    embedder.error = error
    ingest = await Ingest(embedder=embedder).open_all()
    await ingest.store.save_documents("aa", list_stored(SHORT, Document("bad", "poison"), LONG))
    await ingest.store.save_documents("bb", list_stored(SHORT))
    with pytest.raises(Unavailable, match="1 documents could not be indexed"):
        await ingest.service.repair()
    assert await ingest.store.list_pending() == {"aa": ["bad"]}
    assert [r.__dict__["document_id"] for r in caplog.records if r.message == "document_not_indexed"] == ["bad"] * 2
    await ingest.service.put("aa", [Document("bad", "cured")])
    await ingest.assert_whole()


async def test_a_model_that_always_fails_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_documents, "FAILURES_IN_A_ROW", 3)
    ingest = await Ingest(embedder=PoisonedEmbedder()).open_all()
    await ingest.store.save_documents("acme", list_stored(*(Document(f"d{n}", f"poison {n}") for n in range(9))))
    with pytest.raises(Unavailable, match="refused"):
        await ingest.service.repair()


async def until_nothing_is_pending(ingest: Ingest) -> None:
    async with asyncio.timeout(30):
        while await ingest.store.list_pending():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_gateway_repeats_the_repair_until_nothing_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = PoisonedEmbedder()
    embedder.error = ValueError("nonsense")
    ingest = await Ingest(embedder=embedder).open_all()
    await ingest.store.save_documents("acme", list_stored(SHORT, Document("bad", "poison")))
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            await ingest.service.put("acme", [Document("bad", "cured")])

    monkeypatch.setattr(gateway, "asyncio", SimpleNamespace(sleep=pause))
    app: Any = SimpleNamespace(ingest_documents=ingest.service, documents=ingest.store, text_model=ingest)
    finishing = asyncio.create_task(gateway._finish_documents(app))
    await until_nothing_is_pending(ingest)
    assert pauses == [5.0, 10.0, 20.0]
    with pytest.raises(ValueError, match="nonsense"):
        await ingest.service.put("acme", [Document("worse", "poison")])
    embedder.poison = "nothing any more"
    await until_nothing_is_pending(ingest)
    finishing.cancel()
    await ingest.assert_whole()


async def test_documents_that_the_store_lacks_are_removed_from_the_index(ingest: Ingest) -> None:
    await ingest.service.put("acme", [SHORT, LONG])
    await ingest.service.put("gone", [SHORT])
    for tenant, own_id in (("acme", "long"), ("gone", "short")):
        await ingest.store.delete_documents(tenant, [own_id])
        await ingest.store.mark_indexed(tenant, {own_id: None})
    assert await ingest.service.repair() == 2
    assert await ingest.service.repair() == 0
    await ingest.assert_whole()


class Killed(Exception):
    """The process was killed."""


class DyingStore:
    """The store of a process that is killed after another process wrote a newer version."""

    def __init__(self, store: DocumentStore, *, before: str, other: IngestDocuments, newer: Document) -> None:
        self._store = store
        self._before = before
        self._other = other
        self._newer = newer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _overtaken(self) -> None:
        await self._other.put("acme", [self._newer])

    async def save_documents(self, tenant: str, documents: Sequence[StoredDocument]) -> None:
        await self._store.save_documents(tenant, documents)
        if self._before == "saving":
            await self._overtaken()

    async def mark_pending(self, tenant: str, ids: Sequence[str]) -> None:
        if self._before == "marking":
            await self._overtaken()
        await self._store.mark_pending(tenant, ids)

    async def get_digests(self, tenant: str, ids: Sequence[str]) -> dict[str, str]:
        if self._before == "marking" or await self._store.count(tenant) == 0:
            return await self._store.get_digests(tenant, ids)
        raise Killed

    async def mark_indexed(self, tenant: str, digests: object) -> None:
        raise Killed


@pytest.mark.parametrize("before", ["saving", "marking"])
async def test_an_old_version_written_by_a_killed_process_is_replaced(before: str) -> None:
    database = open_memory_database()
    ingest = await Ingest(SqlDocuments(database)).open_all()
    newer = replace(LONG, text="Newer")
    if before == "marking":
        await ingest.store.save_documents("acme", list_stored(LONG))
        await ingest.store.mark_indexed("acme", {"long": LONG.digest})
    store: Any = DyingStore(SqlDocuments(database), before=before, other=ingest.service, newer=newer)
    dying = IngestDocuments(store, ingest.index, ingest.embedder)
    with pytest.raises(Killed):
        await dying.put("acme", [LONG])
    assert await ingest.store.get_documents("acme") == [newer]
    assert await ingest.service.repair() == 1
    assert await ingest.service.repair() == 0
    (point,) = await ingest.index.scroll(DOCUMENTS)
    assert point.payload["digest"] == newer.digest
    await database.close()


async def test_points_of_an_earlier_version_are_left_out_of_a_search(ingest: Ingest) -> None:
    await ingest.service.put("acme", [LONG])
    vector = await HashedEmbedder(ingest.embedder.dimensions).embed_query("x")
    payload = {"tenant": "acme", "doc_id": "old", "digest": "d"}
    await ingest.index.upsert(DOCUMENTS, [Point(json.dumps(["acme", "old"]), vector, Terms(), payload)])
    found = await ingest.index.scroll(DOCUMENTS, where=Filter(must=in_tenant("acme")))
    assert {c.payload["doc_id"] for c in found} == {"long"}
    assert await ingest.index.count(DOCUMENTS, Filter(must=in_tenant("other"))) == 0


async def test_an_id_with_a_null_character_is_refused_by_every_method(ingest: Ingest) -> None:
    for reading in (
        ingest.service.get("acme", "a\0"),
        ingest.service.delete("acme", ["fine", "a\0"]),
        ingest.service.listing("acme", after="a\0"),
        ingest.service.put("a\0", [SHORT]),
    ):
        with pytest.raises(InvalidArguments, match="null character"):
            await reading
