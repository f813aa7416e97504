"""Knowledge search: both collections, filters, attribution, missing records, logs and events."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from tests.fixtures.faults import FAULTS, Fault, FaultyAdapter, returning
from tests.fixtures.knowledge_search import (
    DECISION,
    GARDENS,
    HARBOUR,
    MOON,
    ROSES,
    TIDES,
    WARNING,
    Library,
    chunk,
    extraction,
    fill,
)
from tests.fixtures.limits import set_limits
from tests.fixtures.requests import as_request
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.domain.errors import InvalidArguments, Unavailable
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.knowledge import KnowledgeRecords, Position, derive_id, format_content
from toolscript.domain.search import Collection
from toolscript.retrieval.retriever import Retriever
from toolscript.services.knowledge import ranking
from toolscript.services.knowledge import search as module
from toolscript.services.knowledge.context import KnowledgeHit
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS, knowledge_collection
from toolscript.services.knowledge.search import (
    MAX_WORDS,
    SPARE,
    KnowledgeQuery,
    KnowledgeResults,
    KnowledgeSearch,
)

pytestmark = pytest.mark.req("K-01")


@dataclass
class Watched:
    """An adapter that records its calls."""

    real: Any
    calls: list[tuple[str, tuple[Any, ...], Mapping[str, Any]]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        search_knowledge = getattr(self.real, name)
        if not asyncio.iscoroutinefunction(search_knowledge):
            return search_knowledge

        async def call(*args: Any, **named: Any) -> Any:
            self.calls.append((name, args, named))
            return await search_knowledge(*args, **named)

        return call

    def names(self) -> list[str]:
        return [name for name, _, _ in self.calls]


async def search_knowledge(library: Library, query: str, **fields: Any) -> KnowledgeResults:
    return await library.search.search(KnowledgeQuery(query, **fields))


def ids(response: KnowledgeResults) -> list[str]:
    return [hit.id for hit in response.hits]


# --- results ---


async def test_chunks_and_extractions_come_together_best_first() -> None:
    library = await fill()
    answer = await search_knowledge(library, "never enter the harbour at low water")
    assert set(ids(answer)) == {each.id for each in (MOON, HARBOUR, ROSES, WARNING, DECISION)}
    assert ids(answer)[:2] == [WARNING.id, HARBOUR.id]
    assert [hit.type for hit in answer.hits[:2]] == ["extraction", "chunk"]
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


async def test_a_text_that_is_the_query_scores_one_and_scores_are_cosines() -> None:
    library = await fill()
    query = await library.embedder.embed_query(ROSES.content)
    answer = await search_knowledge(library, ROSES.content)
    assert answer.hits[0].id == ROSES.id
    assert answer.hits[0].score == pytest.approx(1, abs=1e-5)
    moon = next(hit for hit in answer.hits if hit.id == MOON.id)
    cosine = float(np.dot(query, await library.embedder.embed_query(MOON.content)))
    assert moon.score == pytest.approx(max(0.0, cosine), abs=1e-5)


async def test_cosines_below_zero_are_reported_as_zero() -> None:
    library = Library()
    await library.open()
    await library.put(TIDES, [MOON], [])
    point = await library.chunk_point(MOON)
    await library.index.upsert(CHUNKS, [replace(point, vector=-point.vector)])  # type: ignore[operator]
    assert [hit.score for hit in (await search_knowledge(library, MOON.content)).hits] == [0.0]


async def test_no_more_than_the_limit_and_the_best_of_both() -> None:
    library = await fill()
    everything = await search_knowledge(library, "harbour roses spring water")
    for limit in range(1, 6):
        answer = await search_knowledge(library, "harbour roses spring water", limit=limit)
        assert answer.hits == everything.hits[:limit]
        assert answer.sources_cited == sorted({hit.title for hit in answer.hits})


async def test_equal_scores_are_ordered_by_id() -> None:
    library = Library()
    await library.open()
    twins = [replace(chunk(TIDES, "the same words"), id=derive_id("twin", n)) for n in range(8)]
    await library.put(TIDES, twins, [])
    assert ids(await search_knowledge(library, "the same words")) == sorted(twin.id for twin in twins)


@pytest.mark.req("K-02")
async def test_a_chunk_has_its_complete_citation() -> None:
    library = await fill()
    hit = (await search_knowledge(library, MOON.content)).hits[0]
    position = Position("1 Causes", "1.2 The moon", 12)
    assert hit == KnowledgeHit(
        MOON.id,
        hit.score,
        "chunk",
        MOON.content,
        TIDES.id,
        MOON.id,
        "Of Tides",
        ("A. Moon", "B. Sea"),
        position,
        relevance=hit.relevance,
    )


@pytest.mark.req("K-02")
async def test_an_extraction_has_the_position_of_its_chunk() -> None:
    library = await fill()
    hit = (await search_knowledge(library, format_content(DECISION.content))).hits[0]
    assert (hit.id, hit.type, hit.content) == (
        DECISION.id,
        "extraction",
        "decision (roses)\ndecision: cut roses in spring\nreason: frost is over",
    )
    assert (hit.chunk_id, hit.source_id, hit.title) == (ROSES.id, GARDENS.id, "Gardens")
    assert hit.position == ROSES.position


@pytest.mark.req("K-02")
async def test_an_extraction_without_topics_starts_with_its_type() -> None:
    library = Library()
    await library.open()
    await library.put(GARDENS, [ROSES], [extraction(ROSES, "pattern", (), name="prune late")])
    hit = (await search_knowledge(library, "prune late", types=("pattern",))).hits[0]
    assert hit.content == "pattern\nname: prune late"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"is": True, "not": False, "none": None, "many": 0}, "is: true\nnot: false\nmany: 0"),
        ({"parts": {"a": None, "b": True, "c": 1.5}}, "parts: b: true; c: 1.5"),
        ({"list": [None, "x", False, ["y", None], {}]}, "list: x; false; y"),
        ({"nothing": {"a": None, "b": [None, ""]}, "empty": []}, ""),
    ],
)
def test_the_content_of_an_extraction_is_formatted_like_json(content: dict[str, Any], text: str) -> None:
    assert format_content(content) == text


@pytest.mark.req("K-02")
async def test_titles_are_cited_once_and_in_order() -> None:
    answer = await search_knowledge(await fill(), "harbour roses moon")
    assert answer.sources_cited == ["Gardens", "Of Tides"]


@pytest.mark.req("K-01", "K-05")
async def test_the_embedded_index_finds_the_same(tmp_path: Path) -> None:
    index = QdrantEdgeIndex(tmp_path)
    library = await fill(index=index)
    oracle = await fill()
    try:
        for query in ("harbour at low water", "spring", "moon and sea"):
            for more in ({}, {"types": ("warning",)}, {"topics": ("roses",)}, {"limit": 2}):
                ours = await search_knowledge(library, query, **more)
                theirs = await search_knowledge(oracle, query, **more)
                assert [replace(hit, score=0.0) for hit in ours.hits] == [replace(h, score=0.0) for h in theirs.hits]
                assert [h.score for h in ours.hits] == pytest.approx([h.score for h in theirs.hits], abs=1e-5)
    finally:
        await index.close()


# --- filters ---


@pytest.mark.req("K-04")
@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((), {MOON, HARBOUR, ROSES, WARNING.id, DECISION.id}),
        (("extraction",), {WARNING.id, DECISION.id}),
        (("warning",), {WARNING.id}),
        (("warning", "decision"), {WARNING.id, DECISION.id}),
        (("chunk", "decision"), {MOON, HARBOUR, ROSES, DECISION.id}),
        (("pattern",), set()),
    ],
)
async def test_a_type_is_chunk_extraction_or_a_type_of_extractions(types: tuple[str, ...], expected: set[Any]) -> None:
    wanted = {each if isinstance(each, str) else each.id for each in expected}
    assert set(ids(await search_knowledge(await fill(), "spring at the sea", types=types))) == wanted


@pytest.mark.req("K-04")
@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (("SHIPS",), {HARBOUR, WARNING.id}),
        (("ships", "roses"), {HARBOUR, ROSES, WARNING.id, DECISION.id}),
    ],
)
async def test_a_hit_has_any_of_the_given_topics_ignoring_case(topics: tuple[str, ...], expected: set[Any]) -> None:
    wanted = {each if isinstance(each, str) else each.id for each in expected}
    assert set(ids(await search_knowledge(await fill(), "spring at the sea", topics=topics))) == wanted


@pytest.mark.req("K-04")
async def test_type_and_topics_must_both_match() -> None:
    library = await fill()
    assert ids(await search_knowledge(library, "x", types=("warning",), topics=("ships",))) == [WARNING.id]
    assert ids(await search_knowledge(library, "x", types=("decision",), topics=("ships",))) == []


@pytest.mark.req("K-04")
@pytest.mark.parametrize(
    ("types", "searched"),
    [
        ((), [CHUNKS, EXTRACTIONS]),
        (("chunk",), [CHUNKS]),
        (("warning",), [EXTRACTIONS]),
    ],
)
async def test_only_collections_with_the_requested_type_are_searched(
    types: tuple[str, ...], searched: list[str]
) -> None:
    library = await fill()
    library.index = index = Watched(library.index)
    await search_knowledge(library, "harbour", types=types)
    assert sorted(args[0] for name, args, _ in index.calls if name == "dense") == searched


WORDS = ("moon", "sea", "rose", "frost", "ship")
KINDS = ("decision", "pattern", "warning")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
DRAWN = st.lists(
    st.tuples(TEXTS, st.sampled_from((None, *KINDS)), st.lists(st.sampled_from(WORDS), max_size=2)), max_size=14
)


@pytest.mark.slow
@pytest.mark.req("K-01", "K-02", "K-04")
@settings(max_examples=scale_examples(60), deadline=None)
@given(
    DRAWN,
    TEXTS,
    st.integers(1, 12),
    st.sets(st.sampled_from(("chunk", "extraction", *KINDS)), max_size=3),
    st.sets(st.sampled_from((*WORDS, "MOON")), max_size=2),
)
def test_results_equal_an_exhaustive_search(
    drawn: list[tuple[str, str | None, list[str]]], query: str, limit: int, types: set[str], topics: set[str]
) -> None:
    asyncio.run(hold_to_the_oracle(drawn, KnowledgeQuery(query, limit, tuple(types), tuple(topics))))


async def hold_to_the_oracle(drawn: list[tuple[str, str | None, list[str]]], ask: KnowledgeQuery) -> None:
    library = Library()
    await library.open()
    chunks = [replace(chunk(TIDES, text), id=derive_id("c", n)) for n, (text, _, _) in enumerate(drawn)]
    extractions = [
        replace(extraction(chunks[n], kind, topics, text=text), id=derive_id("e", n))
        for n, (text, kind, topics) in enumerate(drawn)
        if kind
    ]
    await library.put(TIDES, chunks, extractions)
    answer = await library.search.search(ask)

    wanted_topics = {topic.lower() for topic in ask.topics}
    topics_of = {c.id: {t for e in extractions if e.chunk_id == c.id for t in e.topics} for c in chunks}
    fitting = [("chunk", c.id, c.content, {"chunk"}, topics_of[c.id]) for c in chunks]
    fitting += [
        ("extraction", e.id, format_content(e.content), {"extraction", e.type}, set(e.topics)) for e in extractions
    ]
    vector = await library.embedder.embed_query(ask.query)
    scored = [
        (max(0.0, round(float(np.dot(vector, await library.embedder.embed_query(text))), 6)), own, kind)
        for kind, own, text, kinds, topics in fitting
        if (not ask.types or kinds & set(ask.types)) and (not wanted_topics or topics & wanted_topics)
    ]
    best = sorted(scored, key=lambda each: (-each[0], each[1]))[: ask.limit]
    assert [hit.score for hit in answer.hits] == pytest.approx([score for score, _, _ in best], abs=2e-6)
    assert {(h.type, h.id) for h in answer.hits} <= {(kind, own) for _, own, kind in scored}
    assert len(answer.hits) == len({(h.type, h.id) for h in answer.hits}) <= ask.limit
    assert [(-h.score, h.id) for h in answer.hits] == sorted((-h.score, h.id) for h in answer.hits)
    assert answer.sources_cited == (["Of Tides"] if best else [])


# --- missing collections and records ---


async def test_before_any_ingest_nothing_is_found_and_no_collection_created() -> None:
    library = Library()
    library.index = index = Watched(library.index)
    answer = await search_knowledge(library, "anything")
    assert (answer.hits, answer.sources_cited, answer.report.degraded) == ([], [], [])
    assert set(index.names()) == {"describe"}


async def test_collections_are_found_as_soon_as_they_appear() -> None:
    library = Library()
    search = library.search
    assert (await search.search(KnowledgeQuery("moon"))).hits == []
    await library.open()
    await library.put(TIDES, [MOON], [])
    assert [hit.id for hit in (await search.search(KnowledgeQuery("moon"))).hits] == [MOON.id]


async def test_chunks_are_searched_without_a_collection_of_extractions() -> None:
    library = Library()
    await library.store.replace(TIDES, [MOON], [])
    await library.index.open(knowledge_collection(CHUNKS, library.embedder.model, library.embedder.dimensions))
    await library.index.upsert(CHUNKS, [await library.chunk_point(MOON)])
    answer = await search_knowledge(library, "moon")
    assert (ids(answer), answer.report.degraded) == ([MOON.id], [])


async def test_a_dropped_collection_counts_as_missing() -> None:
    library = await fill()
    search = library.search
    assert (await search.search(KnowledgeQuery("moon"))).hits
    for name in (CHUNKS, EXTRACTIONS):
        await library.index.drop(name)
    answer = await search.search(KnowledgeQuery("moon"))
    assert (answer.hits, answer.report.degraded) == ([], [])


async def test_a_search_writes_and_creates_nothing() -> None:
    library = await fill()
    library.index, library.store = index, store = Watched(library.index), Watched(library.store)
    await search_knowledge(library, "harbour", topics=("ships",))
    assert set(index.names()) == {"describe", "open", "dense"}
    opened = [args[0] for name, args, _ in index.calls if name == "open"]
    assert opened == [await index.real.describe(CHUNKS), await index.real.describe(EXTRACTIONS)]
    assert set(store.names()) == {"count_terms", "get_records"}


async def test_a_search_embeds_once_ranks_each_once_and_reads_once() -> None:
    library = await fill()
    index, store, embedder = Watched(library.index), Watched(library.store), Watched(library.embedder)
    library.index, library.store, library.embedder = index, store, embedder
    search = library.search
    await search.search(KnowledgeQuery("warm up"))
    for watched in (index, store, embedder):
        watched.calls.clear()
    await search.search(KnowledgeQuery("harbour at low water"))
    assert (embedder.names(), index.names()) == (["embed_query"], ["dense", "dense"])
    assert store.names() == ["count_terms", "get_records"]
    fields = {args[0]: tuple(named["fields"]) for _, args, named in index.calls}
    assert set(fields.values()) == {("source_id", "chunk_id")}


class Missing:
    """A reader without the given records."""

    def __init__(self, real: Any, *gone: str) -> None:
        self._real = real
        self._gone = gone
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def get_records(self, *fields: Sequence[str]) -> KnowledgeRecords:
        self.reads += 1
        existing = await self._real.get_records(*fields)
        parts = ({i: v for i, v in each.items() if i not in self._gone} for each in _parts(existing))
        return KnowledgeRecords(*parts)


def _parts(shelf: KnowledgeRecords) -> Sequence[Mapping[str, Any]]:
    return shelf.sources, shelf.chunks, shelf.extractions


@pytest.mark.req("K-02")
async def test_a_missing_source_is_cited_as_unknown_with_its_id() -> None:
    library = await fill()
    library.store = Missing(library.store, TIDES.id)  # type: ignore[assignment]
    hit = (await search_knowledge(library, MOON.content)).hits[0]
    assert (hit.title, hit.authors, hit.source_id, hit.position) == ("Unknown Source", (), TIDES.id, MOON.position)
    assert (await search_knowledge(library, MOON.content)).sources_cited == ["Gardens", "Unknown Source"]


@pytest.mark.req("K-02")
async def test_an_extraction_whose_chunk_is_missing_has_no_position() -> None:
    library = await fill()
    library.store = Missing(library.store, HARBOUR.id)  # type: ignore[assignment]
    hit = (await search_knowledge(library, format_content(WARNING.content))).hits[0]
    assert (hit.id, hit.chunk_id, hit.position, hit.title) == (WARNING.id, HARBOUR.id, Position(), "Of Tides")


@pytest.mark.req("K-02")
async def test_an_extraction_without_a_chunk_has_no_position() -> None:
    library = await fill()
    own = replace(WARNING, id=derive_id("alone"), chunk_id="")
    await library.store.add_extractions(TIDES.id, [own])
    await library.index.upsert(EXTRACTIONS, [await library.extraction_point(own)])
    hits = (await search_knowledge(library, format_content(own.content))).hits
    assert next((h.chunk_id, h.position) for h in hits if h.id == own.id) == (None, Position())


@pytest.mark.req("K-02")
@pytest.mark.parametrize(("orphans", "reads"), [(3, 1), (SPARE, 1), (SPARE + 40, 2)])
async def test_other_hits_replace_missing_ones(orphans: int, reads: int) -> None:
    library = Library()
    await library.open()
    better = [replace(chunk(TIDES, "moon and sea"), id=derive_id("gone", n)) for n in range(orphans)]
    worse = [replace(chunk(TIDES, "moon and sea and stars"), id=derive_id("kept", n)) for n in range(20)]
    await library.put(TIDES, [*better, *worse], [])
    library.store = store = Missing(library.store, *(each.id for each in better))  # type: ignore[assignment]
    answer = await search_knowledge(library, "moon and sea", limit=5)
    assert ids(answer) == sorted(each.id for each in worse)[:5]
    assert store.reads == reads


async def with_ghosts() -> Library:
    """A library whose index has many points that the store lacks, so that a search ranks twice."""
    library = await fill()
    ghosts = [chunk(TIDES, f"never enter the harbour at low tide {n}") for n in range(40)]
    await library.index.upsert(CHUNKS, [await library.chunk_point(each) for each in ghosts])
    return library


def failing_in(*turns: int) -> Fault:
    """Fails the calls of these numbers, from 1."""
    turn = count(1)

    async def fault(true: Awaitable[Any]) -> Any:
        if next(turn) in turns:
            raise Unavailable("gone for a while")
        return await true

    return fault


@pytest.mark.req("K-03")
@pytest.mark.parametrize("failing", [CHUNKS, EXTRACTIONS])
async def test_a_second_ranking_that_fails_partly_is_ignored(failing: str) -> None:
    library = await with_ghosts()
    library.index = index = FaultyAdapter(library.index, "dense", failing_in(2), (failing,))
    answer = await search_knowledge(library, format_content(WARNING.content), limit=5)
    assert (ids(answer), answer.report.degraded) == ([WARNING.id], [])
    index.is_on = False
    assert len(ids(await search_knowledge(library, format_content(WARNING.content), limit=5))) == 5


@pytest.mark.req("K-03")
@pytest.mark.parametrize(("turns", "degraded"), [((1,), []), ((1, 2), ["index"])])
async def test_the_report_is_about_the_ranking_that_was_used(turns: tuple[int, ...], degraded: list[str]) -> None:
    library = await with_ghosts()
    fault = failing_in(*turns)
    library.index = FaultyAdapter(library.index, "dense", fault, (EXTRACTIONS,))
    answer = await search_knowledge(library, format_content(WARNING.content))
    assert {MOON.id, HARBOUR.id, ROSES.id} <= set(ids(answer))
    assert (WARNING.id in ids(answer), answer.report.degraded) == (not degraded, degraded)


async def test_a_second_ranking_with_fewer_hits_is_ignored() -> None:
    library = await with_ghosts()
    turn = count(1)
    emptied = returning(lambda shelf: shelf if next(turn) == 1 else KnowledgeRecords({}, {}, {}))
    library.store = FaultyAdapter(library.store, "get_records", emptied)
    assert ids(await search_knowledge(library, format_content(WARNING.content), limit=5)) == [WARNING.id]
    assert next(turn) == 3


async def test_without_more_candidates_there_is_no_second_ranking() -> None:
    library = await fill()
    library.store = store = Missing(library.store, MOON.id)  # type: ignore[assignment]
    await search_knowledge(library, "moon", limit=100)
    assert store.reads == 1


# --- another model ---


async def test_a_collection_of_another_model_is_refused_with_a_remedy() -> None:
    library = await fill()
    library.embedder = HashedEmbedder(32)
    with pytest.raises(Unavailable, match="run `toolscript index rebuild`") as error:
        await search_knowledge(library, "moon")
    assert error.value.details == {"adapter": "index"}


async def test_a_collection_rebuilt_with_another_model_is_noticed() -> None:
    library = await fill()
    now = 1000.0
    search = KnowledgeSearch(
        Retriever(library.embedder, library.index), library.index, library.store, library.events, clock=lambda: now
    )
    assert (await search.search(KnowledgeQuery("moon"))).hits
    for name in (CHUNKS, EXTRACTIONS):
        await library.index.drop(name)
        await library.index.open(Collection(name, "another", library.embedder.dimensions))
    now += ranking.CHECK_VALID_SECONDS
    with pytest.raises(Unavailable, match="another"):
        await search.search(KnowledgeQuery("moon"))


async def test_without_a_model_the_search_is_unavailable() -> None:
    library = await fill()
    library.embedder = None
    with pytest.raises(Unavailable, match="because of the embedder") as error:
        await search_knowledge(library, "moon")
    assert error.value.details == {"adapter": "embedder"}


# --- valid queries ---


@pytest.mark.slow
@pytest.mark.req("K-03")
@pytest.mark.parametrize(
    ("fields", "field_name"),
    [
        ({"query": ""}, "query"),
        ({"query": "\u200b\u2060\ufeff \u3000\ufe0f"}, "query"),
        ({"query": "\ud800"}, "query"),
        ({"types": ("war\x00ning",)}, "type"),
        ({"topics": ("roses", "a\x85")}, "topics"),
        ({"topics": ("a\ud800",)}, "topics"),
        ({"query": "x" * 1001}, "query"),
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"topics": ("a", " ")}, "topics"),
        ({"topics": ("x" * 201,)}, "topics"),
        ({"types": tuple(map(str, range(MAX_WORDS + 1)))}, "type"),
    ],
)
async def test_values_out_of_range_are_refused_naming_the_field(fields: dict[str, Any], field_name: str) -> None:
    library = await fill()
    library.embedder = embedder = Watched(library.embedder)
    with pytest.raises(InvalidArguments) as error:
        await library.search.search(KnowledgeQuery(**{"query": "moon", **fields}))
    assert error.value.details["field"] == field_name
    assert embedder.calls == []


@pytest.mark.parametrize("query", ["x" * 1000, "\ud800 half a pair", "日本", "'; DROP TABLE", "\x00 none", "?"])
async def test_any_text_is_a_valid_query(query: str) -> None:
    assert len((await search_knowledge(await fill(), query)).hits) == 5


# --- logs and events ---


@pytest.mark.req("K-07")
async def test_a_failed_search_writes_its_log_line(caplog: pytest.LogCaptureFixture) -> None:
    library = await fill()
    library.embedder = None
    with caplog.at_level(logging.INFO, logger=module.__name__), pytest.raises(Unavailable):
        await search_knowledge(library, "moon")
    (line,) = [record for record in caplog.records if record.getMessage() == "search_knowledge"]
    assert (vars(line)["result_count"], vars(line)["error"]) == (0, "UNAVAILABLE")


@pytest.mark.req("K-07")
async def test_every_search_records_one_event() -> None:
    library = await fill()
    with as_request(request_id="r-1"):
        answer = await search_knowledge(library, "moon and sea", limit=2, types=("chunk",), topics=("Ships",))
        with pytest.raises(InvalidArguments):
            await search_knowledge(library, "")
    event, refused = library.events.recorded
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", event["time"])
    assert {"embed", "rank", "read", "total"} == event["timings_ms"].keys()
    assert event["took_ms"] == event["timings_ms"]["total"]
    plain = {name: value for name, value in event.items() if name not in {"time", "took_ms", "timings_ms"}}
    assert plain == {
        "type": "knowledge.search",
        "request_id": "r-1",
        "caller": "owner",
        "surface": "cli",
        "profile": "",
        "called_by": "",
        "query": "moon and sea",
        "limit": 2,
        "types": ["chunk"],
        "topics": ["Ships"],
        "hits": 1,
        "degraded": [],
        "ids": ids(answer),
        "error": None,
    }
    assert (refused["error"], refused["hits"], refused["ids"]) == ("VALIDATION_ERROR", 0, [])


async def test_a_failing_sink_does_not_fail_a_knowledge_search() -> None:
    library = await fill()
    library.events.broken = True
    assert (await search_knowledge(library, "moon")).hits


async def test_a_search_has_a_span_per_stage() -> None:
    library = await fill()
    seen: list[str] = []

    def span(name: str) -> AbstractContextManager[object]:
        seen.append(name)
        return nullcontext()

    retriever = Retriever(library.embedder, library.index)
    await KnowledgeSearch(retriever, library.index, library.store, library.events, span=span).search(
        KnowledgeQuery("moon")
    )
    assert seen == ["search.execute", "embed", "rank", "rank", "read"]


@pytest.mark.req("K-04")
@pytest.mark.parametrize("fault", ["unavailable", "runtime error", "hangs"])
async def test_a_filter_that_cannot_be_resolved_fails_the_search(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, knowledge_selecting=0.2)
    library = await fill()
    library.store = FaultyAdapter(library.store, "list_sources", FAULTS[fault])
    where = Filter(must=(Condition("year", Op.EQ, 2024),))
    with pytest.raises(Unavailable) as caught:
        await search_knowledge(library, "moon", where=where)
    assert caught.value.details["adapter"] == "store"
    assert (await search_knowledge(library, "moon")).hits
