"""Pages of keyword search: they are the ranking of plain BM25, and the total is the same on each."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.engines import open_index
from tests.fixtures.catalogue import Events
from tests.fixtures.examples import scale_examples
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.qdrant import index as qdrant_index
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.domain.access import Principal
from toolscript.domain.documents import Document
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.ports.indexes import VectorIndex
from toolscript.retrieval.bm25 import K1, B
from toolscript.retrieval.retriever import Retriever
from toolscript.retrieval.text.item_text import DOCUMENT_AVERAGE_LENGTH
from toolscript.services.access.plans import Plans
from toolscript.services.documents import ranking as document_ranking
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.page_tokens import PageTokens
from toolscript.services.documents.points import documents_collection
from toolscript.services.documents.search import DocumentPage, DocumentQuery, DocumentSearch, SearchType

pytestmark = pytest.mark.slow

WORDS = ["qua", "que", "quo", "rua", "rue", "ruo"]
ODD = Filter(must=(Condition("odd", Op.EQ, 1),))
# Few, so that rankings are cut, among equal scores too.
DEPTH = 15

Texts = Sequence[Sequence[str]]


@dataclass
class Library:
    """Document search over one engine; every example has a tenant of its own."""

    index: VectorIndex
    store: SqlDocuments
    is_exact: bool
    run: Callable[[Coroutine[Any, Any, Any]], Any]
    tenants: Iterator[int] = field(default_factory=itertools.count)

    async def put(self, texts: Texts) -> Principal:
        tenant = f"tenant-{next(self.tenants)}"
        documents = [Document(f"d{n}", " ".join(words), "", {"odd": n % 2}) for n, words in enumerate(texts)]
        await IngestDocuments(self.store, self.index, HashedEmbedder(64)).put(tenant, documents)
        return Principal(tenant)

    async def read_pages(self, who: Principal, query: str, where: Filter, top_k: int) -> list[DocumentPage]:
        retriever = Retriever(None, self.index)
        service = DocumentSearch(retriever, self.index, self.store, Plans({}), PageTokens(b"secret"), Events())
        ask = DocumentQuery(query, search_type=SearchType.KEYWORD, where=where, top_k=top_k)
        pages = [await service.search(who, ask)]
        for offset in range(top_k, DEPTH + top_k, top_k):
            following = DocumentQuery(query, top_k, offset, SearchType.KEYWORD, where=where)
            pages.append(await service.search(who, following))
        return pages


@pytest.fixture(scope="module", params=["memory", "qdrant-edge", "qdrant-client-local", "pgvector"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_ranking, "MAX_PLACES", DEPTH)
        patch.setattr(qdrant_index, "MAX_TIES", 1)
        index = open_index(request.param, tmp_path_factory.mktemp("index"), request)
        runner.run(index.drop("documents"))
        runner.run(index.open(documents_collection("hashed-64", 64)))
        database = Database("sqlite://")
        yield Library(index, SqlDocuments(database), request.param == "memory", runner.run)
        runner.run(index.close())
        runner.run(database.close())


def rank_plainly(texts: Texts, query: Sequence[str]) -> dict[str, float]:
    """The scores of plain BM25, best first, equal ones by id."""
    holding = Counter(word for words in texts for word in set(words))
    scores: dict[str, float] = {}
    for number, words in enumerate(texts):
        norm = K1 * (1 - B + B * len(words) / DOCUMENT_AVERAGE_LENGTH)
        score = 0.0
        for word in query:
            idf = math.log(1 + (len(texts) - holding[word] + 0.5) / (holding[word] + 0.5))
            score += idf * words.count(word) * (K1 + 1) / (words.count(word) + norm)
        if not set(words).isdisjoint(query):
            scores[f"d{number}"] = round(score, 6)
    return dict(sorted(scores.items(), key=lambda each: (-each[1], each[0])))


def check_order(found: Sequence[tuple[str, float]], expected: Mapping[str, float], *, is_exact: bool) -> None:
    """The expected documents in their order; engines that add up in single precision may swap nearly equal ones."""
    best = [*expected.items()][:DEPTH]
    if is_exact:
        assert [own_id for own_id, _ in found] == [own_id for own_id, _ in best]
    assert [*found] == sorted(found, key=lambda each: (-each[1], each[0]))
    assert len({own_id for own_id, _ in found}) == len(found)
    assert [score for _, score in found] == pytest.approx([score for _, score in best], abs=1e-5)
    assert [expected[own_id] for own_id, _ in found] == pytest.approx([score for _, score in found], abs=1e-5)


texts = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), min_size=1, max_size=40)
queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)


@pytest.mark.req("D-02", "D-03", "D-04", "D-07")
@settings(max_examples=scale_examples(25), deadline=None)
@given(texts=texts, query=queries, where=st.sampled_from([EVERYTHING, ODD]), top_k=st.integers(1, DEPTH))
def test_pages_by_word_are_those_of_plain_bm25_with_a_constant_total(
    library: Library, texts: Texts, query: list[str], where: Filter, top_k: int
) -> None:
    who = library.run(library.put(texts))
    expected = rank_plainly(texts, query)
    if where is ODD:
        expected = {own_id: score for own_id, score in expected.items() if int(own_id[1:]) % 2}
    pages: list[DocumentPage] = library.run(library.read_pages(who, " ".join(query), where, top_k))
    total, relation = min(len(expected), DEPTH), "gte" if len(expected) >= DEPTH else "eq"
    assert {(page.total, page.total_relation) for page in pages} == {(total, relation)}
    check_order([(h.doc_id, h.score) for page in pages for h in page.hits], expected, is_exact=library.is_exact)


@pytest.mark.req("D-02", "D-07")
@pytest.mark.parametrize("top_k", [4, 200])
def test_documents_that_score_alike_are_paged_by_id(library: Library, top_k: int) -> None:
    who = library.run(library.put([["qua", "rue"]] * 60))
    pages: list[DocumentPage] = library.run(library.read_pages(who, "qua", EVERYTHING, top_k))
    alike = sorted(f"d{n}" for n in range(60))
    assert [h.doc_id for page in pages for h in page.hits] == alike[:DEPTH]
    assert {(page.total, page.total_relation) for page in pages} == {(DEPTH, "gte")}
