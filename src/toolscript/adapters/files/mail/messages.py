"""Parses e-mail: a message (EML), or a mailbox of them (MBOX) with a chapter for each. Attachments are named, not
read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import getaddresses

from toolscript.adapters.files.dates import find_date
from toolscript.adapters.files.encoding import decode_text
from toolscript.adapters.files.markup.html import read_page
from toolscript.adapters.files.parts import Heading, ParsedBook, Part, clean_prose, make_block
from toolscript.domain.errors import Invalid

_HEADERS = ("From", "To", "Cc", "Date")
_MAX_HEADER_CHARACTERS = 500
_MAX_DEPTH = 20
_MESSAGE_START = re.compile(rb"(?:\A|(?<=\n)\r?\n)From [^\r\n]*\r?\n(?=[!-9;-~]+:)")
_HEADER_START = re.compile(rb"\A\s*(?:From [^\r\n]*\r?\n)?[!-9;-~]+:")
_ESCAPED = re.compile(rb"^>(>*From )", re.MULTILINE)
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_NO_SUBJECT = "(no subject)"


def read_mail(data: bytes) -> ParsedBook:
    """Parses one message. Raises Invalid for a file that does not begin with headers."""
    if not _HEADER_START.match(data):
        raise Invalid("The file is not an e-mail: it does not begin with headers.")
    message = message_from_bytes(data.lstrip())
    names = [name or address for name, address in getaddresses([_read_header(message, "From")])]
    subject, date = _read_header(message, "Subject"), find_date(_read_header(message, "Date"))
    return ParsedBook(list(_read_message(message, 0)), subject, tuple(filter(None, names)), date)


def read_mailbox(data: bytes) -> ParsedBook:
    """Parses a mailbox. Raises Invalid for a file that does not begin with a message."""
    starts = list(_MESSAGE_START.finditer(data))
    if not starts or data[: starts[0].start()].strip():
        raise Invalid("The file is not a mailbox: it does not begin with a message.")
    ends = [*(found.start() for found in starts[1:]), len(data)]
    parts: list[Part] = []
    for found, end in zip(starts, ends, strict=True):
        parts += _read_message(message_from_bytes(_ESCAPED.sub(rb"\1", data[found.end() : end])), 0)
    return ParsedBook(parts)


def _read_message(message: Message, depth: int) -> Iterator[Part]:
    """Returns a message as a heading, a line with its headers, its text, and the names of its attachments."""
    yield Heading(_read_header(message, "Subject") or _NO_SUBJECT, depth)
    headers = ((name, _read_header(message, name)) for name in _HEADERS)
    yield from make_block("; ".join(f"{name}: {value}" for name, value in headers if value))
    attachments: list[str] = []
    yield from _read_part(message, depth, attachments)
    if attachments:
        yield from make_block(f"Attachments: {', '.join(attachments)}")


def _read_part(part: Message, depth: int, attachments: list[str]) -> Iterator[Part]:
    if depth > _MAX_DEPTH:
        return
    payload = part.get_payload()
    if not isinstance(payload, list):
        yield from _read_leaf(part, depth, attachments)
        return
    kind = part.get_content_type()
    children = [each for each in payload if isinstance(each, Message)]
    for child in _choose_alternative(children) if kind == "multipart/alternative" else children:
        if kind == "message/rfc822":
            yield from _read_message(child, depth + 1)
        else:
            yield from _read_part(child, depth + 1, attachments)


def _read_leaf(part: Message, depth: int, attachments: list[str]) -> Iterator[Part]:
    name = _read_file_name(part)
    if name or part.get_content_disposition() == "attachment":
        attachments.append(name or part.get_content_type())
    elif part.get_content_type() == "text/html":
        yield from (_lower(each, depth) for each in read_page(_decode(part)).parts)
    elif part.get_content_maintype() == "text":
        for paragraph in _PARAGRAPH_END.split(_decode(part).replace("\r\n", "\n")):
            yield from make_block(paragraph)


def _choose_alternative(children: list[Message]) -> list[Message]:
    """Returns the plain text of a message that has it as HTML too, else the last alternative."""
    plain = [each for each in children if each.get_content_type() == "text/plain" and _decode(each).strip()]
    return plain[:1] or children[-1:]


def _lower(part: Part, depth: int) -> Part:
    return replace(part, level=part.level + depth + 1) if isinstance(part, Heading) else part


def _decode(part: Message) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    try:
        return data.decode(part.get_content_charset() or "utf-8")
    except (LookupError, ValueError):
        return decode_text(data, markup=part.get_content_type() == "text/html")


def _read_file_name(part: Message) -> str:
    try:
        return _decode_words(part.get_filename() or "")
    except (LookupError, ValueError):
        return "unnamed"


def _read_header(message: Message, name: str) -> str:
    return _decode_words(str(message.get(name, "")))


def _decode_words(text: str) -> str:
    """Decodes what a header encodes (`=?utf-8?q?…?=`); returns it as it is where that is damaged."""
    with suppress(HeaderParseError, LookupError, ValueError):
        text = str(make_header(decode_header(text)))
    return clean_prose(text)[:_MAX_HEADER_CHARACTERS]
