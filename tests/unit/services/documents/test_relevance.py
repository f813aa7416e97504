"""The relevance of documents: a probability for every hit, a minimum that filters, and pages that stay consistent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from tests.unit.services.documents.test_search import ACME, HYBRID, KEYWORD, SEMANTIC, Archive, LengthEmbedder
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.onnx.model_folders import PACKAGED, find_locally
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.search import SimilarityRange
from toolscript.retrieval.relevance import LEARNED
from toolscript.services.documents import ranking as document_ranking
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.points import documents_collection
from toolscript.services.documents.search import DocumentHit, DocumentPage, DocumentQuery, SearchType

pytestmark = pytest.mark.req("F-03")

KINDS = (SEMANTIC, KEYWORD, HYBRID)
WORDS = ("red", "wine", "rent", "lease", "month", "dry")
texts = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=25)


class Unfitted(HashedEmbedder):
    """A model that relevances were not fitted with."""

    similarity = SimilarityRange(0.0, 1.0)


async def search(archive: Archive, query: str, kind: SearchType, **fields: object) -> DocumentPage:
    return await archive.service.search(ACME, DocumentQuery(query, search_type=kind, **fields))  # type: ignore[arg-type]


async def fill(bodies: list[str]) -> Archive:
    archive = Archive()
    await archive.index.open(documents_collection("hashed-64", 64))
    await archive.put(*(Document(f"d{number:02}", body) for number, body in enumerate(bodies)))
    return archive


async def read_pages(
    archive: Archive, ask: DocumentQuery
) -> tuple[list[DocumentHit], set[tuple[int, Literal["eq", "gte"], bool]]]:
    hits, totals = [], set()
    while True:
        page = await archive.service.search(ACME, ask)
        hits += page.hits
        totals.add((page.total, page.total_relation, page.nothing_relevant))
        if page.next_page_token is None:
            return hits, totals
        ask = replace(ask, page_token=page.next_page_token)


@pytest.mark.slow
@pytest.mark.req("D-07")
@pytest.mark.parametrize("depth", [5, 1000])
@settings(max_examples=scale_examples(25), deadline=None)
@given(
    bodies=texts,
    query=st.lists(st.sampled_from((*WORDS, "zebra")), min_size=1, max_size=3).map(" ".join),
    kind=st.sampled_from(KINDS),
    minimum=st.floats(0, 1),
    size=st.integers(1, 7),
)
def test_a_minimum_filters_the_whole_answer_and_pages_of_it_are_contiguous(
    depth: int, bodies: list[str], query: str, kind: SearchType, minimum: float, size: int
) -> None:
    async def compare() -> None:
        archive = await fill(bodies)
        whole = await search(archive, query, kind, top_k=200)
        assert all(hit.relevance is not None and 0 <= hit.relevance <= 1 for hit in whole.hits)
        expected = [hit for hit in whole.hits if (hit.relevance or 0) >= minimum]
        ask = DocumentQuery(query, search_type=kind, top_k=size, min_relevance=minimum)
        hits, totals = await read_pages(archive, ask)
        ((total, relation, nothing),) = totals
        assert hits == expected
        assert total == len(expected) or (relation == "gte" and total >= len(expected))
        assert nothing is not bool(expected)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_ranking, "DEPTH", depth)
        asyncio.run(compare())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_nonsense_query_finds_nothing_relevant_and_hides_nothing(kind: SearchType) -> None:
    archive = await fill(["red wine from the south", "the rent is due", "a lease of ten years"])
    nonsense = await search(archive, "asdf qwer zxcv", kind)
    assert nonsense.nothing_relevant
    assert all((hit.relevance or 0) < LEARNED.threshold for hit in nonsense.hits)
    assert len(nonsense.hits) == (0 if kind is KEYWORD else 3)
    assert (await search(archive, "asdf qwer zxcv", kind, min_relevance=LEARNED.threshold)).total == 0
    assert not (await search(archive, "red wine from the south", kind)).nothing_relevant


@pytest.mark.parametrize("kind", [KEYWORD, HYBRID])
async def test_a_word_that_stands_in_one_text_only_is_never_answered_with_nothing_relevant(kind: SearchType) -> None:
    texts = [f"Report {number}. {'The rent of the lease is due each month. ' * 80}" for number in range(12)]
    texts[7] += "Their agent in Fuzhou was told."
    archive = await fill(texts)
    found = await search(archive, "fuzhou", kind)
    assert (found.hits[0].doc_id, found.nothing_relevant) == ("d07", False)
    assert (found.hits[0].relevance or 0) >= LEARNED.threshold
    kept = await search(archive, "fuzhou", kind, min_relevance=LEARNED.threshold)
    assert ([hit.doc_id for hit in kept.hits], kept.nothing_relevant) == (["d07"], False)
    foreign = await search(archive, "roast chicken with potatoes as in Fuzhou", kind)
    assert (foreign.hits[0].doc_id, foreign.nothing_relevant) == ("d07", True)


@pytest.mark.req("D-07")
@pytest.mark.parametrize("kind", KINDS)
async def test_every_page_says_whether_anything_is_relevant(kind: SearchType) -> None:
    archive = await fill(["red wine", "red", *["a long text in which there is some wine among many other words"] * 8])
    for query in ("red wine", "zebra wine asdf qwer zxcv uiop hjkl"):
        whole = await search(archive, query, kind, top_k=200)
        _, totals = await read_pages(archive, DocumentQuery(query, search_type=kind, top_k=3))
        assert totals == {(whole.total, whole.total_relation, whole.nothing_relevant)}


async def test_documents_that_words_and_meaning_find_are_more_relevant_than_others() -> None:
    archive = await fill(["red wine from the south", "wine glasses", "the rent is due"])
    hits = (await search(archive, "red wine from the south", HYBRID)).hits
    relevances = [hit.relevance or 0 for hit in hits]
    assert [hit.doc_id for hit in hits] == ["d00", "d01", "d02"]
    assert relevances == sorted(relevances, reverse=True)
    assert relevances[0] > LEARNED.threshold > relevances[-1]


async def test_a_request_by_filter_has_no_relevance() -> None:
    archive = await fill(["red wine"])
    page = await archive.service.search(ACME, DocumentQuery())
    assert ([hit.relevance for hit in page.hits], page.nothing_relevant) == ([None], False)
    with pytest.raises(InvalidArguments, match="min_relevance requires a query"):
        await archive.service.search(ACME, DocumentQuery(min_relevance=0.5))


@pytest.mark.parametrize("minimum", [-0.1, 1.1, float("nan")])
async def test_a_minimum_out_of_range_is_refused(minimum: float) -> None:
    with pytest.raises(InvalidArguments, match="min_relevance"):
        await search(Archive(), "wine", HYBRID, min_relevance=minimum)


async def test_a_page_token_belongs_to_one_minimum() -> None:
    archive = await fill(["red wine", "red wine too", "more red wine"])
    page = await search(archive, "red wine", HYBRID, top_k=1, min_relevance=0.1)
    with pytest.raises(Invalid, match="another search"):
        await search(archive, "red wine", HYBRID, top_k=1, page_token=page.next_page_token)


async def test_reranking_changes_the_order_and_not_the_relevance() -> None:
    archive = await fill(["red wine", "the rent, which is due on the first day of the month", "wine"])
    archive.reranker = LengthEmbedder()
    plain, reranked = [(await search(archive, "red wine", HYBRID, rerank=rerank)).hits for rerank in (False, True)]
    assert [hit.doc_id for hit in plain] != [hit.doc_id for hit in reranked]
    assert {(hit.doc_id, hit.relevance) for hit in plain} == {(hit.doc_id, hit.relevance) for hit in reranked}
    minimum = plain[0].relevance
    kept = (await search(archive, "red wine", HYBRID, rerank=True, min_relevance=minimum)).hits
    assert kept == [hit for hit in reranked if (hit.relevance or 0) >= (minimum or 0)]


@pytest.mark.parametrize("embedder", [None, Unfitted(64)])
async def test_without_a_fitted_model_words_alone_decide(embedder: HashedEmbedder | None) -> None:
    archive = await fill(["red wine", "the rent is due"])
    words = await search(archive, "red wine", KEYWORD)
    archive.embedder = embedder
    page = await search(archive, "red wine", HYBRID)
    assert page.hits[0].relevance == words.hits[0].relevance
    assert not page.nothing_relevant


async def test_a_semantic_search_without_a_fitted_model_has_no_relevance() -> None:
    archive = await fill(["red wine", "the rent is due"])
    archive.embedder = Unfitted(64)
    page = await search(archive, "asdf qwer zxcv", SEMANTIC)
    assert ({hit.relevance for hit in page.hits}, page.nothing_relevant) == ({None}, False)
    with pytest.raises(InvalidArguments, match="min_relevance: unknown"):
        await search(archive, "red wine", SEMANTIC, min_relevance=0.1)


@pytest.mark.slow
async def test_with_the_packaged_model_questions_about_something_else_find_nothing_relevant() -> None:
    folder = find_locally(PACKAGED, Path("nowhere"))
    assert folder is not None
    embedder = OnnxEmbedder(folder, device="cpu")
    archive = Archive(embedder=embedder)
    await archive.index.open(documents_collection(embedder.model, embedder.dimensions))
    wing = "The lift of a thin wing at supersonic speed is computed from the pressure distribution on its surface."
    layer = "Heat transfer in a laminar boundary layer on a flat plate with a variable wall temperature is measured."
    documents = [Document("wing", wing), Document("layer", layer)]
    await IngestDocuments(archive.store, archive.index, embedder).put("acme", documents)
    for query in ("asdf qwer zxcv", "how long should I roast a chicken with potatoes"):
        for kind in KINDS:
            assert (await search(archive, query, kind)).nothing_relevant
    found = await search(archive, "how is heat transferred in a laminar boundary layer", HYBRID)
    assert (found.hits[0].doc_id, found.nothing_relevant) == ("layer", False)
    assert (found.hits[0].relevance or 0) > 0.5
    await embedder.close()
