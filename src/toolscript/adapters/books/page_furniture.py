"""Headers, footers, page numbers and tables of contents: what stands on pages and is no part of the text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from toolscript.adapters.books.parts import bare

_DIGITS = re.compile(r"\d+|(?<=\s)[ivxlc]{1,7}\Z")
_PAGE_NUMBER = re.compile(r"\W*(?:page\s+)?(?:\d{1,5}|[ivxlc]{1,7})\W*(?:(?:/|of)\s*\d{1,5})?\W*\Z", re.IGNORECASE)
_CONTENTS = re.compile(r"(?:\.\s?){4,}\s*(?:\d{1,5}|[ivxlc]{1,7})\s*\Z", re.IGNORECASE)
_LABEL = re.compile(r"(?:chapter|part|appendix)\s+\w{1,6}\.?\Z", re.IGNORECASE)
_OFTEN = 3
_AT_EITHER_END = 2
_LONGEST = 160


def is_contents_line(line: str) -> bool:
    """Whether a line of a table of contents: dots that lead to a page number."""
    return bool(_CONTENTS.search(line[-400:]))


def without_furniture(pages: Sequence[Sequence[str]]) -> list[list[str]]:
    """The lines of each page without those at its ends that come again on other pages, but for their numbers, and
    without bare page numbers there."""
    return [[page[each] for each in kept] for page, kept in zip(pages, text_lines(pages), strict=True)]


def text_lines(pages: Sequence[Sequence[str]], headings: Collection[str] = ()) -> list[list[int]]:
    """Which lines of each page are text. Of known headings (see `bare`) a number is their own, and not the page's."""
    ends = [_ends(page) for page in pages]
    counts = Counter(key for page, both in zip(pages, ends, strict=True) for key in {_key(page[each]) for each in both})
    offsets = _number_offsets(pages, ends)
    kept = []
    for number, (page, both) in enumerate(zip(pages, ends, strict=True)):
        dropped = {each for each in both if _is_furniture(page[each], counts, offsets, number, headings)}
        kept.append([each for each in range(len(page)) if each not in dropped])
    return kept


def _ends(page: Sequence[str]) -> list[int]:
    """The outermost lines of a page that say something."""
    said = [each for each, line in enumerate(page) if line.strip()]
    return sorted({*said[:_AT_EITHER_END], *said[-_AT_EITHER_END:]})


def _key(line: str) -> str:
    """What a line is counted by: its numbers do not matter, but "Chapter 3" alone is what a chapter begins with."""
    line = " ".join(line.split())
    return line if _LABEL.match(line) else _DIGITS.sub("#", line)


def _is_furniture(line: str, counts: Counter[str], offsets: set[int], number: int, headings: Collection[str]) -> bool:
    if len(line) > _LONGEST:
        return False
    if counts[_key(line)] >= _OFTEN or _PAGE_NUMBER.match(line):
        return True
    if _LABEL.match(line.strip()) or bare(line) in headings or bare(_DIGITS.sub("", line, count=1)) in headings:
        return False
    return any(int(each) - number in offsets for each in _outer_numbers(line))


def _outer_numbers(line: str) -> list[str]:
    """The number that a line begins or ends with, as headers with page numbers do."""
    found = re.match(r"(\d{1,5})\s+\D", line.strip()), re.search(r"\D\s+(\d{1,5})\Z", line.strip())
    return [each[1] for each in found if each]


def _number_offsets(pages: Sequence[Sequence[str]], ends: Sequence[Sequence[int]]) -> set[int]:
    """How far printed page numbers are from the count of pages, where most pages agree on it."""
    counts = Counter(
        offset
        for number, (page, both) in enumerate(zip(pages, ends, strict=True))
        for offset in {int(each) - number for line in both for each in _outer_numbers(page[line])}
    )
    return {offset for offset, count in counts.items() if count * 2 > len(pages) and count >= _OFTEN}
