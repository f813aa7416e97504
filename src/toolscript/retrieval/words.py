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
from functools import lru_cache

import Stemmer

LARGEST_TERM = 999_999_937  # a prime below pgvector's limit of 10^9 dimensions

_CAMEL = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")

# Words too common in requests and descriptions to say anything.
STOP_WORDS = frozenset(
    [
        "a",
        "about",
        "all",
        "also",
        "am",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "been",
        "being",
        "but",
        "by",
        "can",
        "could",
        "did",
        "do",
        "does",
        "doing",
        "for",
        "from",
        "had",
        "has",
        "have",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "just",
        "me",
        "more",
        "my",
        "no",
        "not",
        "of",
        "on",
        "or",
        "our",
        "should",
        "so",
        "some",
        "such",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "us",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "will",
        "with",
        "would",
        "you",
        "your",
        "please",
        "want",
        "need",
    ]
)

_stemmer = Stemmer.Stemmer("english")


def split_identifier(text: str) -> str:
    """`readFile`, `read_file` and `read-file` as `read File`, `read file`: words apart, case kept."""
    return " ".join(_WORD.findall(_CAMEL.sub(" ", text)))


def words(text: str) -> list[str]:
    """The folded words of a text, in order, stop words included. Accents are dropped, scripts kept."""
    folded = unicodedata.normalize("NFKD", _CAMEL.sub(" ", text))
    kept = "".join(c for c in folded if not unicodedata.combining(c))
    return [w.casefold() for w in _WORD.findall(kept)]


def stems(text: str) -> list[str]:
    """The stems of a text's words without stop words; a text of nothing but stop words keeps them."""
    found = words(text)
    telling = [w for w in found if w not in STOP_WORDS] or found
    return [_stem(w) for w in telling]


def term(stem: str) -> int:
    """The number of a stem."""
    return zlib.crc32(stem.encode()) % LARGEST_TERM


def term_frequencies(text: str) -> Counter[int]:
    """How often each term occurs in a text."""
    return Counter(term(s) for s in stems(text))


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(word))
