"""What every document store promises, above all that tenants do not see each other."""

from __future__ import annotations

from collections import Counter

import pytest

from toolscript.adapters.sql_database import Database
from toolscript.adapters.sql_documents import SqlDocuments
from toolscript.domain.documents import Document, StoredDocument
from toolscript.ports import DocumentStore

pytestmark = pytest.mark.req("X-02", "H-15")

ONE = Document("one", "Some text", "A title", {"tags": ["x", "y"], "year": 2024, "open": True, "note": "ü"})
TWO = Document("two", "Other text")


def stored(document: Document, *terms: int) -> StoredDocument:
    return StoredDocument(document, frozenset(terms))


@pytest.fixture
def store(database: Database) -> DocumentStore:
    return SqlDocuments(database)


async def test_a_document_comes_back_as_it_was_saved(store: DocumentStore) -> None:
    await store.save_documents("acme", [stored(TWO), stored(ONE)])
    assert await store.documents("acme") == [ONE, TWO]
    assert await store.documents("acme", ["two", "unknown"]) == [TWO]
    assert await store.digests("acme", ["one", "unknown"]) == {"one": ONE.digest}


async def test_saving_again_replaces(store: DocumentStore) -> None:
    await store.save_documents("acme", [stored(ONE, 1)])
    changed = Document("one", "New text")
    await store.save_documents("acme", [stored(changed, 2)])
    assert await store.documents("acme") == [changed]
    assert (await store.term_counts("acme", [1, 2])).holding == {2: 1}


@pytest.mark.req("D-04")
async def test_tenants_share_neither_documents_nor_counts(store: DocumentStore) -> None:
    await store.save_documents("acme", [stored(ONE, 1, 2)])
    await store.save_documents("other", [stored(Document("one", "Theirs"), 1), stored(TWO, 1)])
    counts = await store.term_counts("acme", [1, 2])
    assert (counts.documents, counts.holding) == (1, {1: 1, 2: 1})
    assert await store.documents("acme") == [ONE]
    assert await store.delete_documents("acme", ["two"]) == 0
    assert len(await store.documents("other")) == 2
    assert await store.tenants() == ["acme", "other"]


async def test_deleting_tells_how_many_there_were_and_takes_their_terms(store: DocumentStore) -> None:
    await store.save_documents("acme", [stored(ONE, 1), stored(TWO, 1, 2)])
    assert await store.delete_documents("acme", ["two", "unknown"]) == 1
    counts = await store.term_counts("acme", [1, 2])
    assert (counts.documents, counts.holding) == (1, {1: 1})


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
    counts = await store.term_counts("acme", list(range(20)))
    assert counts.documents == len(now)
    assert counts.holding == Counter(t for terms in now.values() for t in terms)
