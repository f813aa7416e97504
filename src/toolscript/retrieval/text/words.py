"""Turns text into terms: splits identifiers, folds and stems words, and gives each a number.

A term is a number of 30 bits because the sparse vectors of all engines take that range. Two words may share a number:
with a vocabulary of 100 000 words about five pairs do, too few to change a ranking.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import Stemmer

LARGEST_TERM = 999_999_937  # a prime below pgvector's limit of 10^9 dimensions

# Latin, Greek, Cyrillic and Armenian have case; the pattern language has no class for it.
_UPPER = "".join(c for c in map(chr, range(0x41, 0x590)) if c.isupper())
_LOWER = "".join(c for c in map(chr, range(0x41, 0x590)) if c.islower())
_CAMEL = re.compile(
    rf"(?<=[^\W\d_{_UPPER}])(?=[{_UPPER}])|(?<=[0-9])(?=[{_UPPER}])|(?<=[{_UPPER}])(?=[{_UPPER}][{_LOWER}])"
)
_WORD = re.compile(r"[^\W_]+")
# The words of an ASCII text, split at the same places, in a fraction of the time.
_ASCII_WORD = re.compile(r"[A-Z]+(?![a-z])[a-z0-9]*|[A-Z]?[a-z][a-z0-9]*|[0-9][a-z0-9]*")

# Words that are too common in queries and descriptions to be informative.
_STOP = """
a about all also am an and any are as at be been being but by can could did do does doing for from had has have
how i if in into is it its just me more my no not of on or our should so some such than that the their them then
there these they this those to us was we were what when where which while who will with would you your please
want need
"""
STOP_WORDS = frozenset(_STOP.split())

_stemmer = Stemmer.Stemmer("english")


def split_identifier(text: str) -> str:
    """Separates the words of an identifier and keeps their case: `readFile` becomes `read File`."""
    if text.isascii():
        return " ".join(_ASCII_WORD.findall(text))
    return " ".join(_WORD.findall(_split_camel(text)))


def words(text: str) -> list[str]:
    """The folded words of a text, in order, with stop words and without accents."""
    if text.isascii():
        return split_identifier(text).lower().split()
    folded = unicodedata.normalize("NFKD", _split_camel(text))
    split = "".join(c for c in folded if not unicodedata.combining(c))
    return [w.casefold() for w in _WORD.findall(split)]


def replace_unencodable(text: str) -> str:
    """Replaces what UTF-8 cannot encode (lone surrogates)."""
    return text.encode("utf-8", "replace").decode()


def stems(text: str) -> list[str]:
    """The stems of a text's words without stop words; a text of only stop words keeps them."""
    found = words(text)
    informative = [w for w in found if w not in STOP_WORDS] or found
    return [stem(w) for w in informative]


def term(word: str) -> int:
    """The number of a stemmed word."""
    return zlib.crc32(word.encode()) % LARGEST_TERM


def term_frequencies(text: str) -> Counter[int]:
    """How often each term occurs in a text."""
    return Counter(map(term, stems(text)))


def _split_camel(text: str) -> str:
    return _CAMEL.sub(" ", unicodedata.normalize("NFC", text))


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The stem of a folded word."""
    return str(_stemmer.stemWord(word))


def stem_all(many: Iterable[str]) -> frozenset[str]:
    """The stems of many folded words; faster than one by one, and not cached."""
    return frozenset(_stemmer.stemWords(list(many)))
