"""Ingest of documents: only changed passages are embedded, stale points are removed, and a repair completes what was
interrupted at any call."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.catalogue import CountingEmbedder, Fuse
from tests.fixtures.document_ingest import Ingest, sentences
from tests.fixtures.examples import choose, scale_examples
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.domain.documents import Document, StoredDocument
from toolscript.domain.errors import Invalid, NotFound, Unavailable
from toolscript.domain.filters import Filter
from toolscript.domain.search import Point, Terms, Vector
from toolscript.ports.stores import DocumentStore
from toolscript.retrieval.text.item_text import document_frequencies
from toolscript.retrieval.text.words import term
from toolscript.services.documents.ingest import IngestDocuments, PutReport
from toolscript.services.documents.points import (
    DOCUMENTS,
    doc_of,
    first_parts,
    metadata_field,
    of_tenant,
    point_id,
)

pytestmark = pytest.mark.req("D-09")


SHORT = Document("short", "A short text about red wine.", "Wine", {"year": 2021, "tags": ["red", "dry"]})
LONG = Document("long", sentences(1, 2, 3, 4), "Facts", {"open": True})


@pytest.fixture
async def ingest() -> Ingest:
    return await Ingest().open_all()


@pytest.fixture
def embedded(ingest: Ingest) -> list[str]:
    assert isinstance(ingest.embedder, CountingEmbedder)
    return ingest.embedder.embedded


async def test_a_long_text_becomes_passages_that_carry_title_and_metadata(ingest: Ingest, embedded: list[str]) -> None:
    assert await ingest.service.put("acme", [LONG, SHORT]) == PutReport(added=2, changed=0, unchanged=0)
    points = {doc_of(c.id): c.payload for c in await ingest.index.scroll(DOCUMENTS)}
    assert list(points) == [("long", n) for n in range(len(points) - 1)] + [("short", 0)]
    assert len(points) == 5
    for (doc_id, part), payload in points.items():
        assert (payload["tenant"], payload["doc_id"], payload["part"]) == ("acme", doc_id, part)
    assert points["short", 0]["meta.year"] == 2021
    assert points["short", 0]["meta.title"] == "Wine"
    assert [points["long", n]["meta.open"] for n in range(4)] == [True] * 4
    assert [points["long", 0]["start"], points["long", 3]["end"]] == [0, len(LONG.text)]
    assert {t.partition(". ")[0] for t in embedded} == {"Facts", "Wine"}


async def test_a_title_in_the_metadata_is_the_title(ingest: Ingest) -> None:
    await ingest.service.put("acme", [replace(SHORT, metadata={"title": "Mine"}), Document("bare", "No title")])
    response = {
        c.payload["doc_id"]: c.payload.get(metadata_field("title")) for c in await ingest.index.scroll(DOCUMENTS)
    }
    assert response == {"short": "Mine", "bare": None}


async def test_each_document_is_found_once_by_a_word_in_any_passage(ingest: Ingest) -> None:
    text = sentences(1, 2, 3) + "\n\nAt the end stands a zebra."
    await ingest.service.put("acme", [replace(LONG, text=text)])
    found = await ingest.index.lexical(DOCUMENTS, Terms((term("zebra"),), (1.0,)), limit=9)
    assert [doc_of(c.id) for c in found] == [("long", 0)]
    assert await ingest.index.count(DOCUMENTS, Filter(must=(first_parts(),))) == 1


async def test_unchanged_documents_are_neither_stored_nor_embedded_again(ingest: Ingest, embedded: list[str]) -> None:
    await ingest.service.put("acme", [LONG, SHORT])
    embedded.clear()
    assert await ingest.service.put("acme", [LONG, SHORT]) == PutReport(added=0, changed=0, unchanged=2)
    assert embedded == []


async def test_other_metadata_embeds_nothing(ingest: Ingest, embedded: list[str]) -> None:
    await ingest.service.put("acme", [LONG])
    embedded.clear()
    changed = replace(LONG, metadata={"open": False})
    assert await ingest.service.put("acme", [changed]) == PutReport(added=0, changed=1, unchanged=0)
    assert embedded == []
    assert [c.payload["meta.open"] for c in await ingest.index.scroll(DOCUMENTS)] == [False] * 4
    await ingest.assert_whole()


async def test_only_the_passages_that_changed_are_embedded(ingest: Ingest, embedded: list[str]) -> None:
    await ingest.service.put("acme", [LONG])
    embedded.clear()
    await ingest.service.put("acme", [replace(LONG, text=LONG.text.replace("Fact 9 of paragraph 4", "What 9 of 4"))])
    (once,) = embedded
    assert "What 9 of 4" in once
    await ingest.assert_whole()


async def test_a_passage_that_moved_is_not_embedded_again(ingest: Ingest, embedded: list[str]) -> None:
    await ingest.service.put("acme", [replace(LONG, text=sentences(1, 2, 3, 4, 5))])
    embedded.clear()
    await ingest.service.put("acme", [replace(LONG, text=sentences(2, 3, 4, 5))])
    assert len(embedded) == 1
    await ingest.assert_whole()


async def test_a_shorter_text_leaves_no_stale_parts(ingest: Ingest) -> None:
    await ingest.service.put("acme", [LONG, SHORT])
    await ingest.service.put("acme", [replace(LONG, text="Nothing but this.")])
    assert [doc_of(c.id) for c in await ingest.index.scroll(DOCUMENTS)] == [("long", 0), ("short", 0)]
    await ingest.assert_whole()


async def test_the_last_of_equal_ids_counts(ingest: Ingest) -> None:
    assert (await ingest.service.put("acme", [LONG, replace(SHORT, id="long")])).added == 1
    assert await ingest.service.get("acme", "long") == replace(SHORT, id="long")
    await ingest.assert_whole()


async def test_a_document_without_words_is_stored(ingest: Ingest) -> None:
    await ingest.service.put("acme", [Document("dots", "... !")])
    assert (await ingest.service.get("acme", "dots")).text == "... !"
    await ingest.assert_whole()


@pytest.mark.req("X-03")
async def test_one_invalid_document_refuses_the_whole_request(ingest: Ingest) -> None:
    with pytest.raises(Invalid, match="document 'bad': text is blank"):
        await ingest.service.put("acme", [SHORT, Document("bad", " ")])
    assert await ingest.service.listing("acme") == []


async def test_documents_are_read_by_id_and_listed_in_pages(ingest: Ingest) -> None:
    await ingest.service.put("acme", [SHORT, LONG])
    assert await ingest.service.get("acme", "short") == SHORT
    assert await ingest.service.listing("acme", limit=1) == [LONG]
    assert await ingest.service.listing("acme", after="long") == [SHORT]
    with pytest.raises(NotFound, match="there is no document 'short'"):
        await ingest.service.get("other", "short")


async def test_deleted_documents_are_removed_from_store_and_index(ingest: Ingest) -> None:
    await ingest.service.put("acme", [SHORT, LONG])
    await ingest.service.put("other", [LONG])
    assert await ingest.service.delete("acme", ["long", "long", "unknown"]) == 1
    assert [c.payload["doc_id"] for c in await ingest.index.scroll(DOCUMENTS, where=Filter((of_tenant("acme"),)))] == [
        "short"
    ]
    await ingest.assert_whole()


@pytest.mark.slow
async def test_progress_counts_documents_up_to_all_of_them(ingest: Ingest) -> None:
    response: list[tuple[int, int]] = []
    many = [Document(f"d{n:03d}", sentences(n) if n % 2 else f"text {n}") for n in range(150)]
    await ingest.service.put("acme", many, lambda done, total: response.append((done, total)))
    assert response == sorted(response)
    assert len(response) > 2
    assert response[-1] == (150, 150)
    response.clear()
    await ingest.index.drop(DOCUMENTS)
    await ingest.open_all()
    assert await ingest.service.index_all(lambda done, total: response.append((done, total))) == 150
    assert response[-1] == (150, 150)
    await ingest.assert_whole()


async def test_without_a_model_documents_are_found_by_word_and_embedded_once_there_is_one(ingest: Ingest) -> None:
    bare = IngestDocuments(ingest.store, ingest.index, None)
    await bare.put("acme", [SHORT, LONG])
    assert await ingest.index.vectors(DOCUMENTS, [c.id for c in await ingest.index.scroll(DOCUMENTS)]) == {}
    found = await ingest.index.lexical(DOCUMENTS, Terms((term("wine"),), (1.0,)), limit=9)
    assert [doc_of(c.id) for c in found] == [("short", 0)]
    assert await bare.index_all() == 0
    assert await ingest.service.put("acme", [SHORT]) == PutReport(0, 0, 1)
    assert await ingest.service.index_all() == 1
    await ingest.assert_whole()


async def test_without_a_model_valid_vectors_are_kept(ingest: Ingest) -> None:
    await ingest.service.put("acme", [LONG])
    await IngestDocuments(ingest.store, ingest.index, None).put("acme", [replace(LONG, metadata={})])
    await ingest.assert_whole()


@pytest.mark.req("H-15")
async def test_index_all_brings_the_index_to_the_stored_documents(ingest: Ingest) -> None:
    await ingest.service.put("acme", [SHORT, LONG])
    await ingest.service.put("gone", [SHORT])
    expected = await ingest.contents()
    await ingest.store.delete_documents("gone", ["short"])
    await ingest.index.delete(DOCUMENTS, [point_id("acme", "long", 2)])
    old = Point('["acme", "short"]', None, Terms(), {"tenant": "acme", "doc_id": "short", "digest": SHORT.digest})
    await ingest.index.upsert(DOCUMENTS, [old, Point("stranger", None, Terms(), {})])
    assert await ingest.service.index_all() == 2
    del expected["points"][point_id("gone", "short", 0)], expected["documents"]["gone"]
    assert await ingest.contents() == expected


async def test_points_of_the_earlier_kind_are_replaced_by_a_repair(ingest: Ingest) -> None:
    await ingest.store.save_documents("acme", [StoredDocument(LONG, frozenset(document_frequencies(LONG)))])
    await ingest.index.upsert(
        DOCUMENTS,
        [
            Point(
                json.dumps(["acme", "long"]),
                await ingest.embedder.embed_query("x"),
                Terms(),
                {"tenant": "acme", "doc_id": "long", "digest": LONG.digest},
            )
        ],
    )
    assert await ingest.service.repair() == 1
    assert await ingest.service.repair() == 0
    await ingest.assert_whole()


class FailingEmbedder(HashedEmbedder):
    """Fails a given number of times."""

    failures = 1

    async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        if self.failures:
            self.failures -= 1
            raise Unavailable("the model is away")
        return await super().embed_documents(texts)


@pytest.mark.slow
async def test_documents_that_the_model_failed_on_are_completed_by_another_put() -> None:
    ingest = await Ingest(embedder=FailingEmbedder(32)).open_all()
    many = [Document(f"d{n:04d}", f"text number {n}") for n in range(250)]
    with pytest.raises(Unavailable, match="away"):
        await ingest.service.put("acme", many)
    stored = await ingest.store.count("acme")
    assert stored < len(many)
    await ingest.assert_whole()
    report = await ingest.service.put("acme", many)
    assert (report.unchanged, report.added) == (stored, len(many) - stored)
    await ingest.assert_whole()


async def test_a_cancelled_put_stops_its_work(ingest: Ingest) -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    class SlowEmbedder(HashedEmbedder):
        async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
            begun.set()
            await released.wait()
            return await super().embed_documents(texts)

    slow = IngestDocuments(ingest.store, ingest.index, SlowEmbedder(ingest.embedder.dimensions))
    put = asyncio.create_task(slow.put("acme", [LONG, SHORT]))
    await begun.wait()
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    assert await ingest.index.count(DOCUMENTS) == 0
    assert await ingest.store.count("acme") == 0
    await ingest.assert_whole()


async def test_while_one_batch_is_embedded_the_one_before_is_stored_and_indexed(ingest: Ingest) -> None:
    class SteppingEmbedder(HashedEmbedder):
        calls = 0

        async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
            self.calls += 1
            if self.calls == 2:
                while (await ingest.store.count("acme"), await ingest.index.count(DOCUMENTS)) != (32, 32):
                    pass
            return await super().embed_documents(texts)

    stepping = IngestDocuments(ingest.store, ingest.index, SteppingEmbedder(ingest.embedder.dimensions))
    async with asyncio.timeout(60):
        await stepping.put("acme", [Document(f"d{n:03d}", f"text {n}") for n in range(125)])
    await ingest.assert_whole()


@pytest.mark.slow
async def test_a_long_document_lets_short_ones_be_embedded_in_between(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    prepared: list[int] = []

    async def note(_: str, points: int) -> None:
        prepared.append(points)

    monkeypatch.setattr(ingest.index, "require_space", note)

    class SlowEmbedder(HashedEmbedder):
        async def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
            calls.append(len(texts))
            if len(calls) == 1:
                short = asyncio.create_task(service.put("other", [SHORT]))
                while len(prepared) < 2:  # then it waits for the model  # noqa: ASYNC110
                    await asyncio.sleep(0)
                under_way.append(short)
            return await super().embed_documents(texts)

    under_way: list[asyncio.Task[PutReport]] = []
    service = IngestDocuments(ingest.store, ingest.index, SlowEmbedder(ingest.embedder.dimensions))
    await service.put("acme", [replace(LONG, text=sentences(*range(150)))])
    await asyncio.gather(*under_way)
    assert calls.index(1) < len(calls) - 1
    await ingest.assert_whole()


@pytest.mark.slow
async def test_concurrent_puts_of_the_same_documents_end_in_one_complete_version(ingest: Ingest) -> None:
    def versions(of: int) -> list[Document]:
        order = random.Random(of).sample(range(30), 30)
        return [Document(f"d{n:02d}", sentences(*range(n % 4 + of % 3)) + f"Version {of}", f"T{of}") for n in order]

    await asyncio.gather(
        *(ingest.service.put("acme", versions(of)) for of in range(6)),
        ingest.service.delete("acme", [f"d{n:02d}" for n in range(0, 30, 3)]),
        ingest.service.repair(),
        ingest.service.index_all(),
    )
    assert {d.title for d in await ingest.store.get_documents("acme")} <= {f"T{of}" for of in range(6)}
    await ingest.assert_whole()


class InterruptedStore:
    """Lets another process write after this one has saved."""

    def __init__(self, store: DocumentStore, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._meanwhile = [meanwhile]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def save_documents(self, tenant: str, documents: Sequence[StoredDocument]) -> None:
        await self._store.save_documents(tenant, documents)
        while self._meanwhile:
            await self._meanwhile.pop()()


@pytest.mark.parametrize("other_version", [replace(LONG, text="Other"), replace(LONG, text=sentences(*range(9))), None])
async def test_when_two_processes_write_a_document_the_index_ends_as_the_store(
    ingest: Ingest, other_version: Document | None
) -> None:
    other = ingest.service
    meanwhile = (
        (lambda: other.put("acme", [other_version])) if other_version else (lambda: other.delete("acme", ["long"]))
    )
    store: Any = InterruptedStore(ingest.store, meanwhile)
    await IngestDocuments(store, ingest.index, ingest.embedder).put("acme", [LONG])
    assert await ingest.store.get_documents("acme") == ([other_version] if other_version else [])
    await ingest.assert_whole()


EARLIER = [LONG, SHORT, Document("same", "Stays as it is"), Document("gone", sentences(7, 8))]
LATER = [
    replace(LONG, text=sentences(1, 9)),
    replace(SHORT, metadata={"year": 2022}),
    EARLIER[2],
    Document("new", sentences(5, 6)),
]


async def put_later(service: IngestDocuments) -> None:
    await service.delete("acme", ["gone"])
    await service.put("acme", LATER)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    choose([("memory", False, 1), ("memory", True, 1), ("memory", True, 2), ("edge", True, 3)], ("memory", True, 2)),
    ids=str,
)
async def test_after_any_interrupted_call_a_repair_completes_store_and_index(
    case: tuple[str, bool, int], tmp_path: Path
) -> None:
    engine, halfway, step = case
    calls = 0
    while True:
        calls += step
        index = MemoryIndex() if engine == "memory" else QdrantEdgeIndex(tmp_path / str(calls))
        ingest = await Ingest(index=index).open_all()
        await ingest.service.put("acme", EARLIER)
        fuse = Fuse(halfway=halfway)
        cut_short = Ingest(ingest.store, index, ingest.embedder, fuse).service
        fuse.left = calls
        with suppress(ConnectionError):
            await put_later(cut_short)
        await ingest.service.repair()
        await ingest.assert_whole()
        stored = {d.id: d for d in await ingest.store.get_documents("acme")}
        assert all(stored.get(d.id) in (None, d, *EARLIER) for d in LATER)
        await put_later(ingest.service)
        await ingest.assert_whole()
        assert await ingest.store.get_documents("acme") == sorted(LATER, key=lambda d: d.id)
        await index.close()
        if not fuse.burnt_at:
            break
    assert calls > 12


def _ids() -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=5)


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(st.text(max_size=5), st.lists(st.tuples(_ids(), st.integers(0, 10_000_000)), min_size=2, max_size=6))
def test_the_ids_of_points_sort_by_document_and_part_and_can_be_read(tenant: str, named: list[tuple[str, int]]) -> None:
    ids = [point_id(tenant, doc_id, part) for doc_id, part in named]
    assert [doc_of(i) for i in sorted(ids)] == sorted(named)


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(st.lists(st.tuples(st.text(max_size=5), _ids(), st.integers(0, 20)), unique=True, min_size=2, max_size=6))
def test_no_two_passages_have_the_same_id(named: list[tuple[str, str, int]]) -> None:
    assert len({point_id(*each) for each in named}) == len(named)


async def test_a_repair_fills_a_replaced_index(ingest: Ingest) -> None:
    await ingest.service.put("acme", [LONG, SHORT])
    await ingest.service.put("other", [SHORT])
    existing = [c.id for c in await ingest.index.scroll(DOCUMENTS)]
    await ingest.index.delete(DOCUMENTS, [i for i in existing if doc_of(i)[0] == "short"])
    assert await ingest.service.repair() == 2
    assert [c.id for c in await ingest.index.scroll(DOCUMENTS)] == existing
    assert await ingest.service.repair() == 0
