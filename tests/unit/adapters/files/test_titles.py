"""Titles and authors of files, which citations name, are those of people: neither programs nor addresses wrote them."""

from __future__ import annotations

import io
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest

from tests.fixtures.book_files import LARGE, Typed, pdf
from toolscript.adapters.files.reader import FileBooks
from toolscript.domain.knowledge import Book

pytestmark = [pytest.mark.req("K-02", "K-06"), pytest.mark.slow]

STAMP = "arXiv:2210.03629v2 [cs.CL] 27 Nov 2022"
MANUAL = """\
CURL(1)                           Curl Manual                          CURL(1)

NAME
       curl - transfer a URL

SYNOPSIS
       curl [options / URLs]

URL
       You can specify multiple URLs by writing lists within braces as in:

        "http://site.{one,two,three}.com"

       The rest is in RFC 3986.
"""


async def read(folder: Path, name: str, content: bytes | str) -> Book:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return await FileBooks(max_in_process_bytes=32_000).read(folder / name)


async def read_title(folder: Path, name: str, content: bytes | str) -> str:
    return (await read(folder, name, content)).title


def make_pdf(*lines: Typed, title: str = "") -> bytes:
    text = [Typed(72, 600 - 14 * n, f"Line {n} of the text of the paper.") for n in range(9)]
    return pdf([[*lines, *text]], title=title)


async def test_the_stamp_of_an_archive_is_no_title(tmp_path: Path) -> None:
    headline = Typed(72, 700, "Reasoning and Acting", "/F1 17 Tf")
    upwards = Typed(30, 200, STAMP, LARGE, is_upwards=True)
    assert await read_title(tmp_path, "a.pdf", make_pdf(upwards, headline)) == "Reasoning and Acting"
    assert (
        await read_title(tmp_path, "b.pdf", make_pdf(Typed(72, 760, STAMP, LARGE), headline)) == "Reasoning and Acting"
    )
    assert await read_title(tmp_path, "c.pdf", make_pdf(headline, title=STAMP)) == "Reasoning and Acting"
    assert await read_title(tmp_path, "re_act.pdf", make_pdf(upwards)) == "re act"


async def test_a_manual_page_is_called_as_people_refer_to_it(tmp_path: Path) -> None:
    assert await read_title(tmp_path, "manual.txt", MANUAL) == "curl(1)"


@pytest.mark.parametrize(
    ("start", "title"),
    [
        ("# GnuTLS\n", "GnuTLS"),
        ("The Hive\n", "The Hive"),
        ("Network Working Group          A. Hive\nCategory: Best        June 2024\n\n          Of Hives\n", "Of Hives"),
        (":tocdepth: 2\n\nHistory\n=======\n", "History"),
        ("https://example.com/hive\n", "some notes"),
        ("--help display this help and exit\n", "some notes"),
        ("Some options are\ntaken by all commands.\n\nA Heading Far Below\n", "some notes"),
        ("As in this example:\n\n'quoted'\n\nBees dance and\nsing.\n\nNever This\n", "'quoted'"),
    ],
)
async def test_a_text_is_called_by_a_line_before_its_first_paragraph_or_by_its_file(
    tmp_path: Path, start: str, title: str
) -> None:
    assert await read_title(tmp_path, "some_notes.txt", f"{start}\nBees dance in the hive\nand sing.\n") == title


async def test_programs_are_no_authors_and_their_titles_no_titles(tmp_path: Path) -> None:
    table, letter, talk = openpyxl.Workbook(), docx.Document(), pptx.Presentation()
    table.active.append(["bee", "age"])
    letter.add_paragraph("Dear bees.")
    letter.core_properties.title = "Word Document"
    talk.core_properties.title, talk.core_properties.author = "PowerPoint Presentation", "Microsoft Office User"
    slide = talk.slides.add_slide(talk.slide_layouts[0])
    slide.shapes.title.text, slide.placeholders[1].text = "Of Bees", "A talk"
    expected = {"stock.xlsx": "stock", "dear-bees.docx": "dear bees", "talk.pptx": "Of Bees"}
    for name, made in zip(expected, (table, letter, talk), strict=True):
        content = io.BytesIO()
        made.save(content)
        book = await read(tmp_path, name, content.getvalue())
        assert (book.title, book.authors) == (expected[name], ())


@pytest.mark.parametrize(
    "junk", ["Untitled Document", "https://example.com/", "C:\\bees\\page.html", "page.html", "(untitled)"]
)
async def test_a_page_with_a_title_that_is_none_is_called_by_its_only_top_heading(tmp_path: Path, junk: str) -> None:
    page = f"<title>{junk}</title><h1>Of Bees</h1><h2>Hives</h2><p>Wood.</p><h2>Wax</h2><p>Soft.</p>"
    assert await read_title(tmp_path, "p1.html", page) == "Of Bees"
    assert await read_title(tmp_path, "p1.html", f"<title>{junk}</title><p>Only a text.</p>") == "p1"


@pytest.mark.parametrize(
    "title", ["Node.js", "C++: a guide", "1984", "天気", "What is REST?", "/etc explained", "A/B tests"]
)
async def test_a_title_that_looks_strange_is_kept(tmp_path: Path, title: str) -> None:
    page = f"<title>{title}</title><h1>{title}</h1><p>Text.</p>"
    assert await read_title(tmp_path, "p1.html", page) == title
