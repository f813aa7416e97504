"""Documents come in once and are found by meaning, by word and by both, inside one tenant."""

from __future__ import annotations

import pytest

from toolscript.app import App
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.services.document_search import SearchType
from toolscript.services.ingest_documents import DOCUMENTS

LEASE = Document("lease", "The tenant pays the rent on the first day of the month.", "Lease", {"year": 2023})
WINE = Document("wine", "Red wine from the south, dry and strong.", "Wine list", {"year": 2021, "tags": ["red"]})
RENT = Document("rent", "Rent may rise once a year.", "Rent law", {"year": 2023, "tags": ["law"]})


@pytest.fixture
async def filled(app: App) -> App:
    assert await app.ingest_documents.put("acme", [LEASE, WINE, RENT]) == 3
    return app


@pytest.mark.req("D-02")
@pytest.mark.parametrize("search_type", list(SearchType))
@pytest.mark.parametrize("fusion", ["rrf", "zscore"])
async def test_each_type_of_search_finds_the_document_that_shares_the_words(
    filled: App, search_type: SearchType, fusion: str
) -> None:
    found = await filled.document_search.search("acme", "red wine", search_type=search_type, fusion=fusion)
    assert found.hits[0].doc_id == "wine"


@pytest.mark.req("D-02")
async def test_keyword_search_leaves_out_what_shares_no_word(filled: App) -> None:
    found = await filled.document_search.search("acme", "rents", search_type=SearchType.KEYWORD)
    assert {h.doc_id for h in found.hits} == {"rent", "lease"}


@pytest.mark.req("D-04")
async def test_another_tenant_finds_nothing_of_it(filled: App) -> None:
    assert (await filled.document_search.search("other", "red wine")).hits == []


@pytest.mark.req("D-03")
async def test_filters_narrow_the_search(filled: App) -> None:
    where = Filter(must=(Condition("meta.year", Op.GTE, 2022),), must_not=(Condition("meta.tags", Op.EQ, "law"),))
    found = await filled.document_search.search("acme", "rent and wine", where=where)
    assert [h.doc_id for h in found.hits] == ["lease"]


@pytest.mark.req("D-09")
async def test_unchanged_documents_are_left_alone_and_changed_ones_replaced(filled: App) -> None:
    assert await filled.ingest_documents.put("acme", [LEASE, WINE]) == 0
    assert await filled.ingest_documents.put("acme", [Document("wine", "White wine only")]) == 1
    found = await filled.document_search.search("acme", "red", search_type=SearchType.KEYWORD)
    assert found.hits == []
    assert await filled.index.count(DOCUMENTS) == 3


@pytest.mark.req("H-15")
async def test_what_the_index_lost_is_put_back_from_the_store(filled: App) -> None:
    await filled.index.delete(DOCUMENTS, ['["acme", "wine"]'])
    assert await filled.ingest_documents.index_all() == 1
    assert (await filled.document_search.search("acme", "red wine")).hits[0].doc_id == "wine"


@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    ("query", "wrong", "told"),
    [
        ("  ", {}, "blank"),
        ("x", {"top_k": 0}, "give 1 to 200"),
        ("x", {"top_k": 201}, "give 1 to 200"),
        ("x", {"fusion": "best"}, "rrf or zscore"),
    ],
)
async def test_a_wrong_request_is_refused(app: App, query: str, wrong: dict[str, object], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        await app.document_search.search("acme", query, **wrong)  # type: ignore[arg-type]


@pytest.mark.req("D-04")
async def test_tenants_and_ids_that_look_alike_put_together_stay_apart(app: App) -> None:
    await app.ingest_documents.put("a", [Document("b/c", "red wine of the first")])
    await app.ingest_documents.put("a/b", [Document("c", "red wine of the second")])
    assert [h.doc_id for h in (await app.document_search.search("a", "red wine")).hits] == ["b/c"]
    assert [h.doc_id for h in (await app.document_search.search("a/b", "red wine")).hits] == ["c"]


@pytest.mark.req("D-09")
async def test_a_deleted_document_is_not_found_again(filled: App) -> None:
    assert await filled.ingest_documents.delete("acme", ["wine", "unknown"]) == 1
    assert (await filled.document_search.search("acme", "red", search_type=SearchType.KEYWORD)).hits == []


@pytest.mark.req("H-15")
async def test_what_the_store_no_longer_has_leaves_the_index(filled: App) -> None:
    await filled.documents.delete_documents("acme", ["wine"])
    await filled.ingest_documents.index_all()
    assert await filled.index.count(DOCUMENTS) == 2
