"""Turns text of any script into terms: splits identifiers, folds and stems words, and gives each a number.

Scripts without spaces are cut into overlapping pairs of characters (docs/decisions/0027). A term is a number of 30 bits
because the sparse vectors of all engines take that range. Two words may share a number: with a vocabulary of 100 000
words about five pairs do, too few to change a ranking.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

import Stemmer

LARGEST_TERM = 999_999_937  # a prime below pgvector's limit of 10^9 dimensions

ENGLISH = "english"
"""The language of words in Latin letters, if no other is given. Languages are named as Snowball names its stemmers."""

# Latin, Greek, Cyrillic and Armenian have case; the pattern language has no class for it.
_UPPER = "".join(c for c in map(chr, range(0x41, 0x590)) if c.isupper())
_LOWER = "".join(c for c in map(chr, range(0x41, 0x590)) if c.islower())
_CAMEL = re.compile(
    rf"(?<=[^\W\d_{_UPPER}])(?=[{_UPPER}])|(?<=[0-9])(?=[{_UPPER}])|(?<=[{_UPPER}])(?=[{_UPPER}][{_LOWER}])"
)
# Marks that readers leave out when they type: accents, the vowels of Hebrew and Arabic, and what is invisible.
_ACCENTS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f"
    "\u00ad\u200c\u200d\u2060"
)
# Marks that belong to the letter before them: the pattern language takes them for punctuation.
_INDIC = "".join(
    f"{chr(block + first)}-{chr(block + last)}"
    for block in range(0x900, 0xE00, 0x80)
    for first, last in ((0x00, 0x03), (0x3A, 0x3C), (0x3E, 0x4F), (0x51, 0x57), (0x62, 0x63))
)
_MARKS = (
    f"{_INDIC}\u0a70\u0a71\u0dd8-\u0ddf\u0df2\u0df3\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece"
    "\u0f71-\u0f84\u0f8d-\u0fbc\u102b-\u103e\u1056-\u1059\u17b4-\u17d3\u3099\u309a"
)
_ACCENT = re.compile(f"[{_ACCENTS}]+")
_WORD = re.compile(rf"[^\W_](?:[^\W_]|[{_MARKS}{_ACCENTS}])*")
# The words of an ASCII text, split at the same places, in a fraction of the time.
_ASCII_WORD = re.compile(r"[A-Z]+(?![a-z])[a-z0-9]*|[A-Z]?[a-z][a-z0-9]*|[0-9][a-z0-9]*")

_HIRAGANA = "\u3041-\u3098\u309b-\u309f"
_KATAKANA = "\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9d"
_HAN = "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HANGUL = "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"
# Thai, Lao, Burmese, Khmer
_SOUTH_EAST_ASIAN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_ALL_UNSPACED = f"{_HIRAGANA}{_KATAKANA}{_HAN}{_HANGUL}{_SOUTH_EAST_ASIAN}"
# Japanese changes its script where words begin and end: 猫が is 猫 and a particle.
_RUNS = "|".join(
    f"[{script}][{script}\u3099\u309a\uff9e\uff9f]*"
    for script in (_HAN, _HIRAGANA + "\u30fc", _KATAKANA, _HANGUL, _SOUTH_EAST_ASIAN)
)
# The last two are the marks of half-width kana.
_CHARACTER = re.compile(f".[{_MARKS}\uff9e\uff9f]*", re.DOTALL)

# Words that are too common in queries and descriptions to be informative.
_STOP = """
a about all also am an and any are as at be been being but by can could did do does doing for from had has have
how i if in into is it its just me more my no not of on or our should so some such than that the their them then
there these they this those to us was we were what when where which while who will with would you your please
want need
"""
_PARTICLES = map(chr, range(0x3041, 0x3097))
STOP_WORDS = frozenset([*_STOP.split(), *_PARTICLES])

# Scripts with a stemmer of their own, by the first letter of a word. Cyrillic words are stemmed as Russian.
_STEMMERS_BY_SCRIPT = (
    (0x370, 0x3FF, "greek"),
    (0x400, 0x52F, "russian"),
    (0x530, 0x58F, "armenian"),
    (0x600, 0x6FF, "arabic"),
    (0x900, 0x97F, "hindi"),
    (0xB80, 0xBFF, "tamil"),
)


class _UnspacedScripts(NamedTuple):
    """The patterns of scripts without spaces."""

    character: re.Pattern[str]
    run: re.Pattern[str]
    """A run of one script; its group `pairs` is empty for a run of other scripts."""
    han_pair: re.Pattern[str]


@cache
def _compile_unspaced() -> _UnspacedScripts:
    # Compiled when needed: it takes 18 ms, and most commands never read such a text.
    return _UnspacedScripts(
        re.compile(f"[{_ALL_UNSPACED}]"),
        re.compile(f"(?P<pairs>{_RUNS})|[^{_ALL_UNSPACED}]+"),
        re.compile(f"[{_HAN}]{{2}}"),
    )


def split_identifier(text: str) -> str:
    """Separates the words of an identifier and keeps their case: `readFile` becomes `read File`."""
    if text.isascii():
        return " ".join(_ASCII_WORD.findall(text))
    return " ".join(_WORD.findall(_split_camel(text)))


def words(text: str) -> list[str]:
    """The folded words of a text, in order, with stop words and without accents."""
    if text.isascii():
        return split_identifier(text).lower().split()
    return [w.casefold() for w in _WORD.findall(remove_accents(_split_camel(text)))]


def remove_accents(text: str) -> str:
    """The text without accents, in the usual width: `Ｃａｆé` becomes `Cafe`. The marks of が and パ stay."""
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFKD", text)))


def tokens(text: str) -> list[str]:
    """The words of a text. Scripts without spaces are cut into overlapping pairs of characters: 東京の天気 becomes
    東京, の and 天気; 図書館 becomes 図書 and 書館."""
    text_words = words(text)
    if text.isascii() or not _compile_unspaced().character.search(text):
        return text_words
    return [token for word in text_words for token in _cut_word(word)]


def list_characters(token: str) -> tuple[str, ...]:
    """The characters of a pair of Han characters: Chinese has words of one character, and no mark of where they end."""
    is_pair = not token.isascii() and _compile_unspaced().han_pair.fullmatch(token)
    return tuple(token) if is_pair else ()


def find_tokens(word: str) -> Iterator[tuple[int, int]]:
    """The places of a word's tokens, as it is written: of the whole word, or of the pairs of its characters."""
    if word.isascii() or not _compile_unspaced().character.search(word):
        yield 0, len(word)
        return
    for run in _compile_unspaced().run.finditer(word):
        if not run["pairs"]:
            yield run.span()
            continue
        places = [run.start() + character.start() for character in _CHARACTER.finditer(run[0])] + [run.end()]
        yield from zip(places, places[2:] or places[1:], strict=False)


def replace_unencodable(text: str) -> str:
    """Replaces what UTF-8 cannot encode (lone surrogates)."""
    return text.encode("utf-8", "replace").decode()


def stems(text: str) -> list[str]:
    """The stems of a text's tokens without stop words; a text of only stop words keeps them."""
    text_tokens = tokens(text)
    informative = [w for w in text_tokens if w not in STOP_WORDS] or text_tokens
    return [stem(w) for w in informative]


def term(word: str) -> int:
    """The number of a stemmed word."""
    return zlib.crc32(word.encode()) % LARGEST_TERM


def term_frequencies(text: str) -> Counter[int]:
    """How often each term occurs in a text."""
    return Counter(map(term, stems(text)))


def _split_camel(text: str) -> str:
    return _CAMEL.sub(" ", unicodedata.normalize("NFC", text))


def _cut_word(word: str) -> list[str]:
    if not _compile_unspaced().character.search(word):
        return [word]
    cut: list[str] = []
    for run in _compile_unspaced().run.finditer(word):
        cut += _cut_pairs(run[0]) if run["pairs"] else [run[0]]
    return cut


def _cut_pairs(run: str) -> list[str]:
    characters = _CHARACTER.findall(run)
    return list(map("".join, pairwise(characters))) or characters


@lru_cache(maxsize=65_536)
def stem(word: str, language: str = ENGLISH) -> str:
    """The stem of a folded word: by the stemmer of its script, in Latin letters by the stemmer of the language."""
    script_language = None if word.isascii() else _find_stemmer(ord(word[0]))
    stemmed = str(_load_stemmer(script_language or language).stemWord(word))
    # The French stemmer knows -é, -ée and -ées by their accents, which folded words do not have.
    return stemmed.rstrip("e") or stemmed if language == "french" else stemmed


def stem_all(folded: Iterable[str]) -> frozenset[str]:
    """The stems of many folded words; faster than one by one, and not cached."""
    known = list(folded)
    plain = [word for word in known if word.isascii()]
    others = (stem(word) for word in known if not word.isascii())
    return frozenset([*_load_stemmer(ENGLISH).stemWords(plain), *others])


def _find_stemmer(letter: int) -> str | None:
    return next((name for first, last, name in _STEMMERS_BY_SCRIPT if first <= letter <= last), None)


@lru_cache
def _load_stemmer(language: str) -> Stemmer.Stemmer:
    return Stemmer.Stemmer(language)
