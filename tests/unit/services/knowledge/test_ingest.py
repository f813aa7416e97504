"""Ingest of books: a repeated ingest embeds only what changed, and completes what was interrupted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.catalogue import CountingEmbedder, Fuse
from tests.fixtures.databases import open_memory_database
from tests.fixtures.examples import choose
from tests.fixtures.knowledge_ingest import HANDBOOK, Library, book, chapter, facts
from toolscript.adapters.files.reader import FileBooks
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.adapters.sql.knowledge import SqlKnowledge
from toolscript.domain.errors import Invalid, NotFound, Unavailable
from toolscript.domain.knowledge import Block, BlockKind, Book, Extraction, Position, Source, derive_id, format_content
from toolscript.domain.search import Collection, Point, Terms
from toolscript.ports.models import Embedder
from toolscript.services.knowledge.ingest import MAX_CONCURRENT_READS, IngestKnowledge, SourceDetails, find_source
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS, max_chunk_tokens

pytestmark = pytest.mark.req("K-06")

MORE_CALLS_THAN_THERE_ARE = 40


@pytest.fixture
def library() -> Library:
    return Library()


def list_embedded(library: Library) -> list[str]:
    assert isinstance(library.embedder, CountingEmbedder)
    return library.embedder.embedded


async def add_note(library: Library, *, topics: tuple[str, ...] = ("rivers",), chunk: int = 0) -> Extraction:
    (source,) = await library.store.list_sources()
    chunks, _ = await library.store.get_contents(source.id)
    chunk_id = chunks[chunk].id if chunk >= 0 else ""
    content = {"title": "Rivers", "summary": "They flow."}
    note = Extraction(
        derive_id(chunk_id, "pattern", content), source.id, chunk_id, "pattern", content, topics, "2026-01-01"
    )
    await library.store.add_extractions(source.id, [note])
    await library.ingesting.index_all()
    return note


async def test_a_book_becomes_a_source_with_positioned_chunks(library: Library) -> None:
    library.drawer.books[HANDBOOK] = Book("The Handbook", ("Ada Lovelace",), (chapter(1, page=3), chapter(2, page=9)))
    made = await library.ingesting.ingest(HANDBOOK)
    assert (made.outcome, made.chunks, made.embedded, made.extractions, made.warnings) == ("added", 2, 2, 0, ())
    (source,) = await library.store.list_sources()
    assert source == made.source
    assert (source.id, source.type, source.path) == (derive_id("source", HANDBOOK), "book", str(HANDBOOK))
    assert (source.title, source.authors, source.status) == ("The Handbook", ("Ada Lovelace",), "ready")
    chunks, _ = await library.store.get_contents(source.id)
    assert [c.position for c in chunks] == [Position("1 Rivers", "1.1 Water", 3), Position("2 Rivers", "2.1 Water", 9)]
    assert [c.token_count for c in chunks] == [library.embedder.count_tokens(c.content) for c in chunks]
    await library.assert_whole()


async def test_the_date_of_a_file_is_metadata_of_its_source(library: Library) -> None:
    library.drawer.books[HANDBOOK] = Book("A", (), (chapter(1),), "2024-05")
    assert (await library.ingesting.ingest(HANDBOOK)).source.date == "2024-05"
    library.drawer.books[HANDBOOK] = Book("A", (), (chapter(1),), "2024-06")
    made = await library.ingesting.ingest(HANDBOOK)
    assert (made.outcome, made.embedded, made.source.metadata["date"]) == ("changed", 0, "2024-06")
    library.drawer.books[HANDBOOK] = Book("A", (), (chapter(1),))
    assert (await library.ingesting.ingest(HANDBOOK)).source.date is None
    (source,) = await library.store.list_sources()
    assert "date" not in source.metadata


async def test_points_have_the_fields_that_searches_need(library: Library) -> None:
    made = await library.ingesting.ingest(HANDBOOK)
    note = await add_note(library)
    chunks, _ = await library.store.get_contents(made.source.id)
    points = await library.points()
    for chunk, topics in zip(chunks, (["rivers"], []), strict=True):
        _, payload, _ = points[chunk.id]
        wanted = {"source_id": made.source.id, "chunk_id": chunk.id, "type": "chunk", "topics": topics}
        assert {name: payload[name] for name in wanted} == wanted
    _, payload, _ = points[note.id]
    wanted = {"source_id": made.source.id, "chunk_id": note.chunk_id, "type": "pattern", "topics": ["rivers"]}
    assert {name: payload[name] for name in wanted} == wanted


async def test_texts_are_embedded_with_their_heading(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    note = await add_note(library)
    assert list_embedded(library)[0] == f"The Handbook — 1 Rivers — 1.1 Water\n{facts(1)}"
    assert list_embedded(library)[-1] == f"The Handbook — 1 Rivers — 1.1 Water\n{format_content(note.content)}"


async def test_a_heading_contains_each_name_once(library: Library) -> None:
    positions = (Position(), Position("Rivers"), Position("", "Water"), Position("Sea", "Sea"))
    blocks = [Block(facts(n), BlockKind.PROSE, position) for n, position in enumerate(positions)]
    library.drawer.books[HANDBOOK] = Book("The Handbook", (), tuple(blocks))
    await library.ingesting.ingest(HANDBOOK)
    headings = [text.partition("\n")[0] for text in list_embedded(library)]
    assert headings == ["The Handbook", "The Handbook — Rivers", "The Handbook — Water", "The Handbook — Sea"]


async def test_another_topic_embeds_no_chunk(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    list_embedded(library).clear()
    note = await add_note(library, topics=("floods",))
    assert list_embedded(library) == [f"The Handbook — 1 Rivers — 1.1 Water\n{format_content(note.content)}"]
    await library.assert_whole()


@pytest.mark.slow
async def test_embedded_texts_fit_the_models_window(minilm: Embedder) -> None:
    class Watched(CountingEmbedder):
        window = minilm.window

        def count_tokens(self, text: str) -> int:
            return minilm.count_tokens(text)

    library = Library(embedder=Watched())
    long_words = Position("Donaudampfschifffahrtsgesellschaft " * 20, "Kapitänskajüte " * 50)
    text = " ".join(facts(n) for n in range(9))
    library.drawer.books[HANDBOOK] = Book("Über alles " * 99, (), (Block(text, BlockKind.PROSE, long_words),))
    await library.ingesting.ingest(HANDBOOK)
    assert len(list_embedded(library)) > 9
    assert max(map(minilm.count_tokens, list_embedded(library))) <= minilm.window
    assert max(map(minilm.count_tokens, list_embedded(library))) > minilm.window * 0.7


async def test_given_details_override_the_file_and_the_file_overrides_its_name(library: Library) -> None:
    made = await library.ingesting.ingest(HANDBOOK, SourceDetails("Mine", ("Me", "You"), "paper"))
    assert (made.source.title, made.source.authors, made.source.type) == ("Mine", ("Me", "You"), "paper")
    other = Path("/books/other.md")
    library.drawer.books[other] = book(1, title="", authors=())
    made = await library.ingesting.ingest(other)
    assert (made.source.title, made.source.authors, made.source.type) == ("other", (), "book")


async def test_given_details_stay_until_others_are_given(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK, SourceDetails("Mine", ("Me",), "paper"))
    library.drawer.books[HANDBOOK] = book(1, 3, title="The Second Handbook")
    again = (await library.ingesting.ingest(HANDBOOK)).source
    assert (again.title, again.authors, again.type) == ("Mine", ("Me",), "paper")
    assert (await library.ingesting.ingest(HANDBOOK)).outcome == "unchanged"
    other = (await library.ingesting.ingest(HANDBOOK, SourceDetails("Ours"))).source
    assert (other.title, other.authors, other.type) == ("Ours", ("Me",), "paper")
    taken_back = (await library.ingesting.ingest(HANDBOOK, SourceDetails(" ", ("",), ""))).source
    assert (taken_back.title, taken_back.authors) == ("The Second Handbook", ("Ada Lovelace",))
    assert taken_back.type == "book"
    await library.assert_whole()


async def test_given_details_count_even_if_the_file_has_the_same(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    assert (await library.ingesting.ingest(HANDBOOK, SourceDetails("The Handbook"))).outcome == "unchanged"
    library.drawer.books[HANDBOOK] = book(1, 2, title="handbook_v2_final.indd")
    assert (await library.ingesting.ingest(HANDBOOK)).source.title == "The Handbook"


@pytest.mark.parametrize(
    "notes",
    [
        {"extracted_with": "m", "unasked": [["x"], {"y": 1}, None]},
        {"extracted_with": "m", "unasked": "x"},
        {"extracted_with": ["m"], "unasked": {"x": 1}},
        {"digest": ["d"], "said": "x"},
        {"said": {"title": 7, "authors": "Ada", "type": ["paper"]}},
        {"said": {"title": {"a": 1}, "authors": [["x"], 7], "type": None}},
    ],
)
async def test_invalid_imported_metadata_is_ignored(library: Library, notes: dict[str, Any]) -> None:
    made = await library.ingesting.ingest(HANDBOOK)
    await library.store.set_status(made.source.id, "ready", notes)
    again = (await library.ingesting.ingest(HANDBOOK)).source
    assert (again.title, again.authors, again.type) == ("The Handbook", ("Ada Lovelace",), "book")
    await library.assert_whole()


async def test_an_unchanged_book_embeds_nothing(library: Library) -> None:
    first = await library.ingesting.ingest(HANDBOOK)
    before = await library.contents()
    list_embedded(library).clear()
    again = await library.ingesting.ingest(HANDBOOK)
    assert again == replace(first, outcome="unchanged", embedded=0)
    assert not list_embedded(library)
    assert await library.contents() == before


async def test_only_changed_chunks_are_embedded_and_the_others_stay(
    library: Library,
) -> None:
    await library.ingesting.ingest(HANDBOOK)
    kept = await add_note(library, chunk=0)
    lost = await add_note(library, chunk=1)
    whole = await add_note(library, chunk=-1)
    list_embedded(library).clear()
    library.drawer.books[HANDBOOK] = book(1, 3)
    made = await library.ingesting.ingest(HANDBOOK)
    assert (made.outcome, made.chunks, made.embedded, made.extractions) == ("changed", 2, 1, 3)
    assert list_embedded(library) == [f"The Handbook — 3 Rivers — 3.1 Water\n{facts(3)}"]
    _, extractions = await library.store.get_contents(made.source.id)
    assert {each.id: each.chunk_id for each in extractions} == {kept.id: kept.chunk_id, lost.id: "", whole.id: ""}
    assert made.warnings == ("imported extractions whose text is no longer there, kept for the source as a whole: 1",)
    await library.assert_whole()


async def test_imported_extractions_move_to_the_nearest_chunk_of_the_same_text(library: Library) -> None:
    named = [Block(facts(1, of=9), BlockKind.PROSE, Position(name)) for name in ("A", "B", "C", "D", "E")]
    library.drawer.books[HANDBOOK] = Book("A", (), (named[0], chapter(2), named[2], chapter(3), named[4]))
    await library.ingesting.ingest(HANDBOOK)
    note = await add_note(library, chunk=2)
    moved = replace(named[2], position=Position("Another name"))
    library.drawer.books[HANDBOOK] = Book("A", (), (named[0], chapter(2), moved, chapter(3), named[4]))
    made = await library.ingesting.ingest(HANDBOOK)
    chunks, (kept,) = await library.store.get_contents(made.source.id)
    assert (kept.id, kept.chunk_id, made.warnings) == (note.id, chunks[2].id, ())
    assert kept.chunk_id != note.chunk_id
    await library.assert_whole()


async def test_an_inserted_page_changes_only_page_numbers(library: Library) -> None:
    library.drawer.books[HANDBOOK] = Book("A", (), (chapter(1, page=1), chapter(2, page=2), chapter(1, page=4)))
    await library.ingesting.ingest(HANDBOOK)
    note = await add_note(library, chunk=1)
    before, _ = await library.store.get_contents(note.source_id)
    list_embedded(library).clear()
    library.drawer.books[HANDBOOK] = Book("A", (), (chapter(1, page=2), chapter(2, page=3), chapter(1, page=5)))
    made = await library.ingesting.ingest(HANDBOOK)
    assert (made.outcome, made.embedded, made.warnings) == ("changed", 0, ())
    assert not list_embedded(library)
    chunks, extractions = await library.store.get_contents(note.source_id)
    assert ([c.id for c in chunks], extractions) == ([c.id for c in before], [note])
    assert [c.position.page for c in chunks] == [2, 3, 5]
    await library.assert_whole()


async def test_an_unchanged_source_is_recognised_without_reading_others() -> None:
    class Alone(SqlKnowledge):
        async def count_contents(self) -> dict[str, tuple[int, int]]:
            raise AssertionError("every source was counted")

        async def list_sources(self) -> list[Source]:
            raise AssertionError("every source was read")

    library = Library(store=Alone(open_memory_database()))
    await library.ingesting.ingest(HANDBOOK)
    assert (await library.ingesting.ingest(HANDBOOK)).outcome == "unchanged"


async def test_another_title_is_embedded_with_every_chunk(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    made = await library.ingesting.ingest(HANDBOOK, SourceDetails("Another"))
    assert (made.outcome, made.embedded) == ("changed", 2)
    await library.assert_whole()


async def test_repeated_text_gives_separate_chunks(library: Library) -> None:
    library.drawer.books[HANDBOOK] = Book("A", (), (chapter(1), chapter(2), chapter(1)))
    made = await library.ingesting.ingest(HANDBOOK)
    chunks, _ = await library.store.get_contents(made.source.id)
    assert len({c.id for c in chunks}) == 3
    assert made.embedded == 2
    await library.assert_whole()


@pytest.mark.req("F-03")
async def test_an_unchanged_book_gets_the_terms_that_it_lacks_without_embedding(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    before = await library.index.scroll(CHUNKS)
    vectors = await library.index.vectors(CHUNKS, [each.id for each in before])
    old = [{name: value for name, value in each.payload.items() if name != "terms"} for each in before]
    points = [Point(each.id, vectors[each.id], Terms(), own) for each, own in zip(before, old, strict=True)]
    await library.index.upsert(CHUNKS, points)
    list_embedded(library).clear()
    assert (await library.ingesting.ingest(HANDBOOK)).outcome == "unchanged"
    assert not list_embedded(library)
    assert await library.index.scroll(CHUNKS) == before
    await library.assert_whole()


async def test_a_lost_index_is_rebuilt(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    await library.index.drop(CHUNKS)
    made = await library.ingesting.ingest(HANDBOOK)
    assert (made.outcome, made.embedded) == ("changed", 2)
    await library.assert_whole()
    await library.index.drop(CHUNKS)
    seen: list[tuple[int, int]] = []
    assert await library.ingesting.index_all(lambda done, total: seen.append((done, total))) == 2
    assert seen == [(0, 1), (1, 1)]
    assert await library.ingesting.index_all() == 0
    await library.assert_whole()


async def test_points_of_unknown_sources_are_removed(library: Library) -> None:
    made = await library.ingesting.ingest(HANDBOOK)
    await library.store.remove(made.source.id)
    assert await library.ingesting.index_all() == 2
    assert await library.points() == {}


async def test_a_removed_source_leaves_nothing(library: Library) -> None:
    made = await library.ingesting.ingest(HANDBOOK)
    await add_note(library)
    other = Path("/books/other.md")
    library.drawer.books[other] = book(7, title="Other")
    kept = await library.ingesting.ingest(other)
    assert await library.ingesting.remove(made.source.id)
    assert not await library.ingesting.remove(made.source.id)
    assert [source.id for source in await library.store.list_sources()] == [kept.source.id]
    assert {payload["source_id"] for _, payload, _ in (await library.points()).values()} == {kept.source.id}
    await library.assert_whole()


async def test_removing_works_without_collections(library: Library) -> None:
    assert not await library.ingesting.remove("0" * 24)


async def test_a_source_is_found_by_id_path_title_or_unique_prefix(library: Library) -> None:
    other = Path("/books/other.md")
    library.drawer.books[other] = book(7, title="The Handyman")
    first, second = [(await library.ingesting.ingest(path)).source for path in (HANDBOOK, other)]
    for reference in (first.id, str(HANDBOOK), "/books/../books/handbook.md", "the handbook", "The Handb"):
        assert await library.ingesting.find(reference) == first
    assert await library.ingesting.find("THE HANDY") == second
    with pytest.raises(NotFound, match="matches 2 sources: 'The Handbook'"):
        await library.ingesting.find("the h")
    for unknown in ("nothing", "", " ", "\0", "~nobody-of-that-name/x", "x" * 10_000):
        with pytest.raises(NotFound, match="The Handyman"):
            await library.ingesting.find(unknown)


def test_without_sources_the_error_says_how_to_add_one() -> None:
    with pytest.raises(NotFound, match="toolscript knowledge ingest"):
        find_source([], "x")


def test_a_title_is_preferred_to_the_beginning_of_another() -> None:
    short, long = [Source(derive_id(title), "book", title, (), "", "") for title in ("Rivers", "Rivers and Lakes")]
    assert find_source([long, short], "rivers") == short


async def test_pages_of_a_folder_are_one_book(library: Library) -> None:
    folder = Path("/books/manual")
    pages = [folder / "index.html", folder / "a.html", folder / "broken.html", folder / "b.html"]
    library.drawer.books = {
        pages[0]: Book("The Manual", ("Ada",), (Block(facts(0)),)),
        pages[1]: Book("", ("Bob", "Ada"), (Block(facts(1)),)),
        pages[3]: Book("Page", (), (chapter(2),)),
    }
    made = await library.ingesting.ingest_together(folder, pages)
    assert (made.source.title, made.source.authors, made.source.path) == ("The Manual", ("Ada", "Bob"), str(folder))
    assert made.warnings == ("broken.html: is not in the drawer",)
    chunks, _ = await library.store.get_contents(made.source.id)
    assert [c.position.chapter for c in chunks] == ["The Manual", "a", "2 Rivers"]
    again = await library.ingesting.ingest_together(folder, pages)
    assert (again.outcome, again.warnings) == ("unchanged", made.warnings)


async def test_pages_that_are_numbered_as_sections_are_sections_of_the_chapter_before_them(library: Library) -> None:
    folder = Path("/books/manual")
    titles = ["6 Maintenance", "6.1 Sources", "6.2.1 Pinning", "7 Help", "6.9 Late", "A. Index", "Afterword"]
    library.drawer.books = {folder / f"{n}.html": Book(t, (), (Block(facts(n)),)) for n, t in enumerate(titles)}
    made = await library.ingesting.ingest_together(folder, [*library.drawer.books])
    chunks, _ = await library.store.get_contents(made.source.id)
    assert [(c.position.chapter, c.position.section) for c in chunks] == [
        ("6 Maintenance", ""),
        ("6 Maintenance", "6.1 Sources"),
        ("6 Maintenance", "6.2.1 Pinning"),
        ("7 Help", ""),
        ("6.9 Late", ""),
        ("A. Index", ""),
        ("Afterword", ""),
    ]


async def test_a_few_pages_of_a_folder_are_read_at_once_and_their_order_is_kept(library: Library) -> None:
    folder = Path("/books/manual")
    files = [folder / f"{n}.html" for n in range(9)]
    under_way: list[Path] = []
    maximum = []
    all_are_there = asyncio.Event()

    class Slow:
        async def read(self, path: Path) -> Book:
            under_way.append(path)
            maximum.append(len(under_way))
            if len(maximum) == MAX_CONCURRENT_READS:
                all_are_there.set()
            await all_are_there.wait()
            under_way.remove(path)
            if path == files[4]:
                raise Invalid("is torn")
            return Book("", (), (chapter(int(path.stem)),))

    seen: list[tuple[int, int]] = []
    ingesting = IngestKnowledge(library.store, library.index, library.embedder, Slow())
    async with asyncio.timeout(20):
        made = await ingesting.ingest_together(folder, files, progress=lambda *response: seen.append(response))
    assert max(maximum) == MAX_CONCURRENT_READS
    chunks, _ = await library.store.get_contents(made.source.id)
    assert [c.position.chapter for c in chunks] == [f"{n} Rivers" for n in range(9) if n != 4]
    assert made.warnings == ("4.html: is torn",)
    assert seen[:9] == [(n, 9) for n in range(1, 10)]


async def test_a_folder_without_readable_files_is_refused(library: Library) -> None:
    with pytest.raises(Invalid, match=r"none of its 2 files can be read: x\.md: is not in the drawer; y\.md"):
        await library.ingesting.ingest_together(Path("/books"), [Path("/books/x.md"), Path("/books/y.md")])


async def test_a_book_without_text_is_refused_and_the_existing_source_stays(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    library.drawer.books[HANDBOOK] = Book("A", (), (Block(" \n"),))
    with pytest.raises(Invalid, match="holds no text"):
        await library.ingesting.ingest(HANDBOOK)
    await library.assert_whole()
    assert len(await library.points()) == 2


async def test_characters_that_stores_refuse_are_removed(library: Library) -> None:
    odd = Block(f"{facts(1)} nul\0l \ud800half", BlockKind.PROSE, Position("a\0b", "c\udfff"))
    library.drawer.books[HANDBOOK] = Book("T\0itle", ("\ud800", "\0"), (odd,))
    made = await library.ingesting.ingest(HANDBOOK)
    (chunk,), _ = await library.store.get_contents(made.source.id)
    assert (made.source.title, made.source.authors) == ("Title", ("?",))
    assert (chunk.position.chapter, chunk.position.section) == ("ab", "c?")
    assert chunk.content.endswith("null ?half")


async def test_without_a_model_ingest_fails_before_reading(library: Library) -> None:
    await library.ingesting.ingest(HANDBOOK)
    bare = IngestKnowledge(library.store, library.index, None, library.drawer)
    for work in (bare.ingest(Path("/nowhere")), bare.index_all(), bare.ingest_together(Path("/x"), [])):
        with pytest.raises(Unavailable, match="no embedding model"):
            await work


async def test_without_sources_index_all_needs_no_model(library: Library) -> None:
    assert await IngestKnowledge(library.store, library.index, None, library.drawer).index_all() == 0


async def test_vectors_of_two_models_do_not_mix(library: Library) -> None:
    await library.index.open(Collection(CHUNKS, "another", 7))
    with pytest.raises(Invalid, match="toolscript index rebuild"):
        await library.ingesting.ingest(HANDBOOK)
    assert await library.store.list_sources() == []


async def test_progress_is_reported_from_the_beginning_to_the_end(library: Library) -> None:
    library.drawer.books[HANDBOOK] = book(*range(80))
    seen: list[tuple[int, int]] = []
    await library.ingesting.ingest(HANDBOOK, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 80)
    assert seen == sorted(seen)
    assert seen[-1] == (80, 80)
    assert len(seen) > 3


async def test_concurrent_ingests_leave_one_complete_source(library: Library) -> None:
    library.drawer.books[HANDBOOK] = book(1, 2, 3)
    ingests = [library.ingesting.ingest(HANDBOOK, SourceDetails(title)) for title in ("One", "Two", "Three")]
    outcomes = [made.outcome for made in await asyncio.gather(*ingests)]
    assert sorted(outcomes) == ["added", "changed", "changed"]
    await library.assert_whole()


@pytest.mark.slow
@pytest.mark.parametrize("halfway", choose([False, True], True))
async def test_an_interrupted_run_is_completed_by_repeating_it(halfway: bool) -> None:
    burnt = []
    for call in range(1, MORE_CALLS_THAN_THERE_ARE):
        fuse = Fuse(halfway=halfway)
        library = Library(fuse=fuse)
        source_id = (await library.ingesting.ingest(HANDBOOK)).source.id
        await add_note(library, chunk=1)
        library.drawer.books[HANDBOOK] = book(1, 3, 4)
        fuse.left = call
        try:
            await library.ingesting.ingest(HANDBOOK)
        except ConnectionError:
            burnt.append(fuse.burnt_at)
        chunks, _ = await library.store.get_contents(source_id)
        assert [chunk.content for chunk in chunks] in ([facts(1), facts(2)], [facts(1), facts(3), facts(4)])
        if not fuse.burnt_at:
            break
        other = Library(store=library.store, index=library.index, books=library.drawer.books)
        assert (await other.ingesting.ingest(HANDBOOK)).chunks == 3
        await library.assert_whole()
    assert {"replace", "set_status", "upsert", "delete", "embed_documents", "open", "get_contents"} <= set(burnt)
    assert len(burnt) < MORE_CALLS_THAN_THERE_ARE - 1


async def test_an_interrupted_removal_is_completed_by_repeating_it() -> None:
    burnt = []
    for call in range(1, MORE_CALLS_THAN_THERE_ARE):
        fuse = Fuse(halfway=True)
        library = Library(fuse=fuse)
        source_id = (await library.ingesting.ingest(HANDBOOK)).source.id
        await add_note(library)
        fuse.left = call
        try:
            await library.ingesting.remove(source_id)
        except ConnectionError:
            burnt.append(fuse.burnt_at)
            assert (await library.ingesting.find(source_id)).id == source_id
            assert await library.ingesting.remove(source_id)
        assert await library.points() == {}
        assert await library.store.list_sources() == []
        if not fuse.burnt_at:
            break
    assert {"set_status", "delete", "remove"} <= set(burnt)
    assert len(burnt) < MORE_CALLS_THAN_THERE_ARE - 1


@pytest.mark.slow
async def test_a_real_file_goes_through_a_real_model_into_a_real_index(tmp_path: Path, minilm: Embedder) -> None:
    file = tmp_path / "guide.md"
    recipes = "Knead the dough for ten minutes. Let it rise in a warm place until it has doubled.\n\n" * 8
    orbits = "A satellite in a low orbit circles the earth in ninety minutes and decays slowly.\n\n" * 8
    file.write_text(f"# Guide\n\n## Bread\n\n{recipes}\n## Space\n\n{orbits}", encoding="utf-8")
    index = QdrantEdgeIndex(tmp_path / "index")
    library = Library(index=index, embedder=minilm)
    try:
        ingesting = IngestKnowledge(library.store, index, minilm, FileBooks())
        made = await ingesting.ingest(file)
        assert (made.outcome, made.source.title) == ("added", "Guide")
        chunks, _ = await library.store.get_contents(made.source.id)
        assert all(c.token_count <= max_chunk_tokens(minilm) for c in chunks)
        (best,) = await index.dense(CHUNKS, await minilm.embed_query("how to bake bread"), limit=1)
        assert "dough" in next(c.content for c in chunks if c.id == best.id)
        assert (await ingesting.ingest(file)).outcome == "unchanged"
        assert await index.count(EXTRACTIONS) == 0
        assert await ingesting.index_all() == 0
    finally:
        await index.close()
