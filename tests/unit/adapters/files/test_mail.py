"""E-mail: messages and mailboxes as Python's own library writes them."""

from __future__ import annotations

import mailbox
from email.message import EmailMessage
from pathlib import Path

import pytest

from toolscript.adapters.files.parts import build_book
from toolscript.adapters.files.worker import parse_file
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Book

pytestmark = pytest.mark.req("K-06")


def write(subject: str = "Bees für alle", body: str = "Dear all,\n\nfly.\n") -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = "Ada Hive <ada@example.org>"
    message["To"] = "Bob <bob@example.org>"
    message["Date"] = "Fri, 31 May 2024 10:00:00 +0200"
    message.set_content(body)
    return message


def read(data: bytes, ending: str = ".eml") -> Book:
    return build_book(parse_file(data, ending))


def texts(book: Book) -> list[tuple[str, str]]:
    return [(block.position.section or block.position.chapter, block.text) for block in book.blocks]


HEADERS = "From: Ada Hive <ada@example.org>; To: Bob <bob@example.org>; Date: Fri, 31 May 2024 10:00:00 +0200"


def test_a_message_has_its_subject_sender_date_text_and_the_names_of_attachments() -> None:
    message = write(body="Dear all,\n\nÄpfel fly.\n")
    message.add_attachment(b"%PDF-1.4", maintype="application", subtype="pdf", filename="größe.pdf")
    message.add_attachment("a,b\n", subtype="csv", filename="table.csv")
    book = read(bytes(message))
    assert (book.title, book.authors, book.date) == ("Bees für alle", ("Ada Hive",), "2024-05-31")
    assert texts(book) == [
        ("Bees für alle", HEADERS),
        ("Bees für alle", "Dear all,"),
        ("Bees für alle", "Äpfel fly."),
        ("Bees für alle", "Attachments: größe.pdf, table.csv"),
    ]


def test_of_two_forms_of_a_message_the_plain_one_is_read_and_html_alone_without_its_tags() -> None:
    both = write()
    both.add_alternative("<p>Other</p>", subtype="html")
    assert [text for _, text in texts(read(bytes(both)))][1:] == ["Dear all,", "fly."]
    html = write()
    html.set_content("<h1>News</h1><script>evil()</script><p>They <b>fly</b>.</p>", subtype="html")
    assert texts(read(bytes(html)))[1:] == [("News", "They fly.")]


def test_a_forwarded_message_is_a_section() -> None:
    outer = write("Forwarded")
    outer.add_attachment(write("Inner", "Inside."))
    assert ("Inner", "Inside.") in texts(read(bytes(outer)))


def test_messages_of_a_mailbox_are_chapters(tmp_path: Path) -> None:
    box = mailbox.mbox(tmp_path / "box.mbox")
    for number in range(3):
        box.add(write(f"Subject {number}", f"Text {number}.\n\nFrom now on: quoted.\n"))
    box.close()
    book = read((tmp_path / "box.mbox").read_bytes(), ".mbox")
    assert [text for text in texts(book) if text[1] != HEADERS] == [
        (f"Subject {number}", text) for number in range(3) for text in (f"Text {number}.", "From now on: quoted.")
    ]


def test_damaged_messages_are_read_as_far_as_possible() -> None:
    odd = (
        b"Subject: =?utf-9?q?caf=E9?= =?utf-8?b?!!?=\nFrom: <<<\nDate: soon\n"
        b"Content-Type: text/plain; charset=none\n\nStill text \xe9.\n"
    )
    assert [text for _, text in texts(read(odd))][-1] == "Still text é."
    unclosed = (
        b"Subject: s\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\nFirst.\n"
        b"--x\nContent-Type: text/html\n\n<p>Second"
    )
    assert [text for _, text in texts(read(unclosed))][-2:] == ["First.", "Second"]


def test_nested_messages_end_somewhere() -> None:
    data = b"Text."
    for number in range(200):
        data = b"Subject: %d\nContent-Type: message/rfc822\n\n%s" % (number, data)
    assert len(read(data).blocks) < 50


def test_files_that_are_no_mail_are_refused() -> None:
    with pytest.raises(Invalid, match="not an e-mail"):
        read(b"Only words here.\n")
    with pytest.raises(Invalid, match="not a mailbox"):
        read(bytes(write()), ".mbox")
