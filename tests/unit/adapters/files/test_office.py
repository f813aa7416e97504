"""Presentations, spreadsheets, OpenDocument and RTF: files as the programs' own libraries write them."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, time

import openpyxl
import pptx
import pytest

from tests.fixtures.book_files import archive
from toolscript.adapters.files.parts import build_book
from toolscript.adapters.files.worker import parse_file
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Book

pytestmark = pytest.mark.req("K-06")

NAMESPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{long}:1.0"'
    for name, long in {
        "office": "office",
        "text": "text",
        "table": "table",
        "draw": "drawing",
        "presentation": "presentation",
        "style": "style",
        "meta": "meta",
    }.items()
)
META = (
    f'<office:document-meta {NAMESPACES} xmlns:dc="http://purl.org/dc/elements/1.1/"><office:meta>'
    "<dc:title>Of Bees</dc:title><meta:initial-creator>Ada Hive</meta:initial-creator>"
    "<dc:date>2024-05-31T10:00:00</dc:date></office:meta></office:document-meta>"
)


def read(data: bytes, ending: str) -> Book:
    return build_book(parse_file(data, ending))


def texts(book: Book) -> list[tuple[str, str, int | None]]:
    return [(block.position.chapter, block.text, block.position.page) for block in book.blocks]


def odf(body: str, styles: str = "", meta: str = META, manifest: str = "<manifest/>") -> bytes:
    content = (
        f"<office:document-content {NAMESPACES}><office:automatic-styles>{styles}</office:automatic-styles>"
        f"<office:body>{body}</office:body></office:document-content>"
    )
    return archive({"content.xml": content, "meta.xml": meta, "META-INF/manifest.xml": manifest})


def test_slides_are_chapters_with_their_tables_and_notes() -> None:
    presentation = pptx.Presentation()
    presentation.core_properties.title = "Of Bees"
    presentation.core_properties.author = "Ada Hive"
    presentation.core_properties.modified = datetime(2024, 5, 31, tzinfo=UTC)
    first = presentation.slides.add_slide(presentation.slide_layouts[1])
    first.shapes.title.text = "Hives"
    first.placeholders[1].text = "Wood\nStraw"
    first.notes_slide.notes_text_frame.text = "Say it slowly."
    second = presentation.slides.add_slide(presentation.slide_layouts[6])
    table = second.shapes.add_table(2, 2, 0, 0, 100, 100).table
    for row, cells in enumerate((("Name", "Size"), ("small", "1"))):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    out = io.BytesIO()
    presentation.save(out)
    book = read(out.getvalue(), ".pptx")
    assert (book.title, book.authors, book.date) == ("Of Bees", ("Ada Hive",), "2024-05-31")
    assert texts(book) == [
        ("Hives", "Wood", 1),
        ("Hives", "Straw", 1),
        ("Hives", "Notes: Say it slowly.", 1),
        ("Slide 2", "Name | Size\nsmall | 1", 2),
    ]


def test_slides_are_read_in_their_order_not_that_of_their_files() -> None:
    presentation = pptx.Presentation()
    for title in ("One", "Two", "Three"):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = f"About {title}"
    order = presentation.slides._sldIdLst
    order.insert(0, order[2])
    out = io.BytesIO()
    presentation.save(out)
    assert [chapter for chapter, _, _ in texts(read(out.getvalue(), ".pptx"))] == ["Three", "One", "Two"]


def save(workbook: openpyxl.Workbook) -> bytes:
    out = io.BytesIO()
    workbook.save(out)
    return out.getvalue()


def test_sheets_are_chapters_and_values_are_written_as_people_read_them() -> None:
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    sheet.title = "Stock"
    sheet.append(["part", "count", "since", "price", "ok", "at"])
    sheet.append(["bolt & nut", 5, date(2024, 5, 31), 0.25, True, time(9, 30)])
    sheet.append(["nail", 7.0, datetime(2024, 6, 1, 12, 30), None, False, None])  # noqa: DTZ001 # no time zone
    sheet["A6"], sheet["C6"] = "other", "table"
    sheet["A7"], sheet["C7"] = "x", "=1+1"
    hidden = workbook.create_sheet("Secret")
    hidden["A1"] = "hidden"
    hidden.sheet_state = "hidden"
    empty = workbook.create_sheet("Empty")
    empty["A1"] = None
    workbook.properties.title, workbook.properties.creator = "Of Parts", "Ada Hive"
    book = read(save(workbook), ".xlsx")
    assert (book.title, book.authors) == ("Of Parts", ("Ada Hive",))
    assert texts(book) == [
        (
            "Stock",
            "part | count | since | price | ok | at\nbolt & nut | 5 | 2024-05-31 | 0.25 | true | 09:30:00\n"
            "nail | 7 | 2024-06-01 12:30 |  | false |",
            None,
        ),
        ("Stock", "other | table\nx |", None),
    ]


@pytest.mark.slow
def test_every_block_of_a_long_sheet_begins_with_its_header_and_far_cells_cost_nothing() -> None:
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    sheet.append(["part", "stock"])
    for number in range(2_000):
        sheet.append([f"part {number}", number])
    sheet["XFD1"] = "far"
    blocks = read(save(workbook), ".xlsx").blocks
    assert {block.text.split("\n")[0] for block in blocks} == {"part | stock | far"}
    assert sum(block.text.count("\n") for block in blocks) == 2_000


def test_an_opendocument_text_keeps_headings_lists_tables_and_code() -> None:
    body = (
        '<office:text><text:p text:style-name="Title">The Hive</text:p>'
        '<text:h text:outline-level="1">Building</text:h>'
        "<text:p>Wood<text:s text:c='2'/>and <text:span>straw<text:note><text:p>a note</text:p></text:note>"
        "</text:span>,<text:tab/>dry.</text:p>"
        "<text:list><text:list-item><text:p>one</text:p><text:list><text:list-item><text:p>two</text:p>"
        "</text:list-item></text:list></text:list-item></text:list>"
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        '<text:p text:style-name="P1">if dry:</text:p><text:p text:style-name="P1"><text:s text:c="4"/>build()</text:p>'
        '<text:section><text:h text:outline-level="2">Sizes</text:h><table:table><table:table-row>'
        "<table:table-cell><text:p>Name</text:p></table:table-cell><table:table-cell><text:p>Size</text:p>"
        "</table:table-cell></table:table-row><table:table-row><table:table-cell><text:p>small</text:p>"
        "</table:table-cell><table:table-cell><text:p>1</text:p></table:table-cell></table:table-row></table:table>"
        "</text:section></office:text>"
    )
    styles = '<style:style style:name="P1" style:parent-style-name="Preformatted_20_Text"/>'
    book = read(odf(body, styles), ".odt")
    assert (book.title, book.authors, book.date) == ("The Hive", ("Ada Hive",), "2024-05-31")
    assert [(block.position.chapter, block.position.section, block.kind, block.text) for block in book.blocks] == [
        ("Building", "", "prose", "Wood and straw, dry."),
        ("Building", "", "prose", "- one"),
        ("Building", "", "prose", "- two"),
        ("Building", "", "code", "if dry:\n    build()"),
        ("Building", "Sizes", "table", "Name | Size\nsmall | 1"),
    ]


def test_an_opendocument_spreadsheet_leaves_out_empty_rows_up_to_the_edge() -> None:
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    body = (
        '<office:spreadsheet><table:table table:name="Stock">'
        f"<table:table-row>{cell.format('part')}{cell.format('count')}</table:table-row>"
        '<table:table-row table:number-rows-repeated="3">'
        '<table:table-cell table:number-columns-repeated="2"><text:p>7</text:p></table:table-cell>'
        '<table:table-cell table:number-columns-repeated="16382"/></table:table-row>'
        '<table:table-row table:number-rows-repeated="1048572">'
        '<table:table-cell table:number-columns-repeated="16384"/></table:table-row>'
        "</table:table></office:spreadsheet>"
    )
    assert texts(read(odf(body), ".ods")) == [("Stock", "part | count\n7 | 7\n7 | 7\n7 | 7", None)]


def test_slides_of_an_opendocument_presentation_are_chapters() -> None:
    frame = "<draw:frame{}><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
    title = frame.format(' presentation:class="title"', "Hives")
    notes = f"<presentation:notes>{frame.format('', 'Slowly.')}</presentation:notes>"
    body = (
        f"<office:presentation><draw:page>{title}{frame.format('', 'Wood')}{notes}</draw:page>"
        f"<draw:page>{frame.format('', 'Straw')}</draw:page></office:presentation>"
    )
    assert texts(read(odf(body), ".odp")) == [
        ("Hives", "Wood", 1),
        ("Hives", "Notes: Slowly.", 1),
        ("Slide 2", "Straw", 2),
    ]


def test_an_encrypted_or_empty_opendocument_file_is_refused() -> None:
    with pytest.raises(Invalid, match="protected by a password"):
        read(odf("<office:text/>", manifest="<manifest><encryption-data/></manifest>"), ".odt")
    with pytest.raises(Invalid, match="no content"):
        read(archive({"content.xml": "<document-content/>"}), ".odt")


def test_rtf_keeps_paragraphs_tables_and_its_properties() -> None:
    rtf = (
        r"{\rtf1\ansi\ansicpg1252{\info{\title Of Caf\'e9s}{\author Ada Hive}{\creatim\yr2024\mo5\dy31\hr1\min2}}"
        r"\b Wood \u8364? and straw.\b0\par Second paragraph.\par"
        r"\trowd\cellx100\cellx200 Name\cell Size\cell\row\trowd small\cell 1\cell\row\pard The end.\par}"
    )
    book = read(rtf.encode("ascii"), ".rtf")
    assert (book.title, book.authors, book.date) == ("Of Cafés", ("Ada Hive",), "2024-05-31")
    assert [(block.kind, block.text) for block in book.blocks] == [
        ("prose", "Wood € and straw."),
        ("prose", "Second paragraph."),
        ("table", "| Name | Size\n| small | 1"),
        ("prose", "The end."),
    ]


def test_an_office_file_with_a_wrong_ending_is_read_by_its_content() -> None:
    workbook = openpyxl.Workbook()
    workbook.active.append(["only"])
    workbook.active.append(["cell"])
    assert texts(read(save(workbook), ".docx")) == [("Sheet", "only\ncell", None)]
    for ending in (".xlsx", ".pptx", ".odt", ".rtf"):
        with pytest.raises(Invalid, match="not a valid"):
            read(b"Only text.", ending)


def test_office_files_of_old_and_protected_ones_are_refused_as_such() -> None:
    start = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 500
    for mark, words in {
        "EncryptedPackage": "password",
        "__substg1.0_0037001F": "Outlook",
        "WordDocument": "old Office format",
    }.items():
        with pytest.raises(Invalid, match=words):
            read(start + mark.encode("utf-16-le"), ".docx")
