"""Builds snippets: the part of a document that shows why it was found, verbatim and in whole words.

A text is split into units, the parts between spaces. A unit that is too long (scripts without spaces, addresses) is
split between words, and a word that is too long between characters, never between a character and its marks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import accumulate, chain

from toolscript.retrieval.text.chunking import JOINER, is_mark, may_cut
from toolscript.retrieval.text.forms import list_forms
from toolscript.retrieval.text.words import ENGLISH, find_tokens, list_characters

MARK = "**"
# Units of up to this many characters stay whole where the snippet has room for them.
LONG = 40
# The length of the pieces of a word that is too long.
PIECE = 16
# How far to look for a space at which the part of a text that is read can begin or end.
NEXT_SPACE = 200
# One third of the free room goes before the matched words.
LEAD = 3

_UNIT = re.compile(r"\S+")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")

Span = tuple[int, int]


def build_snippet(
    text: str,
    query_forms: Collection[str],
    max_characters: int,
    *,
    near: Span | None,
    highlight: bool,
    max_read: int | None = None,
    language: str = ENGLISH,
) -> str:
    """Returns at most `max_characters` of the text, around as many different words with these forms (stems, in the
    language of the text) as fit.

    Among equally good windows, one in `near` (the passage that was found) is preferred, then the first window. Without
    any match, the snippet is the beginning of `near`, or of the text. With `highlight`, matched words stand between
    `**`; the asterisks count as characters. Only `max_read` characters of a longer text are read.
    """
    if max_read is not None and len(text) > max_read:
        begin, end = _select_part(text, near, max_read)
        near = (max(begin, near[0]) - begin, min(end, near[1]) - begin) if near else None
        text = text[begin:end]
    near = near if near and text[near[0] : near[1]].strip() else None
    units = _Units(text, frozenset(query_forms), max_characters, highlight=highlight, language=language)
    core = units.find_best(near)
    start, end = units.extend(*core) if core else units.fit_from(near[0] if near else 0)
    if not highlight:
        return text[start:end]
    marked = units.mark(start, end)
    return marked if len(marked) <= max_characters else text[start:end]


class _Units:
    """The units of a text, and the forms that match in each. A window is given by the numbers of its first and last
    unit."""

    def __init__(self, text: str, query_forms: frozenset[str], maximum: int, *, highlight: bool, language: str) -> None:
        self._text = text
        self._query_forms = query_forms
        self._language = language
        self._maximum = maximum
        self._spans = _split_units(text, min(maximum, max(LONG, maximum // 2)))
        forms_by_span = [query_forms & _read_forms(text[start:end], language) for start, end in self._spans]
        self._matched = {number: matched for number, matched in enumerate(forms_by_span) if matched}
        marks = [0] * (len(self._spans) + 1)
        for number in self._matched if highlight else ():
            marks[number + 1] = 2 * len(MARK) * len(self._find_matches(text[slice(*self._spans[number])]))
        self._mark_lengths = list(accumulate(marks))

    def find_best(self, near: Span | None) -> Span | None:
        """The window with the most different forms; None if no unit has any."""
        if near:
            inside = range(self._number_at(near[0]), bisect_right(self._spans, (near[1],)))
            count, window = self._find_best_in([number for number in self._matched if number in inside], near)
            if count == len(self._query_forms):
                return window
        return self._find_best_in(self._matched, near)[1]

    def fit_from(self, start: int) -> Span:
        """The place of the first units from there that fit."""
        first = self._number_at(start)
        while first < len(self._spans) and not self._fits(first, first):
            first += 1
        if first == len(self._spans):
            return start, start
        last = first
        while self._fits(first, last + 1):
            last += 1
        return self._spans[first][0], self._spans[last][1]

    def extend(self, first: int, last: int) -> Span:
        """The place of a window with as much around it as fits, one third before it and the rest behind."""
        room = self._maximum - self._length(first, last)
        while self._fits(first - 1, last, self._maximum - room + room // LEAD):
            first -= 1
        while self._fits(first, last + 1):
            last += 1
        while self._fits(first - 1, last):
            first -= 1
        return self._spans[first][0], self._spans[last][1]

    def mark(self, start: int, end: int) -> str:
        """The text at a place, with marks around the matched words."""
        parts, done = [], start
        for unit in _UNIT.finditer(self._text, start, end):
            for begin, stop in self._find_matches(unit[0]):
                parts += [self._text[done : unit.start() + begin], MARK, unit[0][begin:stop], MARK]
                done = unit.start() + stop
        return "".join([*parts, self._text[done:end]])

    def _find_best_in(self, numbers: Iterable[int], near: Span | None) -> tuple[int, Span | None]:
        """The first of the best windows of these units, and how many different forms it has."""
        window: deque[int] = deque()
        counts: Counter[str] = Counter()
        best, best_window = (0, False), None
        for number in numbers:
            if self._spans[number][1] - self._spans[number][0] > self._maximum:
                continue
            window.append(number)
            counts.update(self._matched[number])
            while len(window) > 1 and not self._fits(window[0], number):
                counts -= Counter(self._matched[window.popleft()])
            start = self._spans[window[0]][0]
            rank = len(counts), near is None or near[0] <= start < near[1]
            if rank > best:
                best, best_window = rank, (window[0], number)
        return best[0], best_window

    def _number_at(self, place: int) -> int:
        """The number of the unit at or after a place."""
        number = max(0, bisect_right(self._spans, (place, len(self._text))) - 1)
        return number + 1 if self._spans and self._spans[number][1] < place else number

    def _length(self, first: int, last: int) -> int:
        return self._spans[last][1] - self._spans[first][0] + self._mark_lengths[last + 1] - self._mark_lengths[first]

    def _fits(self, first: int, last: int, maximum: int | None = None) -> bool:
        is_window = first >= 0 and last < len(self._spans)
        return is_window and self._length(first, last) <= (self._maximum if maximum is None else maximum)

    def _find_matches(self, unit: str) -> list[Span]:
        """The places of the words that match; adjoining and overlapping places are joined."""
        places: list[Span] = []
        for begin, end in _find_words(unit):
            for first, last in find_tokens(unit[begin:end]):
                span = self._match(unit, (begin + first, begin + last))
                if span is None:
                    continue
                if places and span[0] <= places[-1][1]:
                    span = places.pop()[0], span[1]
                places.append(span)
        return places

    def _match(self, unit: str, span: Span) -> Span | None:
        """The place of a token that matches; of one character, if a pair was found by that."""
        written = unit[slice(*span)]
        matched = self._query_forms & _read_forms(written, self._language)
        characters = list_characters(written)
        if len(matched) == 1 and not matched.isdisjoint(characters):
            place = span[0] + characters.index(next(iter(matched)))
            return place, place + 1
        return span if matched else None


def _split_units(text: str, max_length: int) -> list[Span]:
    """The places of the units. A mark after a space belongs to what is before the space."""
    units: list[Span] = []
    is_ascii = text.isascii()
    for start, end in [unit.span() for unit in _UNIT.finditer(text)]:
        parts = [(start, end)] if end - start <= max_length else _split_long(start, text[start:end], max_length)
        for part in parts:
            if units and not is_ascii and not may_cut(text, part[0]):
                units[-1] = units[-1][0], part[1]
            else:
                units.append(part)
    return units


def _split_long(start: int, unit: str, max_length: int) -> Iterator[Span]:
    """The parts of a long unit: each a word with what follows it, or a piece of a word that is itself too long."""
    done = 0
    for cut in chain((begin for begin, _ in _find_words(unit) if begin), [len(unit)]):
        while cut - done > max_length:
            piece = done + PIECE
            while piece < cut and not may_cut(unit, piece):
                piece += 1
            yield start + done, start + piece
            done = piece
        if done < cut:
            yield start + done, start + cut
        done = cut


@lru_cache(maxsize=16_384)
def _read_forms(unit: str, language: str) -> frozenset[str]:
    return list_forms(unit, language)


def _find_words(unit: str) -> Iterator[Span]:
    """The places of the words of a unit: letters and digits with their marks."""
    if unit.isascii():
        yield from (word.span() for word in _ASCII_WORD.finditer(unit))
        return
    begun: int | None = None
    for place, character in enumerate(unit):
        if character.isalnum():
            begun = place if begun is None else begun
        elif begun is not None and character != JOINER and not is_mark(character):
            yield begun, place
            begun = None
    if begun is not None:
        yield begun, len(unit)


def _select_part(text: str, near: Span | None, maximum: int) -> Span:
    """The part of a long text that is read: with the passage in its middle, or the beginning."""
    middle = (near[0] + min(near[1], near[0] + maximum)) // 2 if near else 0
    start = max(0, min(middle - maximum // 2, len(text) - maximum))
    end = start + maximum
    reach = min(NEXT_SPACE, maximum // 2)
    return _find_cut(text, range(start, start + reach)), _find_cut(text, range(end, end - reach, -1))


def _find_cut(text: str, places: range) -> int:
    """The first of the places that is between words; if there is none, the first between characters."""
    between = [at for at in places if may_cut(text, at)]
    edges = (at for at in between if at in {0, len(text)} or text[at - 1].isspace() or text[at].isspace())
    return next(edges, between[0] if between else places[0])
