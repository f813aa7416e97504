"""Finds items by a name that is given exactly, partly or with a typo."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import fuzz, process
from rapidfuzz.distance import OSA

from toolscript.retrieval.text.mentions import find_mentions
from toolscript.retrieval.text.words import STOP_WORDS, words

# Below this ratio two names are different names, not the same one mistyped.
MIN_RATIO = 0.7
# One typo is allowed per this many letters of a name.
LETTERS_PER_TYPO = 8
KEPT = 20
# A query of more words than this is not a mistyped name.
MAX_WORDS = 8
# The similarity of a name written in another way (readFile for read_file); an identical name has 1.
REWRITTEN = 0.99

_IDENTIFIER = re.compile(r"[^\s`'\"(),;!?]+")
_JOINED = re.compile(r"[^\W_][_\-./:]+[^\W_]|[a-z0-9][A-Z]")
_LETTERS = 32  # rows in which the letters of a name are counted; two letters may share one
MAX_CHARACTERS = 120  # no name is longer, and more of one letter would not fit the count


@dataclass(frozen=True, slots=True)
class NameMatches:
    """The ids of tools with a name or id that the query contains, and the similarity of names to the query (0 to 1), by
    id."""

    exact: frozenset[str]
    close: Mapping[str, float]

    def select(self, ids: frozenset[str]) -> NameMatches:
        """The matches with these ids."""
        return NameMatches(self.exact & ids, {i: likeness for i, likeness in self.close.items() if i in ids})


class Names:
    """The names and ids of a catalogue."""

    def __init__(self, named: Iterable[tuple[str, str]], is_rare: Callable[[str], bool] = lambda _: False) -> None:
        """Takes pairs of id and name. A word that `is_rare` means the tool of that name wherever it stands."""
        self._is_rare = is_rare
        self._as_given: dict[str, list[str]] = {}
        self._by_key: dict[str, list[str]] = {}
        for item_id, name in named:
            for given in {name, item_id}:
                self._as_given.setdefault(given, []).append(item_id)
            for key in {_build_key(name), _build_key(item_id)} - {""}:
                self._by_key.setdefault(key, []).append(item_id)
        self._keys = sorted(self._by_key, key=len)
        self._letters = _letters(self._keys)
        self._lengths = np.array([len(key) for key in self._keys])

    def match(self, query: str, *, mistyped: bool = False, corrected: str = "") -> NameMatches:
        """Matches the whole query as a name, each part of it that is written like an identifier, and exactly each that
        the sentence mentions as a name.

        Where a word of the query is `mistyped`, a name that differs in few letters is nearly as good as the exact name;
        otherwise it is another name: `get_user` is not `set_user`. So is the name that the words of the `corrected`
        query are, stop words left out: `reed a fil`.
        """
        parts = [query.strip(), *(part for part in _IDENTIFIER.findall(query) if _JOINED.search(part))]
        keys = {_build_key(part) for part in parts} - {""}
        parts += find_mentions(query, _build_key, self._by_key, self._is_rare)
        exact = frozenset(i for key in map(_build_key, parts) for i in self._by_key.get(key, ()))
        if len(query.split()) > MAX_WORDS:
            keys.discard(_build_key(query))
        as_given = {i for part in parts for i in self._as_given.get(part, ())}
        close = {i: 1.0 if i in as_given else REWRITTEN for i in exact}
        near = self._close(sorted(keys), mistyped)
        if corrected and corrected != query:
            near += self._match_corrected(query, corrected)
        for key, likeness in near:
            for i in self._by_key[key]:
                close[i] = max(close.get(i, 0.0), likeness)
        return NameMatches(exact, dict(sorted(close.items(), key=lambda pair: -pair[1])[: max(KEPT, len(exact))]))

    def _close(self, keys: Sequence[str], mistyped: bool) -> list[tuple[str, float]]:
        """The catalogue's keys that are similar to any of these, and how similar they are."""
        found: list[tuple[str, float]] = []
        for key in keys:
            near = self._may_be_near(key)
            if near:
                ratios = process.cdist([key], near, scorer=fuzz.ratio, score_cutoff=MIN_RATIO * 100)[0]
                best = np.argsort(-ratios, kind="stable")[: 2 * KEPT]  # of one tool both name and id may be near
                found += [
                    (near[n], _likeness(key, near[n], float(ratios[n]) / 100, mistyped)) for n in best if ratios[n]
                ]
        return found

    def _match_corrected(self, query: str, corrected: str) -> list[tuple[str, float]]:
        key = _build_key(" ".join(word for word in words(corrected) if word not in STOP_WORDS))
        ratio = fuzz.ratio(_build_key(query), key) / 100
        return [(key, REWRITTEN - (1 - ratio) / 4)] if key in self._by_key else []

    def _may_be_near(self, key: str) -> list[str]:
        """The keys with a ratio that may reach the minimum, by length and by counts of letters: a letter that only one
        of two texts has is at least one edit. Three times faster than computing every ratio."""
        max_length = len(key) * (2 - MIN_RATIO) / MIN_RATIO
        min_length = len(key) * MIN_RATIO / (2 - MIN_RATIO)
        low, high = np.searchsorted(self._lengths, [min_length, max_length + 1])
        distances = np.abs(self._letters[:, low:high] - _letters([key])).sum(axis=0, dtype=np.int16)
        near = np.flatnonzero(distances <= (1 - MIN_RATIO) * (self._lengths[low:high] + len(key)))
        return [self._keys[low + n] for n in near]


def _likeness(query: str, name: str, ratio: float, mistyped: bool) -> float:
    """Nearly 1 if the two differ by typos only; else the ratio, scaled from its minimum."""
    typos = max(1, len(name) // LETTERS_PER_TYPO)
    if mistyped and OSA.distance(query, name, score_cutoff=typos) <= typos:
        return REWRITTEN - (1 - ratio) / 4
    return min(REWRITTEN, (ratio - MIN_RATIO) / (1 - MIN_RATIO))


def _letters(keys: Sequence[str]) -> NDArray[np.int8]:
    """The counts of letters, with a column for each key."""
    letters = np.frombuffer("".join(keys).encode("utf-32-le"), dtype=np.uint32) % _LETTERS
    columns = np.repeat(np.arange(len(keys)), [len(key) for key in keys])
    counts = np.bincount(letters * len(keys) + columns, minlength=_LETTERS * len(keys))
    return counts.reshape(_LETTERS, len(keys)).astype(np.int8)


def _build_key(text: str) -> str:
    return "".join(words(text))[:MAX_CHARACTERS]
