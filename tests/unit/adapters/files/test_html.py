"""HTML pages as books: the visible text under its headings."""

from __future__ import annotations

import pytest

from toolscript.adapters.files.markup.html import read_html
from toolscript.adapters.files.parts import build_book
from toolscript.domain.knowledge import Block, BlockKind, Book, Position

pytestmark = pytest.mark.req("K-06")


def read(page: str) -> Book:
    return build_book(read_html(page.encode()))


def texts(book: Book) -> list[str]:
    return [block.text for block in book.blocks]


def test_the_top_heading_of_a_page_is_its_chapter_and_deeper_ones_are_sections() -> None:
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


def test_a_page_without_a_top_heading_has_its_title_as_chapter() -> None:
    book = read("<title>VACUUM</title><h2>VACUUM</h2><p>Reclaims.</p><h2>Synopsis</h2><p>See.</p>")
    assert [(b.position.chapter, b.position.section) for b in book.blocks] == [("VACUUM", ""), ("VACUUM", "Synopsis")]
    assert read("<title>Notes</title><p>One.</p><h2>A</h2><p>Two.</p>").blocks[1].position == Position("Notes", "A")


def test_numbered_headings_are_the_chapters_of_a_book_on_one_page() -> None:
    filler = "<p>" + "words and more words. " * 600 + "</p>"
    chapters = "".join(f"<h2>{n} Chapter of {n}</h2>{filler}<h3>{n}.1 Part</h3>{filler}" for n in range(1, 5))
    book = read(f"<title>Manual</title><h1>Manual</h1><p>Hello.</p>{chapters}")
    assert [b.position for b in book.blocks[:3]] == [
        Position(),
        Position("1 Chapter of 1"),
        Position("1 Chapter of 1", "1.1 Part"),
    ]


def test_chapters_and_sections_of_the_same_level_are_distinguished_by_their_text() -> None:
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


def test_a_layout_table_is_read_as_text() -> None:
    book = read("<table><tr><td><h1>Top</h1><p>One.</p><pre>a\nb</pre></td></tr></table>")
    assert [(b.kind, b.text) for b in book.blocks] == [(BlockKind.PROSE, "One."), (BlockKind.CODE, "a\nb")]


def test_list_items_keep_their_bullets_and_terms_their_definitions() -> None:
    book = read(
        "<h1>T</h1><ul><li>red<li>blue<ol start=1><li>dark</ol></ul><p>And.</p>"
        "<dl><dt>-v</dt><dt>--verbose</dt><dd>Says more.</dd><dt>-q<dd>Says less.</dl>"
    )
    assert texts(book) == ["- red", "- blue", "1. dark", "And.", "-v, --verbose: Says more.", "-q: Says less."]


def test_navigation_scripts_and_hidden_elements_are_left_out() -> None:
    book = read(
        "<head><script>steal()</script><style>p{}</style></head><body onload='evil()'><nav>Menu</nav>"
        "<div class='navheader'>Prev Next</div><ul><li><a href=a>Chapter one</a></li></ul><h1>T</h1>"
        "<p onclick='evil()'>Good <b>words</b>.<script>document.write('evil')</script></p><iframe src=x>evil</iframe>"
        "<template>evil</template><noscript>evil</noscript><p hidden>evil</p>"
        "<p style='color: red; DISPLAY : none'>evil</p><svg><title>evil</title></svg>"
        "<a href='javascript:evil()'>link</a> text<footer>evil</footer><p>Next: <a href=b>evil</a></p>"
    )
    assert texts(book) == ["Good words.", "link text"]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<html><head><title>T</title><meta charset=utf-8><body><h1>A</h1><p>Text.", ["Text."]),
        ("<html><head><title>T</title><h1>A</h1><p>Text.", ["Text."]),
        ("<head><noscript><link rel=x></noscript><title>T</title>Text.", ["Text."]),
        ("<head><noscript><link rel=x><body><h1>A</h1><p>Text.", ["Text."]),
        ("<h1>A</h1><ul><li class=toc>menu<li>red<li>blue</ul><p>Text.", ["- red", "- blue", "Text."]),
        ("<h1>A</h1><ul><li>red<ul><li class=toc>menu</ul><li>blue</ul>", ["- red", "- blue"]),
        ("<h1>A</h1><p hidden>menu<p>Text.<p class=toc>menu<div>More.</div>", ["Text.", "More."]),
        ("<h1>A</h1><dl><dt class=toc>menu<dd>Text.<dt>-v<dd>More.</dl>", ["Text.", "-v: More."]),
        ("<h1>A</h1><table><tr class=nav><td>x<td>y<tr><td>a<td>b<tr><td>c<td>d</table>", ["a | b\nc | d"]),
        ("<h1>A</h1><table><tr><td>a<td hidden>x<td>b<tr><td>c<td>d</table>", ["a | b\nc | d"]),
        ("<h1>A</h1><table><thead class=nav><tr><th>x<tbody><tr><td>a<td>b<tr><td>c<td>d</table>", ["a | b\nc | d"]),
        ("<h1>A</h1><p>One.<button>press<p>Two.", ["One.", "Two."]),
        ("<h1>A</h1><div><select><option>one<option>two</div>Text.", ["Text."]),
        ("<h1>A</h1><div><nav><ul><li>menu</div><p>Text.", ["Text."]),
    ],
)
def test_a_dropped_element_without_an_end_tag_ends_where_html_says(page: str, expected: list[str]) -> None:
    assert texts(read(page)) == expected


def test_a_table_inside_a_list_does_not_end_the_list() -> None:
    book = read("<h1>A</h1><ul><li>red<table><tr><td>a<ul><li>in</ul><td>b<tr><td>c<td>d</table>too<li>blue</ul>")
    assert texts(book) == ["- red", "a - in | b\nc | d", "too", "- blue"]


@pytest.mark.parametrize("anchor", ["<a name=x>", "<a id=x>", "<p><a href=x>See</a> it, <a href=y>and"])
def test_an_unclosed_anchor_ends_with_its_block(anchor: str) -> None:
    book = read(f"{anchor}<p>A preface.</p><h1>T</h1><p>Text.<ul><li>red<li>blue</ul>")
    assert texts(book)[-4:] == ["A preface.", "Text.", "- red", "- blue"]


def test_a_list_of_links_is_text_if_external_or_introduced() -> None:
    entries = "<ul><li><a href=a.html>One</a><li><a href='#b'>Two</a></ul>"
    assert texts(read(f"<h1>T</h1><p>Text.</p>{entries}<p>More.</p>")) == ["Text.", "More."]
    assert texts(read(f"<h1>T</h1><p>Read these:</p>{entries}")) == ["Read these:", "- One"]
    books = "<ul><li><a href='https://a.example/moby'>Moby Dick</a><li><a href='//b.example'>Walden</a></ul>"
    assert texts(read(f"<h1>T</h1>{books}")) == ["- Moby Dick", "- Walden"]
    assert texts(read(f"<title>T</title>{books}")) == ["- Moby Dick", "- Walden"]
    assert texts(read("<p><a href=x>The only words.</a></p>")) == ["The only words."]


@pytest.mark.parametrize(
    "markup",
    [
        "<meta name=author content='Ada Hive'><meta name=DC.creator content='Bo Stern'>",
        "<meta name=author content='Ada Hive and Bo Stern'><p>By <span class=author>Bo Stern</span>",
        "<div class=authorgroup><div class=author><h3 class=author><span>Ada</span> <span>Hive</span></h3>"
        "<code class=email>ada@hive.example</code></div><div class=author><h3 class=author>Bo Stern</h3></div></div>",
        "<p class='author vcard'>Written by Ada Hive and Bo Stern ada@hive.example</p>",
        "<div itemprop=author><a href=x><span itemprop=name>Ada Hive</span></a>, keeper</div>"
        "<div itemprop=author><span itemprop=name>Bo Stern</span>, too</div>",
        "<p><a rel=author href=x>Ada Hive</a>, <a rel=author href=y>Bo Stern</a></p>",
        "<dl><dt class=author>Authors:</dt><dd class=author>Ada Hive; Bo Stern</dd></dl>",
    ],
)
def test_authors_are_read_above_the_text_of_a_page(markup: str) -> None:
    book = read(f"<title>T</title><h1>T</h1>{markup}<h2>A</h2><p>Text.</p>")
    assert book.authors == ("Ada Hive", "Bo Stern")
    assert book.blocks[-1] == Block("Text.", BlockKind.PROSE, Position("T", "A"))


def test_authors_of_cited_works_are_not_authors_of_the_page() -> None:
    entry = "<span class=author>Cy Wax</span>, Honey."
    assert read(f"<h1>T</h1><div class=bibliography><p>{entry}</p></div>").authors == ()
    assert read(f"<h1>T</h1><p>{'words ' * 100}</p><p>{entry}</p>").authors == ()
    assert read(f"<h1>T</h1><footer>{entry}</footer>").authors == ()
    assert texts(read(f"<h1>T</h1><p>{entry}</p>")) == ["Cy Wax, Honey."]


def test_admonition_headings_begin_no_sections() -> None:
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
        "<!-- <meta charset=utf-8> --><?xml version='1.0' encoding='ISO-8859-15'?><p>Käse</p>".encode("iso-8859-15"),
        "<meta http-equiv=Content-Type content='text/html; charset=windows-1252'><p>Käse</p>".encode("cp1252"),
        "<meta charset=unicode_escape><p>Käse</p>".encode(),
        "<meta charset=utf-16><p>Käse</p>".encode(),
        "<p title='charset=iso-8859-1'>Käse</p>".encode(),
    ],
)
def test_pages_are_decoded_by_mark_declaration_or_guess(data: bytes) -> None:
    assert texts(build_book(read_html(data))) == ["Käse"]


def test_gb2312_is_decoded_as_its_superset() -> None:
    page = "<meta charset=gb2312><p>月亮牽引大海。</p>".encode("gbk")
    assert texts(build_book(read_html(page))) == ["月亮牽引大海。"]


def test_page_break_marks_give_page_numbers() -> None:
    book = read("<h1>T</h1><p>One.</p><span role='doc-pagebreak' aria-label='12'></span><p>Two.</p>")
    assert [b.position.page for b in book.blocks] == [None, 12]
