"""Finds orders as combinations of classes of words: a verb of sending, a word for secrets, and their owner, in one
sentence of one language. The words are data (`data/suspicious_words.toml`). The time is linear in the text's length."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from toolscript.services.trust.disguises import SENTENCE_END, simplify

ANY = "any"
# In words: how far from a combination a word such as "whether" makes it the description of an option.
_OPTION_BEFORE, _OPTION_AFTER = 12, 8
# Chinese and Japanese have a token for each letter, and two or three letters to a word.
_LETTERS_PER_WORD = {"zh": 2, "ja": 3}
_MAX_WORD = 40  # longer ones are no words; also bounds the cache
_MIN_RUN, _MAX_RUN = 12, 200  # of letters that may be several words without blanks
_MAX_PART = 16  # of such a run that is looked up as one word
_CACHED_TOKENS = 50_000

_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = rf"[{_IDEOGRAPHS}]|[^\W_{_IDEOGRAPHS}]+"
_END = "END"
_TOKEN = re.compile(
    r"(?P<LINK>https?://[^\s)>\]\"']{1,300})"
    r"|(?P<ADDRESS>\b[\w+-][\w.+-]{0,63}@[\w-]{1,63}\.\w{1,20})"
    r"|(?P<COMMAND>\b(?:curl|wget|iwr|irm)\b[^\n|]{0,160}\| ?(?:sudo )?(?:\w{0,2}sh|python3?|iex)\b|\brm -rf\b"
    r"|\bbash -c\b|\bbase64 (?:-d|--decode)\b|\bpowershell\b[^\n]{0,20} -enc|/dev/tcp/|\bnc -\w{0,3}e\b|\$\(whoami\)"
    r"|\b(?:curl|wget)\b[^\n]{0,60} (?:-d|--data|-f|-t|--post-file)\b)"
    r"|(?P<FILE>(?<!\w)\.(?:ssh|aws|gnupg|kube|azure|docker)\b(?!/(?:config\b(?!\.json)|known_hosts)|[\w/.-]{0,40}\.pub\b)"
    r"|\.kube/config\b|\bid_(?:rsa|dsa|ed25519|ecdsa)\b(?!\.pub)|/etc/(?:passwd|shadow|sudoers)|(?<!\w)\.env\b"
    r"|\bmcp\.json|\bclaude_desktop_config|\.(?:git-credentials|netrc|npmrc|pypirc|pgpass)\b|\bwallet\.dat"
    r"|\.(?:bash|zsh)_history\b|\bcookies\.sqlite|\b(?:login\.)?keychain-db|\bsecrets\.(?:ya?ml|json|toml)"
    r"|\bcredentials\.json|/proc/self/environ)"
    rf"|(?P<{_END}>{SENTENCE_END.pattern}|\n[ \t]*[-*•])"
    rf"|{_WORD}"
)
_WORD_OR_STAR = re.compile(rf"{_WORD}|\*")
_CASE_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Between the words of the classes, to split a run of letters.
_FUNCTION_WORDS = frozenset(
    "the a an to and of in on at by for from with this that it its is are be as or if then into not do does any all "
    "you your me my we our user users tool tools file files server now will would can about what when".split()
)
# First words of orders that end like verbs of descriptions.
_NO_VERBS = frozenset({"always", "this", "agents", "assistants", "models", "clients", "users", "nicht", "jetzt"})


class Combination(NamedTuple):
    """Classes that make up an order when they are together."""

    reason: str
    classes: tuple[int, ...]
    mask: int
    window: int
    is_ordered: bool
    is_across: bool
    """Whether the classes may be in different sentences."""
    unless: int
    can_be_usual: bool
    """Whether descriptions of options read like this order."""
    languages: frozenset[str]


class Order(NamedTuple):
    """Where a text gives an order, in characters of the normalised text."""

    start: int
    end: int
    reason: str


class _Term(NamedTuple):
    class_: int
    language: str
    rest: tuple[tuple[str, bool], ...]
    """The words after the first, and whether each stands for any ending."""


class _Hit(NamedTuple):
    first: int
    last: int
    class_: int
    sentence: int


class Lexicon:
    """The words of all classes, and the combinations that make up orders."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        names = list(data["class"])
        self._classes = {name: number for number, name in enumerate(names)}
        self._exact: dict[str, list[_Term]] = defaultdict(list)
        self._prefixes: dict[str, list[_Term]] = defaultdict(list)
        for name, languages in data["class"].items():
            for language, terms in languages.items():
                for term in terms.split(","):
                    self._add(self._classes[name], language, term.strip())
        self._max_prefix_length = max(map(len, self._prefixes), default=0)
        self._vocabulary = _FUNCTION_WORDS | {
            word + ending
            for table, endings in ((self._exact, ("",)), (self._prefixes, ("", "s")))
            for word, terms in table.items()
            if len(word) > 2 and any(term.language == "en" for term in terms)  # noqa: PLR2004
            for ending in endings
        }
        self._combinations = [self._read_combination(row) for row in data["combination"]]
        self._option = self._classes["option"]
        self._look_up = lru_cache(_CACHED_TOKENS)(self._list_terms)

    def _add(self, class_: int, language: str, term: str) -> None:
        parts: list[tuple[str, bool]] = []
        for given in _WORD_OR_STAR.findall(term):
            word = given if given in _TOKEN.groupindex else simplify(given)
            if word == "*":
                parts[-1] = (parts[-1][0], True)
            else:
                parts.append((word, False))
        (first, is_prefix), *rest = parts
        (self._prefixes if is_prefix else self._exact)[first].append(_Term(class_, language, tuple(rest)))

    def _read_combination(self, row: Mapping[str, Any]) -> Combination:
        classes = tuple(self._classes[name] for name in row["classes"])
        return Combination(
            row["reason"],
            classes,
            sum(1 << number for number in classes),
            row["window"],
            row.get("ordered", False),
            row.get("across", False),
            sum(1 << self._classes[name] for name in row.get("unless", ())),
            "option" in row.get("unless", ()),
            frozenset(row.get("languages", ())),
        )

    def find_order(self, text: str, *, is_option: bool = False) -> Order | None:
        """The first order in a text that `simplify` has normalised. `is_option`: the text describes a switch: usual
        descriptions of switches read like orders ("do not notify the user")."""
        words, places = self._split(text)
        hits, masks = self._find_hits(words)
        common = masks.pop(ANY, 0)
        for language, mask in masks.items():
            seen = mask | common
            if seen.bit_count() < 2:  # noqa: PLR2004
                continue
            both = sorted(hits[language] + hits[ANY]) if common else hits[language]
            for rule in self._combinations:
                if (
                    seen & rule.mask == rule.mask
                    and not (is_option and rule.can_be_usual)
                    and (not rule.languages or language in rule.languages)
                    and (order := _find_combination(rule, language, both))
                ):
                    return Order(places[order[0]], places[order[1]] + len(words[order[1]]), rule.reason)
        return None

    def count_classes(self, text: str) -> int:
        """The number of classes with a word in the normalised text, in the language with most of them."""
        _, masks = self._find_hits(self._split(text)[0])
        return max((mask.bit_count() for mask in masks.values()), default=0)

    def _split(self, text: str) -> tuple[list[str], list[int]]:
        """The words, placeholders and ends of sentences of a text, and where they begin."""
        matches = list(_TOKEN.finditer(text))
        words = [match.lastgroup or match[0] for match in matches]
        places = [match.start() for match in matches]
        for number in [n for n, word in enumerate(words) if _MIN_RUN <= len(word) <= _MAX_RUN and word.isascii()][::-1]:
            parts = self._split_run(words[number])
            words[number : number + 1] = parts
            places[number : number + 1] = [places[number]] * len(parts)
        return words, places

    def _split_run(self, run: str) -> list[str]:
        """The words of a run of letters without blanks; the run itself if it is not made of known words only."""
        if run in self._vocabulary:
            return [run]
        starts: list[int | None] = [0] + [None] * len(run)  # where a word begins that ends at each place
        for place in range(len(run)):
            if starts[place] is not None:
                for stop in range(place + 1, min(place + _MAX_PART, len(run)) + 1):
                    if starts[stop] is None and run[place:stop] in self._vocabulary:
                        starts[stop] = place
        words: list[str] = []
        place = len(run)
        while place and (begin := starts[place]) is not None:
            words.append(run[begin:place])
            place = begin
        return [run] if place else words[::-1]

    def _find_hits(self, words: Sequence[str]) -> tuple[dict[str, list[_Hit]], dict[str, int]]:
        hits: dict[str, list[_Hit]] = defaultdict(list)
        masks: dict[str, int] = defaultdict(int)
        sentence, is_first = 0, True
        for place, word in enumerate(words):
            if word == _END:
                sentence, is_first = sentence + 1, True
                continue
            if is_first and (language := _describe(word)):
                hits[language].append(_Hit(place, place, self._option, sentence))
            is_first = False
            if len(word) > _MAX_WORD:
                continue
            for class_, language, rest in self._look_up(word):
                if not rest or _continues(words, place + 1, rest):
                    hits[language].append(_Hit(place, place + len(rest), class_, sentence))
                    masks[language] |= 1 << class_
        return hits, masks

    def _list_terms(self, token: str) -> tuple[_Term, ...]:
        terms = list(self._exact.get(token, ()))
        for length in range(1, min(len(token), self._max_prefix_length) + 1):
            terms += self._prefixes.get(token[:length], ())
        return tuple(terms)


def split_name(name: str) -> str:
    """The words of a name such as `readFile` or `read_file`."""
    return _CASE_CHANGE.sub(" ", name)


def _describe(word: str) -> str | None:
    """The language of a sentence with this first word that says what a tool does: "Deletes", "Sendet"."""
    if len(word) < 4 or word in _NO_VERBS:  # noqa: PLR2004
        return None
    if word.endswith("s") and not word.endswith("ss"):
        return "en"
    return "de" if word.endswith("t") else None


def _continues(words: Sequence[str], place: int, rest: Iterable[tuple[str, bool]]) -> bool:
    for expected, is_prefix in rest:
        if place >= len(words):
            return False
        text = words[place]
        if not (text.startswith(expected) if is_prefix else text == expected):
            return False
        place += 1
    return True


def _find_combination(rule: Combination, language: str, hits: Sequence[_Hit]) -> tuple[int, int] | None:
    """The first place where hits of all classes of the rule are together, unless it is part of a usual sentence."""
    window = rule.window * _LETTERS_PER_WORD.get(language, 1)
    options = [(hit.sentence, hit.first) for hit in hits if rule.unless >> hit.class_ & 1]
    for first, last, sentence in _list_places(rule, hits, window, is_ordered=rule.is_ordered and language == "en"):
        at = bisect_left(options, (sentence, first - _OPTION_BEFORE))
        if at == len(options) or options[at] > (sentence, last + _OPTION_AFTER):
            return first, last
    return None


def _list_places(
    rule: Combination, hits: Sequence[_Hit], window: int, *, is_ordered: bool
) -> Iterator[tuple[int, int, int]]:
    """First and last word, and the sentence of the last. Remembers the last hit of each class or, if ordered, where the
    last chain begins that has come as far as this class."""
    count = len(rule.classes)
    starts: list[int | None] = [None] * count
    ends, sentence = [-1] * count, -1
    for hit in hits:
        if hit.sentence != sentence and not rule.is_across:
            starts, ends = [None] * count, [-1] * count
        sentence = hit.sentence
        if hit.class_ not in rule.classes:
            continue
        number = rule.classes.index(hit.class_)
        if not is_ordered or number == 0:
            starts[number] = hit.first
        elif starts[number - 1] is None or ends[number - 1] >= hit.first:
            continue
        else:
            starts[number] = starts[number - 1]
        ends[number] = hit.last
        known = [start for start in (starts[-1:] if is_ordered else starts) if start is not None]
        is_whole = number == count - 1 if is_ordered else len(known) == count
        if is_whole and hit.first - min(known) < window:
            yield min(known), hit.last, sentence
