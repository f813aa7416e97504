"""PDFs as books: paragraphs, code and headings, rebuilt from positioned lines."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.fixtures.book_files import BODY, CODE, GLYPHS, LARGE, Bookmark, Typed, pdf
from toolscript.adapters.files.parts import build_book
from toolscript.adapters.files.pdf.pages import read_pdf
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Block, BlockKind, Book, Position

pytestmark = pytest.mark.req("K-06")

LONG = "These are words of a line that goes on to the very end of the column it is set in"


def read(data: bytes) -> Book:
    return build_book(read_pdf(data))


def lines(*texts: str, y: float = 700, x: float = 72, font: str = BODY, step: float = 13) -> list[Typed]:
    return [Typed(x, y - step * number, text, font) for number, text in enumerate(texts)]


def number_pages(pages: Sequence[Sequence[Typed]]) -> list[list[Typed]]:
    """Pages with a header that names the book and the page."""
    return [[Typed(72, 820, f"A Book of Bees {number}"), *page] for number, page in enumerate(pages, 1)]


def test_lines_are_joined_into_paragraphs_and_broken_words_are_repaired() -> None:
    page = [
        *lines(LONG, f"{LONG} and is an exam-", "ple of well-known things.", y=700),
        *lines(LONG, "Second paragraph, with an example.", y=640),
        *lines(f"{LONG} is well-", "known.", y=580),
    ]
    assert [block.text for block in read(pdf([page])).blocks] == [
        f"{LONG} {LONG} and is an example of well-known things.",
        f"{LONG} Second paragraph, with an example.",
        f"{LONG} is well-known.",
    ]


def test_chapters_and_sections_come_from_the_outline_with_page_numbers() -> None:
    pages = [
        [Typed(72, 760, "Chapter 1"), Typed(72, 740, "Hives", LARGE), *lines(LONG, "End of it.", y=700)],
        [
            Typed(72, 760, "1.1 Wax", LARGE),
            *lines("Soft.", y=700),
            Typed(72, 600, "2 Honey", LARGE),
            *lines("Sweet.", y=560),
        ],
    ]
    outline = [Bookmark("Hives", 0, 790, [Bookmark("Wax", 1, 790)]), Bookmark("Honey", 1, 620)]
    book = read(pdf(pages, outline, title="Of Bees", author="Ada Hive; Bo Stern"))
    assert (book.title, book.authors) == ("Of Bees", ("Ada Hive", "Bo Stern"))
    assert book.blocks == (
        Block(f"{LONG} End of it.", BlockKind.PROSE, Position("Chapter 1. Hives", "", 1)),
        Block("Soft.", BlockKind.PROSE, Position("Chapter 1. Hives", "1.1 Wax", 2)),
        Block("Sweet.", BlockKind.PROSE, Position("2 Honey", "", 2)),
    )


def test_a_bookmark_whose_title_is_not_on_its_page_begins_at_its_height() -> None:
    page = [*lines("Above.", y=700), *lines("Below.", y=500)]
    book = read(pdf([page], [Bookmark("One", 0, 800), Bookmark("Two", 0, 520)]))
    assert [(block.text, block.position.chapter) for block in book.blocks] == [("Above.", "One"), ("Below.", "Two")]


def test_without_an_outline_larger_type_makes_chapters() -> None:
    pages = [[Typed(72, 760, f"Part {name}", LARGE), *lines(LONG, LONG, "It ends.")] for name in ("One", "Two")]
    assert [block.position for block in read(pdf(pages)).blocks] == [
        Position("Part One", "", 1),
        Position("Part Two", "", 2),
    ]


def test_headers_footers_page_numbers_and_tables_of_contents_are_removed() -> None:
    pages = number_pages(
        [
            [*lines("Contents", "Hives . . . . . . . . 2", "Honey . . . . . . . . 3", y=700), Typed(300, 30, "i")],
            [*lines("Bees build.", y=700), Typed(300, 30, "2")],
            [*lines("Bees fly.", y=700), Typed(300, 30, "3")],
        ]
    )
    assert [block.text for block in read(pdf(pages)).blocks] == ["Contents", "Bees build.", "Bees fly."]


def test_a_paragraph_across_two_pages_has_the_page_where_it_begins() -> None:
    pages = number_pages([lines(LONG, LONG), lines("which goes on here.", "Next."), lines("Other.")])
    first, second, *_ = read(pdf(pages)).blocks
    assert (first.text, first.position.page) == (f"{LONG} {LONG} which goes on here.", 1)
    assert (second.text, second.position.page) == ("Next.", 2)


def test_code_keeps_its_indentation_and_terms_their_definitions() -> None:
    page = [
        *lines("Say this:", y=700),
        *lines("if bee:", y=680, font=CODE),
        *lines("fly()", y=667, x=72 + 4 * 6, font=CODE),
        *lines("--honey", y=620, font=CODE),
        *lines("Fetches the honey.", y=607, x=130),
    ]
    assert [(block.kind, block.text) for block in read(pdf([page])).blocks] == [
        (BlockKind.PROSE, "Say this:"),
        (BlockKind.CODE, "if bee:\n    fly()"),
        (BlockKind.PROSE, "--honey Fetches the honey."),
    ]


def test_pages_have_their_printed_numbers() -> None:
    """They are i and ii, 1 to 3, and A-1. The first sheet is not page 1, but no other page is the sixth."""
    pages = [lines(f"{word}.") for word in ("Preface", "Thanks", "Hives", "Wax", "Honey", "Index")]
    labels = "0 << /S /r >> 2 << /S /D >> 5 << /S /D /P (A-) >>"
    outline = [Bookmark("One", 2), Bookmark("Two", 4)]
    blocks = read(pdf(pages, outline, labels=labels)).blocks
    assert [(block.text, block.position.chapter, block.position.page) for block in blocks] == [
        ("Preface.", "", None),
        ("Thanks.", "", None),
        ("Hives.", "One", 1),
        ("Wax.", "One", 2),
        ("Honey.", "Two", 3),
        ("Index.", "Two", 6),
    ]


def test_a_title_that_is_a_file_name_is_replaced_by_that_of_the_first_page() -> None:
    page = [Typed(72, 700, "The Book of Bees", LARGE), *lines("Text.", y=600)]
    assert read(pdf([page], title="bees_final.docx")).title == "The Book of Bees"


def test_scanned_pages_are_distinguished_from_broken_files() -> None:
    with pytest.raises(Invalid, match="seems to be scanned"):
        read_pdf(pdf([[], []]))
    with pytest.raises(Invalid, match="damaged"):
        read_pdf(b"%PDF-1.7 and nothing that follows")


def columns(count: int = 12, y: float = 700) -> tuple[list[Typed], list[Typed]]:
    """Two columns of prose, a line each."""
    left = [Typed(50, y - 13 * number, f"The left column says this in line {number}") for number in range(count)]
    right = [Typed(320, y - 13 * number, f"The right column says that in line {number}") for number in range(count)]
    return left, right


def test_a_page_written_across_two_columns_is_read_column_by_column() -> None:
    left, right = columns()
    across = [line for pair in zip(left, right, strict=True) for line in pair]
    title = Typed(50, 760, "A title that goes across both columns of this page, and is long enough for it")
    foot = Typed(50, 400, "A note that goes across both columns of this page, and is long enough for it")
    text = " ".join(block.text for block in read(pdf([[title, *across, foot]])).blocks)
    assert text == " ".join(line.text for line in (title, *left, *right, foot))


def test_columns_that_are_written_in_reading_order_stay_so() -> None:
    left, right = columns()
    assert " ".join(block.text for block in read(pdf([[*left, *right]])).blocks) == " ".join(
        line.text for line in (*left, *right)
    )


def test_tables_keep_their_rows_with_texts_that_go_on_below() -> None:
    rows = [("Name", "Size", "Use"), ("bolt", "1", "wood and"), ("", "", "walls"), ("nut", "20", "bolts")]
    table = [
        Typed(x, 660 - 14 * number, text)
        for number, row in enumerate(rows)
        for x, text in zip((72, 220, 320), row, strict=True)
        if text
    ]
    page = [*lines("Some words before the table.", y=700), *table, *lines("And after it.", y=560)]
    assert [(block.kind, block.text) for block in read(pdf([page])).blocks] == [
        (BlockKind.PROSE, "Some words before the table."),
        (BlockKind.TABLE, "Name | Size | Use\nbolt | 1 | wood and walls\nnut | 20 | bolts"),
        (BlockKind.PROSE, "And after it."),
    ]


def test_a_table_of_two_long_columns_is_not_taken_for_columns_of_prose() -> None:
    page = [
        Typed(x, 700 - 14 * number, text)
        for number in range(8)
        for x, text in ((50, f"setting number {number}"), (320, f"value {number}"))
    ]
    (block,) = read(pdf([page])).blocks
    assert block.kind is BlockKind.TABLE
    assert block.text.split("\n")[3] == "setting number 3 | value 3"


def test_lists_and_terms_with_explanations_are_not_tables() -> None:
    page = [
        Typed(x, 700 - 14 * number, text)
        for number, row in enumerate(
            [("1.", "First it flies."), ("2.", "Then it lands."), ("--all", "Flies everywhere.")]
        )
        for x, text in zip((72, 110), row, strict=True)
    ]
    assert {block.kind for block in read(pdf([page])).blocks} == {BlockKind.PROSE}


def test_text_of_figures_that_cannot_be_decoded_is_left_out_and_counted() -> None:
    """It was read as `5HPRWHRUWKHNHHSHU`, cut into passages and found."""
    figure = lines("Remote or the keeper", "INPUT LAYER", "Attention(Q, K, V)", y=500, font=GLYPHS)
    book = read(pdf([lines("Bees live in hives."), [*lines("A figure shows them."), *figure], lines("They make wax.")]))
    assert [block.text for block in book.blocks] == ["Bees live in hives.", "A figure shows them.", "They make wax."]
    assert book.warnings == ("3 lines left out (page 2): the font does not say which letters it draws",)


def test_text_that_a_font_happens_to_number_as_its_letters_is_kept() -> None:
    shifted = "".join(chr(ord(sign) + 29) for sign in "Bees live in hives, and THEY MAKE wax")
    book = read(pdf([lines(shifted, font=GLYPHS)]))
    assert [block.text for block in book.blocks] == ["Bees live in hives, and THEY MAKE wax"]
    assert book.warnings == ()


def test_a_page_whose_text_cannot_be_decoded_is_like_a_scan() -> None:
    with pytest.raises(Invalid, match="no text layer"):
        read(pdf([lines("Remote or the keeper of the bees", font=GLYPHS)]))
