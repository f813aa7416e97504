"""A repair completes all pending documents, even if some of them fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fixtures.catalogue import CountingEmbedder
from tests.fixtures.databases import open_memory_database
from tests.fixtures.document_ingest import Ingest, sentences
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.domain.documents import Document, StoredDocument
from toolscript.domain.errors import InvalidArguments, Unavailable
from toolscript.domain.filters import EVERYTHING
from toolscript.domain.search import Point, Vector
from toolscript.ports.stores import DocumentStore
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.query_forms import weigh_query_forms
from toolscript.retrieval.text.item_text import document_frequencies
from toolscript.retrieval.text.words import stem, term, words
from toolscript.services.documents import ingest as ingest_documents
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.points import DOCUMENTS, documents_collection
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
    app: Any = SimpleNamespace(
        texts=SimpleNamespace(ingest_documents=ingest.service),
        stores=SimpleNamespace(documents=ingest.store),
        text_model=ingest,
    )
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


async def test_an_id_with_a_null_character_is_refused_by_every_method(ingest: Ingest) -> None:
    for reading in (
        ingest.service.get("acme", "a\0"),
        ingest.service.delete("acme", ["fine", "a\0"]),
        ingest.service.listing("acme", after="a\0"),
        ingest.service.put("a\0", [SHORT]),
    ):
        with pytest.raises(InvalidArguments, match="null character"):
            await reading


INVOICES = Document("bill", "Die Rechnungen sind nicht bezahlt, und der Kunde wird gemahnt.", "Mahnung")
WEATHER = Document("weather", "東京の天気は晴れです。")


async def save_as_an_earlier_version(ingest: Ingest, *documents: Document) -> None:
    """Stores and indexes documents with the terms of version 1: whole words, stemmed as English ones."""
    await ingest.service.put("acme", documents)
    old = {d.id: Counter(term(stem(w)) for w in words(d.text)) for d in documents}
    stored = [StoredDocument(d, frozenset(old[d.id]), terms_version=1) for d in documents]
    await ingest.store.save_documents("acme", stored)
    points = await ingest.index.scroll(DOCUMENTS)
    vectors = await ingest.index.vectors(DOCUMENTS, [point.id for point in points])
    for point in points:
        payload = {name: value for name, value in point.payload.items() if name != "terms_version"}
        terms = document_terms(old[str(payload["doc_id"])], 100.0)
        await ingest.index.upsert(DOCUMENTS, [Point(point.id, vectors.get(point.id), terms, payload)])
    await ingest.store.mark_indexed("acme", {d.id: d.digest for d in documents})


async def find(ingest: Ingest, query: str) -> list[str]:
    weighed = await weigh_query_forms(query, partial(ingest.store.count_terms, "acme"))
    found = await ingest.index.lexical(DOCUMENTS, weighed.terms, where=EVERYTHING, limit=9)
    return [str(c.payload["doc_id"]) for c in found]


@pytest.mark.req("F-03")
async def test_documents_of_an_earlier_version_get_new_terms_once_and_keep_their_vectors() -> None:
    embedder = CountingEmbedder()
    ingest = await Ingest(embedder=embedder).open_all()
    await save_as_an_earlier_version(ingest, INVOICES, WEATHER, SHORT)
    assert [await find(ingest, q) for q in ("Rechnungen", "Rechnung", "天気", "wine")] == [["bill"], [], [], ["short"]]
    embedded = list(embedder.embedded)
    assert await ingest.service.repair() == 3
    assert list(embedder.embedded) == embedded
    assert await ingest.service.repair() == 0
    assert await ingest.store.list_outdated(limit=9) == {}
    found = [await find(ingest, q) for q in ("Rechnungen", "Rechnung", "天気", "wine")]
    assert found == [["bill"], ["bill"], ["weather"], ["short"]]
    await ingest.assert_whole()


@pytest.mark.req("F-03")
async def test_documents_of_both_versions_are_found_while_terms_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_documents, "DOCUMENTS_IN_A_BATCH", 1)
    ingest = await Ingest().open_all()
    many = [replace(INVOICES, id=f"bill {n}") for n in range(4)]
    await save_as_an_earlier_version(ingest, *many)
    seen: list[int] = []
    save_terms = ingest.store.save_terms

    async def search_and_save(tenant: str, documents: Sequence[StoredDocument]) -> None:
        seen.append(len(await find(ingest, "Rechnungen")))
        await save_terms(tenant, documents)

    monkeypatch.setattr(ingest.store, "save_terms", search_and_save)
    assert await ingest.service.repair() == 4
    assert seen == [4, 4, 4, 4]


@pytest.mark.req("F-03")
async def test_a_renewal_that_was_interrupted_is_finished_by_the_next_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    ingest = await Ingest().open_all()
    await save_as_an_earlier_version(ingest, INVOICES)
    with monkeypatch.context() as failing:

        async def fail(*_: object) -> None:
            raise Unavailable("the index is away")

        failing.setattr(ingest.index, "upsert", fail)
        with pytest.raises(Unavailable, match="away"):
            await ingest.service.repair()
    assert await ingest.store.list_pending() == {"acme": ["bill"]}
    assert await ingest.service.repair() == 1
    assert await find(ingest, "Rechnung") == ["bill"]
