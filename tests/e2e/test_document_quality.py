"""Searching documents by word is as good as the reference implementation of BM25 on the same texts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import bm25s
import pytest
import Stemmer

from tests.fixtures.databases import open_memory_database
from tests.fixtures.event_sinks import NoEvents
from toolscript.adapters.memory import MemoryIndex
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.domain.access import Principal
from toolscript.evaluation.datasets import DocumentSet, read_set
from toolscript.evaluation.metrics import mean, score_by_grade
from toolscript.retrieval.retriever import Retriever
from toolscript.retrieval.text.item_text import build_document_text
from toolscript.services.access.plans import Plans
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.page_tokens import PageTokens
from toolscript.services.documents.points import documents_collection
from toolscript.services.documents.search import DocumentQuery, DocumentSearch, SearchType

DATA = Path(os.environ.get("TOOLSCRIPT_TEST_DATA", Path(__file__).parents[3] / "shared" / "data")) / "documents"
TENANT = Principal("readers")
# Every third query of a set, among all of its documents.
STEP = 3


async def _by_word(data: DocumentSet) -> float:
    database, index = open_memory_database(), MemoryIndex()
    await index.open(documents_collection("none", 1))
    store = SqlDocuments(database)
    await IngestDocuments(store, index, None).put(TENANT.tenant, [d for d in data.documents if d.text.strip()])
    search = DocumentSearch(Retriever(None, index), index, store, Plans({}), PageTokens(b"x" * 32), NoEvents())
    scores = []
    for query in data.queries:
        ask = DocumentQuery(query.text, top_k=100, search_type=SearchType.KEYWORD, include_snippets=False)
        scores.append(score_by_grade(query, [hit.doc_id for hit in (await search.search(TENANT, ask)).hits]))
    await database.close()
    return mean(scores)["ndcg@10"]


def _by_the_reference(data: DocumentSet) -> float:
    documents = [d for d in data.documents if d.text.strip()]
    stemmer = Stemmer.Stemmer("english")

    def split(texts: list[str]) -> object:
        return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)

    reference = bm25s.BM25(method="lucene")
    reference.index(split([build_document_text(d) for d in documents]), show_progress=False)
    found, scores = reference.retrieve(split([q.text for q in data.queries]), k=100, show_progress=False)
    rows = zip(data.queries, found, scores, strict=True)
    judged = [
        score_by_grade(query, [documents[i].id for i, score in zip(row, of_row, strict=True) if score > 0])
        for query, row, of_row in rows
    ]
    return mean(judged)["ndcg@10"]


@pytest.mark.extended
@pytest.mark.req("D-02")
@pytest.mark.skipif(not DATA.is_dir(), reason="the sets of documents are not here: set TOOLSCRIPT_TEST_DATA")
@pytest.mark.parametrize("name", ["cranfield", "med"])
async def test_a_search_by_word_is_as_good_as_the_reference(name: str) -> None:
    data = read_set(DATA / name)
    assert isinstance(data, DocumentSet)
    data = replace(data, queries=data.queries[::STEP])
    assert await _by_word(data) == pytest.approx(_by_the_reference(data), abs=0.01)
