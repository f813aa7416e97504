"""Cuts a text into pages, or into the chunks of a search: nothing is lost and nothing repeated. Cuts are between lines
where possible, else between elements of JSON, sentences, or words."""

from __future__ import annotations

from collections.abc import Iterator

from toolscript.retrieval.text.chunking import may_cut

# A page ends after one of these, the first that is in its second half.
_ENDS = ("\n", "}, ", "},", "], ", "],", ". ", '", ', '",', ", ", ",", " ")
_MAX_CLUSTER = 32


def split_text(text: str, max_bytes: int) -> Iterator[tuple[int, int]]:
    """The starts and ends of the pages of a text, each at most so many bytes of UTF-8, and at least one character."""
    start = 0
    while True:
        end = find_cut(text, start, max_bytes)
        yield start, end
        if end == len(text):
            return
        start = end


def find_cut(text: str, start: int, max_bytes: int) -> int:
    """The end of the page that starts there: as much as fits, or less where that is a better place to cut."""
    fitting = text[start : start + max_bytes]
    if not fitting.isascii():
        fitting = fitting.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")
    end = start + max(1, len(fitting))
    if end >= len(text):
        return len(text)
    middle = start + (end - start) // 2
    for mark in _ENDS:
        place = text.rfind(mark, middle, end)
        if place >= 0 and may_cut(text, place + len(mark)):
            return place + len(mark)
    place = end
    while place > middle and end - place < _MAX_CLUSTER and not may_cut(text, place):
        place -= 1
    return place if place > start and may_cut(text, place) else end


def count_bytes(text: str) -> int:
    """The bytes of a text as UTF-8; what UTF-8 cannot encode counts one."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
