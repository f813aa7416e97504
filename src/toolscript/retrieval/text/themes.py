"""Names groups of items by their topics: words that many items of a group have and few others (class-based tf-idf).
Needs no language model."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise

from toolscript.domain.catalog import Item
from toolscript.retrieval.text.words import STOP_WORDS, stem, words

# Weights of the words of an item's name, server and description. Only the first words of a description count.
IN_NAME, IN_SERVER, IN_DESCRIPTION = 1.0, 0.5, 0.5
DESCRIBING_WORDS = 40
MIN_WORD, MAX_WORD = 3, 24
# A word in capitals of up to this length is an abbreviation.
MAX_ABBREVIATION = 5
# A heading has a second topic if its score is at least this share of the first one's.
WORTH_SAYING = 0.15
# Two words are one topic ("pull request") when at least this share of the items with either has both in a row.
ONE_TOPIC = 0.6
# The smoothing of a topic's frequency outside of the group.
UNSEEN = 0.5
# Names have nouns (`attachment`) where sentences have other forms ("attached"): their forms weigh more in headings.
NAMES_SPELL_BEST = 3
# How much more frequent than elsewhere a topic must be.
LIFTED = 1.5
# The exponent by which the items of a server with many items weigh less.
QUIETER = 0.25
# A topic occurs in at least two items, and in a large group in at least one of this many.
ONE_IN = 25

# Words of every category, such as what tools do in general, cannot name one.
_GENERIC = resources.files("toolscript").joinpath("data/generic_words.txt").read_text(encoding="utf-8")
GENERIC = frozenset(_GENERIC.split()) | STOP_WORDS

# Verb forms that are generic, although other forms of the word (container, presentation, notes) name things.
_VERBS = frozenset({"contain", "contained", "containing", "contains", "noted", "present", "presented", "presents"})
# Generic words that may be the second word of a topic: pull request, foreign key, search index.
_ENDINGS = frozenset({"call", "field", "flag", "index", "key", "request", "unit"})
_WORD = re.compile(r"[^\W_]+")
_IDENTIFIER = re.compile(r"[a-z]{3,}[A-Z][a-z]")
_STEMS = frozenset(map(stem, GENERIC))

Topic = tuple[str, ...]
"""One stem, or two in a row."""


@dataclass(frozen=True, slots=True)
class Theme:
    """The topics of a group of items, best first, and their scores."""

    topics: tuple[str, ...]
    scores: tuple[float, ...]

    def headings(self) -> Iterator[str]:
        """Names for the group, best first: "Calendar & Events", then with other topics."""
        first, others = self.topics[:1], self.topics[1:]
        if len(others) and self.scores[1] >= WORTH_SAYING * self.scores[0]:
            yield " & ".join(map(_capitalize, self.topics[:2]))
        yield from map(_capitalize, first)
        for other in others:
            yield " & ".join(map(_capitalize, (*first, other)))


def find_themes(groups: Sequence[Sequence[Item]], maximum: int = 8) -> list[Theme]:
    """The theme of each group, compared with the other groups."""
    spellings = _Spellings()
    topics_of = [[_find_topics(item, spellings) for item in group] for group in groups]
    common = frozenset(topic for group in topics_of for phrases in group for topic in phrases)
    weighed = [_shares(group, phrases, common) for group, phrases in zip(groups, topics_of, strict=True)]
    everywhere: defaultdict[Topic, float] = defaultdict(float)
    for group, shares in zip(groups, weighed, strict=True):
        for topic, share in shares.items():
            everywhere[topic] += share * len(group)
    size = sum(map(len, groups))
    themes = []
    for group, shares in zip(groups, weighed, strict=True):
        rest = size - len(group) + 1
        outside = {t: (everywhere[t] - share * len(group) + UNSEEN) / rest for t, share in shares.items()}
        scores = {t: _informative(share, outside[t]) for t, share in shares.items()}
        themes.append(_theme(scores, shares, spellings, maximum))
    return themes


def _theme(scores: Mapping[Topic, float], shares: Mapping[Topic, float], spellings: _Spellings, maximum: int) -> Theme:
    kept: list[tuple[Topic, float]] = []
    for topic, score in sorted(_join(scores, shares).items(), key=lambda s: (-s[1], s[0])):
        if score > 0 and len(kept) < maximum and not any(_are_alike(topic, other) for other, _ in kept):
            kept.append((topic, score))
    return Theme(tuple(spellings.out(topic) for topic, _ in kept), tuple(score for _, score in kept))


def _are_alike(one: Topic, other: Topic) -> bool:
    """Whether two topics share a word, or a word of one starts with one of the other: "file" and "filesystem"."""
    pairs = [(a, b) for a in one for b in other if min(len(a), len(b)) > MIN_WORD]
    return any(a.startswith(b) or b.startswith(a) for a, b in pairs) or not set(one).isdisjoint(other)


class _Spellings:
    """Records how words are written, so that headings have "GitHub" and "events", not stems."""

    def __init__(self) -> None:
        self._forms: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._cased: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def stems(self, prose: Iterable[str]) -> list[str]:
        """Records the words of a text; returns their stems, in order."""
        prose_words = list(prose)
        for word in prose_words:
            self._cased[word.casefold()][word] += 1
        return self.remember((w.casefold() for w in prose_words), 1)

    def remember(self, folded: Iterable[str], weight: int = NAMES_SPELL_BEST) -> list[str]:
        """Records folded words; returns their stems, in order."""
        stems = [("" if word in _VERBS else stem(word), word) for word in folded]
        for stemmed, word in stems:
            self._forms[stemmed][word] += weight
        return [stemmed for stemmed, _ in stems]

    def out(self, topic: Topic) -> str:
        """The topic in its most frequent spelling."""
        return " ".join(self._format_topic(s) for s in topic)

    def _format_topic(self, stemmed: str) -> str:
        form = min(self._forms[stemmed].items(), key=lambda f: (-f[1], f[0]))[0]
        cased = self._cased.get(form)
        usual = min(cased.items(), key=lambda f: (-f[1], f[0]))[0] if cased else form
        is_shouted = usual.isupper() and len(usual) > MAX_ABBREVIATION
        return form if is_shouted or usual[1:] == usual[1:].lower() else usual


def _shares(group: Sequence[Item], topics: Sequence[Mapping[Topic, float]], common: Set[Topic]) -> dict[Topic, float]:
    """The weighted share of the group that has each topic. Items of a server with many items weigh less, so that the
    server's name does not become the heading."""
    from_server = Counter(item.server for item in group)
    loudness = [from_server[item.server] ** -QUIETER for item in group]
    shares: defaultdict[Topic, float] = defaultdict(float)
    holding: Counter[Topic] = Counter()
    for item, phrases, loud in zip(group, topics, loudness, strict=True):
        for topic, weight in {**_of_server(item.server, common), **phrases}.items():
            shares[topic] += weight * loud / sum(loudness)
            holding[topic] += 1
    minimum = min(len(group), max(2, len(group) // ONE_IN))
    return {topic: share for topic, share in shares.items() if holding[topic] >= minimum}


def _find_topics(item: Item, spellings: _Spellings) -> dict[Topic, float]:
    """The topics of an item's description and name."""
    prose = [w for w in _WORD.findall(item.description)[:DESCRIBING_WORDS] if not _IDENTIFIER.match(w)]
    spellings.remember(words(item.server))
    phrases = dict.fromkeys(_topics(spellings.stems(prose)), IN_DESCRIPTION)
    phrases.update(dict.fromkeys(_topics(spellings.remember(words(item.name))), IN_NAME))
    return phrases


def _of_server(server: str, common: Set[Topic]) -> dict[Topic, float]:
    """The topics of a server's name. Of several words only words that items have, too: the others name its maker."""
    stems = [stem(w) for w in words(server)]
    return {t: IN_SERVER for t in _topics(stems) if len(stems) == 1 or t in common}


def _topics(stemmed: Sequence[str]) -> Iterator[Topic]:
    yield from ((s,) for s in stemmed if _is_topic(s))
    yield from (
        p for p in pairwise(stemmed) if _is_topic(p[0]) and (_is_topic(p[1]) or p[1] in _ENDINGS) and p[0] != p[1]
    )


def _is_topic(stemmed: str) -> bool:
    return MIN_WORD <= len(stemmed) <= MAX_WORD and not stemmed[0].isdigit() and stemmed not in _STEMS


def _informative(inside: float, outside: float) -> float:
    """The contribution of a topic to the difference between the group and the rest."""
    return inside * math.log(inside / outside) if inside > LIFTED * outside else 0.0


def _join(scores: Mapping[Topic, float], shares: Mapping[Topic, float]) -> dict[Topic, float]:
    """Replaces two topics that mostly occur together by their pair."""
    kept: dict[Topic, float] = {topic: score for topic, score in scores.items() if len(topic) == 1}
    for pair in sorted((t for t in scores if len(t) > 1), key=lambda t: (-scores[t], t)):
        parts: list[Topic] = [(s,) for s in pair if _is_topic(s)]
        if all(p in kept and shares[pair] >= ONE_TOPIC * shares[p] for p in parts):
            kept[pair] = max(kept.pop(p) for p in parts)
    return kept


def _capitalize(topic: str) -> str:
    return " ".join(w[:1].upper() + w[1:] for w in topic.split())
