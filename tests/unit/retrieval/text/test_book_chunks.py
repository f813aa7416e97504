"""A book is cut at sections, paragraphs and sentences; its pieces cover it in order and fit the model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.domain.knowledge import Block, BlockKind, Position
from toolscript.retrieval.text.book_chunks import CHARACTERS_PER_TOKEN, Piece, cut

pytestmark = pytest.mark.req("K-06")

WORDS = [
    "river",
    "stone. ",
    "why? ",
    "and ",
    " ",
    "über ",
    "x" * 40,
    "\n",
    "e\u0301",
    "漢字。",
    "| a | b |\n",
    "if (i) {\n",
    "5",
]
positions = st.builds(
    Position,
    chapter=st.sampled_from(["", "One", "Two"]),
    section=st.sampled_from(["", "1.1 Sand", "1.2 Sea"]),
    page=st.sampled_from([None, 1, 2]),
)
blocks = st.builds(
    Block,
    text=st.lists(st.sampled_from(WORDS), max_size=60).map("".join),
    kind=st.sampled_from(BlockKind),
    position=positions,
)
books = st.lists(blocks, max_size=12)


def words(text: str) -> int:
    return len(text.split())


def prose(text: str, **position: str | int) -> Block:
    return Block(text, BlockKind.PROSE, Position(**position))  # type: ignore[arg-type]


def message(number: int, *, of: int = 10, about: str = "s") -> str:
    """Sentences of five words, each different."""
    return " ".join(f"{about}{n} is one small fact." for n in range(number, number + of))


def texts(pieces: Sequence[Piece]) -> list[str]:
    return [piece.text for piece in pieces]


def letters(*parts: str) -> str:
    return "".join("".join(parts).split())


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(books, st.integers(8, 60))
@example([Block("漢字。" * 100)], 8)
@example([Block("x" * 3000, BlockKind.CODE)], 8)
@example([Block("\n" * 300 + "a", BlockKind.CODE), Block(" \n" * 300)], 8)
def test_all_of_a_book_is_in_its_pieces_in_order(book: list[Block], size: int) -> None:
    plain = [block if block.kind is not BlockKind.TABLE else Block(block.text) for block in book]
    found = cut(plain, size=size, overlap=0, measure=words)
    assert letters(*texts(found)) == letters(*(block.text for block in plain))


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(books)
def test_sections_that_fit_are_a_piece_each(book: list[Block]) -> None:
    found = cut(book, size=10_000, overlap=100, measure=words)
    places = [(each.position.chapter, each.position.section) for each in book if each.text.strip()]
    assert [(piece.position.chapter, piece.position.section) for piece in found] == [
        place for place, _ in groupby(places)
    ]


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(books, st.integers(8, 60))
@example([Block("漢字。" * 100)], 8)
@example([Block("x" * 3000, BlockKind.CODE)], 8)
@example([Block("a b c d\n" + "x " * 300, BlockKind.TABLE)], 16)
def test_no_piece_is_too_long_or_empty(book: list[Block], size: int) -> None:
    for text in texts(cut(book, size=size, overlap=size // 5, measure=words)):
        assert 0 < words(text) <= size
        assert len(text) <= size * CHARACTERS_PER_TOKEN
        assert text.strip()


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(books)
def test_a_piece_belongs_to_one_section_and_has_a_position_of_the_book(book: list[Block]) -> None:
    marked = [Block(f"m{n}m {block.text}", block.kind, block.position) for n, block in enumerate(book)]
    for piece in cut(marked, size=30, overlap=6, measure=words):
        inside = [block for n, block in enumerate(marked) if f"m{n}m" in piece.text]
        places = {(block.position.chapter, block.position.section) for block in inside}
        assert places <= {(piece.position.chapter, piece.position.section)}
        assert piece.position in {block.position for block in marked}


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(books)
def test_the_same_book_is_cut_the_same_way(book: list[Block]) -> None:
    assert cut(book, size=30, overlap=6, measure=words) == cut(book, size=30, overlap=6, measure=words)


@pytest.mark.slow
@settings(deadline=None, max_examples=scale_examples(40))
@given(book=st.lists(st.builds(Block, st.text(max_size=300), st.sampled_from(BlockKind), positions), max_size=6))
@example([Block("a" * 101 + "-" + "b" * 101)])
@example([Block("unaffableness" * 60)])
async def test_every_piece_fits_the_models_window(minilm: OnnxEmbedder, book: list[Block]) -> None:
    assert all(
        minilm.count_tokens(text) <= 40 for text in texts(cut(book, size=40, overlap=8, measure=minilm.count_tokens))
    )


def test_sections_are_separate_pieces() -> None:
    book = [prose(message(n), chapter="One", section=f"1.{n}", page=n) for n in range(4)]
    found = cut(book, size=60, overlap=12, measure=words)
    assert found == [Piece(block.text, block.position) for block in book]


def test_even_a_short_section_is_a_separate_piece() -> None:
    short = prose("Only a few words.", chapter="One", section="1.1 Why bees swarm", page=1)
    long = prose(message(0), chapter="One", section="1.2 Catching a swarm", page=2)
    last = prose("See the index.", chapter="One", section="1.3 More", page=3)
    found = cut([short, long, last], size=90, overlap=12, measure=words)
    assert found == [Piece(block.text, block.position) for block in (short, long, last)]


def test_a_tiny_chapter_is_not_merged() -> None:
    book = [prose("Few words.", chapter="One"), prose("Few more.", chapter="Two")]
    assert texts(cut(book, size=60, overlap=12, measure=words)) == ["Few words.", "Few more."]


def test_prose_is_cut_between_sentences_into_even_pieces_that_overlap() -> None:
    found = texts(cut([prose(message(0, of=30))], size=60, overlap=12, measure=words))
    assert len(found) == 3
    assert all(text.startswith("s") and text.endswith("fact.") for text in found)
    assert min(map(words, found)) * 2 >= max(map(words, found))
    for before, after in pairwise(found):
        repeated = " ".join(after.split()[:10])
        assert before.endswith(repeated)


def test_a_piece_ends_with_a_paragraph_where_possible() -> None:
    paragraphs = [prose(message(n * 10, of=7)) for n in range(4)]
    found = texts(cut(paragraphs, size=90, overlap=0, measure=words))
    assert found == [f"{one.text}\n\n{two.text}" for one, two in (paragraphs[:2], paragraphs[2:])]


def test_nothing_is_repeated_across_sections_code_or_tables() -> None:
    for kind in (BlockKind.CODE, BlockKind.TABLE):
        book = [prose(message(0, of=8)), Block(message(100, of=9), kind), prose(message(200, of=8))]
        found = cut(book, size=50, overlap=25, measure=words)
        assert letters(*texts(found)) == letters(*(block.text for block in book))
    book = [prose(message(n, of=12), section=str(n)) for n in (0, 100)]
    assert texts(cut(book, size=70, overlap=35, measure=words)) == [block.text for block in book]


@pytest.mark.parametrize("kind", [BlockKind.CODE, BlockKind.TABLE])
def test_code_and_tables_that_fit_are_kept_whole(kind: BlockKind) -> None:
    listing = Block("\n".join(f"x{n} = f ( {n} )" for n in range(9)), kind)
    book = [prose(message(0, of=9)), listing, prose(message(100, of=9))]
    assert sum(listing.text in text for text in texts(cut(book, size=60, overlap=12, measure=words))) == 1


def test_code_that_does_not_fit_is_cut_at_empty_lines_or_between_lines() -> None:
    functions = ["\n".join([f"def f{n} ( ) :", *(f"    y{n}_{m} = g ( {m} )" for m in range(6))]) for n in range(3)]
    found = texts(cut([Block("\n\n".join(functions), BlockKind.CODE)], size=60, overlap=12, measure=words))
    assert found == functions


def test_only_a_line_that_is_too_long_is_cut() -> None:
    lines = ["a short line", "word " * 100, "another short line"]
    found = texts(cut([Block("\n".join(lines), BlockKind.CODE)], size=40, overlap=0, measure=words))
    assert letters(*found) == letters(*lines)
    assert found[0].startswith("a short line\nword")
    assert len(found) <= 4


@pytest.mark.parametrize("rule", ["", "| --- | --- |\n"])
def test_every_piece_of_a_table_begins_with_its_header(rule: str) -> None:
    header = f"| name | use |\n{rule}"
    rows = [f"| n{n} | to do {n} |" for n in range(30)]
    found = texts(cut([Block(header + "\n".join(rows), BlockKind.TABLE)], size=60, overlap=12, measure=words))
    assert len(found) > 1
    assert all(text.startswith(header) for text in found)
    assert "\n".join(text.removeprefix(header) for text in found) == "\n".join(rows)


def test_a_header_that_is_too_long_is_not_repeated() -> None:
    header = "| " + "name " * 20 + "|\n"
    rows = "\n".join(f"| n{n} | to do {n} |" for n in range(30))
    found = texts(cut([Block(header + rows, BlockKind.TABLE)], size=60, overlap=12, measure=words))
    assert letters(*found) == letters(header, rows)


def test_units_that_measure_more_together_still_fit() -> None:
    def wary(text: str) -> int:
        return words(text) + words(text) ** 2 // 50

    found = texts(cut([prose(message(0, of=60))], size=60, overlap=12, measure=wary))
    assert max(map(wary, found)) <= 60
    assert all(f"s{n} is" in " ".join(found) for n in range(60))


def test_a_piece_has_the_page_where_its_new_text_begins() -> None:
    book = [prose(message(0, of=10), page=5), prose(message(100, of=10), page=6)]
    first, second = cut(book, size=62, overlap=12, measure=words)
    assert (first.position.page, second.position.page) == (5, 6)
    assert second.text.startswith("s8 is")


@pytest.mark.slow
@pytest.mark.parametrize(
    "book",
    [
        pytest.param([prose(message(0, of=60_000))], marks=pytest.mark.extended),
        [prose(message(0, of=20_000))],
        pytest.param([prose("word " * 300_000)], marks=pytest.mark.extended),
        pytest.param([Block("x" * 2_000_000, BlockKind.CODE)], marks=pytest.mark.extended),
        pytest.param([Block("x = 1\n" * 300_000, BlockKind.CODE)], marks=pytest.mark.extended),
        [Block("x = 1\n" * 75_000, BlockKind.CODE)],
        pytest.param([Block("| a | b |\n" * 200_000, BlockKind.TABLE)], marks=pytest.mark.extended),
        [prose(message(n, of=5), section=str(n)) for n in range(12_000)],
        pytest.param([prose("\n" * 2_000_000 + "x")], marks=pytest.mark.extended),
    ],
    ids=["sentences", "fewer sentences", "words", "one word", "lines", "fewer lines", "rows", "sections", "nothing"],
)
def test_two_megabytes_are_cut_quickly(book: list[Block]) -> None:
    started = time.thread_time()
    cut(book, size=216, overlap=40, measure=lambda text: len(text) // 4 + 1)
    assert time.thread_time() - started < 40
