"""Scores how well items fit skills, by similarity and by words, for the classifier without a language model. Chosen by
measurement: docs/decisions/0011."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolscript.domain.catalog import Item, Skill
from toolscript.domain.search import SimilarityRange, Vector
from toolscript.retrieval.text.themes import GENERIC
from toolscript.retrieval.text.words import STOP_WORDS, stem, words

# The weight of the words beside the similarity.
WORDS = 1.7
NAME_WEIGHT = 2
# Some descriptions have pages; the rest of such a text is noise.
MAX_DESCRIPTION_CHARACTERS = 400
MAX_REPEATS = 3
SATURATION = 1.2
# The weight of a word that no skill has: that of a word of medium rarity.
UNKNOWN_WORD = 2.0
# The curve from evidence to confidence: a tool that just fits has 0.5 (one in thirty real tools has less).
STEEPNESS = 1.9

_GENERIC = frozenset(map(stem, GENERIC))

Matrix = NDArray[np.float32]


class _WordScores(NamedTuple):
    """What the words of an item say of each skill."""

    share: NDArray[np.float32]
    """The weighted share of the item's words that the skill has; rare words weigh more. Words of the server's name
    count as far as specific words do: the name of a server supports a skill, and does not decide."""
    specific: NDArray[np.float32]
    """The weight of the words in the item's own name and description that the skill has, without generic ones."""


class SkillMatcher:
    """The vectors and weighted words of skills."""

    def __init__(self, skills: Sequence[Skill], vectors: Sequence[Vector], similarity: SimilarityRange) -> None:
        self._vectors = np.stack(vectors) if vectors else np.zeros((0, 1), np.float32)
        self._similarity = similarity
        texts = [_words_of(skill) for skill in skills]
        frequencies = Counter(word for counts in texts for word in counts)
        rarity = {w: math.log(1 + (len(skills) - n + 0.5) / (n + 0.5)) for w, n in frequencies.items()}
        self._rarity: Mapping[str, float] = rarity
        self._weights: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, counts in enumerate(texts):
            for word, count in counts.items():
                weight = rarity[word] * count * (1 + SATURATION) / (count + SATURATION)
                self._weights[word].append((number, weight))

    def confidences(self, items: Sequence[Item], vectors: Sequence[Vector]) -> Matrix:
        """The confidence, from 0 to below 1, that each item (a row) belongs to each skill (a column)."""
        # One by one: in one matrix product, the last digits would depend on the number of items.
        cosines = np.stack([self._vectors @ vector for vector in vectors])
        near = (cosines - self._similarity.floor) / (self._similarity.ceiling - self._similarity.floor)
        evidence = near + WORDS * np.stack([self._score_words(item).share for item in items])
        return np.asarray(1 - np.exp(-STEEPNESS * np.maximum(evidence, 0.0)), dtype=np.float32)

    def find_wordless(self, items: Sequence[Item], confidences: Matrix) -> list[int]:
        """The numbers of the items without a word, generic words left out, that speaks for their best skill."""
        best = confidences.argmax(axis=1)
        return [n for n, item in enumerate(items) if not self._score_words(item).specific[best[n]]]

    def _score_words(self, item: Item) -> _WordScores:
        text_counts = _count_words(item.description[:MAX_DESCRIPTION_CHARACTERS]) + _count_words(item.name, NAME_WEIGHT)
        share, specific, by_server = np.zeros((3, len(self._vectors)), np.float32)
        total = 0.0
        for word, count in (text_counts + _count_words(item.server)).items():
            times, text_times = min(count, MAX_REPEATS), min(text_counts[word], MAX_REPEATS)
            total += times * self._rarity.get(word, UNKNOWN_WORD)
            for number, weight in self._weights.get(word, ()):
                share[number] += text_times * weight
                by_server[number] += (times - text_times) * weight
                if word not in _GENERIC:
                    specific[number] += text_times * weight
        share += np.minimum(by_server, specific)
        return _WordScores(share / total if total else share, specific)


def _words_of(skill: Skill) -> Counter[str]:
    listed = _count_words(" ".join(skill.keywords), NAME_WEIGHT) + _count_words(" ".join(skill.examples))
    return listed + _count_words(skill.name, NAME_WEIGHT) + _count_words(skill.description)


def _count_words(text: str, weight: int = 1) -> Counter[str]:
    return Counter({w: n * weight for w, n in Counter(stem(w) for w in words(text) if w not in STOP_WORDS).items()})
