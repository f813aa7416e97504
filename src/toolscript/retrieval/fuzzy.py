"""Finding things by a name that is given exactly, partly or with a typo."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from rapidfuzz import fuzz, process

from toolscript.retrieval.words import words

# Below this ratio two names are different names, not the same one mistyped.
LEAST_RATIO = 0.7
KEPT = 20

_IDENTIFIER = re.compile(r"[^\s`'\"(),;!?]+")
_JOINED = re.compile(r"[^\W_][_\-./:]+[^\W_]|[a-z0-9][A-Z]")


@dataclass(frozen=True, slots=True)
class NameMatches:
    """Ids whose name or id is in the query as it stands, and how close the names of others come (0 to 1)."""

    exact: frozenset[str]
    close: Mapping[str, float]


class Names:
    """The names and ids of a catalogue, ready to be matched."""

    def __init__(self, named: Iterable[tuple[str, str]]) -> None:
        """Takes pairs of id and name."""
        self._ids: list[str] = []
        self._keys: list[str] = []
        self._by_key: dict[str, set[str]] = {}
        for item_id, name in named:
            for key in {_key(name), _key(item_id)} - {""}:
                self._ids.append(item_id)
                self._keys.append(key)
                self._by_key.setdefault(key, set()).add(item_id)
        # A text longer than this is no mistyped name: too much of it would have to go.
        self._longest = max(map(len, self._keys), default=0) * (2 - LEAST_RATIO) / LEAST_RATIO

    def match(self, query: str) -> NameMatches:
        """The whole query as a name, and each part of it that is written like an identifier."""
        asked = {_key(query), *(_key(part) for part in _identifiers(query))} - {""}
        exact = frozenset(i for key in asked for i in self._by_key.get(key, ()))
        return NameMatches(exact, self._close(sorted(key for key in asked if len(key) <= self._longest)))

    def _close(self, asked: list[str]) -> dict[str, float]:
        if not asked or not self._keys:
            return {}
        ratios = process.cdist(
            asked, self._keys, scorer=fuzz.ratio, score_cutoff=LEAST_RATIO * 100, dtype=np.float32
        ).max(axis=0)
        best: dict[str, float] = {}
        for position in np.argsort(-ratios, kind="stable")[: KEPT * 2]:
            ratio = float(ratios[position]) / 100
            if ratio >= LEAST_RATIO:
                score = (ratio - LEAST_RATIO) / (1 - LEAST_RATIO)
                best[self._ids[position]] = max(best.get(self._ids[position], 0.0), score)
        return dict(list(best.items())[:KEPT])


def _key(text: str) -> str:
    return "".join(words(text))


def _identifiers(query: str) -> list[str]:
    return [part for part in _IDENTIFIER.findall(query) if _JOINED.search(part)]
