"""Cuts a request into its needs: agents send whole tasks, and one vector of many sentences is near to no tool."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolscript.retrieval.text.clauses import split_clauses
from toolscript.retrieval.text.words import STOP_WORDS, words

# Shorter requests are cut where verbs have objects of their own. Longer ones are cut at the ends of sentences, too, and
# long sentences at all clauses.
MIN_CHARACTERS = 250
MAX_SENTENCE_CHARACTERS = 90
# A part with fewer words of its own belongs to the part before it.
MIN_WORDS = 3
# Every need is embedded, so a text of more parts has several of them in one need.
MAX_NEEDS = 12

_Span = tuple[int, int]

_SENTENCES = re.compile(r"(?<=[.!?;:])\s+|(?<=[。！？；])|\s*\n+\s*(?:[-*•]\s+|\d+[.)]\s+)?")
_CLAUSES = re.compile(r",?(?:\s+(?:and|then|after\s+that|afterwards|finally|but|so\s+that))+\s+|,\s+", re.IGNORECASE)


def split_needs(text: str) -> list[str]:
    """The needs of a request, in their order; none for a request that has only one."""
    if len(text) < MIN_CHARACTERS:
        parts = split_clauses(text)
    else:
        sentences = _cut(text, _SENTENCES, 0, len(text))
        parts = _join_short(text, [part for sentence in sentences for part in _cut_sentence(text, *sentence)])
    size = -(-len(parts) // MAX_NEEDS)
    needs = [parts[at : at + size] for at in range(0, len(parts), size or 1)]
    return [text[need[0][0] : need[-1][1]] for need in needs] if len(needs) > 1 else []


def _cut_sentence(text: str, start: int, end: int) -> list[_Span]:
    if end - start <= MAX_SENTENCE_CHARACTERS:
        return [(start, end)]
    return _join_short(text, _cut(text, _CLAUSES, start, end))


def _cut(text: str, separator: re.Pattern[str], start: int, end: int) -> list[_Span]:
    """The parts of a text between separators."""
    separators = [match.span() for match in separator.finditer(text, start, end)]
    starts, ends = [start, *(after for _, after in separators)], [*(before for before, _ in separators), end]
    return [span for span in zip(starts, ends, strict=True) if text[slice(*span)].strip()]


def _join_short(text: str, parts: Sequence[_Span]) -> list[_Span]:
    """The parts, each with the following parts that are too short to stand alone."""
    joined: list[_Span] = []
    for part in parts:
        if joined and (_is_short(text, part) or _is_short(text, joined[-1])):
            joined[-1] = joined[-1][0], part[1]
        else:
            joined.append(part)
    return joined


def _is_short(text: str, part: _Span) -> bool:
    return sum(word not in STOP_WORDS for word in words(text[slice(*part)])) < MIN_WORDS
