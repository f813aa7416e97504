"""Finds page furniture: headers, footers, page numbers and lines of a table of contents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from toolscript.adapters.files.parts import normalize

_DIGITS = re.compile(r"\d+|(?<=\s)[ivxlc]{1,7}\Z")
_PAGE_NUMBER = re.compile(r"\W*(?:page\s+)?(?:\d{1,5}|[ivxlc]{1,7})\W*(?:(?:/|of)\s*\d{1,5})?\W*\Z", re.IGNORECASE)
_CONTENTS = re.compile(r"(?:\.\s?){4,}\s*(?:\d{1,5}|[ivxlc]{1,7})\s*\Z", re.IGNORECASE)
_LABEL = re.compile(r"(?:chapter|part|appendix)\s+\w{1,6}\.?\Z", re.IGNORECASE)
_MIN_REPEATS = 3
_LINES_PER_END = 2
_MAX_LINE_LENGTH = 160


def is_contents_line(line: str) -> bool:
    """Whether the line belongs to a table of contents: dots that lead to a page number."""
    return bool(_CONTENTS.search(line[-400:]))


def remove_furniture(pages: Sequence[Sequence[str]]) -> list[list[str]]:
    """Removes page numbers, and lines at the top or bottom of a page that repeat on other pages with other numbers."""
    return [[page[each] for each in kept] for page, kept in zip(pages, find_text_lines(pages), strict=True)]


def find_text_lines(pages: Sequence[Sequence[str]], headings: Collection[str] = ()) -> list[list[int]]:
    """Returns the numbers of each page's text lines. A number in a heading (normalized) is not a page number."""
    ends = [_find_end_lines(page) for page in pages]
    counts = Counter(
        key for page, both in zip(pages, ends, strict=True) for key in {_repeat_key(page[each]) for each in both}
    )
    offsets = _find_number_offsets(pages, ends)
    kept = []
    for number, (page, both) in enumerate(zip(pages, ends, strict=True)):
        dropped = {each for each in both if _is_furniture(page[each], counts, offsets, number, headings)}
        kept.append([each for each in range(len(page)) if each not in dropped])
    return kept


def _find_end_lines(page: Sequence[str]) -> list[int]:
    """Returns the first and last non-blank lines of a page."""
    filled = [each for each, line in enumerate(page) if line.strip()]
    return sorted({*filled[:_LINES_PER_END], *filled[-_LINES_PER_END:]})


def _repeat_key(line: str) -> str:
    """Replaces the numbers of a line, so that repeated headers count as equal; "Chapter 3" alone is kept."""
    line = " ".join(line.split())
    return line if _LABEL.match(line) else _DIGITS.sub("#", line)


def _is_furniture(line: str, counts: Counter[str], offsets: set[int], number: int, headings: Collection[str]) -> bool:
    if len(line) > _MAX_LINE_LENGTH:
        return False
    if counts[_repeat_key(line)] >= _MIN_REPEATS or _PAGE_NUMBER.match(line):
        return True
    if (
        _LABEL.match(line.strip())
        or normalize(line) in headings
        or normalize(_DIGITS.sub("", line, count=1)) in headings
    ):
        return False
    return any(int(each) - number in offsets for each in _find_outer_numbers(line))


def _find_outer_numbers(line: str) -> list[str]:
    """Returns the number that a line begins or ends with, as headers with page numbers do."""
    found = re.match(r"(\d{1,5})\s+\D", line.strip()), re.search(r"\D\s+(\d{1,5})\Z", line.strip())
    return [each[1] for each in found if each]


def _find_number_offsets(pages: Sequence[Sequence[str]], ends: Sequence[Sequence[int]]) -> set[int]:
    """Returns the most frequent difference between printed page numbers and sheet numbers."""
    counts = Counter(
        offset
        for number, (page, both) in enumerate(zip(pages, ends, strict=True))
        for offset in {int(each) - number for line in both for each in _find_outer_numbers(page[line])}
    )
    return {offset for offset, count in counts.items() if count * 2 > len(pages) and count >= _MIN_REPEATS}
