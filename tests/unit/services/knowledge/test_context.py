"""The surroundings of hits: sections, neighbours that merge, and copies in other sources that fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.fixtures.faults import FAULTS, FaultyAdapter
from tests.fixtures.knowledge_search import GARDENS, HARBOUR, MOON, TIDES, WARNING, Library, chunk, fill
from tests.fixtures.limits import set_limits
from toolscript.domain.knowledge import Chunk, Position
from toolscript.domain.search import SearchPart
from toolscript.services.knowledge.context import (
    MAX_SECTION_CHARACTERS,
    KnowledgeHit,
    PassageContext,
    fold_copies,
    widen_hits,
)
from toolscript.services.knowledge.search import KnowledgeQuery, KnowledgeResults
from toolscript.services.knowledge.source_writer import SourceWriter

pytestmark = pytest.mark.req("F-03")


def hit(of: Chunk, score: float = 0.5, kind: str = "chunk") -> KnowledgeHit:
    return KnowledgeHit(of.id, score, kind, of.content, of.source_id, of.id, "title", (), of.position)


def section(name: str, *texts: str) -> list[Chunk]:
    return [chunk(TIDES, text, "1 Causes", name, page) for page, text in enumerate(texts, start=7)]


def widen(hits: Sequence[KnowledgeHit], chunks: Sequence[Chunk], limit: int = 10) -> list[KnowledgeHit]:
    return widen_hits(hits, {TIDES.id: chunks}, limit)


async def search(library: Library, query: str, **fields: Any) -> KnowledgeResults:
    return await library.search.search(KnowledgeQuery(query, **fields))


def test_a_hit_shows_its_whole_section_and_nothing_of_others() -> None:
    before, own, after = section("a", "alpha"), section("b", "beta", "gamma", "delta"), section("c", "epsilon")
    (wide,) = widen([hit(own[1])], [*before, *own, *after])
    assert (wide.id, wide.content, wide.merged) == (own[1].id, "beta\n\ngamma\n\ndelta", ())
    assert wide.position == Position("1 Causes", "b", 7)


def test_a_long_section_is_shown_around_the_passage_within_the_limit() -> None:
    chunks = section("b", *(f"{number:04d} " + "x" * 995 for number in range(20)))
    (wide,) = widen([hit(chunks[10])], chunks)
    assert len(wide.content) <= MAX_SECTION_CHARACTERS + 100
    shown = [number for number in range(20) if f"{number:04d} " in wide.content]
    assert shown == list(range(shown[0], shown[-1] + 1))
    assert shown[0] < 10 < shown[-1]
    (first,) = widen([hit(chunks[0])], chunks)
    assert first.content.startswith("0000 ")


def test_a_passage_above_the_limit_stays_whole() -> None:
    (long,) = section("b", "x" * (MAX_SECTION_CHARACTERS + 1))
    assert widen([hit(long)], [long])[0].content == long.content


def test_hits_of_one_section_merge_into_the_best() -> None:
    own, other = section("b", "beta", "gamma"), section("c", "delta")
    wide = widen([hit(own[1], 0.9), hit(other[0], 0.8), hit(own[0], 0.7)], [*own, *other])
    assert [(each.id, each.content) for each in wide] == [(own[1].id, "beta\n\ngamma"), (other[0].id, "delta")]
    assert [each.merged for each in wide] == [(own[0].id,), ()]


def test_neighbours_that_reach_each_other_merge_and_others_do_not() -> None:
    chunks = section("b", *(f"{number:04d} " + "x" * 1_995 for number in range(20)))
    near = widen([hit(chunks[3]), hit(chunks[6])], chunks)
    assert [each.merged for each in near] == [(chunks[6].id,)]
    far = widen([hit(chunks[3]), hit(chunks[15])], chunks)
    assert [each.merged for each in far] == [(), ()]


def test_later_hits_take_the_places_of_merged_ones() -> None:
    own, other, third = section("b", "beta", "gamma"), section("c", "delta"), section("d", "epsilon")
    hits = [hit(each) for each in (own[0], own[1], other[0], third[0])]
    chunks = [*own, *other, *third]
    assert [each.id for each in widen(hits, chunks, 2)] == [own[0].id, other[0].id]
    assert [each.id for each in widen(hits, chunks, 1)] == [own[0].id]
    for limit in range(1, 4):
        assert widen(hits, chunks, limit) == widen(hits, chunks, 10)[:limit]


def test_what_neighbouring_chunks_repeat_is_shown_once() -> None:
    own = section("b", "First sentence. The second sentence is repeated.", "The second sentence is repeated. Third.")
    (wide,) = widen([hit(own[0])], own)
    assert wide.content == "First sentence. The second sentence is repeated. Third."


def test_extractions_and_unknown_chunks_stay_as_they_are() -> None:
    own = section("b", "beta", "gamma")
    hits = [hit(own[0], kind="extraction"), hit(MOON)]
    assert widen(hits, own) == hits


TEXT = " ".join(f"word{number}" for number in range(80))


@pytest.mark.parametrize(
    ("other", "is_copy"),
    [(TEXT, True), (TEXT.upper() + " !!", True), (f"{TEXT} end", True), (TEXT[: len(TEXT) // 2], False), ("", False)],
    ids=["the same", "other signs", "one more word", "half of it", "nothing"],
)
def test_nearly_the_same_text_in_another_source_folds_into_the_best_hit(other: str, is_copy: bool) -> None:
    first, copy = hit(chunk(TIDES, TEXT), 0.9), hit(chunk(GARDENS, other), 0.8)
    folded = fold_copies([first, copy])
    assert folded == ([replace(first, copies=(copy,))] if is_copy else [first, copy])


def test_repetitions_in_one_source_and_extractions_are_kept() -> None:
    first = hit(chunk(TIDES, TEXT), 0.9)
    again = [hit(chunk(TIDES, f"{TEXT} end")), hit(chunk(GARDENS, TEXT), kind="extraction")]
    assert fold_copies([first, *again]) == [first, *again]


async def test_a_search_folds_copies_and_fills_the_page_with_others() -> None:
    library = await fill()
    writer = SourceWriter(library.store, library.index, library.embedder)
    for number in range(20):
        source = replace(GARDENS, id=f"{number:024d}", title=f"Copy {number:02d}")
        await writer.save(source, [chunk(source, f"{MOON.content}!", "1 Causes")], [])
    found = await search(library, MOON.content, limit=2, types=("chunk",))
    assert len(found.hits) == 2
    assert len(found.hits[0].copies) >= 20
    assert not found.hits[1].copies


async def test_a_search_returns_sections_on_request() -> None:
    library = await fill()
    more = chunk(TIDES, "and once more at night", "1 Causes", "1.2 The moon")
    await SourceWriter(library.store, library.index, library.embedder).save(TIDES, [MOON, more, HARBOUR], [WARNING])
    plain = await search(library, MOON.content, limit=1)
    wide = await search(library, MOON.content, limit=1, context=PassageContext.SECTION)
    assert plain.hits[0].content == MOON.content
    assert wide.hits[0].content == f"{MOON.content}\n\n{more.content}"


async def test_a_page_of_sections_is_full_although_neighbours_merge() -> None:
    library = await fill()
    writer = SourceWriter(library.store, library.index, library.embedder)
    near = [chunk(TIDES, f"{MOON.content} {word}", "1 Causes", "1.2 The moon") for word in ("again", "tonight", "soon")]
    await writer.save(TIDES, [MOON, *near, HARBOUR], [WARNING])
    for limit in (1, 2, 3):
        found = await search(library, MOON.content, limit=limit, types=("chunk",), context=PassageContext.SECTION)
        assert len(found.hits) == limit
        assert all(each.content in found.hits[0].content for each in near)
        assert limit == 1 or set(found.hits[0].merged) == {each.id for each in near}
        assert len({each.id for each in found.hits}) == limit


@pytest.mark.parametrize("fault", ["unavailable", "runtime error", "hangs"])
async def test_without_sections_the_passages_are_returned(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, knowledge_embedding=60.0, knowledge_ranking=60.0, knowledge_reading=60.0)
    library = await fill()
    library.store = FaultyAdapter(library.store, "get_contents", FAULTS[fault])
    found = await search(library, MOON.content, context=PassageContext.SECTION)
    assert found.hits[0].content == MOON.content
    assert found.report.degraded == [SearchPart.STORE]
