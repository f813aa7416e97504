"""What every knowledge store promises to its writer and to readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.engines import LIBRARIES, open_knowledge, open_reader
from tests.fixtures.examples import choose
from toolscript.adapters.mongo.knowledge import MongoKnowledge
from toolscript.domain.errors import Invalid, NotFound, Unavailable
from toolscript.domain.knowledge import Chunk, Extraction, KnowledgeRecords, Position, Source, SourceStatus, derive_id
from toolscript.domain.search import TermCounts
from toolscript.ports.stores import KnowledgeReader, KnowledgeStore

pytestmark = pytest.mark.req("K-05", "X-02")

BOOK = Source(
    derive_id("book"),
    "book",
    "Über 東京 \U0001f4da",
    ("Ada Lovelace", "Đorđe 'O\"Neil"),
    "/shelf/a book; % 1.md",
    "2025-01-02T03:04:05+00:00",
    SourceStatus.READY,
    {"digest": "d", "pages": 12, "share": 0.5, "none": None, "nested": {"z": [1, {"a.b": True, "c$": []}], "": ""}},
    schema_version=3,
)
PAPER = Source(derive_id("paper"), "paper", "A paper", (), "", "")
EVERYWHERE = ["not-hex", "", "\0", "\ud800", "A" * 24, "f" * 24, "' OR 1=1 --", "$ne", "x" * 100_000]


def chunks_of(source: Source, *texts: str) -> list[Chunk]:
    return [
        Chunk(derive_id(source.id, text), source.id, text, Position("Chapter 1", "§ 1.2 – ü", page), 7 * n, 2)
        for n, (text, page) in enumerate(zip(texts, [1, None, 3, 4, 5, 6], strict=False))
    ]


def extraction(source: Source, chunk_id: str, kind: str = "decision", **content: Any) -> Extraction:
    own = derive_id("extraction", source.id, chunk_id, kind)
    return Extraction(own, source.id, chunk_id, kind, content, ("caching", "тест"), "2025-01-02T03:04:05Z", 2)


def in_order(extractions: list[Extraction]) -> list[Extraction]:
    return sorted(extractions, key=lambda each: each.id)


# SQLite in memory differs by its address alone.
@pytest.fixture(params=choose(LIBRARIES, "sqlite-file", "postgres", "mongo"))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KnowledgeStore]:
    opened = open_knowledge(request.param, tmp_path, request)
    yield opened
    await opened.close()


@pytest.mark.req("K-02")
async def test_every_field_comes_back_as_it_was_stored(store: KnowledgeStore) -> None:
    chunks = chunks_of(BOOK, "first\n\ttext", "", "drei ß 三 \U0001f600")
    odd = replace(chunks[0], id=derive_id("odd"), position=Position())
    drawn = extraction(BOOK, odd.id, why="ü", parts=[{"b": 1, "a": [None, -1.5, 2**40]}], empty={}, last=False)
    await store.replace(BOOK, [*chunks, odd], [drawn])
    assert await store.list_sources() == [BOOK]
    assert await store.get_contents(BOOK.id) == ([*chunks, odd], [drawn])
    (kept,) = (await store.get_contents(BOOK.id))[1]
    assert list(kept.content) == ["why", "parts", "empty", "last"]
    assert await store.get_records([BOOK.id], [odd.id], [drawn.id]) == KnowledgeRecords(
        {BOOK.id: BOOK}, {odd.id: odd}, {drawn.id: drawn}
    )


async def test_an_empty_store_gives_empty_results(store: KnowledgeStore) -> None:
    assert await store.list_sources() == []
    assert await store.has_sources() is False
    assert await store.count_contents() == {}
    assert await store.get_contents(BOOK.id) == ([], [])
    assert await store.get_records([], [], []) == KnowledgeRecords({}, {}, {})
    assert await store.remove(BOOK.id) is False


@pytest.mark.req("K-02")
async def test_records_are_read_by_id_and_unknown_ids_are_ignored(store: KnowledgeStore) -> None:
    (chunk,) = chunks_of(BOOK, "text")
    drawn = extraction(BOOK, chunk.id)
    await store.replace(BOOK, [chunk], [drawn])
    found = await store.get_records([BOOK.id, PAPER.id, *EVERYWHERE], [*EVERYWHERE, chunk.id], [*EVERYWHERE, drawn.id])
    assert found == KnowledgeRecords({BOOK.id: BOOK}, {chunk.id: chunk}, {drawn.id: drawn})
    assert await store.get_records(EVERYWHERE, EVERYWHERE, EVERYWHERE) == KnowledgeRecords({}, {}, {})
    assert await store.get_records([chunk.id], [drawn.id], [BOOK.id]) == KnowledgeRecords({}, {}, {})
    for unknown in EVERYWHERE:
        assert await store.get_contents(unknown) == ([], [])
        assert await store.remove(unknown) is False


async def test_ten_thousand_ids_are_read_in_one_call(store: KnowledgeStore) -> None:
    chunks = chunks_of(BOOK, "one", "two", "three")
    await store.replace(BOOK, chunks, [])
    ids = [derive_id(n) for n in range(10_000)]
    found = await store.get_records(ids, [chunks[0].id, *ids, chunks[2].id], ids)
    assert found == KnowledgeRecords({}, {chunks[0].id: chunks[0], chunks[2].id: chunks[2]}, {})


@pytest.mark.req("K-06")
async def test_replacing_leaves_nothing_stale_and_keeps_the_order(store: KnowledgeStore) -> None:
    before = chunks_of(BOOK, "one", "two", "three")
    await store.replace(PAPER, chunks_of(PAPER, "theirs"), [extraction(PAPER, "", "warning", a=1)])
    await store.replace(BOOK, before, [extraction(BOOK, each.id) for each in before])
    four, two, one = chunks_of(BOOK, "four", "two", "one")
    kept = extraction(BOOK, two.id, better="yes")
    changed = replace(BOOK, title="Second edition", metadata={"digest": "e"})
    await store.replace(changed, [four, two, one], [kept])
    assert await store.get_contents(BOOK.id) == ([four, two, one], [kept])
    assert (await store.get_records([BOOK.id], [before[2].id], [])).chunks == {}
    assert await store.list_sources() == [PAPER, changed]
    assert await store.get_contents(PAPER.id) == (chunks_of(PAPER, "theirs"), [extraction(PAPER, "", "warning", a=1)])
    await store.replace(changed, [], [])
    assert await store.get_contents(BOOK.id) == ([], [])


async def test_a_source_larger_than_one_batch_is_replaced_completely(
    store: KnowledgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(store, MongoKnowledge):  # the server of the tests takes 7 s for batches of the usual size
        monkeypatch.setattr("toolscript.adapters.mongo.knowledge.READ_BATCH", 100)
        monkeypatch.setattr("toolscript.adapters.mongo.knowledge.WRITE_BATCH", 50)

    def build_chunks(*numbers: int) -> list[Chunk]:
        return [Chunk(derive_id(n), BOOK.id, str(n), Position(page=n, line=2 * n), n) for n in numbers]

    count = 230 if isinstance(store, MongoKnowledge) else 1_300
    await store.replace(BOOK, build_chunks(*range(count)), [])
    assert (await store.get_contents(BOOK.id))[0] == build_chunks(*range(count))
    last = range(count - 1, count - 10, -1)
    await store.replace(BOOK, build_chunks(*last), [])
    assert (await store.get_contents(BOOK.id))[0] == build_chunks(*last)
    assert await store.count_contents() == {BOOK.id: (9, 0)}


async def test_sources_are_ordered_by_title_then_id(store: KnowledgeStore) -> None:
    titles = ["b", "B", "a", "Ä", "ä", "z", "a"]
    sources = [replace(PAPER, id=derive_id("n", n), title=title) for n, title in enumerate(titles)]
    for each in sources:
        await store.replace(each, [], [])
    assert await store.list_sources() == sorted(sources, key=lambda each: (each.title, each.id))


async def test_counts_give_the_contents_of_each_source(store: KnowledgeStore) -> None:
    chunks = chunks_of(BOOK, "one", "two")
    await store.replace(BOOK, chunks, [extraction(BOOK, chunks[0].id)])
    await store.replace(PAPER, [], [])
    assert await store.count_contents() == {BOOK.id: (2, 1), PAPER.id: (0, 0)}


async def test_the_status_changes_and_nothing_else(store: KnowledgeStore) -> None:
    (chunk,) = chunks_of(BOOK, "one")
    waiting = BOOK.with_status(SourceStatus.INDEXING)
    await store.replace(waiting, [chunk], [])
    assert await store.list_sources() == [waiting]
    await store.set_status(BOOK.id, SourceStatus.READY)
    assert await store.list_sources() == [BOOK]
    assert type((await store.list_sources())[0].status) is str
    await store.set_status(PAPER.id, SourceStatus.READY)
    assert await store.get_contents(BOOK.id) == ([chunk], [])
    assert await store.list_sources() == [BOOK]


async def test_the_status_may_change_with_the_metadata_and_nothing_else_does(store: KnowledgeStore) -> None:
    (chunk,) = chunks_of(BOOK, "one")
    await store.replace(BOOK, [chunk], [extraction(BOOK, chunk.id)])
    await store.replace(PAPER, [], [])
    notes = {"unasked": ["a", "ü"], "none": None, "nested": {"z": 1, "a": 1.5}}
    await store.set_status(BOOK.id, SourceStatus.INDEXING, notes)
    changed = replace(BOOK, status="indexing", metadata=notes)
    assert await store.list_sources() == [PAPER, changed]
    await store.set_status(BOOK.id, SourceStatus.READY)
    assert await store.list_sources() == [PAPER, replace(changed, status="ready")]
    await store.set_status(BOOK.id, SourceStatus.READY, {})
    assert await store.list_sources() == [PAPER, replace(BOOK, metadata={})]
    await store.set_status("nobody", SourceStatus.READY, notes)
    assert await store.count_contents() == {BOOK.id: (1, 1), PAPER.id: (0, 0)}


async def test_values_that_differ_by_type_or_order_alone_are_replaced(store: KnowledgeStore) -> None:
    for content in (
        {"a": 1, "b": True},
        {"b": True, "a": 1},
        {"b": 1, "a": 1},
        {"b": 1.0, "a": 1},
        {"b": 1, "a": False},
    ):
        await store.replace(replace(BOOK, metadata=content), [], [extraction(BOOK, "", **content)])
        (source,), (_, (drawn,)) = await store.list_sources(), await store.get_contents(BOOK.id)
        assert (repr(source.metadata), repr(drawn.content)) == (repr(content), repr(content))


async def test_extractions_are_added_and_replaced_by_id(store: KnowledgeStore) -> None:
    chunks = chunks_of(BOOK, "one", "two")
    first, second = (extraction(BOOK, each.id, said="before") for each in chunks)
    await store.replace(BOOK, chunks, [first])
    newer = replace(first, content={"said": "after"}, topics=())
    await store.add_extractions(BOOK.id, [second, newer])
    assert await store.get_contents(BOOK.id) == (chunks, in_order([newer, second]))
    await store.add_extractions(BOOK.id, [])
    assert await store.count_contents() == {BOOK.id: (2, 2)}


@pytest.mark.parametrize("unknown", choose([PAPER.id, "no-id", "\0", ""], PAPER.id, "\0"))
async def test_extractions_of_an_unknown_source_are_refused(store: KnowledgeStore, unknown: str) -> None:
    await store.replace(BOOK, [], [])
    nobody = replace(PAPER, id=unknown)
    with pytest.raises((NotFound, Invalid)):
        await store.add_extractions(unknown, [extraction(nobody, "")])
    with pytest.raises(NotFound, match="no such source"):
        await store.add_extractions(unknown, [])
    assert await store.count_contents() == {BOOK.id: (0, 0)}


async def test_removing_deletes_all_records_of_a_source_and_none_of_others(store: KnowledgeStore) -> None:
    for source in (BOOK, PAPER):
        chunks = chunks_of(source, "one", "two")
        await store.replace(source, chunks, [extraction(source, chunks[1].id)])
    assert await store.remove(BOOK.id) is True
    assert await store.remove(BOOK.id) is False
    assert await store.list_sources() == [PAPER]
    assert await store.get_contents(BOOK.id) == ([], [])
    gone = extraction(BOOK, chunks_of(BOOK, "two")[0].id)
    assert await store.get_records(
        [BOOK.id], [c.id for c in chunks_of(BOOK, "one", "two")], [gone.id]
    ) == KnowledgeRecords({}, {}, {})
    assert await store.count_contents() == {PAPER.id: (2, 1)}


async def test_ids_that_are_not_object_ids_stay_strings(store: KnowledgeStore) -> None:
    source = replace(PAPER, id="paper-1")
    chunk = Chunk("chunk/1", source.id, "text", Position(), 1)
    drawn = replace(extraction(source, chunk.id), id="Extraction 1")
    await store.replace(source, [chunk], [drawn])
    assert await store.get_records(["paper-1"], ["chunk/1"], ["Extraction 1"]) == KnowledgeRecords(
        {source.id: source}, {chunk.id: chunk}, {drawn.id: drawn}
    )
    assert await store.get_contents("paper-1") == ([chunk], [drawn])
    await store.set_status("paper-1", SourceStatus.INDEXING)
    assert [each.status for each in await store.list_sources()] == ["indexing"]
    assert await store.remove("paper-1") is True
    assert await store.count_contents() == {}


def _deep(levels: int) -> dict[str, Any]:
    return {"a": _deep(levels - 1)} if levels else {}


UNSTORABLE: dict[str, Any] = {
    "null": "\0",
    "surrogate": "\udc00",
    "large": 2**63,
    "nan": float("nan"),
    "infinite": float("inf"),
    "null in a name": {"\0": 1},
    "number as name": {1: "a"},
    "reference": {"$ref": "a", "$id": "b"},
    "operator": [{"b": {"$inc": 1}}],
    "set": {1, 2},
    "object": object(),
    "deep": _deep(60),
}


async def test_a_value_that_one_store_cannot_hold_is_rejected_by_all(store: KnowledgeStore) -> None:
    (chunk,) = chunks_of(BOOK, "one")
    await store.replace(BOOK, [chunk], [])
    for name, value in UNSTORABLE.items():
        with pytest.raises(Invalid, match=f"extraction '{extraction(BOOK, chunk.id).id}' cannot be stored"):
            await store.replace(BOOK, [], [extraction(BOOK, chunk.id, a=value)])
        with pytest.raises(Invalid, match=r"source .* cannot be stored"):
            await store.replace(replace(BOOK, metadata={"a": [value]}), [], [])
        with pytest.raises(Invalid, match=r"extraction .* cannot be stored"):
            await store.add_extractions(BOOK.id, [extraction(BOOK, chunk.id, a=value)])
        with pytest.raises(Invalid, match=f"source '{BOOK.id}' cannot be stored"):
            await store.set_status(BOOK.id, SourceStatus.INDEXING, {"a": value})
        assert await store.get_contents(BOOK.id) == ([chunk], []), name
        assert await store.list_sources() == [BOOK], name


async def test_records_of_another_source_are_refused(store: KnowledgeStore) -> None:
    await store.replace(PAPER, [], [])
    with pytest.raises(Invalid, match=f"belongs to the source '{BOOK.id}', not to '{PAPER.id}'"):
        await store.replace(PAPER, chunks_of(BOOK, "text"), [])
    with pytest.raises(Invalid, match="belongs to the source"):
        await store.add_extractions(PAPER.id, [extraction(BOOK, "")])
    assert await store.count_contents() == {PAPER.id: (0, 0)}


async def test_sources_replaced_at_the_same_time_do_not_disturb_each_other(store: KnowledgeStore) -> None:
    sources = [replace(PAPER, id=derive_id("many", n), title=f"Paper {n}") for n in range(6)]

    async def write(source: Source) -> None:
        for texts in (("one", "two", "three"), ("three", "four"), ("five", source.title)):
            chunks = chunks_of(source, *texts)
            await store.replace(source, chunks, [extraction(source, each.id) for each in chunks])

    await asyncio.gather(*map(write, sources))
    assert await store.list_sources() == sources
    for source in sources:
        chunks = chunks_of(source, "five", source.title)
        expected = in_order([extraction(source, each.id) for each in chunks])
        assert await store.get_contents(source.id) == (chunks, expected)


async def test_a_source_replaced_twice_concurrently_is_completed_by_a_repetition(
    store: KnowledgeStore,
) -> None:
    old, new = chunks_of(BOOK, "one", "two"), chunks_of(BOOK, "two", "three")
    await asyncio.gather(store.replace(BOOK, old, []), store.replace(BOOK, new, []))
    await store.replace(BOOK, new, [])
    assert await store.get_contents(BOOK.id) == (new, [])
    assert await store.list_sources() == [BOOK]


async def test_a_closed_store_does_not_answer(store: KnowledgeStore) -> None:
    await store.ping()
    await store.close()
    for ask in (store.ping, store.list_sources, store.count_contents):
        with pytest.raises(Unavailable):
            await ask()
    with pytest.raises(Unavailable):
        await store.get_records([BOOK.id], [], [])


WRITING = ("replace", "add_extractions", "set_status", "remove")


@pytest.mark.parametrize("kind", [kind for kind in LIBRARIES if kind != "sqlite-memory"])
async def test_a_reader_reads_the_same_and_has_no_method_to_write(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = open_knowledge(kind, tmp_path, request)
    chunks = chunks_of(BOOK, "one", "two")
    await store.replace(BOOK, chunks, [extraction(BOOK, chunks[0].id)])
    reader: KnowledgeReader = open_reader(kind, tmp_path, request)
    await reader.ping()
    assert await reader.list_sources() == [BOOK]
    assert await reader.get_contents(BOOK.id) == await store.get_contents(BOOK.id)
    assert await reader.count_contents() == {BOOK.id: (2, 1)}
    assert (await reader.get_records([BOOK.id], [chunks[1].id], [])).chunks == {chunks[1].id: chunks[1]}
    assert [verb for verb in WRITING if hasattr(reader, verb)] == []
    assert [verb for verb in WRITING if not hasattr(store, verb)] == []
    await store.remove(BOOK.id)
    assert await reader.list_sources() == []
    await reader.close()
    await store.close()


@pytest.mark.req("F-03")
async def test_counts_of_terms_add_up_over_sources_and_end_with_them(store: KnowledgeStore) -> None:
    for source in (BOOK, PAPER):
        await store.replace(source, chunks_of(source, "text"), [])
    assert await store.count_terms([1, 2]) == TermCounts(0, {})
    await store.set_term_counts(BOOK.id, TermCounts(9, {1: 5, 2: 1, 999_999_936: 2}))
    await store.set_term_counts(BOOK.id, TermCounts(3, {1: 3, 2: 1, 999_999_936: 2}))
    await store.set_term_counts(PAPER.id, TermCounts(2, {2: 2}))
    assert await store.count_terms([1, 2, 3, 999_999_936]) == TermCounts(5, {1: 3, 2: 3, 999_999_936: 2})
    await store.set_term_counts(derive_id("unknown"), TermCounts(7, {1: 7}))
    await store.remove(BOOK.id)
    assert await store.count_terms([1, 2]) == TermCounts(2, {2: 2})
