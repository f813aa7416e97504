"""What a group of items is about, in a few words that a person would choose: those that many of its items say and few
of the others do (class-based tf-idf). It needs no language model."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from toolscript.domain.catalog import Item
from toolscript.retrieval.text.words import STOP_WORDS, stem, words

# What an item says of itself counts most in its name; a long description would drown the others.
IN_NAME, IN_SERVER, IN_DESCRIPTION = 1.0, 0.5, 0.5
DESCRIBING_WORDS = 40
MIN_WORD, MAX_WORD = 3, 24
# A longer word in capitals is shouted, a shorter one is an abbreviation.
MAX_ABBREVIATION = 5
# A second topic stands beside the first when it says this much of what the first says.
WORTH_SAYING = 0.15
# Two words are one topic ("pull request") when most items that say either say both in a row.
ONE_TOPIC = 0.6
UNSEEN = 0.5
# Names hold nouns (`attachment`) where sentences bend them ("attached"): a form counts so much more there.
NAMES_SPELL_BEST = 3
# How much oftener than elsewhere a word must be said to tell anything.
LIFTED = 1.5
# How much less an item of a server with many is heard.
QUIETER = 0.25
# A topic is what several items say; in a large group what one in so many says at least.
ONE_IN = 25

# What tools do to whatever they are for, and the talk of descriptions: true of every category, so no name for one.
_GENERIC = """
able accept access across action add additional advanced again allow already always amount another any api apply args
argument around array assist associate async attribute automatic available avoid back base basic batch before below
best between bool boolean both bulk call cannot case change check choose client com common complete comprehensive
configure control convert correct count create critical current custom data default define delete depend describe
description detail detailed determine dict different direct disable display don each easy edit effect either empty
enable enhance ensure enter entire entry etc every exact example exception execute exist expect export false far fetch
field filter final find first flag follow format found full function general generate generic get give given good
guide handle help here high identifier identify import important improve include index individual info information
initialize input insert inside instead int integer interact interface internal invoke item json keep key kind know
known kwargs large last latest least let level like limit list load local long look lookup low main make manage
management manager many match max maximum may mcp meet method min minimum mode modelcontextprotocol modify more most
multi multiple must name native necessary need never new next none now null number object obtain offer official old
one online only open operate operation option optional original other otherwise out output over overview own param
parameter parse part partial particular pass per perform please plus possible prefer prepare previous primary proceed
produce proper property provide purpose put quick range raw read ready real receive recent recommend reference regard
relate relevant remove replace require required respond response restrict result retrieve return root run same sample
save say see select send sequence serve server service set several short should show similar simple simply single size
smart special specific specified specify standard start state step still stop store str string structure sub submit
subset success successful such suitable supply support sure take target tell temporary then thing through title
together tool toolkit top total true try turn two type under unique unit unless until update upload url usage use
useful usual utility valid validate value various verify via view warning way well when whether which wide within
without work write xml yaml yes zero
"""
GENERIC = frozenset(_GENERIC.split()) | STOP_WORDS

# Forms that talk, of words whose other forms (container, presentation, notes) name things.
_TALK = frozenset({"contain", "contained", "containing", "contains", "noted", "present", "presented", "presents"})
# These may end a topic that another word begins: a pull request, a foreign key, a search index.
_ENDINGS = frozenset({"call", "field", "flag", "index", "key", "request", "unit"})
_WORD = re.compile(r"[^\W_]+")
_IDENTIFIER = re.compile(r"[a-z]{3,}[A-Z][a-z]")
_STEMS = frozenset(map(stem, GENERIC))

Topic = tuple[str, ...]
"""One stem, or two in a row."""


@dataclass(frozen=True, slots=True)
class Theme:
    """What a group of items is about: the words that tell it from the others, most telling first, and how telling."""

    topics: tuple[str, ...]
    scores: tuple[float, ...]

    def headings(self) -> Iterator[str]:
        """Names for it, the best first: "Calendar & Events", then with other words."""
        first, others = self.topics[:1], self.topics[1:]
        if len(others) and self.scores[1] >= WORTH_SAYING * self.scores[0]:
            yield " & ".join(map(_capitalize, self.topics[:2]))
        yield from map(_capitalize, first)
        for other in others:
            yield " & ".join(map(_capitalize, (*first, other)))


def find_themes(groups: Sequence[Sequence[Item]], maximum: int = 8) -> list[Theme]:
    """What each group is about, compared with the other groups."""
    spelt = _Spelt()
    spoken = [[_spoken(item, spelt) for item in group] for group in groups]
    common = frozenset(topic for group in spoken for phrases in group for topic in phrases)
    weighed = [_shares(group, phrases, common) for group, phrases in zip(groups, spoken, strict=True)]
    everywhere: defaultdict[Topic, float] = defaultdict(float)
    for group, shares in zip(groups, weighed, strict=True):
        for topic, share in shares.items():
            everywhere[topic] += share * len(group)
    size = sum(map(len, groups))
    found = []
    for group, shares in zip(groups, weighed, strict=True):
        rest = size - len(group) + 1
        outside = {t: (everywhere[t] - share * len(group) + UNSEEN) / rest for t, share in shares.items()}
        scores = {t: _informative(share, outside[t]) for t, share in shares.items()}
        found.append(_theme(scores, shares, spelt, maximum))
    return found


def _theme(scores: Mapping[Topic, float], shares: Mapping[Topic, float], spelt: _Spelt, maximum: int) -> Theme:
    kept: list[tuple[Topic, float]] = []
    for topic, score in sorted(_join(scores, shares).items(), key=lambda s: (-s[1], s[0])):
        if score > 0 and len(kept) < maximum and not any(_alike(topic, other) for other, _ in kept):
            kept.append((topic, score))
    return Theme(tuple(spelt.out(topic) for topic, _ in kept), tuple(score for _, score in kept))


def _alike(one: Topic, other: Topic) -> bool:
    """Whether two topics share a word, or one begins the other's: "file" and "filesystem"."""
    return any(
        a.startswith(b) or b.startswith(a) for a in one for b in other if min(len(a), len(b)) > MIN_WORD
    ) or bool(set(one) & set(other))


class _Spelt:
    """Remembers how words are written: people read "GitHub" and "events", not stems."""

    def __init__(self) -> None:
        self._forms: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._cased: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def stems(self, prose: Iterable[str]) -> list[str]:
        """The stems of a text's words, in order."""
        found = list(prose)
        for word in found:
            self._cased[word.casefold()][word] += 1
        return self.remember((w.casefold() for w in found), 1)

    def remember(self, folded: Iterable[str], weight: int = NAMES_SPELL_BEST) -> list[str]:
        """The stems of folded words, in order."""
        spoken = [("" if word in _TALK else stem(word), word) for word in folded]
        for stemmed, word in spoken:
            self._forms[stemmed][word] += weight
        return [stemmed for stemmed, _ in spoken]

    def out(self, topic: Topic) -> str:
        """The topic as it is mostly written."""
        return " ".join(self._format_topic(s) for s in topic)

    def _format_topic(self, stemmed: str) -> str:
        form = min(self._forms[stemmed].items(), key=lambda f: (-f[1], f[0]))[0]
        cased = self._cased.get(form)
        usual = min(cased.items(), key=lambda f: (-f[1], f[0]))[0] if cased else form
        is_shouted = usual.isupper() and len(usual) > MAX_ABBREVIATION
        return form if is_shouted or usual[1:] == usual[1:].lower() else usual


def _shares(group: Sequence[Item], spoken: Sequence[Mapping[Topic, float]], common: Set[Topic]) -> dict[Topic, float]:
    """How much of the group says each topic. A server with many items in it is heard less per item, lest its own
    name become the name of all."""
    from_server = Counter(item.server for item in group)
    loudness = [from_server[item.server] ** -QUIETER for item in group]
    shares: defaultdict[Topic, float] = defaultdict(float)
    holding: Counter[Topic] = Counter()
    for item, phrases, loud in zip(group, spoken, loudness, strict=True):
        for topic, weight in {**_of_server(item.server, common), **phrases}.items():
            shares[topic] += weight * loud / sum(loudness)
            holding[topic] += 1
    minimum = min(len(group), max(2, len(group) // ONE_IN))
    return {topic: share for topic, share in shares.items() if holding[topic] >= minimum}


def _spoken(item: Item, spelt: _Spelt) -> dict[Topic, float]:
    """The topics of an item's description and name."""
    prose = [w for w in _WORD.findall(item.description)[:DESCRIBING_WORDS] if not _IDENTIFIER.match(w)]
    spelt.remember(words(item.server))
    phrases = dict.fromkeys(_topics(spelt.stems(prose)), IN_DESCRIPTION)
    phrases.update(dict.fromkeys(_topics(spelt.remember(words(item.name))), IN_NAME))
    return phrases


def _of_server(server: str, common: Set[Topic]) -> dict[Topic, float]:
    """The topics of a server's name. In one of several words only what items speak of, too: the others name its
    maker."""
    found = [stem(w) for w in words(server)]
    return {t: IN_SERVER for t in _topics(found) if len(found) == 1 or t in common}


def _topics(stemmed: Sequence[str]) -> Iterator[Topic]:
    yield from ((s,) for s in stemmed if _tells(s))
    yield from (p for p in pairwise(stemmed) if _tells(p[0]) and (_tells(p[1]) or p[1] in _ENDINGS) and p[0] != p[1])


def _tells(stemmed: str) -> bool:
    return MIN_WORD <= len(stemmed) <= MAX_WORD and not stemmed[0].isdigit() and stemmed not in _STEMS


def _informative(inside: float, outside: float) -> float:
    """What a word adds to the difference between the group and the rest."""
    return inside * math.log(inside / outside) if inside > LIFTED * outside else 0.0


def _join(scores: Mapping[Topic, float], shares: Mapping[Topic, float]) -> dict[Topic, float]:
    """Two words that mostly come together instead of each by itself."""
    kept: dict[Topic, float] = {topic: score for topic, score in scores.items() if len(topic) == 1}
    for pair in sorted((t for t in scores if len(t) > 1), key=lambda t: (-scores[t], t)):
        parts: list[Topic] = [(s,) for s in pair if _tells(s)]
        if all(p in kept and shares[pair] >= ONE_TOPIC * shares[p] for p in parts):
            kept[pair] = max(kept.pop(p) for p in parts)
    return kept


def _capitalize(topic: str) -> str:
    return " ".join(w[:1].upper() + w[1:] for w in topic.split())
