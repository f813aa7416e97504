"""What every document store promises: above all, tenants do not see each other."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from tests.fixtures.document_ingest import Ingest, sentences
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.documents import ABANDONED_AFTER_SECONDS, SqlDocuments
from toolscript.domain.documents import Document, StoredDocument
from toolscript.domain.errors import Unavailable
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import TermCounts
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.stores import DocumentStore
from toolscript.services.documents.points import DOCUMENTS, doc_of, first_parts, metadata_field, of_tenant

pytestmark = pytest.mark.req("X-02", "H-15")

ONE = Document("one", "Some text", "A title", {"tags": ["x", "y"], "year": 2024, "open": True, "note": "ü"})
TWO = Document("two", "Other text")
NEW_TWO = Document("two", "Newer text")


def build_stored(document: Document, *terms: int) -> StoredDocument:
    return StoredDocument(document, frozenset(terms))


@pytest.fixture
def store(database: Database) -> DocumentStore:
    return SqlDocuments(database)


async def test_a_document_comes_back_as_it_was_saved(store: DocumentStore) -> None:
    await store.save_documents("acme", [build_stored(TWO), build_stored(ONE)])
    assert await store.get_documents("acme") == [ONE, TWO]
    assert await store.get_documents("acme", ["two", "unknown"]) == [TWO]
    assert await store.get_digests("acme", ["one", "unknown"]) == {"one": ONE.digest}


async def test_saving_again_replaces(store: DocumentStore) -> None:
    await store.save_documents("acme", [build_stored(ONE, 1)])
    changed = Document("one", "New text")
    await store.save_documents("acme", [build_stored(changed, 2)])
    assert await store.get_documents("acme") == [changed]
    assert (await store.count_terms("acme", [1, 2])).documents_with_term == {2: 1}


@pytest.mark.req("D-04")
async def test_tenants_share_neither_documents_nor_counts(store: DocumentStore) -> None:
    await store.save_documents("acme", [build_stored(ONE, 1, 2)])
    await store.save_documents("other", [build_stored(Document("one", "Theirs"), 1), build_stored(TWO, 1)])
    counts = await store.count_terms("acme", [1, 2])
    assert (counts.documents, counts.documents_with_term) == (1, {1: 1, 2: 1})
    assert await store.get_documents("acme") == [ONE]
    assert await store.delete_documents("acme", ["two"]) == 0
    assert len(await store.get_documents("other")) == 2
    assert await store.list_tenants() == ["acme", "other"]


async def test_deleting_returns_the_number_of_documents_and_subtracts_their_terms(store: DocumentStore) -> None:
    await store.save_documents("acme", [build_stored(ONE, 1), build_stored(TWO, 1, 2)])
    assert await store.delete_documents("acme", ["two", "unknown"]) == 1
    counts = await store.count_terms("acme", [1, 2])
    assert (counts.documents, counts.documents_with_term) == (1, {1: 1})


async def test_counts_equal_a_recount_after_many_changes(store: DocumentStore) -> None:
    now: dict[str, frozenset[int]] = {}
    for step in range(30):
        own_id = f"d{step * 7 % 11}"
        if step % 4 == 3:
            await store.delete_documents("acme", [own_id])
            now.pop(own_id, None)
        else:
            terms = frozenset({step % 5, step % 3 + 10})
            await store.save_documents("acme", [StoredDocument(Document(own_id, str(step)), terms)])
            now[own_id] = terms
    counts = await store.count_terms("acme", list(range(20)))
    assert counts.documents == len(now)
    assert counts.documents_with_term == Counter(t for terms in now.values() for t in terms)


@pytest.mark.req("D-09")
async def test_a_listing_is_ordered_by_code_points_and_continues_after_an_id(store: DocumentStore) -> None:
    ids = ["B", "a", "b", "a b", "ab", "Ä", "ä", "z", "é", "\U0001f600", "\uffee", "10", "9", "_"]
    await store.save_documents("acme", [build_stored(Document(i, "text")) for i in ids])
    await store.save_documents("other", [build_stored(Document("aa", "text"))])
    assert [d.id for d in await store.list_documents("acme", limit=100)] == sorted(ids)
    found: list[str] = []
    while page := await store.list_documents("acme", after=found[-1] if found else None, limit=3):
        found += [d.id for d in page]
    assert found == sorted(ids)
    assert await store.list_ids("acme", limit=100) == sorted(ids)
    assert await store.list_ids("acme", after="a", limit=2) == ["a b", "ab"]
    assert await store.list_documents("acme", after="a", limit=1) == [Document("a b", "text")]
    assert (await store.count("acme"), await store.count("other"), await store.count("none")) == (len(ids), 1, 0)


@pytest.mark.req("D-09")
async def test_saved_and_deleted_documents_are_pending_until_they_are_indexed(store: DocumentStore) -> None:
    await store.save_documents("acme", [build_stored(ONE), build_stored(TWO)])
    await store.save_documents("other", [build_stored(TWO)])
    assert await store.list_pending() == {"acme": ["one", "two"], "other": ["two"]}
    await store.mark_indexed("acme", {"one": ONE.digest, "two": TWO.digest, "unknown": None})
    assert await store.list_pending() == {"other": ["two"]}
    await store.delete_documents("acme", ["two", "unknown"])
    assert await store.list_pending() == {"acme": ["two"], "other": ["two"]}
    assert await store.get_documents("acme") == [ONE]
    assert await store.get_digests("acme", ["two"]) == {}
    assert (await store.list_documents("acme", limit=9), await store.count("acme")) == ([ONE], 1)
    await store.mark_indexed("acme", {"two": None})
    await store.mark_indexed("other", {"two": TWO.digest})
    assert await store.list_pending() == {}


@pytest.mark.req("D-09")
async def test_a_document_that_changed_since_it_was_indexed_stays_pending(store: DocumentStore) -> None:
    await store.save_documents("acme", [build_stored(ONE), build_stored(TWO)])
    await store.save_documents("acme", [build_stored(NEW_TWO)])
    await store.delete_documents("acme", ["one"])
    await store.mark_indexed("acme", {"one": ONE.digest, "two": TWO.digest})
    await store.mark_indexed("acme", {"two": None})
    assert await store.list_pending() == {"acme": ["one", "two"]}
    await store.save_documents("acme", [build_stored(ONE)])
    await store.mark_indexed("acme", {"one": None, "two": NEW_TWO.digest})
    assert await store.list_pending() == {"acme": ["one"]}


@pytest.mark.req("D-09")
async def test_documents_of_another_process_stay_pending_until_it_stopped_long_ago(database: Database) -> None:
    now = [1_000_000.0]
    mine, theirs = (SqlDocuments(database, clock=lambda: now[0]) for _ in range(2))
    await theirs.save_documents("acme", [build_stored(ONE), build_stored(TWO)])
    await mine.mark_pending("acme", ["one", "two"])
    await mine.delete_documents("acme", ["two"])
    await mine.mark_indexed("acme", {"one": ONE.digest, "two": None})
    assert await mine.list_pending() == {"acme": ["one", "two"]}
    await theirs.mark_indexed("acme", {"one": ONE.digest})
    assert await mine.list_pending() == {"acme": ["two"]}
    now[0] += ABANDONED_AFTER_SECONDS + 1
    await mine.mark_indexed("acme", {"two": None})
    assert await mine.list_pending() == {}


@pytest.mark.req("D-09")
async def test_ids_and_tenants_of_maximum_length_are_stored(store: DocumentStore, index: VectorIndex) -> None:
    letters = random.Random(1).sample(range(0x20000, 0x2A000), 384)
    tenant, own_id = ("".join(map(chr, part)) for part in (letters[:256], letters[256:]))
    await index.drop(DOCUMENTS)
    ingest = await Ingest(store, index).open_all()
    await ingest.service.put(tenant, [Document(own_id, "Some text")])
    await ingest.assert_whole()
    await index.drop(DOCUMENTS)


@pytest.mark.req("D-09")
async def test_marking_as_indexed_keeps_documents_that_are_saved_concurrently(store: DocumentStore) -> None:
    for step in range(20):
        await store.save_documents("acme", [build_stored(TWO)])
        newer = Document("two", f"text {step}")
        await asyncio.gather(
            store.mark_indexed("acme", {"two": TWO.digest}), store.save_documents("acme", [build_stored(newer)])
        )
        assert await store.get_documents("acme") == [newer]
        assert await store.list_pending() == {"acme": ["two"]}


@pytest.mark.req("F-03")
async def test_new_terms_are_saved_for_documents_that_have_not_changed(store: DocumentStore) -> None:
    documents = [Document("one", "text"), Document("two", "text"), Document("three", "text")]
    await store.save_documents("acme", [StoredDocument(d, frozenset({1, 2}), terms_version=1) for d in documents])
    assert {i for ids in [await store.list_outdated(limit=2)] for i in ids["acme"]} < {"one", "two", "three"}
    assert sorted((await store.list_outdated(limit=9))["acme"]) == ["one", "three", "two"]
    newer = Document("two", "newer")
    await store.save_documents("acme", [StoredDocument(newer, frozenset({5}))])
    await store.delete_documents("acme", ["three"])
    await store.save_terms("acme", [StoredDocument(d, frozenset({2, 3})) for d in documents])
    assert await store.list_outdated(limit=9) == {}
    assert await store.get_documents("acme") == [Document("one", "text"), newer]
    assert await store.count_terms("acme", [1, 2, 3, 5]) == TermCounts(2, {2: 1, 3: 1, 5: 1})


@pytest.mark.req("D-06")
async def test_a_closed_store_does_not_answer_a_ping(database: Database) -> None:
    store = SqlDocuments(database)
    await store.ping()
    await database.close()
    with pytest.raises(Unavailable):
        await store.ping()


@pytest.mark.req("D-09", "H-16")
async def test_store_and_index_agree_after_documents_are_added_changed_and_deleted(
    store: DocumentStore, index: VectorIndex
) -> None:
    await index.drop(DOCUMENTS)
    ingest = await Ingest(store, index).open_all()
    odd = Document("ü/ 1", sentences(1, 2, 3), "Odd \U0001f600", {"my field.x[0]": ["ä", 1, 0.5, True], "none": []})
    await ingest.service.put("acme", [ONE, TWO, odd])
    await ingest.service.put('o"ther', [odd])
    await ingest.assert_whole()
    await ingest.service.put("acme", [NEW_TWO, Document("ü/ 1", sentences(3), metadata={"n": -1.5})])
    await ingest.service.delete("acme", ["one"])
    await ingest.assert_whole()
    assert {doc_of(c.id)[0] for c in await index.scroll(DOCUMENTS, where=Filter((of_tenant("acme"),)))} == {
        "two",
        "ü/ 1",
    }
    where = Filter((of_tenant('o"ther'), first_parts(), Condition(metadata_field("my field.x[0]"), Op.EQ, 0.5)))
    assert await index.count(DOCUMENTS, where) == 1
    await index.drop(DOCUMENTS)
