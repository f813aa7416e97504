"""Hostile and damaged files: each is read or refused in one line, within limits of time and memory."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import stat
import sys
import time
import zipfile
from pathlib import Path

import docx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.book_files import EPUB_CONTAINER, Bookmark, Typed, archive, epub, pdf
from tests.fixtures.examples import choose, scale_examples
from toolscript.adapters.files.archive import open_archive
from toolscript.adapters.files.parts import BookLimits
from toolscript.adapters.files.reader import FileBooks
from toolscript.adapters.files.worker import parse_file
from toolscript.domain.errors import Invalid
from toolscript.domain.files.kinds import KINDS_BY_ENDING
from toolscript.domain.knowledge import BlockKind, Book

pytestmark = [pytest.mark.req("K-06"), pytest.mark.slow]

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="sees processes by way of /proc")
ONE_OF_EACH_KIND = sorted({kind: ending for ending, kind in KINDS_BY_ENDING.items()}.values())
PAGE = '<html xmlns="http://www.w3.org/1999/xhtml"><body><h1>T</h1><p>Text.</p></body></html>'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


async def read(folder: Path, name: str, data: bytes, limits: BookLimits | None = None) -> Book:
    path = folder / name
    path.write_bytes(data)
    return await FileBooks(limits or BookLimits()).read(path)


async def refusal(folder: Path, name: str, data: bytes, limits: BookLimits | None = None) -> str:
    """The message for a file that is refused: one line, no stack trace, no path."""
    with pytest.raises(Invalid) as caught:
        await read(folder, name, data, limits)
    return check_refusal(caught.value, folder)


def check_refusal(error: Invalid, folder: Path | None = None) -> str:
    message = error.message
    assert "\n" not in message
    assert "Traceback" not in message
    assert folder is None or str(folder) not in message
    return message


async def outcome(folder: Path, name: str, data: bytes, limits: BookLimits | None = None) -> Book | None:
    """The book, or None when the file is refused in one line."""
    try:
        return await read(folder, name, data, limits)
    except Invalid as error:
        check_refusal(error, folder)
        return None


def refusal_by_parser(data: bytes, ending: str) -> str:
    """The same message, without the worker that runs the parser."""
    with pytest.raises(Invalid) as caught:
        parse_file(data, ending)
    return check_refusal(caught.value)


def pack(member: zipfile.ZipInfo, content: bytes = b"x") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("META-INF/container.xml", EPUB_CONTAINER)
        made.writestr(member, content)
    return out.getvalue()


async def test_a_file_of_each_kind_is_read_by_a_worker(folder: Path) -> None:
    word = io.BytesIO()
    document = docx.Document()
    document.add_paragraph("Text.")
    document.save(word)
    files = {
        "a_small-book.md": b"Text.",
        "b.html": b"<p>Text.</p>",
        "c.txt": b"Text.",
        "d.rst": b"Text.",
        "e.pdf": pdf([[Typed(72, 700, "Text.")]]),
        "f.epub": epub({"a.xhtml": PAGE}),
        "g.docx": word.getvalue(),
        "h.rtf": b"{\\rtf1 Text.}",
        "i.odt": archive({"content.xml": "<c><body><text><p>Text.</p></text></body></c>"}),
        "j.py": b"Text.",
        "k.adoc": b"Text.",
        "l.json": b'["Text."]',
        "m.log": b"Text.",
        "n.ipynb": b'{"cells": [{"cell_type": "markdown", "source": "Text."}]}',
        "o.eml": b"Subject: s\n\nText.",
        "p.mbox": b"From a\nSubject: s\n\nText.",
    }
    books = {name: await read(folder, name, data) for name, data in files.items()}
    assert {name: [block.text for block in book.blocks] for name, book in books.items()} == {
        name: ["Text."] for name in files
    }
    assert books["a_small-book.md"].title == "a small book"


def declaring(size: int, packed: bytes) -> bytes:
    """An archive that declares this unpacked size for each file."""
    changed, place = bytearray(packed), -1
    while (place := changed.find(b"PK\x01\x02", place + 1)) >= 0:
        changed[place + 24 : place + 28] = size.to_bytes(4, "little")
    return bytes(changed)


async def test_archives_that_would_fill_the_memory_are_not_unpacked(folder: Path) -> None:
    nine = archive({f"OEBPS/{n}.xhtml": PAGE for n in range(9)})
    assert "would unpack to 540 MB" in await refusal(folder, "many.epub", declaring(60_000_000, nine))
    zeros = b"\0" * 11_000_000
    noise = random.Random(1).randbytes(200_000)
    one = archive({"META-INF/container.xml": EPUB_CONTAINER, "OEBPS/a.xhtml": zeros, "noise": noise})
    assert "'OEBPS/a.xhtml', which unpacks to over 200 times" in await refusal(folder, "one.epub", one)
    crowd = archive({f"{n}": "" for n in range(20_001)})
    assert "20,001 files" in await refusal(folder, "crowd.epub", crowd)
    nested = archive({"inner.zip": one})
    assert "unpack it first" in await refusal(folder, "nested.docx", nested)


async def test_an_archive_of_many_small_files_is_refused_as_a_zip_bomb(folder: Path) -> None:
    pages = {f"{n}.xhtml": PAGE.replace("Text.", "Text. " * 400_000) for n in range(5)}
    assert "more than 150 times" in await refusal(folder, "many.epub", epub(pages))


async def test_a_long_table_is_not_taken_for_a_zip_bomb(folder: Path) -> None:
    """Eleven megabytes of XML, compressed to a hundredth, with little text."""
    cell = "<w:tc><w:tcPr><w:tcW w:w='2160' w:type='dxa'/></w:tcPr><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:tc>"
    rows = "".join(f"<w:tr>{cell.format(n % 10) * 6}</w:tr>" for n in range(22_000))
    data = archive({**word_file("MARK"), "word/document.xml": rows})
    assert len(rows) > 10_000_000
    assert len(rows) > 80 * len(data)
    open_archive(data)


async def test_an_archive_that_declares_wrong_sizes_is_refused(folder: Path) -> None:
    true = epub({"a.xhtml": PAGE.replace("Text.", "Text. " * 1000)})
    size = len(PAGE.replace("Text.", "Text. " * 1000))
    lie = true.replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert lie != true
    message = await refusal(folder, "lie.epub", lie)
    assert "damaged" in message or "unsafe" in message


@pytest.mark.parametrize("name", ["../evil.xhtml", "/etc/evil.xhtml", "a/../../evil", "..\\evil", "C:\\evil"])
def test_archives_with_paths_outside_their_folder_are_refused(name: str) -> None:
    assert "unsafe path" in refusal_by_parser(pack(zipfile.ZipInfo(name)), ".epub")


async def test_archives_with_links_or_passwords_are_refused(folder: Path) -> None:
    link = zipfile.ZipInfo("OEBPS/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "link" in await refusal(folder, "link.epub", pack(link, b"/etc/passwd"))
    locked = bytearray(pack(zipfile.ZipInfo("secret")))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        locked[locked.rindex(mark) + place] |= 1
    assert "password" in await refusal(folder, "locked.epub", bytes(locked))


@pytest.mark.parametrize(
    "declared",
    [
        '<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">',
        '<!ENTITY c SYSTEM "file:///etc/passwd">',
        '<!ENTITY % p SYSTEM "http://127.0.0.1:9/x">%p;<!ENTITY c "x">',
    ],
)
def test_entities_are_neither_expanded_nor_fetched(declared: str) -> None:
    container = f"<!DOCTYPE x [{declared}]>" + EPUB_CONTAINER.replace("<rootfiles>", "<rootfiles>&c;")
    assert "entities" in refusal_by_parser(epub({"a.xhtml": PAGE}, container=container), ".epub")


@pytest.mark.parametrize(
    ("ending", "member", "others"),
    [
        (".xlsx", "xl/workbook.xml", {}),
        (".pptx", "ppt/presentation.xml", {}),
        (".odt", "content.xml", {}),
        (".odt", "META-INF/manifest.xml", {"content.xml": "<c/>"}),
    ],
)
def test_office_files_that_declare_entities_are_refused(ending: str, member: str, others: dict[str, str]) -> None:
    trap = '<!DOCTYPE x [<!ENTITY s SYSTEM "file:///etc/hostname">]><x>&s;</x>'
    assert "entities" in refusal_by_parser(archive({**others, member: trap}), ending)


async def test_an_office_file_that_would_fill_the_memory_is_not_unpacked(folder: Path) -> None:
    noise = random.Random(1).randbytes(200_000)
    bomb = archive({"xl/workbook.xml": "<workbook/>", "xl/sharedStrings.xml": b" " * 11_000_000, "noise": noise})
    assert "zip bomb" in await refusal(folder, "bomb.xlsx", bomb)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "a PNG image"),
        (b"\xff\xd8\xff\xe0" + bytes(100), "a JPEG image"),
        (b"\x1f\x8b\x08" + bytes(100), "compressed by gzip"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(100), "a 7z archive"),
        (bytes(257) + b"ustar" + bytes(100), "a tar archive"),
        (b"\0\0\0\x18ftypmp42" + bytes(100), "video"),
        (b"RIFF\0\0\0\0WEBP" + bytes(100), "a WebP image"),
        (b"SQLite format 3\0" + bytes(100), "an SQLite database"),
        (b"-----BEGIN PGP MESSAGE-----\n\nabc", "encrypted by PGP"),
    ],
)
def test_files_of_other_kinds_are_refused_as_what_they_are(data: bytes, name: str) -> None:
    with pytest.raises(Invalid, match=name):
        parse_file(data, ".txt")


def test_texts_that_begin_like_other_kinds_are_read() -> None:
    for text in (b"MZ is a signature.", b"ID3 tags", b"GIF89a pictures", b"See %PDF-1.7 files.", b"{\\r is no RTF"):
        assert parse_file(text, ".txt").parts


def word_file(text: str) -> dict[str, bytes]:
    """The files in a Word file of one paragraph."""
    out = io.BytesIO()
    document = docx.Document()
    document.add_paragraph(text)
    document.save(out)
    with zipfile.ZipFile(out) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.mark.parametrize("member", ["word/document.xml", "word/styles.xml", "_rels/.rels", "docProps/core.xml"])
@pytest.mark.parametrize("encoding", choose(["UTF-8", "UTF-16"], "UTF-16"))
def test_a_word_file_that_declares_entities_is_refused(member: str, encoding: str) -> None:
    members = word_file("Text.")
    _, _, body = members[member].decode().partition("?>")
    declared = '<!DOCTYPE x [<!ENTITY s SYSTEM "file:///etc/hostname"><!ENTITY a "haha">]>'
    whole = archive(members | {member: f'<?xml version="1.0" encoding="{encoding}"?>{body}'.encode(encoding)})
    assert [part.text for part in parse_file(whole, ".docx").parts] == ["Text."]
    trap = f'<?xml version="1.0" encoding="{encoding}"?>{declared}{body}'.encode(encoding)
    message = refusal_by_parser(archive(members | {member: trap}), ".docx")
    assert message == f"The file declares XML entities in '{member}', which may be an attack: it is not read."


async def test_a_word_file_in_an_encoding_that_hides_its_declarations_is_refused(folder: Path) -> None:
    members = word_file("Text.")
    changed = members["word/document.xml"].replace(b"UTF-8", b"GBK")
    assert changed != members["word/document.xml"]
    data = archive(members | {"word/document.xml": changed})
    assert "'word/document.xml' is not valid XML" in await refusal(folder, "gbk.docx", data)


async def test_broken_pdfs_are_refused_and_never_hang(folder: Path) -> None:
    whole = pdf([[Typed(72, 700, "Text.")]] * 3, [Bookmark("One", 0), Bookmark("Two", 1)])
    assert "damaged" in await refusal(folder, "short.pdf", whole[:200])
    limits = BookLimits(seconds=90)
    circle = whole.replace(b"/Kids [", b"/Kids [2 0 R ")
    endless = whole.replace(b"startxref\n", b"startxref\n9").replace(b"trailer\n<<", b"trailer\n<< /Prev 9")
    ring = whole.replace(b"/Next ", b"/Next 1 0 R /N")
    for number, data in enumerate((circle, endless, ring)):
        assert data != whole
        began = time.monotonic()
        book = await outcome(folder, f"{number}.pdf", data, limits)
        assert book is None or {block.text for block in book.blocks} == {"Text."}
        assert time.monotonic() - began < 60


async def test_the_refusal_of_a_pdf_names_a_password_or_a_scan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolscript.adapters.files.reader._find_ocr", str)
    whole = pdf([[Typed(72, 700, "Text.")]])
    locked = whole.replace(
        b"trailer\n<<",
        b"trailer\n<< /ID [<00><00>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <"
        + b"11" * 32
        + b"> /U <"
        + b"22" * 32
        + b"> >>",
    )
    assert "password" in await refusal(folder, "locked.pdf", locked)
    assert "scanned" in await refusal(folder, "scan.pdf", pdf([[], []]))


async def test_files_with_a_wrong_ending_are_read_by_their_content_or_refused(folder: Path) -> None:
    book = await read(folder, "really_a_pdf.txt", pdf([[Typed(72, 700, "Text.")]]))
    assert book.blocks[0].position.page == 1
    page = await read(folder, "really_html.md", b"<!DOCTYPE html><title>T</title><script>evil()</script><p>Text.</p>")
    assert [block.text for block in page.blocks] == ["Text."]
    program = b"\x7fELF" + bytes(range(256)) * 40
    for name in ("run.html", "run.txt", "run.csv", "run.pdf"):
        assert await refusal(folder, name, program) == "The file is a program."
    assert "not text" in await refusal(folder, "noise.txt", bytes(range(256)))
    assert "not a valid PDF" in await refusal(folder, "text.pdf", b"Text.")
    assert "not a valid EPUB" in await refusal(folder, "page.epub", b"<p>Text.</p>")
    assert "save it as DOCX" in await refusal(folder, "old.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"x" * 100)


@pytest.mark.parametrize("ending", ONE_OF_EACH_KIND)
def test_empty_files_are_refused(ending: str) -> None:
    assert refusal_by_parser(b"", ending) == "The file is empty."
    assert "no text" in refusal_by_parser(b" \n\0", ending)


async def test_folders_pipes_missing_files_and_unknown_endings_are_refused(folder: Path) -> None:
    assert "'.exe'" in await refusal(folder, "a.exe", b"x")
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    for name, message in (
        ("folder.md", "Not a regular file"),
        ("pipe.md", "Not a regular file"),
        ("no.md", "No such file"),
    ):
        with pytest.raises(Invalid, match=message):
            await FileBooks().read(folder / name)


@pytest.mark.parametrize(
    ("vendor", "reader", "data"),
    [
        ("pypdfium2", "pdf.pages", b"%PDF-1.7"),
        ("docx", "office.docx", archive({"word/document.xml": "<x/>"})),
        ("striprtf", "office.rtf", b"{\\rtf1 Text.}"),
    ],
)
def test_the_error_for_a_missing_library_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, vendor: str, reader: str, data: bytes
) -> None:
    monkeypatch.setitem(sys.modules, vendor, None)
    monkeypatch.delitem(sys.modules, f"toolscript.adapters.files.{reader}", raising=False)
    with pytest.raises(Invalid, match=r"pip install 'toolscript\[books\]'"):
        parse_file(data, ".pdf")


@settings(max_examples=scale_examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(min_size=1, max_size=3000), ending=st.sampled_from(ONE_OF_EACH_KIND), honest=st.booleans())
def test_any_bytes_give_a_book_or_a_refusal(folder: Path, data: bytes, ending: str, honest: bool) -> None:
    starts = {".pdf": b"%PDF-1.7\n", ".docx": b"PK\x03\x04", ".epub": b"PK\x03\x04"}
    start = starts.get(ending, b"") if honest else b""
    book = asyncio.run(outcome(folder, f"any{ending}", start + data))
    assert book is None or book.blocks


@pytest.mark.extended
async def test_nesting_long_lines_and_long_tables_take_linear_time(folder: Path) -> None:
    limits = BookLimits(seconds=20)
    deep = await read(folder, "deep.html", b"<div>" * 10_000 + b"<p>Text." + b"</div>" * 10_000, limits)
    assert [block.text for block in deep.blocks] == ["Text."]
    wall = b"<ul><li><blockquote>" + b"<b>" * 20_000 + b"<li>Text.</li>" * 20_000
    assert len((await read(folder, "wall.html", wall, limits)).blocks) == 20_000
    line = await read(folder, "line.txt", b"word " * 1_000_000, limits)
    assert len(line.blocks[0].text) == 5 * 1_000_000 - 1
    rows = b"".join(b"<tr><td>%d</td><td>row</td></tr>" % n for n in range(10_000))
    table = await read(folder, "table.html", b"<table>" + rows + b"</table>", limits)
    assert [(block.kind, block.text.count("\n")) for block in table.blocks] == [(BlockKind.TABLE, 9_999)]
    quotes = await read(folder, "quotes.md", b"Above.\n\n" + b">" * 5_000 + b" Text.\n\nBelow.", limits)
    assert [block.text for block in quotes.blocks] == ["Above.", "Below."]


async def test_size_time_memory_and_text_are_bounded(folder: Path) -> None:
    words = b"word " * 400_000
    assert "the limit is 1 MB" in await refusal(folder, "large.txt", words, BookLimits(file_bytes=10**6))
    message = await refusal(folder, "wordy.txt", words, BookLimits(characters=10**6))
    assert message == "The file holds 1,999,999 characters of text; the limit is 1,000,000. Split it."
    message = await refusal(folder, "many.html", b"<p>a" * 11, BookLimits(blocks=10))
    assert message == "The file holds 11 paragraphs; the limit is 10. Split it."
    began = time.monotonic()
    assert "longer than 0.01 seconds" in await refusal(folder, "slow.txt", words, BookLimits(seconds=0.01))
    assert time.monotonic() - began < 60
    greedy = await refusal(folder, "greedy.html", b"<p>a" * 2_000_000, BookLimits(memory_bytes=150 * 2**20))
    assert "memory" in greedy or "The reader" in greedy


async def test_a_file_of_two_gigabytes_is_refused_without_reading_it(folder: Path) -> None:
    with (folder / "huge.log").open("wb") as file:
        file.truncate(2 * 10**9)
    with pytest.raises(Invalid, match="The file has 2,000 MB; the limit is 200 MB"):
        await FileBooks().read(folder / "huge.log")


async def test_a_heading_counts_at_every_position_below_it(folder: Path) -> None:
    chapter = "<h1>" + "word " * 2_000 + "</h1>"
    page = chapter + "".join(f"<h2>{n}</h2><p>a" for n in range(200))
    assert "characters of text" in await refusal(folder, "a.html", page.encode(), BookLimits(characters=10**6))
    assert len((await read(folder, "a.html", page.encode(), BookLimits(characters=3 * 10**6))).blocks) == 200


@pytest.fixture
def endless(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose worker runs until it is killed: nobody takes the megabyte that it writes."""

    async def take_nothing(*_: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr("toolscript.adapters.files.reader._read_output", take_nothing)
    path = folder / "long.html"
    path.write_bytes(b"<p>" + b"word " * 200_000)
    return path


@needs_proc
async def test_the_worker_ends_when_reading_is_cancelled(endless: Path) -> None:
    reading = asyncio.create_task(FileBooks().read(endless))
    while not (readers := {child for child in _children() if _environment(child)}):
        assert not reading.done()
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert readers.isdisjoint(_children())


def _children() -> set[str]:
    """The child processes of this process, running or zombies."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@needs_proc
async def test_the_worker_does_not_get_our_environment(endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCRIPT_API_KEY", "the-key")
    reading = asyncio.create_task(FileBooks().read(endless))
    environment = b""
    while b"PYTHONPATH" not in environment:
        assert not reading.done()
        await asyncio.sleep(0)
        environment = b"".join(_environment(child) for child in _children())
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert b"the-key" not in environment


@needs_proc
async def test_a_system_without_memory_kills_the_worker_first(endless: Path) -> None:
    """Three workers may take 2 GiB each, and a small machine would have killed the gateway."""
    reading = asyncio.create_task(FileBooks().read(endless))
    while not any(_environment(child) and _find_kill_order(child) == "1000" for child in _children()):
        assert not reading.done()
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


def _find_kill_order(child: str) -> str:
    try:
        return Path(f"/proc/{child}/oom_score_adj").read_text().strip()
    except OSError:
        return ""


async def test_a_large_book_is_taken_from_its_worker_in_small_steps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While JSON is parsed no other thread runs: it took six seconds for 48 million characters."""
    sizes: list[int] = []
    parse = json.loads

    def note_size(line: bytes) -> object:
        sizes.append(len(line))
        return parse(line)

    monkeypatch.setattr("toolscript.adapters.files.reader.json.loads", note_size)
    book = await read(folder, "large.html", "".join(f"<h2>{n}</h2><p>{'é' * 50}" for n in range(5_000)).encode())
    assert len(book.blocks) == 5_000
    assert book.blocks[-1].position.section == "4999" or book.blocks[-1].position.chapter == "4999"
    assert sum(sizes) > 500_000
    assert max(sizes) < 50_000


def _environment(child: str) -> bytes:
    """The environment of a child that already runs the worker; before that, it is a copy of this process."""
    try:
        command = Path(f"/proc/{child}/cmdline").read_bytes()
        return Path(f"/proc/{child}/environ").read_bytes() if b"files.worker" in command else b""
    except OSError:
        return b""
