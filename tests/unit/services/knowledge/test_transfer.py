"""Export and import of knowledge as JSON lines; of files by other tools, the valid lines are imported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.catalogue import CountingEmbedder, Fuse
from tests.fixtures.databases import open_memory_database
from tests.fixtures.examples import scale_examples
from tests.fixtures.knowledge_ingest import HANDBOOK, Library, facts
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.sql.knowledge import SqlKnowledge
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.domain.knowledge import Chunk, Extraction, Position, Source, derive_id
from toolscript.domain.prompts import Prompt
from toolscript.services.knowledge.extraction import Extractor
from toolscript.services.knowledge.json_lines import parse_object
from toolscript.services.knowledge.transfer import ImportKnowledge, export_lines

pytestmark = pytest.mark.req("K-06")

MORE_CALLS_THAN_THERE_ARE = 60
SOURCE = {"source": {"title": "Rivers", "authors": ["Ada"], "path": "/rivers.md"}}
SOURCE_ID = derive_id("source", "/rivers.md")
NOTE = {"type": "warning", "content": {"title": "Floods", "summary": "They come."}, "topics": ["Water", "water"]}

lines_of_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
).filter(str.strip)
names = lines_of_text.filter(lambda name: not name.startswith("$") and name != "digest")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | lines_of_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
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
            derive_id("source", n),
            draw(st.sampled_from(["book", "paper"])),
            draw(lines_of_text),
            tuple(draw(st.lists(lines_of_text, max_size=3))),
            draw(st.just("") | lines_of_text),
            "2026-01-01T00:00:00+00:00",
            "ready",
            draw(st.dictionaries(names, values, max_size=3)),
        )
        texts = draw(st.lists(lines_of_text, max_size=4))
        chunks = [
            Chunk(derive_id(n, "chunk", m), source.id, text, draw(positions), HashedEmbedder().count_tokens(text))
            for m, text in enumerate(texts)
        ]
        extractions = [
            Extraction(
                derive_id(n, "extraction", m),
                source.id,
                draw(st.sampled_from(["", *(c.id for c in chunks)])),
                draw(st.sampled_from(["decision", "own kind"])),
                draw(st.dictionaries(names, values, min_size=1, max_size=3)),
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


async def export(library: Library) -> list[dict[str, Any]]:
    """The lines after writing and reading a file."""
    lines = export_lines(library.store, await library.store.list_sources())
    return [json.loads(json.dumps(line)) async for line in lines]


async def list_refused(library: Library, *lines: Any) -> list[tuple[int, str]]:
    return (await library.importing.take(lines)).refused


def list_embedded(library: Library) -> list[str]:
    assert isinstance(library.embedder, CountingEmbedder)
    return library.embedder.embedded


def chunk(text: str = "Rivers flow.", **more: Any) -> dict[str, Any]:
    return {"chunk": {"source_id": SOURCE_ID, "content": text, **more}}


def note(**more: Any) -> dict[str, Any]:
    return {"extraction": {"source_id": SOURCE_ID, **NOTE, **more}}


@pytest.mark.slow
@settings(deadline=None, max_examples=scale_examples(40))
@given(libraries())
async def test_an_export_is_imported_unchanged(shelf: list[tuple[Source, list[Chunk], list[Extraction]]]) -> None:
    library, other = Library(), Library()
    for source, chunks, extractions in shelf:
        await library.store.replace(source, chunks, extractions)
    lines = await export(library)
    taken = await other.importing.take(lines)
    assert taken.refused == []
    assert taken.sources == len(shelf)
    assert await other.list_stored() == await library.list_stored()
    assert await export(other) == lines
    await other.assert_whole()
    list_embedded(other).clear()
    again = await other.importing.take(lines)
    assert (again.embedded, list_embedded(other)) == (0, [])
    assert await other.list_stored() == await library.list_stored()


async def test_a_line_has_the_documented_fields(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    source, first, *_ = await export(library)
    assert source["source"].keys() == {
        "id", "type", "title", "authors", "path", "ingested_at", "status", "metadata", "schema_version",
        "chunks", "extractions",
    }  # fmt: skip
    assert (source["source"]["chunks"], source["source"]["extractions"]) == (2, 0)
    assert first["chunk"].keys() == {"id", "source_id", "content", "position", "token_count", "schema_version"}
    assert first["chunk"]["position"] == {"chapter": "1 Rivers", "section": "1.1 Water", "page": None}


async def read_by_a_model(library: Library) -> None:
    """Ingests the handbook with extractions of a language model."""

    class Reader:
        model = "reader"

        async def answer(self, prompt: Prompt) -> dict[str, Any]:
            note = {"type": "warning", "title": "Floods", "summary": "They come.", "reason": None, "topics": ["water"]}
            return {key: [note] for key in json.loads(prompt.text)["passages"]}

        async def close(self) -> None: ...

    reading = Library(
        store=library.store, index=library.index, embedder=library.embedder, extractor=Extractor(Reader())
    )
    await reading.ingesting.ingest(HANDBOOK)


async def test_ingesting_an_imported_book_embeds_nothing(library: Library) -> None:
    await read_by_a_model(library)
    other = Library(books=library.drawer.books)
    await other.importing.take(await export(library))
    list_embedded(other).clear()
    before = (await other.list_stored()).popitem()[1]
    made = await other.ingesting.ingest(HANDBOOK)
    assert (made.outcome, made.embedded, made.extractions, list_embedded(other)) == ("unchanged", 0, 2, [])
    assert (await other.list_stored()).popitem()[1][1:] == before[1:]
    assert made.source.metadata["unasked"] == []
    await other.assert_whole()


async def test_importing_ones_own_export_changes_nothing(library: Library) -> None:
    await read_by_a_model(library)
    before = await library.contents()
    list_embedded(library).clear()
    assert (await library.importing.take(await export(library))).embedded == 0
    assert (await library.contents(), list_embedded(library)) == (before, [])


async def test_an_imported_digest_is_not_trusted(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    lines = await export(library)
    lines[1]["chunk"]["content"] = "Forged."
    for place in (library, Library(books=library.drawer.books)):
        assert (await place.importing.take(lines)).refused == []
        made = await place.ingesting.ingest(HANDBOOK)
        assert made.outcome == "changed"
        (_, chunks, _) = (await place.list_stored())[made.source.id]
        assert [c.content for c in chunks] == [facts(1), facts(2)]
        await place.assert_whole()


@pytest.mark.parametrize(
    ("kept", "response"), [(1, "0 of its 2 chunks"), (2, "1 of its 2 chunks"), (4, "1 of its 2 extr")]
)
async def test_a_truncated_file_changes_nothing(library: Library, kept: int, response: str) -> None:
    await read_by_a_model(library)
    lines = (await export(library))[:kept]
    before = await library.contents()
    for place, stays in ((library, before["stored"]), (Library(), {})):
        taken = await place.importing.take(lines)
        assert (taken.sources, taken.chunks, taken.extractions) == (0, 0, 0)
        ((number, reason),) = taken.refused
        assert number == 1
        assert response in reason
        assert await place.list_stored() == stays
    assert await library.contents() == before


async def test_a_source_is_imported_completely_or_not_at_all(library: Library) -> None:
    await library.importing.take([SOURCE, chunk("One."), chunk("Two."), note()])
    before = await library.contents()
    bad: list[list[dict[str, Any]]] = [
        [SOURCE, chunk("New."), chunk("")],
        [SOURCE, chunk("New."), note(content={})],
        [SOURCE, chunk("New."), note(chunk_id="f" * 24)],
        [SOURCE, chunk("One.", id="a" * 24), chunk("Other.", id="a" * 24)],
        [SOURCE, {"source": {**SOURCE["source"], "title": "Streams"}}, chunk("New.")],
        [{"source": {**SOURCE["source"], "id": SOURCE_ID, "title": 7}}, chunk("New.")],
        [SOURCE, {"source": {"id": SOURCE_ID, "title": 7}}, chunk("New.")],
        [{"source": {**SOURCE["source"], "id": SOURCE_ID, "status": "indexing"}}, chunk("New.")],
    ]
    for lines in bad:
        taken = await library.importing.take(lines)
        assert (taken.sources, taken.chunks, taken.extractions) == (0, 0, 0), lines
        assert await library.contents() == before
    problems = dict((await library.importing.take(bad[0])).refused)
    assert f"the source {SOURCE_ID} is not imported" in problems[1]
    assert "1 of its lines cannot be used" in problems[1]
    other = {"source": {"title": "Other"}}, {"chunk": {"source_id": "Other", "content": "Good."}}
    assert (await library.importing.take([*bad[0], *other])).sources == 1


async def test_an_extraction_without_its_chunk_can_be_exported(library: Library) -> None:
    source = Source(SOURCE_ID, "book", "Rivers", (), "", "2026-01-01")
    drawn = Extraction(derive_id("note"), SOURCE_ID, "f" * 24, "warning", {"a": "b"}, (), "2026-01-01")
    await library.store.replace(source, [], [drawn])
    other = Library()
    taken = await other.importing.take(await export(library))
    assert (taken.extractions, taken.refused) == (1, [])
    (_, _, (kept,)) = (await other.list_stored())[SOURCE_ID]
    assert (kept.id, kept.chunk_id) == (drawn.id, "")


async def test_a_source_with_chunks_replaces_the_existing_one(library: Library) -> None:
    await library.importing.take([SOURCE, chunk("One."), chunk("Two."), note()])
    taken = await library.importing.take([SOURCE, chunk("Two."), chunk("Three.")])
    assert (taken.sources, taken.chunks, taken.embedded, taken.refused) == (1, 2, 1, [])
    (_, chunks, extractions) = (await library.list_stored())[SOURCE_ID]
    assert ([c.content for c in chunks], extractions) == (["Two.", "Three."], [])
    await library.assert_whole()


async def test_lines_without_a_source_are_added_to_the_existing_one(library: Library) -> None:
    await library.importing.take([SOURCE, chunk("One."), note()])
    taken = await library.importing.take([chunk("Two."), note(type="Pattern")])
    assert (taken.sources, taken.chunks, taken.extractions) == (0, 1, 1)
    (source, chunks, extractions) = (await library.list_stored())[SOURCE_ID]
    assert [c.content for c in chunks] == ["One.", "Two."]
    assert {e.type for e in extractions} == {"warning", "pattern"}
    assert source.title == "Rivers"
    await library.assert_whole()


async def test_a_source_line_alone_changes_only_the_source(library: Library) -> None:
    await library.importing.take([SOURCE, chunk("One."), note()])
    await library.importing.take([{"source": {**SOURCE["source"], "id": SOURCE_ID, "title": "Streams"}}])
    (source, chunks, extractions) = (await library.list_stored())[SOURCE_ID]
    assert (source.title, len(chunks), len(extractions)) == ("Streams", 1, 1)
    await library.assert_whole()


@pytest.mark.parametrize("reference", ["Rivers", "Streams"])
@pytest.mark.parametrize("is_first", [False, True])
async def test_a_renamed_source_is_found_by_either_title(library: Library, reference: str, is_first: bool) -> None:
    await library.importing.take([SOURCE, chunk("One.")])
    lines: list[dict[str, Any]] = [
        {"extraction": {"source_id": reference, **NOTE}},
        {"source": {**SOURCE["source"], "title": "Streams"}},
    ]
    taken = await library.importing.take(lines if is_first else reversed(lines))
    assert (taken.extractions, taken.refused) == (1, [])
    (source, _, (made,)) = (await library.list_stored())[SOURCE_ID]
    assert (source.title, made.source_id) == ("Streams", SOURCE_ID)
    await library.assert_whole()


async def test_a_title_that_moves_between_sources_is_ambiguous(library: Library) -> None:
    await library.importing.take([SOURCE])
    lines = {"source": {**SOURCE["source"], "title": "Streams"}}, {"source": {"title": "Rivers", "path": "/other.md"}}
    ((number, reason),) = await list_refused(library, *lines, {"extraction": {"source_id": "Rivers", **NOTE}})
    assert number == 3
    assert "several of that title" in reason


async def test_the_report_counts_new_and_changed_sources(library: Library) -> None:
    async def counts(*lines: Any) -> tuple[int, int, int]:
        taken = await library.importing.take(lines)
        return taken.sources, taken.added, taken.changed

    other = {"source": {"title": "Other"}}
    assert await counts(SOURCE, chunk("One."), other) == (2, 2, 0)
    assert await counts(SOURCE, chunk("One."), other) == (2, 0, 0)
    assert await counts({"source": {**SOURCE["source"], "title": "Streams"}}, other) == (2, 0, 1)
    assert await counts({"source": {**SOURCE["source"], "title": "Streams"}}, chunk("Two.")) == (1, 0, 1)
    assert await counts(note()) == (0, 0, 0)


@pytest.mark.parametrize("kind", ["decision", "Design Decision", "how-to", "own_kind", "Überblick", "決定", "x" * 40])
async def test_the_type_of_an_extraction_may_be_any_word(library: Library, kind: str) -> None:
    assert await list_refused(library, SOURCE, note(type=kind)) == []
    (_, _, (made,)) = (await library.list_stored())[SOURCE_ID]
    assert made.type == kind.lower()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"a": ', "is not valid JSON (column 7)"),
        (b'{"a": 1} x', "is not valid JSON (column 10)"),
        (b"\xff\xfe{", "is not valid UTF-8"),
        (b"[" * 200_000, "is nested too deeply"),
        (b'{"a": ' * 200_000, "is nested too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "contains a number that is too long"),
        (b"[1]", 'is not an object: give {"source": {…}}, {"chunk": {…}} or {"extraction": {…}}'),
        (b"null", 'is not an object: give {"source": {…}}, {"chunk": {…}} or {"extraction": {…}}'),
    ],
)
def test_a_line_that_is_not_an_object_is_refused_with_the_reason(line: bytes, problem: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse_object(line)
    assert raised.value.message == problem


def test_a_line_is_parsed_as_an_object() -> None:
    assert parse_object('{"source": {"title": "Flüsse"}}\r\n'.encode()) == {"source": {"title": "Flüsse"}}


@pytest.mark.parametrize("reference", [SOURCE_ID, "Rivers"])
async def test_extractions_of_another_tool_find_their_source_by_id_or_title(library: Library, reference: str) -> None:
    await library.importing.take([SOURCE, chunk()])
    taken = await library.importing.take([{"extraction": {"source_id": reference, **NOTE}}])
    assert (taken.extractions, taken.refused) == (1, [])
    (_, _, (made,)) = (await library.list_stored())[SOURCE_ID]
    assert (made.chunk_id, made.type, made.topics) == ("", "warning", ("water",))
    before = await library.list_stored()
    again = await library.importing.take([{"extraction": {"source": reference, **NOTE}}])
    assert (again.extractions, again.embedded) == (1, 0)
    assert await library.list_stored() == before


@pytest.mark.parametrize("reference", ["rivers", "Riv", "R", "/rivers.md", "~/rivers.md", " Rivers", SOURCE_ID.upper()])
async def test_a_line_refers_to_a_source_by_exact_name_only(library: Library, reference: str) -> None:
    await library.importing.take([SOURCE, chunk()])
    ((_, reason),) = await list_refused(library, {"extraction": {"source_id": reference, **NOTE}})
    assert "no such source" in reason


async def test_a_title_of_two_sources_is_ambiguous(library: Library) -> None:
    await library.importing.take([SOURCE, {"source": {"title": "Rivers", "path": "/other.md"}}])
    ((_, reason),) = await list_refused(library, {"extraction": {"source_id": "Rivers", **NOTE}})
    assert "several of that title" in reason


async def test_adding_extractions_embeds_only_those(library: Library) -> None:
    class Untouched(SqlKnowledge):
        async def replace(self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> None:
            raise AssertionError("all was written again")

    database = open_memory_database()
    await Library(store=SqlKnowledge(database), index=library.index).importing.take([SOURCE, chunk("One.")])
    other = Library(store=Untouched(database), index=library.index)
    (_, (one,), _) = (await other.list_stored())[SOURCE_ID]
    assert (await other.importing.take([note(), note(chunk_id=one.id)])).embedded == 1
    assert (await other.importing.take([note(), note(chunk_id=one.id)])).embedded == 0
    assert len((await other.list_stored())[SOURCE_ID][2]) == 2
    await other.assert_whole()


async def test_an_extraction_that_moves_to_another_chunk_takes_its_topics_along(library: Library) -> None:
    ids = ["a" * 24, "b" * 24]
    await library.importing.take(
        [SOURCE, *(chunk(f"Number {i}", id=i) for i in ids), note(id="c" * 24, chunk_id=ids[0])]
    )
    await library.importing.take([note(id="c" * 24, chunk_id=ids[1])])
    assert [(await library.points())[i][1]["topics"] for i in ids] == [[], ["water"]]
    await library.assert_whole()


async def test_a_chunk_has_the_topics_of_its_extractions(library: Library) -> None:
    await library.importing.take([SOURCE, chunk(id="a" * 24), note(chunk_id="a" * 24)])
    _, payload, _ = (await library.points())["a" * 24]
    assert payload["topics"] == ["water"]


async def test_lines_may_have_any_order(library: Library) -> None:
    taken = await library.importing.take([note(chunk_id="a" * 24), chunk(id="a" * 24), SOURCE])
    assert (taken.sources, taken.chunks, taken.extractions, taken.refused) == (1, 1, 1, [])
    await library.assert_whole()


async def test_invalid_lines_are_refused_by_number_and_the_others_imported(library: Library) -> None:
    await library.importing.take([SOURCE, chunk("One.")])
    lines: list[dict[str, Any]] = [
        {"book": {}},
        {"source": {"title": "Other"}},
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
    assert "is not a record" in problems[1]
    assert "has no source" in problems[3]
    assert "no such source, or several of that title: 'ffff" in problems[5]
    assert "content is not an object" in problems[6]
    assert "its source has no chunk 'bbbb" in problems[7]
    await library.assert_whole()


INVALID_LINES: list[tuple[dict[str, Any], str]] = [
    ({"source": {}}, "title is missing"),
    ({"source": {"title": " "}}, "title is not a text"),
    ({"source": {"title": 7}}, "title is not a text"),
    ({"source": {"title": "x" * 5000}}, "at most 2,000"),
    ({"source": {"title": "a\0b"}}, "null character"),
    ({"source": {"title": "a\ud800"}}, "surrogate"),
    ({"source": {"title": "a", "metadata": {"\ud800": 1}}}, "surrogate"),
    ({"source": {"title": "a", "metadata": {"n": 2**70}}}, "64 bits"),
    ({"source": {"title": "a", "metadata": {"n": float("nan")}}}, "not a finite number"),
    ({"source": {"title": "a", "metadata": []}}, "metadata is not an object"),
    ({"source": {"title": "a", "authors": "Ada"}}, "authors is not a list"),
    ({"source": {"title": "a", "authors": [""]}}, "authors contains"),
    ({"source": {"title": "a", "id": "short"}}, "24 hexadecimal digits"),
    ({"source": {"title": "a", "id": 7}}, "24 hexadecimal digits"),
    ({"source": {"title": "a", "schema_version": 2}}, "schema_version is 2"),
    ({"source": {"title": "a", "schema_version": True}}, "schema_version is true"),
    ({"source": {"title": "another", "id": SOURCE_ID}}, "is on another line already"),
    (chunk(""), "content is not a text"),
    (chunk(position="p. 3"), "position is not an object"),
    (chunk(position={"page": "three"}), "page is not a whole number"),
    (chunk(position={"page": -1}), "page is not a whole number"),
    ({"source": {"title": "a", "chunks": "many"}}, "chunks is not a whole number"),
    ({"source": {"title": "a", "status": "indexing"}}, "was not complete when it was exported"),
    ({"source": {"title": "a", "authors": ["x" * 201]}}, "authors contains"),
    ({"source": {"title": "a", "metadata": {"x": "ü" * 2_000_001}}}, "metadata has 4,000,011 bytes as JSON"),
    (chunk("x" * 8_001), "content has 8,001 characters: at most 8,000"),
    (note(content={"x": "ü" * 8_000}), "content has 16,009 bytes as JSON: at most 16,000"),
    (note(content={"$ref": "a", "$id": "b"}), "contains the name '$ref': names must not begin with $"),
    (note(content={"a": [{"$inc": 1}]}), "contains the name '$inc'"),
    (note(topics=["x" * 201]), "topics contains"),
    (note(type=""), "type is not a text"),
    (note(type="chunk"), "type is 'chunk'"),
    (note(type=" Extraction "), "type is 'extraction'"),
    (note(type="a\x1b[31m"), "type is not 1 to 40 letters"),
    (note(type="a\nb"), "type is not 1 to 40 letters"),
    (note(type="a/b"), "type is not 1 to 40 letters"),
    (note(type="x" * 41), "type is not 1 to 40 letters"),
    (note(topics=["tea\x1b[31m"]), "topics contains a control character"),
    (note(topics=["a\nb"]), "topics contains a control character"),
    (note(content={}), "content is empty"),
    (note(topics=[1]), "topics contains"),
]


async def test_an_invalid_line_is_refused_with_the_reason(library: Library) -> None:
    problems = dict(await list_refused(library, SOURCE, *(line for line, _ in INVALID_LINES)))
    assert problems.keys() == set(range(1, len(INVALID_LINES) + 2))  # the source on line 1 lacks its other lines
    for number, (_, problem) in enumerate(INVALID_LINES, start=2):
        assert problem in problems[number]


async def test_deeply_nested_values_are_refused(library: Library) -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"x": deep}
    problems = dict(await list_refused(library, SOURCE, note(content=deep)))
    assert "is nested too deeply" in problems[2]


async def test_ids_of_another_source_are_refused(library: Library) -> None:
    await library.importing.take([SOURCE, chunk(id="a" * 24), note(id="b" * 24)])
    thief = {"source": {"title": "Thief", "id": "c" * 24}}
    taken = [
        {"chunk": {"source_id": "c" * 24, "id": "a" * 24, "content": "Mine."}},
        {"extraction": {"source_id": "c" * 24, "id": "b" * 24, **NOTE}},
    ]
    before = (await library.list_stored())[SOURCE_ID]
    assert [number for number, _ in await list_refused(library, thief, *taken)] == [1, 2, 3]
    assert await library.list_stored() == {SOURCE_ID: before}
    await library.assert_whole()


async def test_the_first_of_different_lines_with_one_id_counts(library: Library) -> None:
    one, other = chunk("One.", id="a" * 24), chunk("Other.", id="a" * 24)
    assert await list_refused(library, SOURCE, SOURCE, chunk("First.")) == []
    ((number, reason),) = await list_refused(library, one, one, other)
    assert number == 3
    assert "on another line already" in reason
    (_, kept, _) = (await library.list_stored())[SOURCE_ID]
    assert [c.content for c in kept] == ["First.", "One."]


async def test_an_incomplete_source_gets_no_lines(library: Library) -> None:
    await library.importing.take([SOURCE, chunk()])
    await library.store.set_status(SOURCE_ID, "indexing")
    before = await library.contents()
    ((_, reason),) = await list_refused(library, note())
    assert "ingest it again" in reason
    assert await library.contents() == before
    assert (await library.importing.take([SOURCE, chunk(), note()])).refused == []
    await library.assert_whole()


async def test_a_refused_line_changes_nothing(library: Library) -> None:
    await library.importing.take([SOURCE, chunk()])
    for name in ("chunks", "extractions"):
        await library.index.drop(name)
    before = await library.list_stored()
    assert len(await list_refused(library, note(chunk_id="f" * 24), chunk(""))) == 2
    assert await library.list_stored() == before
    assert await library.points() == {}


async def test_the_status_of_another_pipeline_stays(library: Library) -> None:
    await library.importing.take([SOURCE, chunk()])
    await library.store.set_status(SOURCE_ID, "complete")
    assert (await library.importing.take([note()])).refused == []
    (source, _, (made,)) = (await library.list_stored())[SOURCE_ID]
    assert (source.status, made.type) == ("complete", "warning")
    assert (await library.importing.take([chunk("Two.")])).refused == []
    (source, chunks, _) = (await library.list_stored())[SOURCE_ID]
    assert (source.status, len(chunks)) == ("complete", 2)


async def test_tokens_are_counted_again(library: Library) -> None:
    lines = [chunk("Rivers flow far."), chunk("Seas wait.", token_count=99), chunk("So.", token_count="few")]
    assert await list_refused(library, SOURCE, *lines) == []
    (_, chunks, _) = (await library.list_stored())[SOURCE_ID]
    assert [c.token_count for c in chunks] == [3, 2, 1]


@pytest.mark.slow
async def test_an_interrupted_run_is_completed_by_repeating_it() -> None:
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


async def test_a_lost_index_is_rebuilt(library: Library) -> None:
    lines = [SOURCE, chunk(), note()]
    await library.importing.take(lines)
    for name in ("chunks", "extractions"):
        await library.index.drop(name)
    assert (await library.importing.take(lines)).embedded == 2
    await library.assert_whole()


async def test_without_a_model_nothing_is_imported(library: Library) -> None:
    with pytest.raises(Unavailable, match="no embedding model"):
        await ImportKnowledge(library.store, library.index, None).take([SOURCE])
    assert await library.list_stored() == {}


@pytest.mark.slow
async def test_a_large_library_is_imported_quickly(library: Library) -> None:
    lines = [SOURCE, *(chunk(f"{n} {facts(1, of=2)}") for n in range(1000)), *([note(source_id="?")] * 1000)]
    taken = await library.importing.take(lines)
    assert (taken.chunks, len(taken.refused)) == (1000, 1000)
