"""From text to terms: identifiers are split, words folded and stemmed, and each becomes a number.

A term is a 30-bit-range number rather than a string because every engine's sparse vectors are numbered; the
range is the widest that all of them take. Two words may share a number: with a vocabulary of 100 000 words
about five pairs do, too few to move a ranking.
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
_ASCII_CAMEL = re.compile(r"[a-z0-9](?=[A-Z])|[A-Z](?=[A-Z][a-z])")  # the same, several times faster
_WORD = re.compile(r"[^\W_]+")

# Words too common in requests and descriptions to say anything.
_STOP = """
a about all also am an and any are as at be been being but by can could did do does doing for from had has have
how i if in into is it its just me more my no not of on or our should so some such than that the their them then
there these they this those to us was we were what when where which while who will with would you your please
want need
"""
STOP_WORDS = frozenset(_STOP.split())

_stemmer = Stemmer.Stemmer("english")


def split_identifier(text: str) -> str:
    """`readFile`, `read_file` and `read-file` as `read File`, `read file`: words apart, case kept."""
    return " ".join(_WORD.findall(_split_words(text)))


def words(text: str) -> list[str]:
    """The folded words of a text, in order, stop words included. Accents are dropped, scripts kept."""
    split = _split_words(text)
    if not split.isascii():
        folded = unicodedata.normalize("NFKD", split)
        split = "".join(c for c in folded if not unicodedata.combining(c))
    return [w.casefold() for w in _WORD.findall(split)]


def replace_unencodable(text: str) -> str:
    """The text with whatever cannot be written as UTF-8 (half a surrogate pair, a stray byte) replaced."""
    return text.encode("utf-8", "replace").decode()


def stems(text: str) -> list[str]:
    """The stems of a text's words without stop words; a text of nothing but stop words keeps them."""
    found = words(text)
    informative = [w for w in found if w not in STOP_WORDS] or found
    return [stem(w) for w in informative]


def term(word: str) -> int:
    """The number of a stemmed word."""
    return zlib.crc32(word.encode()) % LARGEST_TERM


def term_frequencies(text: str) -> Counter[int]:
    """How often each term occurs in a text."""
    return Counter(map(term, stems(text)))


def _split_words(text: str) -> str:
    if text.isascii():
        return _ASCII_CAMEL.sub(r"\g<0> ", text)
    return _CAMEL.sub(" ", unicodedata.normalize("NFC", text))


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A folded word without its endings."""
    return str(_stemmer.stemWord(word))


def stem_all(many: Iterable[str]) -> frozenset[str]:
    """The stems of many folded words: faster than one by one, and nothing is remembered."""
    return frozenset(_stemmer.stemWords(list(many)))
