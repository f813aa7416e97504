"""AsciiDoc, reStructuredText and notebooks."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.book_files import Typed, epub, pdf
from toolscript.adapters.files.dates import find_date
from toolscript.adapters.files.parts import build_book
from toolscript.adapters.files.worker import parse_file
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Book

pytestmark = pytest.mark.req("K-06")

GUIDE = """\
// a comment
= The *Guide*
Ada Lovelace <ada@example.org>; Charles Babbage
v1.2, 2024-05-31
:toc: left

Read https://example.org[the site] and <<install,the next part>>.

////
left out
////

[[install]]
== Installing

.A command
[source,bash]
----
apt install guide  # == not a title
----

* one
with more
* two
.. nested

CPU:: The brain.

[cols="1,1"]
|===
|Name |Size

|small
|1

|large |2
|===

=== Details

====
An example.
====

 literal text
 in two lines
"""


def read(text: str, ending: str) -> Book:
    return build_book(parse_file(text.encode(), ending))


def texts(book: Book) -> list[tuple[str, str, str, str]]:
    return [(block.position.chapter, block.position.section, block.kind, block.text) for block in book.blocks]


def test_an_asciidoc_guide_keeps_titles_code_lists_and_tables() -> None:
    book = read(GUIDE, ".adoc")
    assert (book.title, book.authors, book.date) == (
        "The Guide",
        ("Ada Lovelace", "Charles Babbage"),
        "2024-05-31",
    )
    assert texts(book) == [
        ("", "", "prose", "Read the site and the next part."),
        ("Installing", "", "prose", "A command"),
        ("Installing", "", "code", "apt install guide  # == not a title"),
        ("Installing", "", "prose", "- one with more"),
        ("Installing", "", "prose", "- two"),
        ("Installing", "", "prose", "- nested"),
        ("Installing", "", "prose", "CPU: The brain."),
        ("Installing", "", "table", "Name | Size\nsmall | 1\nlarge | 2"),
        ("Installing", "Details", "prose", "An example."),
        ("Installing", "Details", "code", "literal text\nin two lines"),
    ]


def test_an_asciidoc_file_without_a_header_is_read() -> None:
    assert texts(read("Only text.\n\n----\nunclosed", ".asciidoc")) == [
        ("", "", "prose", "Only text."),
        ("", "", "code", "unclosed"),
    ]


def test_tables_and_fields_of_restructured_text_are_read() -> None:
    book = read(
        "Title\n=====\n\n:Author: Ada\n:Date: 2 January 2024\n\nText ``x``.\n\nPart\n----\n\n"
        ".. list-table:: Sizes\n   :header-rows: 1\n\n   * - Name\n     - Size\n   * - small\n     - 1\n       or 2\n\n"
        '.. csv-table::\n   :header: Name, Size\n\n   "large, wide", 3\n\nEnd.\n',
        ".rst",
    )
    assert (book.title, book.authors, book.date) == ("Title", ("Ada",), "2024-01-02")
    assert texts(book) == [
        ("", "", "prose", "Text x."),
        ("Part", "", "prose", "Sizes"),
        ("Part", "", "table", "| Name | Size\n| small | 1 or 2"),
        ("Part", "", "table", "| Name | Size\n| large, wide | 3"),
        ("Part", "", "prose", "End."),
    ]


def test_a_notebook_keeps_markdown_code_and_what_it_printed() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Bees\n", "\n", "Some *text*.\n", "\n", "## Count\n"]},
        {
            "cell_type": "code",
            "source": "print(count)",
            "outputs": [
                {"output_type": "stream", "text": ["7\n"]},
                {"output_type": "execute_result", "data": {"text/plain": "'x'", "image/png": "AAAA"}},
                {"output_type": "error", "ename": "ValueError", "evalue": "no bees", "traceback": ["…"]},
            ],
        },
        {"cell_type": "raw", "source": "Raw."},
    ]
    about = {"authors": [{"name": "Ada"}], "kernelspec": {}}
    book = read(json.dumps({"cells": cells, "metadata": about, "nbformat": 4}), ".ipynb")
    assert (book.title, book.authors) == ("Bees", ("Ada",))
    assert texts(book) == [
        ("", "", "prose", "Some text."),
        ("Count", "", "code", "print(count)"),
        ("Count", "", "code", "7"),
        ("Count", "", "code", "'x'"),
        ("Count", "", "code", "ValueError: no bees"),
        ("Count", "", "prose", "Raw."),
    ]


def test_an_old_notebook_is_read_and_other_json_refused() -> None:
    cells = [{"cell_type": "heading", "level": 1, "source": "T"}, {"cell_type": "code", "input": ["x = 1"]}]
    old = {"worksheets": [{"cells": cells}], "nbformat": 3}
    assert texts(read(json.dumps(old), ".ipynb")) == [("T", "", "code", "x = 1")]
    for text in ("{}", "[]", '{"cells": 1', "# no notebook"):
        with pytest.raises(Invalid, match="not a"):
            read(text, ".ipynb")


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("D:20240531120000+02'00'", "2024-05-31"),
        ("2024-05-31T10:00:00Z", "2024-05-31"),
        ("2024-05", "2024-05"),
        ("2024", "2024"),
        ("May 31st, 2024", "2024-05-31"),
        ("Fri, 31 May 2024 10:00:00 +0200", "2024-05-31"),
        ("31 May 2024", "2024-05-31"),
        ("May 2024", "2024-05"),
        ("2024-13-01", ""),
        ("123456", ""),
        ("soon", ""),
        ("", ""),
    ],
)
def test_dates_are_read_as_files_write_them(text: str, date: str) -> None:
    assert find_date(text) == date


def test_pages_epubs_and_pdfs_give_their_dates() -> None:
    page = '<meta name="dc.date" content="2023-01-02"><meta property="article:modified_time" content="2024-05-31T1:0">'
    assert read(f"<html><head>{page}</head><p>Text.", ".html").date == "2024-05-31"
    chapter = '<html xmlns="http://www.w3.org/1999/xhtml"><body><p>Text.</p></body></html>'
    package = (
        "<package><metadata><title>T</title><date>2024-05</date></metadata><manifest><item id='a' href='a.xhtml' "
        "media-type='application/xhtml+xml'/></manifest><spine><itemref idref='a'/></spine></package>"
    )
    assert build_book(parse_file(epub({"a.xhtml": chapter}, package=package), ".epub")).date == "2024-05"
    made = pdf([[Typed(72, 700, "Text.")]], date="D:20240531120000Z")
    assert build_book(parse_file(made, ".pdf")).date == "2024-05-31"


def test_front_matter_gives_the_date_of_a_markdown_file() -> None:
    assert read("---\ntitle: T\ndate: 2024-05-31\n---\n\nText.", ".md").date == "2024-05-31"
