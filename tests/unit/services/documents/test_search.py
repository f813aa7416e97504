"""Document search: every type, filters, pages, plans, reranking, streams, events, and what happens when things fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from tests.fixtures.catalogue import Events
from tests.fixtures.databases import open_memory_database
from tests.fixtures.examples import choose
from tests.fixtures.faults import Fault, FaultyAdapter, hang, raising
from tests.fixtures.limits import set_limits
from tests.fixtures.requests import as_request
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.domain.access import Plan, Principal
from toolscript.domain.deadline import Deadline
from toolscript.domain.documents import Document, StoredDocument
from toolscript.domain.errors import Forbidden, Invalid, InvalidArguments, RateLimited, ToolscriptError, Unavailable
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import SearchReport, Vector
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder, Reranker
from toolscript.ports.stores import DocumentStore
from toolscript.retrieval.retriever import Retriever
from toolscript.services.access.plans import Plans
from toolscript.services.documents import hits as document_hits
from toolscript.services.documents import hits as document_reading
from toolscript.services.documents import ranking as document_ranking
from toolscript.services.documents import search as document_search
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.page_tokens import PageTokens
from toolscript.services.documents.points import DOCUMENTS, documents_collection
from toolscript.services.documents.request import DocumentRun
from toolscript.services.documents.search import DocumentHit, DocumentQuery, DocumentSearch, SearchType

ACME = Principal("acme")
LEASE = Document("lease", "The tenant pays the rent on the first day of the month.", "Lease", {"year": 2023})
WINE = Document("wine", "Red wine from the south, dry and strong.", "Wine list", {"year": 2021, "tags": ["red"]})
RENT = Document("rent", "Rent may rise once a year.", "", {"year": 2023, "tags": ["law"], "title": "A law"})

SEMANTIC, KEYWORD, HYBRID = SearchType.SEMANTIC, SearchType.KEYWORD, SearchType.HYBRID


class LengthEmbedder:
    """A reranker that prefers long passages and records what it reads."""

    model = "longest-first"

    def __init__(self) -> None:
        self.read: list[tuple[str, list[str]]] = []
        self.says: list[float] | None = None
        self.fails = False
        self.hangs = False

    async def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        self.read.append((query, list(passages)))
        if self.fails:
            raise Unavailable("no")
        if self.hangs:
            await asyncio.Event().wait()
        return self.says if self.says is not None else [len(p) / 100 for p in passages]

    async def close(self) -> None: ...


class Nonsense(HashedEmbedder):
    async def embed_query(self, text: str) -> Vector:
        return np.full(64, np.nan, np.float32)


@dataclass
class Archive:
    """Everything that document search needs, each part replaceable."""

    index: VectorIndex = field(default_factory=MemoryIndex)
    store: DocumentStore = field(default_factory=lambda: SqlDocuments(open_memory_database()))
    embedder: Embedder | None = field(default_factory=lambda: HashedEmbedder(64))
    reranker: Reranker | None = None
    plans: Mapping[str, Plan] = field(default_factory=dict)
    events: Events = field(default_factory=Events)
    spans: list[str] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic

    @property
    def service(self) -> DocumentSearch:
        return DocumentSearch(
            Retriever(self.embedder, self.index),
            self.index,
            self.store,
            Plans(self.plans),
            PageTokens(b"secret"),
            self.events,
            reranker=self.reranker,
            span=self._span,
            clock=self.clock,
        )

    @contextmanager
    def _span(self, name: str) -> Any:
        self.spans.append(name)
        yield

    async def put(self, *documents: Document, tenant: str = "acme") -> None:
        await IngestDocuments(self.store, self.index, HashedEmbedder(64)).put(tenant, documents)

    async def hits(self, query: str | None = None, who: Principal = ACME, **prompts: Any) -> list[DocumentHit]:
        return (await self.service.search(who, DocumentQuery(query, **prompts))).hits

    async def ids(self, query: str | None = None, who: Principal = ACME, **prompts: Any) -> list[str]:
        return [hit.doc_id for hit in await self.hits(query, who, **prompts)]


@pytest.fixture
async def archive() -> Archive:
    made = Archive()
    await made.index.open(documents_collection("hashed-64", 64))
    await made.put(LEASE, WINE, RENT)
    return made


@pytest.mark.req("D-02")
@pytest.mark.parametrize(
    "kind",
    [
        {"search_type": SEMANTIC},
        {"search_type": KEYWORD},
        {"fusion": "rrf"},
        {"fusion": "zscore"},
    ],
)
async def test_each_type_of_search_finds_the_document_that_shares_the_words(
    archive: Archive, kind: dict[str, Any]
) -> None:
    assert (await archive.ids("red wine", **kind))[0] == "wine"


@pytest.mark.req("D-02")
async def test_keyword_search_leaves_out_documents_without_a_query_word(archive: Archive) -> None:
    page = await archive.service.search(ACME, DocumentQuery("rents", search_type=KEYWORD))
    assert {h.doc_id for h in page.hits} == {"rent", "lease"}
    assert (page.total, page.total_relation) == (2, "eq")


@pytest.mark.req("D-02")
async def test_semantic_search_returns_the_cosine_of_the_best_passage_and_counts_all_documents(
    archive: Archive,
) -> None:
    await archive.put(Document("long", "Nothing of it here at all. " * 60 + "zebra " * 40 + "end"))
    page = await archive.service.search(ACME, DocumentQuery("zebra", search_type=SEMANTIC, top_k=1))
    assert page.hits[0].doc_id == "long"
    assert page.hits[0].score == round(page.hits[0].score, 6)
    assert page.hits[0].snippet is not None
    assert "zebra zebra" in page.hits[0].snippet
    assert (page.total, page.total_relation) == (4, "eq")


@pytest.mark.req("D-01")
@pytest.mark.parametrize("query", [None, "", "  \n"])
async def test_without_a_query_all_documents_that_pass_the_filter_are_ordered_by_id(
    archive: Archive, query: str | None
) -> None:
    page = await archive.service.search(ACME, DocumentQuery(query))
    assert [(h.doc_id, h.score) for h in page.hits] == [("lease", 0.0), ("rent", 0.0), ("wine", 0.0)]
    assert (page.total, page.total_relation) == (3, "eq")
    assert page.hits[0].snippet == LEASE.text


@pytest.mark.req("D-01")
async def test_a_query_without_searchable_words_is_valid(archive: Archive) -> None:
    assert await archive.ids("???", search_type=KEYWORD) == []
    assert len(await archive.ids("???", search_type=SEMANTIC)) == 3


@pytest.mark.req("D-03")
async def test_filters_name_fields_as_the_metadata_does(archive: Archive) -> None:
    year = Condition("year", Op.EQ, 2023)
    assert await archive.ids(where=Filter(must=(year,))) == ["lease", "rent"]
    assert set(await archive.ids("rent and wine", where=Filter(must_not=(year,)))) == {"wine"}
    assert await archive.ids(where=Filter(must=(Condition("title", Op.EQ, "Wine list"),))) == ["wine"]
    assert await archive.ids(where=Filter(must=(Condition("title", Op.EQ, "A law"),))) == ["rent"]
    assert await archive.ids(where=Filter(must=(Condition("tenant", Op.EXISTS, True),))) == []


@pytest.mark.req("D-04")
async def test_another_tenant_finds_none_of_the_documents(archive: Archive) -> None:
    other = Principal("other")
    for kind in (SEMANTIC, KEYWORD, HYBRID):
        assert await archive.ids("red wine", other, search_type=kind) == []
    assert await archive.ids(None, other) == []


@pytest.mark.req("D-08")
async def test_metadata_has_the_title_and_only_the_requested_fields(
    archive: Archive,
) -> None:
    by_id = {h.doc_id: h.metadata for h in await archive.hits()}
    assert by_id["wine"] == {"title": "Wine list", "year": 2021, "tags": ["red"]}
    assert by_id["rent"]["title"] == "A law"
    chosen = await archive.hits(metadata_fields=("tags", "unheard"))
    assert [h.metadata for h in chosen] == [{}, {"tags": ["law"]}, {"tags": ["red"]}]


@pytest.mark.req("D-08")
async def test_snippets_are_left_out_or_marked_as_requested(archive: Archive) -> None:
    assert (await archive.hits("wine", include_snippets=False))[0].snippet is None
    assert (await archive.hits("wines", highlight=True))[0].snippet == "Red **wine** from the south, dry and strong."


@pytest.mark.req("F-03")
async def test_words_of_other_languages_are_found_and_marked(archive: Archive) -> None:
    await archive.put(
        Document("bill", "Die Rechnungen sind noch nicht bezahlt, und der Kunde wird gemahnt."),
        Document("weather", "明日の東京の天気は晴れです。"),
    )
    for query, expected in (
        ("Rechnung", ("bill", "Die **Rechnungen** sind noch nicht bezahlt, und der Kunde wird gemahnt.")),
        ("天気", ("weather", "明日の東京の**天気**は晴れです。")),
    ):
        hits = await archive.hits(query, search_type=KEYWORD, highlight=True)
        assert [(hit.doc_id, hit.snippet) for hit in hits] == [expected]
    assert await archive.ids("天文", search_type=KEYWORD) == []
    await archive.put(Document("other", "Nothing of it.", "A title"), tenant="other")
    assert await archive.ids("Rechnung", Principal("other"), search_type=KEYWORD) == []
    (short, *_) = await archive.hits("tenant rent", snippet_max_chars=32, search_type=KEYWORD)
    assert short.snippet == "The tenant pays the rent on the"


@pytest.mark.slow
@pytest.mark.req("D-01", "D-02")
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"top_k": 201}, "top_k"),
        ({"offset": 10_001}, "offset"),
        ({"snippet_max_chars": 1001}, "snippet_max_chars"),
        ({"query": "x" * 1001}, "query"),
        ({"fusion": "rrf", "search_type": SEMANTIC}, "fusion"),
        ({"fusion": "borda"}, "fusion"),
        ({"page_token": "x", "offset": 1}, "offset"),
        ({"rerank": True}, "rerank"),
    ],
)
async def test_values_out_of_range_or_in_conflict_are_refused(
    archive: Archive, wrong: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArguments) as refused:
        await archive.service.search(ACME, DocumentQuery(**wrong))
    assert refused.value.details["field"] == field


@pytest.mark.req("D-12")
async def test_a_page_token_continues_the_same_search_only(archive: Archive) -> None:
    ask = DocumentQuery("rent", top_k=1, search_type=SEMANTIC)
    first = await archive.service.search(ACME, ask)
    assert first.next_page_token is not None
    following = replace(ask, page_token=first.next_page_token)
    second = await archive.service.search(ACME, replace(following, top_k=2))
    assert [h.doc_id for h in [*first.hits, *second.hits]] == await archive.ids("rent", search_type=SEMANTIC)
    assert second.next_page_token is None
    for changed in (
        {"query": "wine"},
        {"search_type": KEYWORD},
        {"where": Filter(must=(Condition("year", Op.EQ, 2023),))},
        {"highlight": True},
        {"metadata_fields": ("title",)},
    ):
        with pytest.raises(Invalid, match="another search"):
            await archive.service.search(ACME, replace(following, **changed))
    with pytest.raises(Invalid, match="not one that this service has given to you"):
        await archive.service.search(Principal("other"), following)


@pytest.mark.req("D-07", "D-12")
async def test_deep_pages_are_contiguous_and_end_at_the_largest_offset(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_ranking, "DEPTH", 20)
    monkeypatch.setattr(document_search, "MAX_OFFSET", 50)
    await archive.put(*(Document(f"copy-{n:03}", "white wine" if n % 3 else "red wine") for n in range(120)))
    for kind in (SEMANTIC, KEYWORD):
        whole = await archive.ids("red wine", top_k=200, search_type=kind)
        ask, pages = DocumentQuery("red wine", top_k=7, search_type=kind), []
        while True:
            page = await archive.service.search(ACME, ask)
            pages += [h.doc_id for h in page.hits]
            if page.next_page_token is None:
                break
            ask = replace(ask, page_token=page.next_page_token)
        assert pages == whole[:56]
    page = await archive.service.search(ACME, DocumentQuery("red wine", top_k=5))
    assert page.total_relation == "gte"


@pytest.mark.req("D-12")
async def test_a_plan_limits_top_k_fields_and_rate(archive: Archive) -> None:
    archive.plans = {
        "small": Plan("small", max_top_k=5, fields=frozenset({"year"})),
        "slow": Plan("slow", requests_per_minute=1),
    }
    small = Principal("acme", "small")
    assert [set(h.metadata) for h in await archive.hits(None, small, top_k=5)] == [{"year"}] * 3
    for wrong in (
        {"top_k": 6},
        {"where": Filter(should=(Condition("tags", Op.EQ, "red"),))},
        {"metadata_fields": ("year", "tags")},
    ):
        with pytest.raises(Forbidden) as refused:
            await archive.hits(None, small, **({"top_k": 5} | wrong))
        assert "5" in refused.value.message or refused.value.details["allowed"] == ["year"]
    service = archive.service
    await service.search(Principal("acme", "slow"), DocumentQuery())
    with pytest.raises(RateLimited):
        await service.search(Principal("acme", "slow"), DocumentQuery())


@pytest.mark.req("D-12")
async def test_reranking_reorders_the_best_documents(archive: Archive) -> None:
    archive.reranker = reranker = LengthEmbedder()
    page = await archive.service.search(ACME, DocumentQuery("rent", rerank=True))
    assert [h.doc_id for h in page.hits] == ["lease", "wine", "rent"]
    assert [h.score for h in page.hits] == sorted((h.score for h in page.hits), reverse=True)
    assert reranker.read[0][0] == "rent"
    assert f"Lease. {LEASE.text}" in reranker.read[0][1]
    assert await archive.ids("rent", rerank=False) != [h.doc_id for h in page.hits]
    assert await archive.ids(None, rerank=True) == ["lease", "rent", "wine"]


@pytest.mark.slow
@pytest.mark.req("D-07", "D-12")
@pytest.mark.parametrize("kind", choose([SEMANTIC, KEYWORD, HYBRID], HYBRID))
async def test_pages_of_a_reranked_search_are_contiguous(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, kind: SearchType
) -> None:
    monkeypatch.setattr(document_search, "RERANKED", 8)
    archive.reranker = reranker = LengthEmbedder()
    await archive.put(*(Document(f"d{n:02}", "rent " * (n % 7 + 1) + "wine " * (n % 4)) for n in range(30)))
    whole = await archive.hits("rent wine", top_k=200, rerank=True, search_type=kind)
    prompts = [
        await archive.hits("rent wine", top_k=3, offset=n, rerank=True, search_type=kind)
        for n in range(0, len(whole), 3)
    ]
    assert [hit for page in prompts for hit in page] == whole
    assert [h.score for h in whole] == sorted((h.score for h in whole), reverse=True)
    assert {len(passages) for _, passages in reranker.read} == {8}


@pytest.mark.req("D-12")
@pytest.mark.parametrize("fault", ["fails", "hangs", "too few", "no numbers"])
async def test_if_the_reranker_fails_the_first_ranking_stays_and_the_report_says_so(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    set_limits(monkeypatch, document_rerank=0.05)
    archive.reranker = reranker = LengthEmbedder()
    reranker.fails, reranker.hangs = fault == "fails", fault == "hangs"
    reranker.says = {"too few": [1.0], "no numbers": [float("nan")] * 3}.get(fault)
    page = await archive.service.search(ACME, DocumentQuery("rent", rerank=True))
    assert page.hits == await archive.hits("rent")
    assert page.report.degraded == ["reranker"]


@pytest.mark.req("D-12")
@pytest.mark.parametrize("fault", ["none", "fails", "hangs", "makes no sense", "breaks"])
async def test_without_a_model_hybrid_search_ranks_by_words(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    set_limits(monkeypatch, document_embedding=0.05)
    by_word = await archive.hits("red wine", search_type=KEYWORD)
    faults: dict[str, Any] = {
        "none": None,
        "fails": FaultyAdapter(HashedEmbedder(64), "embed_query", raising(Unavailable("no"))),
        "hangs": FaultyAdapter(HashedEmbedder(64), "embed_query", hang),
        "makes no sense": Nonsense(64),
        "breaks": FaultyAdapter(HashedEmbedder(64), "embed_query", raising(RuntimeError("no"))),
    }
    archive.embedder = faults[fault]
    page = await archive.service.search(ACME, DocumentQuery("red wine"))
    assert page.hits == by_word
    assert page.report.degraded == ["embedder"]
    with pytest.raises(Unavailable, match="search_type keyword") as refused:
        await archive.hits("red wine", search_type=SEMANTIC)
    assert refused.value.details == {"adapter": "embedder"}
    with pytest.raises(Unavailable) as unwell:
        await archive.service.check()
    assert unwell.value.details == {"adapter": "embedder"}


FAULTS = {
    "breaks": raising(ConnectionError("no")),
    "hangs": hang,
}


@pytest.mark.slow
@pytest.mark.req("D-06", "D-12")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("call", ["dense", "match", "count", "scroll", "payloads"])
async def test_an_index_that_fails_is_named(archive: Archive, call: str, fault: Fault) -> None:
    archive.index, archive.store = FaultyAdapter(archive.index, call, fault), FaultyAdapter(archive.store)
    kind = {"count": SEMANTIC, "match": KEYWORD}.get(call, HYBRID)
    with pytest.raises(Unavailable) as refused:
        await archive.hits(None if call == "scroll" else "wine", search_type=kind)
    assert refused.value.details == {"adapter": "index"}
    if call == "count":
        with pytest.raises(Unavailable) as unwell:
            await archive.service.check()
        assert unwell.value.details == {"adapter": "index"}


@pytest.mark.req("D-06", "D-12")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("call", ["count_terms", "get_documents", "ping"])
async def test_a_store_that_fails_is_named(archive: Archive, call: str, fault: Fault) -> None:
    archive.store, archive.index = FaultyAdapter(archive.store, call, fault), FaultyAdapter(archive.index)
    with pytest.raises(Unavailable) as refused:
        await (archive.service.check() if call == "ping" else archive.hits("wine"))
    assert refused.value.details == {"adapter": "store"}


@pytest.mark.req("D-06")
async def test_the_check_passes_when_everything_answers(archive: Archive) -> None:
    await archive.service.check()


async def test_a_document_that_the_store_lacks_is_left_out(archive: Archive) -> None:
    await archive.store.delete_documents("acme", ["wine"])
    page = await archive.service.search(ACME, DocumentQuery("wine", search_type=SEMANTIC))
    assert {h.doc_id for h in page.hits} == {"lease", "rent"}
    assert page.total == 3


async def test_a_document_that_has_changed_shows_its_present_text(archive: Archive) -> None:
    newer = Document("wine", "Beer " * 100 + "and a little wine.")
    await archive.store.save_documents("acme", [StoredDocument(newer, frozenset())])
    hits = {h.doc_id: h for h in await archive.hits("wine", search_type=SEMANTIC, snippet_max_chars=40)}
    assert hits["wine"].snippet is not None
    assert hits["wine"].snippet.endswith("and a little wine.")


@pytest.mark.req("D-12")
async def test_a_stream_has_the_same_hits_in_batches(archive: Archive) -> None:
    await archive.put(*(Document(f"d{n:02}", f"wine number {n}") for n in range(45)))
    ask = DocumentQuery("wine", top_k=45)
    page = await archive.service.search(ACME, ask)
    stream = await archive.service.stream(ACME, ask)
    assert stream.page.hits == []
    assert (stream.page.total, stream.page.total_relation) == (page.total, page.total_relation)
    batches = [batch async for batch in stream.batches]
    assert [len(b) for b in batches] == [20, 20, 5]
    assert [hit for batch in batches for hit in batch] == page.hits
    assert stream.page.report.timings_ms["total"] > 0
    searched, streamed = archive.events.recorded
    assert searched["doc_ids"] == streamed["doc_ids"]


@pytest.mark.req("D-12")
async def test_a_stream_that_fails_at_any_time_records_one_event(archive: Archive) -> None:
    with pytest.raises(InvalidArguments):
        await archive.service.stream(ACME, DocumentQuery(top_k=0))
    stream = await archive.service.stream(ACME, DocumentQuery("wine"))
    await archive.store.delete_documents("acme", ["wine"])
    assert [h.doc_id for batch in [b async for b in stream.batches] for h in batch] == ["rent", "lease"]
    archive.store = FaultyAdapter(archive.store, "get_documents", raising(ConnectionError("no")))
    stream = await archive.service.stream(ACME, DocumentQuery("wine"))
    with pytest.raises(Unavailable):
        [batch async for batch in stream.batches]
    assert [event["error"] for event in archive.events.recorded] == ["VALIDATION_ERROR", None, "UNAVAILABLE"]


@pytest.mark.req("D-10", "D-12")
async def test_every_search_records_one_event_with_its_request_id(archive: Archive) -> None:
    with as_request(request_id="the-request"):
        page = await archive.service.search(ACME, DocumentQuery("wine", top_k=2, offset=1))
        with pytest.raises(ToolscriptError):
            await archive.service.search(ACME, DocumentQuery("wine", top_k=0))
    good, bad = archive.events.recorded
    assert good["request_id"] == bad["request_id"] == "the-request"
    assert page.query_id == good["query_id"] == bad["query_id"] == str(UUID(page.query_id))
    assert (good["type"], good["tenant"], good["plan"]) == ("documents.search", "acme", "default")
    assert (good["query"], good["search_type"], good["fusion"]) == ("wine", "hybrid", "rrf")
    assert (good["top_k"], good["offset"], good["hits"], good["total"]) == (2, 1, 2, 3)
    assert good["doc_ids"] == [h.doc_id for h in page.hits]
    assert good["timings_ms"].keys() >= {"embed", "rank", "fuse", "read", "total"}
    assert (good["error"], bad["error"], bad["hits"]) == (None, "VALIDATION_ERROR", 0)


@pytest.mark.req("D-12")
async def test_a_failing_sink_does_not_fail_a_search(archive: Archive) -> None:
    archive.events.broken = True
    assert await archive.ids("wine", search_type=KEYWORD) == ["wine"]


@pytest.mark.req("D-10")
async def test_a_search_has_a_span_and_one_per_stage(archive: Archive) -> None:
    archive.reranker = LengthEmbedder()
    await archive.hits("wine", rerank=True)
    assert archive.spans[0] == "search.execute"
    assert set(archive.spans[1:]) == {"embed", "rank", "fuse", "rerank", "read"}


@pytest.mark.req("D-04")
async def test_ids_of_tenants_and_documents_are_kept_separate(archive: Archive) -> None:
    await archive.put(Document("b/c", "red wine of the first"), tenant="a")
    await archive.put(Document("c", "red wine of the second"), tenant="a/b")
    assert await archive.ids("red wine", Principal("a")) == ["b/c"]
    assert await archive.ids("red wine", Principal("a/b")) == ["c"]


async def test_ranking_reads_no_payloads(archive: Archive) -> None:
    assert await archive.index.count(DOCUMENTS) == 3
    archive.index = FaultyAdapter(archive.index, "payloads", raising(ConnectionError("no")))
    assert len(await archive.ids("wine", include_snippets=False)) == 3


@pytest.mark.req("D-08")
async def test_a_snippet_reads_a_bounded_part_of_the_text(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_reading, "MAX_READ_CHARACTERS", 9000)
    await archive.put(Document("long", "zebra " + "grass " * 2000 + "lion"), Document("short", "zebra lion"))
    long, short = sorted(await archive.hits("zebra lion", search_type=KEYWORD), key=lambda hit: hit.doc_id)
    assert long.snippet is not None
    assert long.snippet.startswith("zebra grass")
    assert short.snippet == "zebra lion"
    monkeypatch.setattr(document_reading, "MAX_READ_CHARACTERS", 90_000)
    (whole,) = [h for h in await archive.hits("lion", search_type=KEYWORD) if h.doc_id == "long"]
    assert whole.snippet is not None
    assert whole.snippet.endswith("lion")


@pytest.mark.req("D-08")
async def test_after_the_deadline_a_snippet_is_the_beginning_of_the_text(archive: Archive) -> None:
    document = Document("long", "grass " * 100 + "zebra")
    read = [document_reading.Read(document_ranking.Ranked("long", 1.0), document)]
    for deadline, start in ((Deadline(60), "grass"), (Deadline(0), document.text[:100])):
        run = DocumentRun(Principal("acme"), DocumentQuery("zebra"), SearchReport(), deadline, Plan())
        (hit,) = await document_reading.build_hits(run, read)
        assert hit.snippet is not None
        assert hit.snippet.startswith(start)
        assert ("zebra" in hit.snippet) is not deadline.is_over


async def test_no_document_is_digested_while_searching(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(_: Document) -> str:
        raise AssertionError

    monkeypatch.setattr(Document, "digest", property(digest))
    assert (await archive.ids("red wine", search_type=SEMANTIC))[0] == "wine"


@pytest.mark.slow
@pytest.mark.req("D-02", "D-07")
@pytest.mark.parametrize("kind", choose([SEMANTIC, HYBRID], HYBRID))
async def test_a_long_document_does_not_crowd_out_the_others(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, kind: SearchType
) -> None:
    monkeypatch.setattr(document_ranking, "DEPTH", 10)
    monkeypatch.setattr(document_ranking, "DEEP", 20)
    for name in ("big", "huge"):
        await archive.put(Document(name, " ".join(f"lease notice {name} period {n}. " * 12 for n in range(60))))
    await archive.put(*(Document(f"s{n:02}", f"whales {n}") for n in range(5)))
    whole = await archive.hits("lease notice period", search_type=kind, top_k=13)
    assert len(whole) == 10
    assert {"big", "huge"} == {h.doc_id for h in whole[:2]}
    assert [(-h.score, h.doc_id) for h in whole] == sorted((-h.score, h.doc_id) for h in whole)
    pages = [await archive.hits("lease notice period", search_type=kind, top_k=3, offset=n) for n in range(0, 10, 3)]
    assert [hit for page in pages for hit in page] == whole


@pytest.mark.slow
@pytest.mark.req("D-07", "D-08")
@pytest.mark.parametrize("kind", choose([SEMANTIC, HYBRID, KEYWORD], HYBRID))
async def test_snippets_of_long_texts_are_the_same_on_every_page(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, kind: SearchType
) -> None:
    for limit in ("MUCH_TEXT", "MAX_READ_CHARACTERS"):
        monkeypatch.setattr(document_hits, limit, 2_000)
    filling = "nothing of note happens here. " * 150
    await archive.put(
        *(Document(f"long{n}", f"{filling}A lease {n}. {filling}Its notice. {filling}") for n in range(12))
    )
    whole = await archive.hits("lease notice", search_type=kind, top_k=12)
    pages = [await archive.hits("lease notice", search_type=kind, top_k=5, offset=n) for n in range(0, 12, 5)]
    assert [hit for page in pages for hit in page][:12] == whole


@pytest.mark.req("D-12")
@pytest.mark.parametrize(
    "says",
    [lambda n: 100 - n / 2, lambda n: -20.0 - n, lambda n: -1e12 * n],
    ids=["percent", "negative", "huge"],
)
async def test_reranked_scores_fall_and_equal_ones_are_ordered_by_id(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, says: Callable[[int], float]
) -> None:
    monkeypatch.setattr(document_search, "RERANKED", 12)
    archive.reranker = reranker = LengthEmbedder()
    await archive.put(*(Document(f"d{n:02}", f"rent {n}") for n in range(20)))
    reranker.says = [says(n // 2) for n in range(12)]
    hits = await archive.hits("rent", top_k=15, rerank=True)
    assert [(-h.score, h.doc_id) for h in hits] == sorted((-h.score, h.doc_id) for h in hits)
    assert len({h.score for h in hits[:12]}) >= 2
    first = await archive.ids("rent", top_k=12)
    assert {h.doc_id for h in hits[:2]} == set(first[:2])


@pytest.mark.req("D-12")
async def test_a_search_that_was_admitted_is_not_counted_again(archive: Archive) -> None:
    archive.plans = {"slow": Plan("slow", requests_per_minute=1)}
    service, slow = archive.service, Principal("acme", "slow")
    plan = await service.admit(slow)
    assert (await service.search(slow, DocumentQuery("wine", top_k=1), plan)).hits
    with pytest.raises(RateLimited):
        await service.admit(slow)
    assert [event["error"] for event in archive.events.recorded] == [None, "RATE_LIMITED"]


@pytest.mark.req("D-06")
async def test_the_result_of_a_check_is_reused_for_a_moment(archive: Archive) -> None:
    now = [0.0]
    prompts: list[str] = []

    class Counting(HashedEmbedder):
        async def embed_query(self, text: str) -> Vector:
            prompts.append(text)
            return await super().embed_query(text)

    archive.embedder, archive.clock = Counting(64), lambda: now[0]
    service = archive.service
    await asyncio.gather(*(service.check() for _ in range(5)))
    assert len(prompts) == 1
    now[0] += document_search.HEALTHY_CHECK_SECONDS
    await service.check()
    assert len(prompts) == 2
    archive.embedder = None
    unwell = archive.service
    for _ in range(2):
        with pytest.raises(Unavailable):
            await unwell.check()
