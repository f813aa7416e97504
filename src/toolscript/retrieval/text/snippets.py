"""The stretch of a document that shows why it was found: verbatim, whole words, as many of the query's as fit.

The text is read once, in units of what stands between spaces, and no more of it than was asked for: around the passage
that was found, or from the beginning. A unit that is too long (scripts without spaces, addresses) is cut between words,
and a word that is too long between characters, never between a character and the marks that belong to it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from toolscript.retrieval.text.words import stem, words

MARK = "**"
MARKS = 2 * len(MARK)
# Units up to this length stay whole, where a snippet has room for them.
LONG = 40
# Pieces of a word that is too long to stay whole.
PIECE = 16
# Units whose words are remembered while a text is read.
MAX_CACHED = 50_000
# A text with fewer bytes for each character is English or something like it.
PLAIN = 1.2
# How far a space is looked for, where a part of a text is to begin and end.
NEXT_SPACE = 200
# What stands before the words that were found, as a share of the room that is left.
LEAD = 3


_UNIT = re.compile(r"\S+")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_SHORT_IE = re.compile(".ie")
_JOINER = "\u200d"

# Behind the first letter of a word: before it is neither letter nor digit, or it is inside of `readFile`.
_WORD_START = "(?:(?<![A-Za-z0-9].)|(?<=[a-z0-9][A-Z])|(?<=[A-Z][A-Z])(?=[a-z]))"
# Beyond ASCII, all but the punctuation and the signs that plain texts have.
_FOLDED = r"[^\x00-\xbf\u2000-\u206f\u3000-\u303f]"

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Found:
    """A unit with words of the query: where it is, which of them, and how many characters it takes in a snippet."""

    start: int
    end: int
    stems: frozenset[str]
    marks: int


def build_snippet(
    text: str,
    stems: Collection[str],
    max_characters: int,
    *,
    near: Span | None,
    highlight: bool,
    max_read: int | None = None,
) -> str:
    """At most that many characters of the text, around as many different words with these stems as fit together.

    Among windows with equally many, one in `near` (the passage that was found) is preferred, then the first. A text
    without any of the words tells the beginning of `near`, or its own where there is nothing. With `highlight` words
    that match stand between `**`, and the marks count as characters. Of a text longer than `most_read` that many
    characters are read.
    """
    if max_read is not None and len(text) > max_read:
        begin, end = _part(text, near, max_read)
        near = (max(begin, near[0]) - begin, min(end, near[1]) - begin) if near else None
        text = text[begin:end]
    near = near if near and text[near[0] : near[1]].strip() else None
    reader = _Reader(text, frozenset(stems), max_characters, highlight=highlight)
    core = reader.best_window(near) if stems else None
    start, end = reader.grown(*core) if core else reader.beginning(near[0] if near else 0)
    if not highlight:
        return text[start:end]
    marked = reader.mark(start, end)
    return marked if len(marked) <= max_characters else text[start:end]


class _Reader:
    """One text and what is looked for in it."""

    def __init__(self, text: str, stems: frozenset[str], maximum: int, *, highlight: bool) -> None:
        self._text = text
        self._stems = stems
        self._maximum = maximum
        self._mark = MARKS if highlight else 0
        self._max_length = min(maximum, max(LONG, maximum // 2))
        self._is_ascii = text.isascii()
        self._known: dict[str, tuple[frozenset[str], int]] = {}

    def best_window(self, near: Span | None) -> Span | None:
        """The units from the first to the last word of the best window, if the text has any of the words."""
        inside = self._best(near, near) if near else None
        if inside and inside[0] == len(self._stems):
            return inside[1]
        anywhere = self._best((0, len(self._text)), near)
        return anywhere[1] if anywhere else None

    def beginning(self, start: int) -> Span:
        """The first units from there that fit."""
        first: int | None = None
        last = start
        for begin, end in self._units(start, len(self._text)):
            if end - (begin if first is None else first) > self._maximum:
                if first is None:
                    continue
                break
            first = begin if first is None else first
            last = end
        return (last, last) if first is None else (first, last)

    def grown(self, start: int, end: int) -> Span:
        """The window with what else fits around it: some of it before, most of it behind."""
        left = self._maximum - (end - start) - self._cost(start, end)
        reach = self._maximum + self._max_length + 1
        before = [unit for unit in self._units(max(0, start - reach), start) if unit[1] <= start]
        behind = deque(self._units(end, end + reach))
        lead = left - left // LEAD
        while before and (room := left - (start - before[-1][0]) - self._cost(before[-1][0], start)) >= lead:
            start, left = before.pop()[0], room
        while behind and (room := left - (behind[0][1] - end) - self._cost(end, behind[0][1])) >= 0:
            end, left = behind.popleft()[1], room
        while before and (room := left - (start - before[-1][0]) - self._cost(before[-1][0], start)) >= 0:
            start, left = before.pop()[0], room
        return start, end

    def mark(self, start: int, end: int) -> str:
        """The stretch with marks around the words that match."""
        parts, done = [], start
        for unit in _UNIT.finditer(self._text, start, end):
            for begin, stop in self._matching(unit[0]):
                parts += [self._text[done : unit.start() + begin], MARK, unit[0][begin:stop], MARK]
                done = unit.start() + stop
        return "".join([*parts, self._text[done:end]])

    def _best(self, within: Span, near: Span | None) -> tuple[int, Span] | None:
        """The window with the most different words, and how many; it ends the reading once it has all of them."""
        window: deque[_Found] = deque()
        counts: Counter[str] = Counter()
        taken = 0
        best: tuple[int, bool, Span] | None = None
        for found in self._find(within):
            window.append(found)
            counts.update(found.stems)
            taken += found.marks
            while len(window) > 1 and found.end - window[0].start + taken > self._maximum:
                gone = window.popleft()
                taken -= gone.marks
                for each in gone.stems:
                    counts[each] -= 1
                    if not counts[each]:
                        del counts[each]
            is_near = near is None or near[0] <= window[0].start < near[1]
            if best is None or (len(counts), is_near) > best[:2]:
                best = len(counts), is_near, (window[0].start, found.end)
                if is_near and len(counts) == len(self._stems):
                    break
        return (best[0], best[2]) if best else None

    def _find(self, within: Span) -> Iterator[_Found]:
        """The units that have words of the query."""
        for start, end in self._worth_a_look(*within) if _is_mostly_plain(self._text) else self._units(*within):
            matched, count = self._meaning(self._text[start:end])
            if matched and end - start <= self._maximum:
                yield _Found(start, end, matched, count * self._mark)

    def _worth_a_look(self, place: int, stop: int) -> Iterator[Span]:
        """The units where a word of the query may begin."""
        for begin in self._beginnings_in(place, stop):
            if begin >= place:
                for start, end in self._units_at(begin):
                    place = max(place, end)
                    yield start, end

    def _beginnings_in(self, place: int, stop: int) -> Iterable[int]:
        """Where a word of the query may begin, in order. In a text of ASCII each word is looked for by itself, which is
        many times as fast as looking for all of them."""
        if not self._is_ascii:
            return (hit.start() for hit in _beginnings(self._stems).finditer(self._text, place, stop))
        small, found = self._text.lower(), []
        for prefix in _prefixes(self._stems):
            at = small.find(prefix, place, stop)
            while at >= 0:
                if at == 0 or not small[at - 1].isalnum() or _begins_inside(self._text, at):
                    found.append(at)
                at = small.find(prefix, at + 1, stop)
        return sorted(found)

    def _units_at(self, place: int) -> Iterable[Span]:
        """The units that are there: in plain texts one, but where it is too long."""
        if self._is_ascii:
            begin = self._snap(place)
            unit = _UNIT.match(self._text, begin)
            if unit and unit.end() - begin <= self._max_length and (begin == 0 or self._text[begin - 1].isspace()):
                return (unit.span(),)
        return self._units(place, place + 1)

    def _meaning(self, unit: str) -> tuple[frozenset[str], int]:
        """Which of the words a unit has, and how many of its own words those are."""
        known = self._known.get(unit)
        if known is None:
            spans = self._matching(unit)
            matched = frozenset(s for begin, end in spans for s in _stems_of(unit[begin:end])) & self._stems
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
            known = self._known[unit] = matched, len(spans)
        return known

    def _matching(self, unit: str) -> list[Span]:
        return [
            (begin, end) for begin, end in _words_in(unit) if any(s in self._stems for s in _stems_of(unit[begin:end]))
        ]

    def _cost(self, start: int, end: int) -> int:
        """The marks that a stretch takes."""
        if not self._mark:
            return 0
        return self._mark * sum(self._meaning(u[0])[1] for u in _UNIT.finditer(self._text, start, end))

    def _units(self, start: int, stop: int) -> Iterator[Span]:
        """What stands between spaces, cut where it is too long: every unit that begins from `start` to before `stop`.
        A mark that stands on a space belongs to what is before it."""
        if self._is_ascii and stop - start <= 4 * self._maximum:  # soon done, as there are no marks
            spans = [u.span() for u in _UNIT.finditer(self._text, self._snap(start), stop + self._max_length)]
            if all(end - begin <= self._max_length for begin, end in spans):
                yield from (span for span in spans if span[0] < stop)
                return
        begun: Span | None = None
        for begin, end in self._between_spaces(start, stop + 2 * self._max_length):
            if begun and not may_cut(self._text, begin):
                begun = begun[0], end
                continue
            if begun:
                yield begun
            if begin >= stop:
                return
            begun = begin, end
        if begun:
            yield begun

    def _between_spaces(self, start: int, stop: int) -> Iterator[Span]:
        for unit in _UNIT.finditer(self._text, self._snap(start), stop):
            if unit.end() - unit.start() <= self._max_length:
                yield unit.span()
            else:
                yield from self._pieces(unit.start(), unit[0])

    def _snap(self, start: int) -> int:
        """The start of the unit that is there; within one that is too long, that of the word; within a word that is
        too long, the next place where it may be cut."""
        begin, earliest = start, max(0, start - self._max_length)
        while begin > earliest and not self._text[begin - 1].isspace():
            begin -= 1
        if begin == 0 or self._text[begin - 1].isspace():
            return begin
        word = start
        while word > earliest and _is_of_word(self._text[word - 1]):
            word -= 1
        if word > earliest and may_cut(self._text, word):
            return word
        ahead = range(start, min(len(self._text), start + self._max_length))
        return next((at for at in ahead if may_cut(self._text, at)), start)

    def _pieces(self, start: int, unit: str) -> Iterator[Span]:
        """A long unit in parts: each a word with what follows it, or a piece of a word that is itself too long."""
        done = 0
        for cut in chain((begin for begin, _ in _words_in(unit) if begin), [len(unit)]):
            while cut - done > self._max_length:
                piece = done + PIECE
                while piece < cut and not may_cut(unit, piece):
                    piece += 1
                yield start + done, start + piece
                done = piece
            if done < cut:
                yield start + done, start + cut
            done = cut


def _part(text: str, near: Span | None, maximum: int) -> Span:
    """That much of a text, with the passage in its middle, or else the beginning; between words where there are spaces,
    between characters where there are none."""
    middle = (near[0] + min(near[1], near[0] + maximum)) // 2 if near else 0
    start = max(0, min(middle - maximum // 2, len(text) - maximum))
    ahead = range(start, start + min(NEXT_SPACE, maximum // 2))
    end = start + maximum
    back = range(end, end - min(NEXT_SPACE, maximum // 2), -1)
    return _cut_in(text, ahead), _cut_in(text, back)


def _cut_in(text: str, places: range) -> int:
    """The first of the places that is between words; where there is none, the first between characters."""
    between = [at for at in places if may_cut(text, at)]
    edges = (at for at in between if at in {0, len(text)} or text[at - 1].isspace() or text[at].isspace())
    return next(edges, between[0] if between else places[0])


def may_cut(text: str, at: int) -> bool:
    """Whether what is before belongs to another character, in a reader's sense, than what comes after."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if after.isascii():
        return not (before == "\r" and after == "\n")
    if _is_mark(after) or _JOINER in {before, after}:
        return False
    both_flags = "\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff"
    return not (both_flags or "\U0001f3fb" <= after <= "\U0001f3ff" or "\u1160" <= after <= "\u11ff")


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == _JOINER or _is_mark(character)


def _words_in(unit: str) -> Iterator[Span]:
    """Where the words of a unit are: letters and digits with the marks on them."""
    if unit.isascii():
        yield from (found.span() for found in _ASCII_WORD.finditer(unit))
        return
    begun: int | None = None
    for place, character in enumerate(unit):
        if character.isalnum():
            begun = place if begun is None else begun
        elif begun is not None and not _is_of_word(character):
            yield begun, place
            begun = None
    if begun is not None:
        yield begun, len(unit)


def _is_mostly_plain(text: str) -> bool:
    """Whether looking for what may be a word's beginning would not stop at every word."""
    return text.isascii() or len(text.encode("utf-8", "surrogatepass")) < PLAIN * len(text)


def _prefixes(stems: Collection[str]) -> tuple[str, ...]:
    """What a word with one of the stems begins with: all of it but the last letter, which is what stemming changes. Of
    two letters it changes none, and of short words in -ying (dying, vying) all but the first."""
    return tuple(sorted({s[: 1 if _SHORT_IE.fullmatch(s) else max(2, len(s) - 1)] for s in stems if s}))


@lru_cache(maxsize=128)
def _beginnings(stems: frozenset[str]) -> re.Pattern[str]:
    """Where a word with one of the stems may begin, or one with a letter that folding may change. First letters in both
    cases come first, and what stands before them after that: an engine of patterns looks for the former a hundred times
    as fast. Which rests go with which of them is looked at last."""
    rests: dict[str, list[str]] = {}
    for prefix in _prefixes(stems):
        rests.setdefault(f"[{re.escape(prefix[0] + prefix[0].upper())}]", []).append(re.escape(prefix[1:]))
    firsts = "".join(first[1:-1] for first in rests)
    with_rest = "|".join(f"(?<={first})(?i:{'|'.join(rest)})" for first, rest in rests.items())
    return re.compile(f"[{firsts}]{_WORD_START}(?:{with_rest})|{_FOLDED}" if rests else _FOLDED)


def _begins_inside(text: str, at: int) -> bool:
    """Whether a word begins there inside of one like `readFile` or `HTTPServer`."""
    if not text[at].isupper():
        return False
    before = text[at - 1]
    return before.islower() or before.isdigit() or (before.isupper() and text[at + 1 : at + 2].islower())


def _stems_of(word: str) -> list[str]:
    return [stem(w) for w in words(word)]
