"""Pages of HTML as books: what a reader sees, with the headings that it stands under."""

from __future__ import annotations

import pytest

from toolscript.adapters.books_html import read_html
from toolscript.adapters.books_parts import assemble
from toolscript.domain.knowledge import Block, BlockKind, Book, Position

pytestmark = pytest.mark.req("K-06")


def read(page: str) -> Book:
    return assemble(read_html(page.encode()))


def texts(book: Book) -> list[str]:
    return [block.text for block in book.blocks]


def test_a_page_is_a_chapter_of_its_heading_and_its_sections_are_the_deeper_ones() -> None:
    book = read(
        "<title>The Kettle</title><meta name=author content='Ada Hive and Bo Stern'>"
        "<h1>The Kettle<a class=headerlink>¶</a></h1>"
        "<p>Water\n  boils.</p><h2>Care</h2><p>Descale it.</p><h3>Often</h3><p>Weekly.</p><h2>End</h2><p>Bye.</p>"
    )
    assert (book.title, book.authors) == ("The Kettle", ("Ada Hive", "Bo Stern"))
    assert [(b.text, b.position.chapter, b.position.section) for b in book.blocks] == [
        ("Water boils.", "The Kettle", ""),
        ("Descale it.", "The Kettle", "Care"),
        ("Weekly.", "The Kettle", "Often"),
        ("Bye.", "The Kettle", "End"),
    ]


def test_a_page_without_a_first_heading_is_a_chapter_of_its_title() -> None:
    book = read("<title>VACUUM</title><h2>VACUUM</h2><p>Reclaims.</p><h2>Synopsis</h2><p>See.</p>")
    assert [(b.position.chapter, b.position.section) for b in book.blocks] == [("VACUUM", ""), ("VACUUM", "Synopsis")]
    assert read("<title>Notes</title><p>One.</p><h2>A</h2><p>Two.</p>").blocks[1].position == Position("Notes", "A")


def test_a_book_on_one_page_has_the_chapters_that_are_numbered() -> None:
    filler = "<p>" + "words and more words. " * 600 + "</p>"
    chapters = "".join(f"<h2>{n} Chapter of {n}</h2>{filler}<h3>{n}.1 Part</h3>{filler}" for n in range(1, 5))
    book = read(f"<title>Manual</title><h1>Manual</h1><p>Hello.</p>{chapters}")
    assert [b.position for b in book.blocks[:3]] == [
        Position(),
        Position("1 Chapter of 1"),
        Position("1 Chapter of 1", "1.1 Part"),
    ]


def test_chapters_and_sections_of_the_same_level_are_told_apart_by_what_they_are_called() -> None:
    filler = "<p>" + "words and more words. " * 600 + "</p>"
    chapters = "".join(
        f"<h2>Chapter {n}. Of {n}</h2>{filler}" + "".join(f"<h2>{n}.{m}. Part</h2><p>text</p>" for m in (1, 2))
        for n in range(1, 5)
    )
    book = read(f"<title>Manual</title><h1>Manual</h1>{chapters}")
    assert Position("Chapter 2. Of 2", "2.1. Part") in [b.position for b in book.blocks]


def test_code_and_tables_are_one_block_each_with_their_lines() -> None:
    book = read(
        "<h1>T</h1><pre>  if x:\n\n      y()  \n</pre><table><tr><th>Name</th><th>Use</th></tr>"
        "<tr><td>ls</td><td><p>lists</p><p>files</p></td></tr></table>"
    )
    assert [(b.kind, b.text) for b in book.blocks] == [
        (BlockKind.CODE, "if x:\n\n    y()"),
        (BlockKind.TABLE, "Name | Use\nls | lists files"),
    ]


def test_a_table_that_only_lays_out_is_no_table() -> None:
    book = read("<table><tr><td><h1>Top</h1><p>One.</p><pre>a\nb</pre></td></tr></table>")
    assert [(b.kind, b.text) for b in book.blocks] == [(BlockKind.PROSE, "One."), (BlockKind.CODE, "a\nb")]


def test_items_of_lists_have_their_marks_and_terms_stand_with_what_is_said_of_them() -> None:
    book = read(
        "<h1>T</h1><ul><li>red<li>blue<ol start=1><li>dark</ol></ul><p>And.</p>"
        "<dl><dt>-v</dt><dt>--verbose</dt><dd>Says more.</dd><dt>-q<dd>Says less.</dl>"
    )
    assert texts(book) == ["- red", "- blue", "1. dark", "And.", "-v, --verbose: Says more.", "-q: Says less."]


def test_nothing_that_a_reader_does_not_read_is_text() -> None:
    book = read(
        "<head><script>steal()</script><style>p{}</style></head><body onload='evil()'><nav>Menu</nav>"
        "<div class='navheader'>Prev Next</div><ul><li><a href=a>Chapter one</a></li></ul><h1>T</h1>"
        "<p onclick='evil()'>Good <b>words</b>.<script>document.write('evil')</script></p><iframe src=x>evil</iframe>"
        "<template>evil</template><noscript>evil</noscript><p hidden>evil</p><svg><title>evil</title></svg>"
        "<a href='javascript:evil()'>link</a> text<footer>evil</footer><p>Next: <a href=b>evil</a></p>"
    )
    assert texts(book) == ["Good words.", "link text"]


def test_notes_are_no_sections() -> None:
    book = read("<h1>T</h1><h2>S</h2><div class=note><h3>Note</h3><p>Mind this.</p></div>")
    assert book.blocks == (Block("Note: Mind this.", BlockKind.PROSE, Position("T", "S")),)


@pytest.mark.parametrize(
    "data",
    [
        "<meta charset=iso-8859-1><p>Käse</p>".encode("latin-1"),
        "<p>Käse</p>".encode("cp1252"),
        "<p>Käse</p>".encode(),
        "<p>Käse</p>".encode("utf-16"),
        b"\xef\xbb\xbf" + "<p>Käse</p>".encode(),
        "<meta charset=no-such-thing><p>Käse</p>".encode(),
        b"<p>K&auml;se</p>",
    ],
)
def test_pages_are_read_in_the_encoding_that_they_have(data: bytes) -> None:
    assert texts(assemble(read_html(data))) == ["Käse"]


def test_printed_pages_are_known_where_a_page_marks_them() -> None:
    book = read("<h1>T</h1><p>One.</p><span role='doc-pagebreak' aria-label='12'></span><p>Two.</p>")
    assert [b.position.page for b in book.blocks] == [None, 12]
