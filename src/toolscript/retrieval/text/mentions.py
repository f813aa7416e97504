"""Finds the names that a sentence mentions: `use lrem please`, `the search tool`, names in quotes.

An ordinary word is taken for a name only where the sentence marks it as one: most requests to list something do not
mean a tool called `list`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from toolscript.retrieval.text.words import STOP_WORDS

MAX_NAME_WORDS = 8
# A name follows one of these words without an article ("call fetch", not "call the police") ...
_VERBS = frozenset(("use", "using", "call", "calling", "invoke", "invoking", "via"))
# ... and is followed by the end of a clause or one of these: "use search to find it", but "use search engines".
_FOLLOWING = frozenset("to for on in from with at by as please now again here instead".split())
_NOUNS = frozenset(("tool", "function", "command", "prompt"))
_NAMING = frozenset(("named", "called"))
# What stands in quotes after one of these is a value: a branch called `list`.
_BEFORE_VALUES = _NAMING | {"titled", "to", "as", "for", "with", "is"}
_QUOTES = {"`": "`", '"': '"', "'": "'", "“": "”", "‘": "’", "«": "»"}

_TOKEN = re.compile(r"[^\s`'\"“”‘’«»(),;!?]+")
_PLAIN_WORD = re.compile(r"[^\W_]+")


class _Token(NamedTuple):
    start: int
    end: int
    text: str
    """In lower case."""


def find_mentions(
    query: str, build_key: Callable[[str], str], names: Container[str], is_rare: Callable[[str], bool]
) -> Iterator[str]:
    """The parts of a query that mention a name. `names` has the keys of all names; the key of several words is that of
    each after the other. `is_rare` says whether a word of a sentence hardly means anything else."""
    tokens = list(_split(query))
    keys = [build_key(query[token.start : token.end]) for token in tokens]
    for first, token in enumerate(tokens):
        key = ""
        for last in range(first, min(first + MAX_NAME_WORDS, len(tokens))):
            if last > first and query[tokens[last - 1].end : tokens[last].start].strip():
                break
            key += keys[last]
            if key in names and _is_mention(query, tokens, first, last, is_rare):
                yield query[token.start : tokens[last].end]


def _split(query: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(query):
        text = match[0].rstrip(".:")
        if text:
            yield _Token(match.start(), match.start() + len(text), text.lower())


def _is_mention(query: str, tokens: list[_Token], first: int, last: int, is_rare: Callable[[str], bool]) -> bool:
    start, end = tokens[first].start, tokens[last].end
    before = tokens[first - 1].text if first else ""
    after = tokens[last + 1].text if last + 1 < len(tokens) else ""
    is_single = first == last
    is_known_by_itself = is_single and bool(_PLAIN_WORD.fullmatch(tokens[first].text)) and is_rare(tokens[first].text)
    quote = query[start - 1 : start]
    is_quoted = quote in _QUOTES and query[end : end + 1] == _QUOTES[quote] if quote else False
    ends_clause = not after or query[end:].lstrip("`'\"”’»")[:1] in tuple(".,;:!?)")
    if before in _VERBS and (ends_clause or after in _NOUNS or after in (_FOLLOWING if is_single else STOP_WORDS)):
        return True
    if before == "the" and after in _NOUNS:
        return True
    if before in _NAMING and first > 1 and tokens[first - 2].text in _NOUNS:
        return True
    if is_quoted and before not in _BEFORE_VALUES:
        return quote == "`" or not is_single or is_known_by_itself or after in _NOUNS
    return is_known_by_itself
