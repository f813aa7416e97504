"""Parses RTF with striprtf, down to its text; what looks like a heading becomes a heading."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from toolscript.adapters.files.dates import find_date
from toolscript.adapters.files.markup.text import read_text
from toolscript.adapters.files.parts import ParsedBook, clean_prose, format_row, split_authors
from toolscript.adapters.files.titles import clean_title
from toolscript.domain.errors import Invalid

try:
    from striprtf.striprtf import rtf_to_text
except ImportError as missing:
    raise Invalid("Reading RTF needs an extra: pip install 'toolscript[books]'.") from missing

_convert: Callable[..., str] = rtf_to_text
_INFO = re.compile(r"\{\\(title|author)\s([^{}]{0,500})\}")
_CREATED = re.compile(r"\{\\(?:revtim|creatim)\\yr(\d{1,4})\\mo(\d{1,2})\\dy(\d{1,2})")
_SEARCHED_CHARACTERS = 200_000


def read_rtf(data: bytes) -> ParsedBook:
    """Parses a document with the title, author and date of its properties."""
    source = data.decode("latin-1")
    start = source[:_SEARCHED_CHARACTERS]
    about = {found[1]: _to_text(found[2]) for found in _INFO.finditer(start)}
    created = _CREATED.search(start)
    date = f"{int(created[1]):04}-{int(created[2]):02}-{int(created[3]):02}" if created else ""
    parsed = read_text("\n".join(_separate_paragraphs(_convert(source, errors="replace"))))
    authors = split_authors(about.get("author", ""))
    title = clean_title(about.get("title", "")) or parsed.title
    return replace(parsed, title=title, authors=authors, date=find_date(date))


def _separate_paragraphs(text: str) -> Iterator[str]:
    """Puts a blank line between paragraphs, and signs between the cells of a row."""
    for line in text.split("\n"):
        if line.endswith("|"):
            yield f"| {format_row(line[:-1].split('|'))}"
        else:
            yield from ("", line, "")


def _to_text(words: str) -> str:
    return clean_prose(_convert("{\\rtf1 " + words + "}", errors="replace"))
