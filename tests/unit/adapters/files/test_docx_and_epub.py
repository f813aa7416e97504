"""EPUB and DOCX as books."""

from __future__ import annotations

import io
import re
import zipfile

import docx
import pytest
from docx.oxml import OxmlElement

from tests.fixtures.book_files import epub
from toolscript.adapters.files.markup.epub import read_epub
from toolscript.adapters.files.office.docx import read_docx
from toolscript.adapters.files.parts import build_book
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Block, BlockKind, Book, Position

pytestmark = pytest.mark.req("K-06")


def rows(book: Book) -> list[tuple[str, str, str]]:
    return [(b.position.chapter, b.position.section, b.text) for b in book.blocks]


def page(body: str) -> str:
    return f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head><body>{body}</body></html>'


def test_heading_levels_of_an_epub_follow_its_table_of_contents() -> None:
    pages = {
        "one.xhtml": page("<h2>Chapter 1. Hives</h2><p>Tall.</p>"),
        "wax.xhtml": page("<h2>1.1. Wax</h2><p>Soft.</p><h3>Old wax</h3><p>Hard.</p>"),
        "more.xhtml": page("<p>And dark.</p>"),
        "two.xhtml": page("<p>Sweet.</p>"),
    }
    nav = (
        '<ol><li><a href="one.xhtml">1. Hives</a><ol><li><a href="wax.xhtml#a">Wax</a></li></ol></li>'
        '<li><a href="two.xhtml">2. Honey</a></li></ol>'
    )
    book = build_book(read_epub(epub(pages, nav)))
    assert (book.title, book.authors) == ("Of Bees", ("Ada Hive",))
    assert rows(book) == [
        ("Chapter 1. Hives", "", "Tall."),
        ("Chapter 1. Hives", "1.1. Wax", "Soft."),
        ("Chapter 1. Hives", "Old wax", "Hard."),
        ("Chapter 1. Hives", "Old wax", "And dark."),
        ("2. Honey", "", "Sweet."),
    ]


def test_chapters_and_sections_of_one_file_are_distinguished_by_the_table_of_contents() -> None:
    pages = {
        "a.xhtml": page("<h2>Hives</h2><p>Tall.</p><h2>Wax</h2><p>Soft.</p>"),
        "b.xhtml": page("<h2>End</h2><p>.x</p>"),
    }
    nav = (
        '<ol><li><a href="a.xhtml">Hives</a><ol><li><a href="a.xhtml#w">1.1 Wax</a></li></ol></li>'
        '<li><a href="b.xhtml">End</a></li></ol>'
    )
    assert rows(build_book(read_epub(epub(pages, nav))))[1] == ("Hives", "Wax", "Soft.")


def test_an_epub_without_a_table_of_contents_has_the_headings_of_its_pages() -> None:
    pages = {"a.xhtml": page("<h1>Hives</h1><p>Tall.</p>"), "b.xhtml": page("<h1>Honey</h1><p>Sweet.</p>")}
    assert rows(build_book(read_epub(epub(pages)))) == [("Hives", "", "Tall."), ("Honey", "", "Sweet.")]


def encryption(path: str) -> dict[str, str]:
    return {
        "META-INF/encryption.xml": '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<EncryptedData xmlns="http://www.w3.org/2001/04/xmlenc#"><CipherData>'
        f'<CipherReference URI="{path}"/></CipherData></EncryptedData></encryption>'
    }


def test_an_epub_with_encrypted_pages_is_refused_and_one_with_encrypted_fonts_is_read() -> None:
    pages = {"a b.xhtml": page("<h1>Hives</h1><p>Tall.</p>")}
    assert rows(build_book(read_epub(epub(pages, more=encryption("OEBPS/font.otf"))))) == [("Hives", "", "Tall.")]
    locked = epub({"a b.xhtml": "\x17\x0e\x11 nothing that can be read"}, more=encryption("OEBPS/a%20b.xhtml"))
    with pytest.raises(Invalid, match=r"\AThe file is copy-protected.* encrypted"):
        read_epub(locked)


def save_docx(document: docx.document.Document) -> Book:
    out = io.BytesIO()
    document.save(out)
    return build_book(read_docx(out.getvalue()))


def test_a_word_file_is_read_by_its_styles_with_tables_in_place() -> None:
    document = docx.Document()
    document.core_properties.author = "Ada Hive"
    document.add_heading("Of Bees", 0)
    document.add_heading("Hives", 1)
    document.add_paragraph("Tall   and\nwarm.")
    table = document.add_table(2, 2)
    for cell, text in zip(table._cells, ("part", "use", "wax", "walls"), strict=True):
        cell.text = text
    document.add_heading("Care", 2)
    document.add_paragraph("Clean it.", style="List Bullet")
    for line in ("def bee():", "    fly()"):
        run = document.add_paragraph().add_run(line)
        run.font.name = "Courier New"
    document.add_paragraph("Done.")
    book = save_docx(document)
    assert (book.title, book.authors) == ("Of Bees", ("Ada Hive",))
    assert book.blocks == (
        Block("Tall and warm.", BlockKind.PROSE, Position("Hives")),
        Block("part | use\nwax | walls", BlockKind.TABLE, Position("Hives")),
        Block("- Clean it.", BlockKind.PROSE, Position("Hives", "Care")),
        Block("def bee():\n    fly()", BlockKind.CODE, Position("Hives", "Care")),
        Block("Done.", BlockKind.PROSE, Position("Hives", "Care")),
    )


def test_pages_of_a_word_file_come_from_the_breaks_that_word_recorded() -> None:
    document = docx.Document()
    document.add_paragraph("One.")
    second = document.add_paragraph()
    run = second.add_run()
    run._r.append(OxmlElement("w:lastRenderedPageBreak"))
    second.add_run("Two.")
    assert [b.position.page for b in save_docx(document).blocks] == [1, 2]


def test_a_word_file_without_properties_has_no_title_invented_by_the_library() -> None:
    made = docx.Document()
    made.add_paragraph("Only text.")
    whole = io.BytesIO()
    made.save(whole)
    stripped = io.BytesIO()
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(stripped, "w") as new:
        for name in old.namelist():
            if name == "_rels/.rels":
                links = re.sub(rb"<Relationship [^>]*core-properties[^>]*/>", b"", old.read(name))
                new.writestr(name, links)
            elif name != "docProps/core.xml":
                new.writestr(name, old.read(name))
    draft = read_docx(stripped.getvalue())
    assert (draft.title, draft.authors) == ("", ())
