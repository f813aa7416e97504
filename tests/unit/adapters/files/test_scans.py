"""Scanned PDFs: refused with advice, or read by tesseract where it is installed."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import io
import os
import shutil
from pathlib import Path

import pypdfium2 as pdfium
import pytest

from tests.fixtures.book_files import LARGE, Typed, pdf
from toolscript.adapters.files.parts import BookLimits
from toolscript.adapters.files.pdf.scans import MAX_PAGES, RAPIDOCR, recognise_pages
from toolscript.adapters.files.reader import FileBooks
from toolscript.domain.errors import Invalid

pytestmark = [pytest.mark.req("K-06"), pytest.mark.slow]


def scan(*texts: str) -> bytes:
    """Pages with a picture of each text, as a scanner makes them."""
    drawn = [pdfium.PdfDocument(pdf([[Typed(72, 700, text, LARGE)]]))[0].render(scale=2).to_pil() for text in texts]
    out = io.BytesIO()
    drawn[0].save(out, "PDF", save_all=True, append_images=drawn[1:])
    return out.getvalue()


def add_pages(first: bytes, second: bytes) -> bytes:
    """The pages of both files."""
    document = pdfium.PdfDocument(first)
    document.import_pages(pdfium.PdfDocument(second))
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where commands are looked for; the package for OCR is not found."""
    monkeypatch.setattr("toolscript.adapters.files.reader.find_spec", lambda _: None)
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, script: str) -> None:
    command = folder / "tesseract"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


async def refuse(path: Path, data: bytes, limits: BookLimits | None = None) -> str:
    await asyncio.to_thread(path.write_bytes, data)
    with pytest.raises(Invalid) as caught:
        await FileBooks(limits or BookLimits()).read(path)
    assert "\n" not in caught.value.message
    return caught.value.message


async def test_without_tesseract_a_scan_is_refused_with_advice(tmp_path: Path, commands: Path) -> None:
    message = await refuse(tmp_path / "scan.pdf", scan("Bees", "Honey"))
    assert "no text layer" in message
    assert "Install tesseract or pip install 'toolscript[ocr]'" in message


async def test_a_cover_with_text_does_not_hide_that_the_rest_is_scanned(tmp_path: Path, commands: Path) -> None:
    book = add_pages(pdf([[Typed(72, 700, "Scanned by a library.")]]), scan(*(f"Page {n}" for n in range(9))))
    assert "no text layer" in await refuse(tmp_path / "covered.pdf", book)
    mixed = add_pages(pdf([[Typed(72, 700, f"{word}.")] for word in ("Hives", "Wax", "Honey")]), scan("A picture"))
    (tmp_path / "mixed.pdf").write_bytes(mixed)
    assert len((await FileBooks().read(tmp_path / "mixed.pdf")).blocks) == 3


async def test_tesseract_gets_each_page_as_a_picture_and_its_text_has_the_page(tmp_path: Path, commands: Path) -> None:
    install(commands, 'read kind width height depth; /bin/cat >/dev/null; echo "$kind $depth"; echo; echo "Next one."')
    (tmp_path / "scan.pdf").write_bytes(scan("Bees", "Honey"))
    book = await FileBooks().read(tmp_path / "scan.pdf")
    assert [(block.text, block.position.page) for block in book.blocks] == [
        (text, page) for page in (1, 2) for text in ("P5 255", "Next one.")
    ]


async def test_tesseract_that_fails_finds_nothing_or_takes_too_long_is_one_line(tmp_path: Path, commands: Path) -> None:
    install(commands, "exit 1")
    assert "tesseract failed" in await refuse(tmp_path / "scan.pdf", scan("Bees"))
    install(commands, "/bin/cat >/dev/null")
    assert "OCR finds no text" in await refuse(tmp_path / "scan.pdf", scan("Bees"))
    many = pdf([[] for _ in range(MAX_PAGES + 1)])
    assert f"OCR is for up to {MAX_PAGES}" in await refuse(tmp_path / "many.pdf", many)


WORDS = ["Hives", "Wax", "Honey", "Queens", "Drones", "Smoke", "Frames", "Swarms"]


def mix(texts: int, scans: int, texts_after: int = 1) -> bytes:
    """A file of pages with text, then scanned ones, then pages with text again."""
    pages = [pdf([[Typed(72, 700, f"{word}.")]]) for word in WORDS[: texts + texts_after]]
    parts = [*pages[:texts], *([scan(*(f"Scan {n}" for n in range(scans)))] if scans else []), *pages[texts:]]
    return functools.reduce(add_pages, parts)


async def test_scanned_pages_between_others_are_a_warning_without_tesseract(tmp_path: Path, commands: Path) -> None:
    (tmp_path / "mixed.pdf").write_bytes(mix(2, 2))
    book = await FileBooks().read(tmp_path / "mixed.pdf")
    assert [block.position.page for block in book.blocks] == [1, 2, 5]
    advice = "install tesseract or pip install 'toolscript[ocr]', or run OCR on it first (ocrmypdf does)"
    assert book.warnings == (f"2 of 5 pages are pictures without text (3, 4); {advice}",)
    (tmp_path / "many.pdf").write_bytes(mix(3, 7))
    (warning,) = (await FileBooks().read(tmp_path / "many.pdf")).warnings
    assert warning.startswith("7 of 11 pages are pictures without text (4, 5, 6, 7, 8, …); ")


async def test_where_tesseract_is_missing_a_package_reads_scans(
    tmp_path: Path, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolscript.adapters.files.reader.find_spec", importlib.util.find_spec)
    (tmp_path / "scan.pdf").write_bytes(scan("Bees need shade"))
    book = await FileBooks(BookLimits(seconds=600)).read(tmp_path / "scan.pdf")
    assert [(block.text, block.position.page) for block in book.blocks] == [("Bees need shade", 1)]


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_the_package_stops_at_the_deadline_of_a_file(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr("toolscript.adapters.files.pdf.scans._open_rapidocr", lambda: pytest.fail)
    document = pdfium.PdfDocument(scan("Bees"))
    with pytest.raises(Invalid, match="takes too long"):
        list(recognise_pages(document, [1], RAPIDOCR, seconds))


async def test_blank_pages_and_covers_of_books_are_no_warning(tmp_path: Path, commands: Path) -> None:
    blank = pdf([[Typed(72, 700, "Hives.")], [], [Typed(72, 700, "Honey.")]])
    covered = add_pages(scan("A cover"), mix(7, 1, 0))
    for data in (blank, covered, mix(2, 0)):
        (tmp_path / "book.pdf").write_bytes(data)
        assert (await FileBooks().read(tmp_path / "book.pdf")).warnings == ()


async def test_scanned_pages_between_others_are_read_by_tesseract_in_their_place(
    tmp_path: Path, commands: Path
) -> None:
    install(commands, '/bin/cat >/dev/null; echo "Read from a picture."')
    (tmp_path / "mixed.pdf").write_bytes(mix(2, 2))
    book = await FileBooks().read(tmp_path / "mixed.pdf")
    assert [(block.position.page, "picture" in block.text) for block in book.blocks] == [
        (1, False),
        (2, False),
        (3, True),
        (4, True),
        (5, False),
    ]
    assert book.warnings == ()


async def test_tesseract_that_fails_on_some_pages_does_not_stop_the_others(tmp_path: Path, commands: Path) -> None:
    install(commands, "exit 1")
    (tmp_path / "mixed.pdf").write_bytes(mix(2, 2))
    book = await FileBooks().read(tmp_path / "mixed.pdf")
    assert len(book.blocks) == 3
    (warning,) = book.warnings
    assert warning.startswith("2 of 5 pages are pictures without text (3, 4); ")
    assert "tesseract failed" in warning
    assert ": " not in warning


@pytest.mark.extended
@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="sees processes by way of /proc")
async def test_tesseract_ends_with_the_worker_that_is_killed(tmp_path: Path, commands: Path) -> None:
    seconds = f"600.{os.getpid()}"
    install(commands, f"exec /bin/sleep {seconds}")
    message = await refuse(tmp_path / "slow.pdf", scan("Bees"), BookLimits(seconds=3))
    assert "longer than 3 seconds" in message
    await asyncio.to_thread(wait_for_end, seconds)


def wait_for_end(argument: str) -> None:
    """Waits until no process with this argument runs: it is killed a moment after the worker."""
    while list_processes(argument):
        pass


def list_processes(argument: str) -> list[str]:
    """The processes that run with this argument."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0") if process.name.isdecimal() else []
        except OSError:
            continue
        found += [process.name] if argument.encode() in arguments else []
    return found


@pytest.mark.skipif(not shutil.which("tesseract"), reason="tesseract is not installed")
async def test_the_text_of_a_scan_is_read(tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(scan("The bees fly over the field", "Honey is sweet"))
    book = await FileBooks().read(tmp_path / "scan.pdf")
    assert [(block.text, block.position.page) for block in book.blocks] == [
        ("The bees fly over the field", 1),
        ("Honey is sweet", 2),
    ]
