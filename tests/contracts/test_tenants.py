"""Generated corpora: a tenant gets the same answers with and without other tenants' documents, and all pages together
equal one large answer. With every index, over both stores."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.engines import INDEXES, open_index
from tests.fixtures.event_sinks import NoEvents
from tests.fixtures.examples import choose, scale_examples
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.domain.access import Plan, Principal
from toolscript.domain.documents import Document
from toolscript.domain.errors import ToolscriptError
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.ports.indexes import VectorIndex
from toolscript.retrieval.retriever import Retriever
from toolscript.services.access.plans import Plans
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.page_tokens import PageTokens
from toolscript.services.documents.points import DOCUMENTS, documents_collection
from toolscript.services.documents.search import DocumentHit, DocumentPage, DocumentQuery, DocumentSearch, SearchType

pytestmark = pytest.mark.filterwarnings("ignore:Local mode performs exact")

OURS, THEIRS = "acme", "acme "
WORDS = ["wine", "red", "lease", "rent", "cellar", "zebra", "wines", "the"]
STORES = ["sqlite", "postgres"]
PAIRS = [f"{index}, {store}" for index, store in itertools.product(INDEXES, STORES)]
# Each index and each store.
FEW_PAIRS = ["memory, postgres", "qdrant-edge, sqlite", "qdrant-client-local, sqlite", "pgvector, postgres"]

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
long_texts = st.tuples(texts, texts).map(lambda two: f"{two[0]}. " * 60 + f"{two[1]}. " * 60)
documents = st.builds(
    Document,
    st.sampled_from([f"d{n}" for n in range(12)] + ["d 1", "d1/2", "é", "東京"]),
    st.one_of(texts, texts, long_texts),
    st.sampled_from(["", "Wine", "The lease"]),
    st.fixed_dictionaries(
        {}, optional={"year": st.integers(2020, 2023), "tags": st.lists(st.sampled_from(WORDS[:4]), max_size=2)}
    ),
)
corpora = st.lists(documents, min_size=1, max_size=14, unique_by=lambda d: d.id)
queries = st.one_of(st.none(), texts, st.sampled_from(["wine", "???", "unheard", "the"]))
filters = st.sampled_from(
    [
        Filter(),
        Filter(must=(Condition("year", Op.GTE, 2021),)),
        Filter(must_not=(Condition("tags", Op.IN, ["red"]),)),
        Filter(should=(Condition("title", Op.CONTAINS, "lease"), Condition("year", Op.EQ, 2020))),
    ]
)
KINDS: list[dict[str, Any]] = [
    {"search_type": SearchType.SEMANTIC},
    {"search_type": SearchType.KEYWORD},
    {"search_type": SearchType.HYBRID, "fusion": "rrf"},
    {"search_type": SearchType.HYBRID, "fusion": "zscore"},
]


@dataclass(frozen=True)
class Archive:
    """Documents of several tenants over one index and one store, emptied by each example."""

    ingest: IngestDocuments
    search: DocumentSearch
    run: Callable[[Coroutine[Any, Any, None]], None]
    digits: int = 6
    """The digits of a score that are compared."""

    async def replace_all(self, tenant: str, documents: Sequence[Document]) -> None:
        existing = await self.ingest.listing(tenant, limit=1000)
        await self.ingest.delete(tenant, [d.id for d in existing])
        await self.ingest.put(tenant, documents)

    async def page(self, ask: DocumentQuery, tenant: str = OURS) -> DocumentPage:
        return await self.search.search(Principal(tenant), ask)

    async def answer(self, ask: DocumentQuery) -> bytes:
        """The response without what differs from one request to the next: id, times, token."""
        try:
            page = await self.page(ask)
        except ToolscriptError as error:
            return json.dumps(error.to_envelope(), sort_keys=True).encode()
        comparable = {
            "hits": [asdict(hit) | {"score": round(hit.score, self.digits)} for hit in page.hits],
            "total": [page.total, page.total_relation],
            "more": page.next_page_token is not None,
            "degraded": page.report.degraded,
        }
        return json.dumps(comparable, sort_keys=True).encode()


@pytest.fixture(scope="module", params=choose(PAIRS, *FEW_PAIRS))
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    kind, store = request.param.split(", ")
    url = "sqlite://" if store == "sqlite" else request.getfixturevalue("postgres_server")
    with asyncio.Runner() as runner:
        database = Database(url)
        index = open_index(kind, tmp_path_factory.mktemp("index"), request)
        runner.run(index.drop(DOCUMENTS))
        # The client's local mode rounds the last digit of a score by the position of its row.
        digits = 4 if kind == "qdrant-client-local" else 6
        made = replace(_archive(index, database, runner.run), digits=digits)
        runner.run(index.open(documents_collection("hashed-16", 16)))
        yield made
        for tenant in (OURS, THEIRS):
            runner.run(made.replace_all(tenant, []))
        runner.run(index.close())
        runner.run(database.close())


def _archive(index: VectorIndex, database: Database, run: Callable[..., None]) -> Archive:
    embedder, store = HashedEmbedder(16), SqlDocuments(database)
    search = DocumentSearch(
        Retriever(embedder, index), index, store, Plans({"default": Plan()}), PageTokens(b"secret"), NoEvents()
    )
    return Archive(IngestDocuments(store, index, embedder), search, run)


@pytest.mark.req("D-04")
@settings(max_examples=scale_examples(7), deadline=None)
@given(ours=corpora, theirs=corpora, query=queries, where=filters, top_k=st.sampled_from([1, 3, 200]))
def test_answers_are_byte_identical_with_and_without_another_tenants_documents(
    archive: Archive, ours: list[Document], theirs: list[Document], query: str | None, where: Filter, top_k: int
) -> None:
    asks = [DocumentQuery(query, top_k=top_k, where=where, highlight=True, **kind) for kind in KINDS]
    asks.append(replace(asks[0], page_token="somebody's"))

    async def answers() -> list[bytes]:
        return [await archive.answer(ask) for ask in asks]

    async def compare() -> None:
        await archive.replace_all(THEIRS, [])
        await archive.replace_all(OURS, ours)
        alone = await answers()
        await archive.replace_all(THEIRS, theirs)
        assert await answers() == alone
        await archive.replace_all(OURS, [])
        assert json.loads((await answers())[0])["hits"] == []
        await archive.replace_all(OURS, ours[::-1])
        assert await answers() == alone
        await archive.replace_all(THEIRS, [])
        assert await answers() == alone

    archive.run(compare())


@pytest.mark.req("D-07", "D-12")
@settings(max_examples=scale_examples(5), deadline=None)
@given(
    ours=corpora,
    copies=st.integers(1, 3),
    theirs=corpora,
    query=queries,
    where=filters,
    size=st.integers(1, 5),
)
def test_all_pages_together_equal_one_large_answer_while_another_tenant_writes(
    archive: Archive,
    ours: list[Document],
    copies: int,
    theirs: list[Document],
    query: str | None,
    where: Filter,
    size: int,
) -> None:
    tied = [replace(d, id=f"{d.id}-{n}") for n in range(copies) for d in ours]
    writing = itertools.cycle([theirs, []])

    async def compare() -> None:
        await archive.replace_all(THEIRS, [])
        await archive.replace_all(OURS, tied)
        for kind in KINDS:
            ask = DocumentQuery(query, where=where, **kind)
            whole = await archive.page(replace(ask, top_k=200))
            assert whole.next_page_token is None
            assert list(whole.hits) == sorted(whole.hits, key=lambda h: (-h.score, h.doc_id))
            assert await _read_pages(archive, replace(ask, top_k=size), whole.total, writing) == whole.hits
            second = await archive.page(replace(ask, top_k=size, offset=size))
            assert second.hits == whole.hits[size : 2 * size]

    archive.run(compare())


async def _read_pages(
    archive: Archive, ask: DocumentQuery, total: int, writing: Iterator[list[Document]]
) -> list[DocumentHit]:
    """The hits of all pages, with the other tenant writing in between."""
    hits: list[DocumentHit] = []
    token: str | None = None
    while True:
        page = await archive.page(replace(ask, page_token=token))
        assert page.total == total
        assert page.total >= len(hits) + len(page.hits)
        hits += page.hits
        token = page.next_page_token
        if token is None:
            return hits
        assert len(page.hits) == ask.top_k
        await archive.replace_all(THEIRS, next(writing))
