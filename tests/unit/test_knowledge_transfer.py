"""Knowledge that leaves as JSON lines comes back as it was; what others have written is taken as far as it can be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.house import CountingEmbedder, Fuse
from tests.library import HANDBOOK, Library, facts
from toolscript.domain.errors import Unavailable
from toolscript.domain.knowledge import Chunk, Extraction, Position, Source, own_id
from toolscript.services.knowledge_transfer import ImportKnowledge, export_lines

pytestmark = pytest.mark.req("K-06")

MORE_CALLS_THAN_THERE_ARE = 60
SOURCE = {"source": {"title": "Rivers", "authors": ["Ada"], "path": "/rivers.md"}}
SOURCE_ID = own_id("source", "/rivers.md")
NOTE = {"type": "warning", "content": {"title": "Floods", "summary": "They come."}, "topics": ["Water", "water"]}

lines_of_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
).filter(str.strip)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | lines_of_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(lines_of_text, inner, max_size=3),
    max_leaves=6,
)
positions = st.builds(
    Position, st.just("") | lines_of_text, st.just("") | lines_of_text, st.none() | st.integers(0, 9999)
)


@st.composite
def libraries(draw: st.DrawFn) -> list[tuple[Source, list[Chunk], list[Extraction]]]:
    made = []
    for n in range(draw(st.integers(0, 3))):
        source = Source(
            own_id("source", n),
            draw(st.sampled_from(["book", "paper"])),
            draw(lines_of_text),
            tuple(draw(st.lists(lines_of_text, max_size=3))),
            draw(st.just("") | lines_of_text),
            "2026-01-01T00:00:00+00:00",
            "ready",
            draw(st.dictionaries(lines_of_text, values, max_size=3)),
        )
        chunks = [
            Chunk(own_id(n, "chunk", m), source.id, draw(lines_of_text), draw(positions), draw(st.integers(0, 99)))
            for m in range(draw(st.integers(0, 4)))
        ]
        extractions = [
            Extraction(
                own_id(n, "extraction", m),
                source.id,
                draw(st.sampled_from(["", *(c.id for c in chunks)])),
                draw(st.sampled_from(["decision", "own kind"])),
                draw(st.dictionaries(lines_of_text, values, min_size=1, max_size=3)),
                tuple(draw(st.lists(st.sampled_from(["river", "sea", "über"]), unique=True))),
                "2026-01-02T00:00:00+00:00",
            )
            for m in range(draw(st.integers(0, 3)))
        ]
        made.append((source, chunks, sorted(extractions, key=lambda each: each.id)))
    return made


@pytest.fixture
def library() -> Library:
    return Library()


async def exported(library: Library) -> list[dict[str, Any]]:
    """Lines as they come out of a file again."""
    lines = export_lines(library.store, await library.store.sources())
    return [json.loads(json.dumps(line)) async for line in lines]


async def refused(library: Library, *lines: Any) -> list[tuple[int, str]]:
    return (await library.importing.take(lines)).refused


def embedded(library: Library) -> list[str]:
    assert isinstance(library.embedder, CountingEmbedder)
    return library.embedder.embedded


def chunk(text: str = "Rivers flow.", **more: Any) -> dict[str, Any]:
    return {"chunk": {"source_id": SOURCE_ID, "content": text, **more}}


def note(**more: Any) -> dict[str, Any]:
    return {"extraction": {"source_id": SOURCE_ID, **NOTE, **more}}


@settings(deadline=None, max_examples=40)
@given(libraries())
async def test_what_leaves_comes_back_as_it_was(shelf: list[tuple[Source, list[Chunk], list[Extraction]]]) -> None:
    library, other = Library(), Library()
    for source, chunks, extractions in shelf:
        await library.store.replace(source, chunks, extractions)
    lines = await exported(library)
    taken = await other.importing.take(lines)
    assert taken.refused == []
    assert taken.sources == len(shelf)
    assert await other.stored() == await library.stored()
    assert await exported(other) == lines
    await other.assert_whole()
    embedded(other).clear()
    again = await other.importing.take(lines)
    assert (again.embedded, embedded(other)) == (0, [])
    assert await other.stored() == await library.stored()


async def test_a_line_has_the_fields_that_others_know(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    source, first, *_ = await exported(library)
    assert source["source"].keys() == {
        "id", "type", "title", "authors", "path", "ingested_at", "status", "metadata", "schema_version",
    }  # fmt: skip
    assert first["chunk"].keys() == {"id", "source_id", "content", "position", "token_count", "schema_version"}
    assert first["chunk"]["position"] == {"chapter": "1 Rivers", "section": "1.1 Water", "page": None}


async def test_a_book_that_was_imported_is_not_ingested_again(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    other = Library(books=library.drawer.books)
    await other.importing.take(await exported(library))
    embedded(other).clear()
    assert (await other.ingesting.ingest(HANDBOOK)).outcome == "unchanged"
    assert embedded(other) == []


async def test_a_source_with_chunks_takes_the_place_of_what_was_there(library: Library) -> None:
    await library.importing.take([SOURCE, chunk("One."), chunk("Two."), note()])
    taken = await library.importing.take([SOURCE, chunk("Two."), chunk("Three.")])
    assert (taken.sources, taken.chunks, taken.embedded, taken.refused) == (1, 2, 1, [])
    (_, chunks, extractions) = (await library.stored())[SOURCE_ID]
    assert ([c.content for c in chunks], extractions) == (["Two.", "Three."], [])
    await library.assert_whole()


async def test_what_comes_without_a_source_is_added_to_what_is_there(library: Library) -> None:
    await library.importing.take([SOURCE, chunk("One."), note()])
    taken = await library.importing.take([chunk("Two."), note(type="Pattern")])
    assert (taken.sources, taken.chunks, taken.extractions) == (0, 1, 1)
    (source, chunks, extractions) = (await library.stored())[SOURCE_ID]
    assert [c.content for c in chunks] == ["One.", "Two."]
    assert {e.type for e in extractions} == {"warning", "pattern"}
    assert source.title == "Rivers"
    await library.assert_whole()


async def test_a_source_alone_is_told_anew_and_keeps_what_it_has(library: Library) -> None:
    await library.importing.take([SOURCE, chunk("One."), note()])
    await library.importing.take([{"source": {**SOURCE["source"], "id": SOURCE_ID, "title": "Streams"}}])
    (source, chunks, extractions) = (await library.stored())[SOURCE_ID]
    assert (source.title, len(chunks), len(extractions)) == ("Streams", 1, 1)
    await library.assert_whole()


@pytest.mark.parametrize("reference", [SOURCE_ID, "Rivers", "rivers", "riv"])
async def test_extractions_of_another_tool_find_their_source_by_id_or_title(library: Library, reference: str) -> None:
    await library.importing.take([SOURCE, chunk()])
    taken = await library.importing.take([{"extraction": {"source_id": reference, **NOTE}}])
    assert (taken.extractions, taken.refused) == (1, [])
    (_, _, (made,)) = (await library.stored())[SOURCE_ID]
    assert (made.chunk_id, made.type, made.topics) == ("", "warning", ("water",))
    before = await library.stored()
    again = await library.importing.take([{"extraction": {"source": reference, **NOTE}}])
    assert (again.extractions, again.embedded) == (1, 0)
    assert await library.stored() == before


async def test_an_extraction_of_a_chunk_makes_the_chunk_about_its_topics(library: Library) -> None:
    await library.importing.take([SOURCE, chunk(id="a" * 24), note(chunk_id="a" * 24)])
    _, payload, _ = (await library.points())["a" * 24]
    assert payload["topics"] == ["water"]


async def test_lines_may_stand_in_any_order(library: Library) -> None:
    taken = await library.importing.take([note(chunk_id="a" * 24), chunk(id="a" * 24), SOURCE])
    assert (taken.sources, taken.chunks, taken.extractions, taken.refused) == (1, 1, 1, [])
    await library.assert_whole()


async def test_every_bad_line_is_refused_by_its_number_and_the_others_go_on(library: Library) -> None:
    lines: list[dict[str, Any]] = [
        {"book": {}},
        SOURCE,
        {"chunk": {"content": "whose?"}},
        chunk("Good."),
        {"chunk": {"source_id": "f" * 24, "content": "orphan"}},
        note(content="text"),
        note(chunk_id="b" * 24),
        note(),
        {},
        {"source": SOURCE["source"], "chunk": {}},
        {"source": "Rivers"},
    ]
    taken = await library.importing.take(lines)
    assert (taken.sources, taken.chunks, taken.extractions) == (1, 1, 1)
    problems = dict(taken.refused)
    assert list(problems) == [1, 3, 5, 6, 7, 9, 10, 11]
    assert "is no record" in problems[1]
    assert "says no source" in problems[3]
    assert "there is no source 'ffff" in problems[5]
    assert "content is no object" in problems[6]
    assert "there is no chunk 'bbbb" in problems[7]
    await library.assert_whole()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"source": {}}, "title is missing"),
        ({"source": {"title": " "}}, "title is no text"),
        ({"source": {"title": 7}}, "title is no text"),
        ({"source": {"title": "x" * 5000}}, "2,000 at most"),
        ({"source": {"title": "a\0b"}}, "null character"),
        ({"source": {"title": "a\ud800"}}, "surrogate"),
        ({"source": {"title": "a", "metadata": {"\ud800": 1}}}, "surrogate"),
        ({"source": {"title": "a", "metadata": {"n": 2**70}}}, "64 bits"),
        ({"source": {"title": "a", "metadata": {"n": float("nan")}}}, "no number"),
        ({"source": {"title": "a", "metadata": []}}, "metadata is no object"),
        ({"source": {"title": "a", "authors": "Ada"}}, "authors is no list"),
        ({"source": {"title": "a", "authors": [""]}}, "authors holds"),
        ({"source": {"title": "a", "id": "short"}}, "24 hexadecimal digits"),
        ({"source": {"title": "a", "id": 7}}, "24 hexadecimal digits"),
        ({"source": {"title": "a", "schema_version": 2}}, "schema_version is 2"),
        ({"source": {"title": "a", "schema_version": True}}, "schema_version is True"),
        ({"source": {"title": "another", "id": SOURCE_ID}}, "is on another line already"),
        (chunk(""), "content is no text"),
        (chunk(position="p. 3"), "position is no object"),
        (chunk(position={"page": "three"}), "page is no whole number"),
        (chunk(position={"page": -1}), "page is no whole number"),
        (chunk(token_count=True), "token_count is no whole number"),
        (note(type=""), "type is no text"),
        (note(content={}), "content is empty"),
        (note(topics=[1]), "topics holds"),
    ],
)
async def test_what_is_wrong_with_a_line_is_said(library: Library, line: dict[str, Any], problem: str) -> None:
    ((number, said),) = await refused(library, SOURCE, line)
    assert number == 2
    assert problem in said


async def test_values_nested_without_end_are_refused(library: Library) -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"x": deep}
    ((_, said),) = await refused(library, SOURCE, note(content=deep))
    assert "deeper than" in said


async def test_no_source_takes_what_another_has(library: Library) -> None:
    await library.importing.take([SOURCE, chunk(id="a" * 24), note(id="b" * 24)])
    thief = {"source": {"title": "Thief", "id": "c" * 24}}
    taken = [
        {"chunk": {"source_id": "c" * 24, "id": "a" * 24, "content": "Mine."}},
        {"extraction": {"source_id": "c" * 24, "id": "b" * 24, **NOTE}},
    ]
    before = (await library.stored())[SOURCE_ID]
    assert [number for number, _ in await refused(library, thief, *taken)] == [2, 3]
    assert (await library.stored())[SOURCE_ID] == before
    await library.assert_whole()


async def test_of_lines_with_one_id_the_first_counts_unless_they_say_the_same(library: Library) -> None:
    one, other = chunk("One.", id="a" * 24), chunk("Other.", id="a" * 24)
    ((number, said),) = await refused(library, SOURCE, SOURCE, one, one, other)
    assert number == 5
    assert "on another line already" in said
    (_, (kept,), _) = (await library.stored())[SOURCE_ID]
    assert kept.content == "One."


async def test_what_is_not_complete_is_not_added_to(library: Library) -> None:
    await library.importing.take([SOURCE, chunk()])
    await library.store.set_status(SOURCE_ID, "indexing")
    ((_, said),) = await refused(library, note())
    assert "ingest it again" in said
    assert (await library.importing.take([SOURCE, chunk(), note()])).refused == []
    await library.assert_whole()


async def test_tokens_are_counted_where_nobody_has(library: Library) -> None:
    await library.importing.take([SOURCE, chunk("Rivers flow far."), chunk("Seas wait.", token_count=99)])
    (_, chunks, _) = (await library.stored())[SOURCE_ID]
    assert [c.token_count for c in chunks] == [3, 99]


async def test_whatever_is_cut_off_is_completed_by_doing_it_again() -> None:
    lines = [SOURCE, chunk("One."), chunk("Two."), note(), {"source": {"title": "Other"}}]
    burnt = []
    for call in range(1, MORE_CALLS_THAN_THERE_ARE):
        fuse = Fuse(halfway=True)
        library = Library(fuse=fuse)
        fuse.left = call
        try:
            await library.importing.take(lines)
        except ConnectionError:
            burnt.append(fuse.burnt_at)
        fuse.left = -1
        taken = await library.importing.take(lines)
        assert (taken.sources, taken.chunks, taken.extractions, taken.refused) == (2, 2, 1, [])
        await library.assert_whole()
        if not fuse.burnt_at:
            break
    assert {"replace", "upsert", "set_status", "embed_documents"} <= set(burnt)
    assert len(burnt) < MORE_CALLS_THAN_THERE_ARE - 1


async def test_an_index_that_was_lost_is_made_anew(library: Library) -> None:
    lines = [SOURCE, chunk(), note()]
    await library.importing.take(lines)
    for name in ("chunks", "extractions"):
        await library.index.drop(name)
    assert (await library.importing.take(lines)).embedded == 2
    await library.assert_whole()


async def test_without_a_model_nothing_is_taken(library: Library) -> None:
    with pytest.raises(Unavailable, match="no embedding model"):
        await ImportKnowledge(library.store, library.index, None).take([SOURCE])
    assert await library.stored() == {}


async def test_a_large_library_takes_no_long_time(library: Library) -> None:
    lines = [SOURCE, *(chunk(f"{n} {facts(1, of=2)}") for n in range(3000)), *([note(source_id="?")] * 3000)]
    taken = await library.importing.take(lines)
    assert (taken.chunks, len(taken.refused)) == (3000, 3000)
