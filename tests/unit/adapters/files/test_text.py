"""Markdown, reStructuredText and plain text as books."""

from __future__ import annotations

from textwrap import dedent

import pytest

from toolscript.adapters.files.markup.markdown import read_markdown
from toolscript.adapters.files.markup.text import read_text
from toolscript.adapters.files.parts import build_book
from toolscript.adapters.files.worker import parse_file
from toolscript.domain.knowledge import BlockKind, Book, Position

pytestmark = pytest.mark.req("K-06")


def markdown(text: str) -> Book:
    return build_book(read_markdown(dedent(text)))


def plain(text: str, *, restructured: bool = False) -> Book:
    return build_book(read_text(dedent(text), restructured=restructured))


def rows(book: Book) -> list[tuple[str, str, str]]:
    return [(b.position.chapter, b.position.section, b.text) for b in book.blocks]


def test_a_lone_top_heading_of_markdown_is_the_title_and_the_next_level_the_chapters() -> None:
    book = markdown("# Bees\n\nOf bees.\n\n## Hives\n\nTall.\n\n### Wax\n\nSoft *and* `warm`.\n\n## Honey\n\nSweet.\n")
    assert book.title == "Bees"
    assert rows(book) == [
        ("", "", "Of bees."),
        ("Hives", "", "Tall."),
        ("Hives", "Wax", "Soft and warm."),
        ("Honey", "", "Sweet."),
    ]


@pytest.mark.parametrize(
    ("front", "authors"),
    [
        ("title: 'The Bees'\nauthor: Ada Hive", ("Ada Hive",)),
        ("title: The Bees\nauthors: [Ada Hive, Bo Stern]", ("Ada Hive", "Bo Stern")),
        ("title: The Bees\nauthors:\n  - Ada Hive\n  - name: Bo Stern", ("Ada Hive", "Bo Stern")),
    ],
)
def test_front_matter_gives_title_and_authors_and_is_not_text(front: str, authors: tuple[str, ...]) -> None:
    book = markdown(f"---\n{front}\n---\n# One\n\nText.\n\n## Two\n\nMore.\n")
    assert (book.title, book.authors) == ("The Bees", authors)
    assert rows(book) == [("One", "", "Text."), ("One", "Two", "More.")]


def test_code_and_tables_of_markdown_are_one_block_each() -> None:
    code, table = "```py\n# no heading\nx = 1\n\ny = 2\n```", "| a | b |\n|---|---|\n| 1 | 2 |"
    book = markdown(f"# T\n\n{code}\n\n{table}\n\n1. one\n2. two\n   - deep\n")
    assert [(b.kind, b.text) for b in book.blocks] == [
        (BlockKind.CODE, "# no heading\nx = 1\n\ny = 2"),
        (BlockKind.TABLE, "a | b\n1 | 2"),
        (BlockKind.PROSE, "1. one"),
        (BlockKind.PROSE, "2. two"),
        (BlockKind.PROSE, "- deep"),
    ]


def test_deeply_nested_lists_are_read() -> None:
    text = "\n".join("  " * depth + f"- item{depth}" for depth in range(40))
    text_about = " ".join(block.text for block in build_book(read_markdown(text)).blocks)
    assert all(f"item{depth}" in text_about.split() for depth in range(40))


def test_html_in_markdown_is_read_as_html() -> None:
    assert rows(markdown("# T\n\n<script>evil()</script>\n\n<p>Good.</p>\n\nAnd <b onclick=evil()>this</b>.\n")) == [
        ("T", "", "Good."),
        ("T", "", "And this."),
    ]


def test_levels_of_underlined_headings_follow_the_order_of_their_signs() -> None:
    book = plain(
        """\
        Manual
        ======

        Hello
        there.

        Start
        -----

        Begin.

        Deep
        ~~~~

        Down.

        Next
        ----

        On.
        """
    )
    assert book.title == "Manual"
    assert rows(book) == [
        ("", "", "Hello there."),
        ("Start", "", "Begin."),
        ("Start", "Deep", "Down."),
        ("Next", "", "On."),
    ]


RFC = """\
Network Working Group                                        A. Hive
Request for Comments: 9999                                 June 2024

                          The Bee Protocol

Table of Contents

   1. Introduction ................................................1
   2. Terms .......................................................2
      2.1. Hive ...................................................2

1.  Introduction

   A bee must say which flower it comes from; the answer is in
   the dance. Steps are:

   1. Land.

   2. Dance.

Hive                        Standards Track                 [Page 1]
\fRFC 9999                    The Bee Protocol               June 2024

   and leave.

2.  Terms

2.1.  Hive

   A house.

      dance = angle "/" length ; in degrees
      angle = 1*3DIGIT

Hive                        Standards Track                 [Page 2]
\fRFC 9999                    The Bee Protocol               June 2024

3.  End

   Done.

Hive                        Standards Track                 [Page 3]
\fRFC 9999                    The Bee Protocol               June 2024

4.  Thanks

   To all bees.

Hive                        Standards Track                 [Page 4]
"""


def test_numbered_headings_and_pages_of_a_standard_are_kept_without_page_headers() -> None:
    book = plain(RFC)
    assert book.title == "The Bee Protocol"
    numbered = [(b.position, b.kind, b.text) for b in book.blocks if b.position.chapter]
    assert numbered == [
        (
            Position("1. Introduction", "", 1),
            BlockKind.PROSE,
            "A bee must say which flower it comes from; the answer is in the dance. Steps are:",
        ),
        (Position("1. Introduction", "", 1), BlockKind.PROSE, "1. Land."),
        (Position("1. Introduction", "", 1), BlockKind.PROSE, "2. Dance."),
        (Position("1. Introduction", "", 2), BlockKind.PROSE, "and leave."),
        (Position("2. Terms", "2.1. Hive", 2), BlockKind.PROSE, "A house."),
        (
            Position("2. Terms", "2.1. Hive", 2),
            BlockKind.CODE,
            'dance = angle "/" length ; in degrees\nangle = 1*3DIGIT',
        ),
        (Position("3. End", "", 3), BlockKind.PROSE, "Done."),
        (Position("4. Thanks", "", 4), BlockKind.PROSE, "To all bees."),
    ]
    assert not any("....." in b.text or "[Page" in b.text for b in book.blocks)


def test_chapters_of_a_novel_have_the_titles_below_them_and_contents_are_removed() -> None:
    book = plain(
        """\
        The Hive

        CHAPTER I. Spring

        CHAPTER II. Summer

        CHAPTER I. Spring

        It was warm.

        CHAPTER II

        Summer

        It was hot.
        """
    )
    assert book.title == "The Hive"
    assert [each for each in rows(book) if each[0]] == [
        ("CHAPTER I. Spring", "", "It was warm."),
        ("CHAPTER II. Summer", "", "It was hot."),
    ]


def test_restructured_text_is_read_without_its_markup() -> None:
    book = plain(
        """\
        Guide
        =====

        .. toctree::
           :maxdepth: 2

           intro

        Use :func:`run <api.run>` with ``-v``::

            run -v

            run -q

        .. code-block:: python

           x = 1

        .. image:: bee.png

        `Docs <https://example.org>`_ tell more.
        """,
        restructured=True,
    )
    assert [(b.kind, b.text) for b in book.blocks] == [
        (BlockKind.PROSE, "Use run with -v:"),
        (BlockKind.CODE, "run -v\n\nrun -q"),
        (BlockKind.CODE, "x = 1"),
        (BlockKind.PROSE, "Docs tell more."),
    ]


def test_tables_and_listings_in_plain_text_keep_their_lines() -> None:
    book = plain("Names follow.\n\n+----+----+\n| a  | b  |\n+----+----+\n\nsize   12   kB\nfree   30   kB\n\nDone.\n")
    assert [b.kind for b in book.blocks] == [BlockKind.PROSE, BlockKind.TABLE, BlockKind.TABLE, BlockKind.PROSE]
    assert book.blocks[1].text.count("\n") == 2


def test_headings_are_the_text_of_a_file_that_has_no_other() -> None:
    assert [b.text for b in markdown("# One\n\n## Two\n").blocks] == ["Two"]
    assert [b.text for b in markdown("# One\n").blocks] == ["One"]


@pytest.mark.parametrize("ending", [".txt", ".md", ".rst"])
@pytest.mark.parametrize(
    "text_about",
    [
        'Write <meta charset="iso-8859-1"> — or not.',
        'It begins with <?xml version="1.0" encoding="utf-16"?> — so.',
        r'Open it with encoding="unicode_escape" — \u0042 in C:\new.',
    ],
)
def test_a_text_about_encodings_does_not_declare_its_own(ending: str, text_about: str) -> None:
    (block,) = build_book(parse_file(f"Of this: {text_about}".encode(), ending)).blocks
    assert "—" in block.text
    assert r"\u0042" in block.text or "unicode" not in text_about


def test_a_broken_byte_damages_one_letter_only() -> None:
    text = "Größe zählt — наука.\n\n".encode()
    assert [b.text for b in build_book(parse_file(text * 3 + b"bro\xffken", ".txt")).blocks] == [
        *["Größe zählt — наука."] * 3,
        "bro\ufffdken",
    ]
    assert build_book(parse_file("Käse und Brötchen".encode("latin-1"), ".txt")).blocks[0].text == "Käse und Brötchen"


MANUAL = """\
1. Hives
********

Tall.

1.1. Wax
========

Soft. [1]

[1] Not always.

1.2. Wood
=========

Hard, [2] and brown.

   [2] deeper is a quotation.

{notes}2. {last}
{line}

Sweet. [1]

[1] Mostly.
"""


def test_footnotes_at_the_end_of_a_chapter_belong_to_the_chapter() -> None:
    notes = "[2] As wood is.\n\n    More of it.\n\n[3] And\nso on.\n\n"
    book = plain(MANUAL.format(notes=notes, last="Honey", line="*" * 8))
    assert rows(book)[1:] == [
        ("1. Hives", "1.1. Wax", "Soft. [1]"),
        ("1. Hives", "1.1. Wax", "[1] Not always."),
        ("1. Hives", "1.2. Wood", "Hard, [2] and brown."),
        ("1. Hives", "1.2. Wood", "[2] deeper is a quotation."),
        ("1. Hives", "", "[2] As wood is."),
        ("1. Hives", "", "More of it."),
        ("1. Hives", "", "[3] And so on."),
        ("2. Honey", "", "Sweet. [1]"),
        ("2. Honey", "", "[1] Mostly."),
    ]


def test_a_list_of_references_stays_in_its_section() -> None:
    text = (
        "1. Hives\n********\n\nTall.\n\n2. Books\n********\n\n2.1. {}\n===============\n\nThese:\n\n[1] Wax, by Cy.\n"
    )
    assert rows(plain(text.format("References")))[-1] == ("2. Books", "2.1. References", "[1] Wax, by Cy.")
    alone = text.format("Sources").replace("These:\n\n", "")
    assert rows(plain(alone))[-1] == ("2. Books", "2.1. Sources", "[1] Wax, by Cy.")
