"""Corrects mistyped words of queries: neither a model nor an index of words knows what a `chnage` is. Only words that
neither the catalogue nor the general vocabulary has are changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import product

from rapidfuzz import process
from rapidfuzz.distance import OSA

from toolscript.retrieval.text.words import STOP_WORDS, stem, stem_all

# The vocabulary of the packaged model is a list of the commonest words of English, most frequent first.
VOCABULARY = "data/models/all-MiniLM-L6-v2/tokenizer.json"
NEVER = 1_000
# The minimum length of a word to be corrected, by the kind of typo: if the catalogue has the right word, and if only
# the general vocabulary has it. Chosen so that queries without typos stay unchanged.
SWAPPED = (3, 5)
ONE_MORE_OR_LESS = (5, 6)
REPLACED = (6, NEVER)
# The minimum length of the parts of a compound word: `forcast` is not made of `for` and `cast`.
MIN_PART = 4
# A text of more words than this, most of them unknown, is in another language.
FEW = 4
# Words beside a typo are corrected together with it to the words of a name, if they are so long: `reed a fil`.
MIN_BESIDE_TYPO = 3
NAME_WORDS = range(2, 5)

# A known word with one of these prefixes or suffixes is spelt correctly, although no list has it.
_PREFIXES = ("re", "un", "pre", "de", "in", "non", "dis", "over", "under", "mis", "sub", "multi", "auto", "micro")
_ENDINGS = """
able age al ally ance ed er ery est ful ible ic ical ier iest ing ious ise ish ity ize less like ly ment ness or ous
ward y
"""
_SUFFIXES = frozenset(_ENDINGS.split())
# A word that is not part of an address, a path, a file name or an identifier.
_TOKEN = re.compile(r"(?<![\w@#./\\:-])[^\W\d_]+(?![\w@/\\]|[.:-]\w)")


class Spelling:
    """The spelling of the words of one catalogue."""

    def __init__(self, counts: Mapping[str, int], names: Iterable[Sequence[str]] = ()) -> None:
        """Takes the catalogue's words, the number of tools that have each, and the words of the tools' names."""
        self._counts = counts
        self._names = frozenset(tuple(name) for name in names if len(name) in NAME_WORDS)
        self._name_words = sorted({word for name in self._names for word in name})
        self._stems = stem_all(counts)
        self._starting = _by_first_letter(w for w in counts if w.isalpha())

    def is_own(self, word: str) -> bool:
        """Whether the catalogue has a folded word, in this or another form."""
        return word in self._counts or stem(word) in self._stems

    def knows(self, word: str) -> bool:
        """Whether the catalogue or the general vocabulary has a folded word."""
        general = _general()
        spelt = not word.isalpha() or word in STOP_WORDS or self.is_own(word)
        return spelt or word in general.ranks or stem(word) in general.stems

    def correct(self, text: str) -> str:
        """The text with each mistyped word replaced by the nearest known one. Names (capitals inside a sentence),
        identifiers and texts in another language stay unchanged."""
        tokens = [t for t in _TOKEN.findall(text) if t.isascii()]
        unknown = [t for t in tokens if not self.knows(t.casefold())]
        if not unknown or not _general().ranks or (len(tokens) > FEW and 2 * len(unknown) > len(tokens)):
            return text
        typos = [t for t in unknown if t.islower() or (t == tokens[0] and t[1:].islower())]
        nearest = {t: self._nearest(t.casefold()) for t in typos}
        replaced = {typo: word for typo, word in nearest.items() if word}
        replaced |= self._find_mistyped_names([t.casefold() for t in tokens if t.islower()], set(typos))
        return _TOKEN.sub(lambda m: replaced.get(m[0], m[0]), text)

    def _find_mistyped_names(self, tokens: Sequence[str], typos: Iterable[str]) -> dict[str, str]:
        """The words to replace so that consecutive words with a typo among them are the words of a name. An existing
        word that the catalogue does not have may be replaced, too: of `reed a fil`, `reed`."""
        informative = [t for t in tokens if t not in STOP_WORDS]
        for length in reversed(NAME_WORDS):
            for start in range(len(informative) - length + 1):
                part = informative[start : start + length]
                if self._name_words and not set(typos).isdisjoint(part):
                    choices = [self._find_near_name_words(word) for word in part]
                    known = next((name for name in product(*choices) if name in self._names), None)
                    if known:
                        return {word: right for word, right in zip(part, known, strict=True) if word != right}
        return {}

    def _find_near_name_words(self, word: str) -> list[str]:
        if self.is_own(word) or len(word) < MIN_BESIDE_TYPO:
            return [word]
        near = process.extract(word, self._name_words, scorer=OSA.distance, score_cutoff=1, limit=None)
        return sorted((w for w, _, _ in near if w[0] == word[0]), key=self._preference)

    def _is_made_of_known(self, word: str) -> bool:
        for form in (word, stem(word)):
            if any(form.startswith(p) and self._is_part(form[len(p) :]) for p in _PREFIXES):
                return True
            for at in range(MIN_PART, len(form)):
                if self._is_part(form[:at]) and (form[at:] in _SUFFIXES or self._is_part(form[at:])):
                    return True
        return False

    def _is_part(self, part: str) -> bool:
        """Whether a part is long enough and known, perhaps with a dropped `e`."""
        return len(part) >= MIN_PART and (self._is_listed(part) or self._is_listed(part + "e"))

    def _is_listed(self, word: str) -> bool:
        return word in self._counts or word in _general().ranks

    def _nearest(self, word: str) -> str | None:
        """The nearest known word. A word made of known words is only corrected to a word of the catalogue."""
        general: Mapping[str, int] = {} if self._is_made_of_known(word) else _general().ranks

        def may_be_meant(other: str, minimum: tuple[int, int]) -> bool:
            return len(word) >= (minimum[0] if other in self._counts else minimum[1] if other in general else NEVER)

        swapped = (word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(len(word) - 1))
        meant = [w for w in swapped if may_be_meant(w, SWAPPED)]
        if not meant and len(word) >= min(ONE_MORE_OR_LESS):
            known = [*self._starting.get(word[0], ()), *_general().starting.get(word[0], ())]
            near = process.extract(word, known, scorer=OSA.distance, score_cutoff=1, limit=None)
            meant = [w for w, _, _ in near if may_be_meant(w, REPLACED if len(w) == len(word) else ONE_MORE_OR_LESS)]
        return min(meant, key=self._preference) if meant else None

    def _preference(self, word: str) -> tuple[int, int, str]:
        """The sort key: words of the catalogue, the most frequent first; then the most common other words."""
        return -self._counts.get(word, 0), _general().ranks.get(word, len(_general().ranks)), word


def is_english(word: str) -> bool:
    """Whether the general vocabulary has a folded word, in this or another form; of every word where the package came
    without a model."""
    general = _general()
    return not general.ranks or word in STOP_WORDS or word in general.ranks or stem(word) in general.stems


@dataclass(frozen=True, slots=True)
class _General:
    ranks: Mapping[str, int]
    stems: frozenset[str]
    starting: Mapping[str, list[str]]


@cache
def _general() -> _General:
    """The general vocabulary; empty where the package came without a model."""
    file = resources.files("toolscript").joinpath(VOCABULARY)
    vocabulary = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"] if file.is_file() else {}
    ranks = {w: rank for w, rank in vocabulary.items() if len(w) > 1 and w.isascii() and w.isalpha()}
    return _General(ranks, stem_all(ranks), _by_first_letter(ranks))


def _by_first_letter(known: Iterable[str]) -> dict[str, list[str]]:
    starting: dict[str, list[str]] = {}
    for word in known:
        if len(word) >= min(ONE_MORE_OR_LESS) - 1:
            starting.setdefault(word[0], []).append(word)
    return starting
