"""Cuts a text into passages that fit a model's window: between paragraphs, else sentences, else words. Each passage
begins with the end of the one before, as context.

Every step reads each character a bounded number of times: a text without spaces takes no longer than another.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from toolscript.domain.documents import Passage

# About 256 tokens of English, minus a title.
PASSAGE_SIZE = 1_000
OVERLAP = 150

Measure = Callable[[str], int]

# The quality of a place to cut, worst first.
INSIDE_A_WORD, WORD, SENTENCE, PARAGRAPH = range(4)

_CLOSERS = "\"'”’»)]}*_"
_SENTENCE_ENDS = ".!?…"
_LINE_ENDS = "\n\r\v\f\x85\u2028\u2029"
_PARAGRAPH_ENDS = frozenset("\f\u2029")
_BREAK = re.compile(rf"[{_LINE_ENDS}]\s*|(?<=[{_SENTENCE_ENDS}{re.escape(_CLOSERS)}])\s+|[。！？]+")
_SPACE = re.compile(r"\s+")
JOINER = "\u200d"
_MAX_CLOSERS = 3
_MAX_CLUSTER = 32


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a text that is never cut, its weight by the measure, and the quality of its end as a place to cut."""

    start: int
    end: int
    weight: int
    ending: int


def passages(text: str, *, size: int = PASSAGE_SIZE, overlap: int = OVERLAP, measure: Measure = len) -> list[Passage]:
    """The passages of a text, in order: together all of it, each at most `size` by the measure, each repeating at most
    `overlap` (at most half of `size`) of the one before. A text that fits is one passage. The measure of a text must
    not exceed the sum of its parts'."""
    if measure(text) <= size:
        return [Passage(0, 0, len(text))]
    pieces = list(stretches(text, overlap, measure))
    passages: list[Passage] = []
    first = 0
    while True:
        end = _end_of_passage(pieces, first, size)
        passages.append(Passage(len(passages), pieces[first].start, pieces[end - 1].end))
        if end == len(pieces):
            return passages
        first = max(end - 1, first + 1)


def _end_of_passage(pieces: Sequence[Stretch], first: int, size: int) -> int:
    """The end of a passage: as many pieces as fit, or fewer where that ends at a better place to cut."""
    weight, end, best = 0, first, first + 1
    while end < len(pieces) and (end == first or weight + pieces[end].weight <= size):
        weight += pieces[end].weight
        end += 1
        is_long_enough = 2 * weight >= size and end > first + 1
        if is_long_enough and (best == first + 1 or pieces[end - 1].ending >= pieces[best - 1].ending):
            best = end
    return end if end == len(pieces) else best


def stretches(text: str, maximum: int, measure: Measure) -> Iterator[Stretch]:
    """The sentences of a text; sentences that weigh more than `maximum` are split between words."""
    start = 0
    for end, ending in _sentence_ends(text):
        weight = measure(text[start:end])
        if weight <= maximum:
            yield Stretch(start, end, weight, ending)
        else:
            yield from _some_words(text, start, end, ending, maximum, measure)
        start = end


def _some_words(text: str, start: int, end: int, ending: int, maximum: int, measure: Measure) -> Iterator[Stretch]:
    pending, weight = start, 0
    for cut in _word_ends(text, start, end):
        more = measure(text[start:cut])
        if pending < start and weight + more > maximum:
            yield Stretch(pending, start, weight, WORD)
            pending, weight = start, 0
        if more > maximum:
            yield from _some_characters(text, start, cut, ending if cut == end else WORD, maximum, measure)
            pending, weight = cut, 0
        else:
            weight += more
        start = cut
    if pending < start:
        yield Stretch(pending, start, weight, ending)


def _some_characters(text: str, start: int, end: int, ending: int, maximum: int, measure: Measure) -> Iterator[Stretch]:
    """Splits a word that is too long between characters. One character may weigh more than `maximum`."""
    while start < end:
        length = min(maximum, end - start)
        cut = _whole_characters(text, start, start + length) if start + length < end else end
        while (weight := measure(text[start:cut])) > maximum and cut - start > 1:
            cut = _whole_characters(text, start, start + (cut - start) // 2)
        yield Stretch(start, cut, weight, ending if cut == end else INSIDE_A_WORD)
        start = cut


def _sentence_ends(text: str) -> Iterator[tuple[int, int]]:
    """The ends of sentences and paragraphs, and their kind; the last is the end of the text."""
    for match in _BREAK.finditer(text):
        ending = _kind_of_break(text, match)
        if ending > WORD and match.end() < len(text) and may_cut(text, match.end()):
            yield match.end(), ending
    yield len(text), PARAGRAPH


def _word_ends(text: str, start: int, end: int) -> Iterator[int]:
    for match in _SPACE.finditer(text, start, end):
        if match.end() < end and may_cut(text, match.end()):
            yield match.end()
    yield end


def _kind_of_break(text: str, match: re.Match[str]) -> int:
    broken = match[0]
    lines = max(broken.count("\n"), broken.count("\r"))
    if lines > 1 or not _PARAGRAPH_ENDS.isdisjoint(broken):
        return PARAGRAPH
    if broken[0] in _LINE_ENDS or not broken[0].isspace():
        return SENTENCE
    before = match.start() - 1
    while before > 0 and match.start() - before <= _MAX_CLOSERS and text[before] in _CLOSERS:
        before -= 1
    return SENTENCE if lines or text[before] in _SENTENCE_ENDS else WORD


def _whole_characters(text: str, start: int, cut: int) -> int:
    """The last place up to `cut` where a text may be cut; `cut` itself if there is none near it."""
    place = cut
    while place > start + 1 and cut - place < _MAX_CLUSTER and not may_cut(text, place):
        place -= 1
    return cut if place <= start or not may_cut(text, place) else place


def may_cut(text: str, place: int) -> bool:
    """Whether a text may be cut at a place: not between the parts of what a reader sees as one character."""
    if place <= 0 or place >= len(text):
        return True
    before, after = text[place - 1], text[place]
    if before.isascii() and after.isascii():
        return not (before == "\r" and after == "\n")
    return not (
        is_mark(after)
        or JOINER in {before, after}
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= after <= "\U000e007f"  # the letters of a regional flag
        or "\u1160" <= after <= "\u11ff"  # vowels and final consonants of Korean syllables
        or ("\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff")  # the halves of a flag
    )


def is_mark(character: str) -> bool:
    """Whether this is a combining mark."""
    return unicodedata.category(character)[0] == "M"
