"""The forms of words that find documents of any language.

A document is stemmed in its own language. A query's language is mostly unknown, and two or three words do not tell it:
so each of its words looks for its stems in the languages of the tenant's documents. The term counts record these
languages. See docs/decisions/0027.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from toolscript.retrieval.text.languages import COMPOUNDING, LANGUAGES, UNINFORMATIVE, detect_language
from toolscript.retrieval.text.words import ENGLISH, list_characters, stem, term, tokens

MIN_PART = 5
"""The length of the shortest part of a compound that is found."""
# The lengths of the beginnings under which a long word is found. All lengths would be a quarter more terms.
BEGINNINGS = (10, 7, MIN_PART)
# The shortest word that is taken for a compound: two parts, of which the second may be a short one.
MIN_COMPOUND = 9
PART_WEIGHT = 0.3
"""The weight of a part of a compound, beside 1 for the whole word."""

LANGUAGE_MARKS = {name: term(f"\x00{name}") for name in LANGUAGES if name != ENGLISH}
"""Terms of no word: a document counts towards the one of its language. English needs none: it is always looked for."""


def count_document_forms(text: str) -> dict[int, float]:
    """How often each form of the document's language occurs; the mark of the language counts 0 times. A change here
    needs another `TERMS_VERSION`."""
    text_tokens = tokens(text)
    language = detect_language(text_tokens) or ENGLISH
    stemmed = [stem(word, language) for word in drop_function_words(text_tokens, language)]
    counts: dict[int, float] = {**Counter(map(term, stemmed))}
    if language != ENGLISH:
        counts[LANGUAGE_MARKS[language]] = 0.0
    if not (text.isascii() and language == ENGLISH):
        for word in stemmed:
            for part in _list_parts_of(word, language):
                number = term(part)
                counts[number] = counts.get(number, 0.0) + PART_WEIGHT
    return counts


def list_query_forms(query: str, language: str) -> frozenset[str]:
    """The forms of a query's words that find a document of that language."""
    query_tokens = tokens(query)
    informative = drop_function_words(query_tokens, detect_language(query_tokens) or ENGLISH)
    stems = {stem(word, name) for word in informative for name in (ENGLISH, language)}
    return frozenset(stems.union(*(list_parts(word, language) for word in informative)))


def list_forms(text: str, language: str) -> frozenset[str]:
    """The forms of the words in a part of a document."""
    stemmed = [stem(word, language) for word in tokens(text)]
    return frozenset(stemmed).union(*(_list_parts_of(word, language) for word in stemmed))


def list_parts(word: str, language: str) -> list[str]:
    """The forms of a query's word that find compounds with it, and parts of it."""
    stemmed = stem(word, language)
    if language not in COMPOUNDING or len(stemmed) < MIN_PART or not stemmed.isalpha():
        return []
    parts = [_begin(stemmed, next(length for length in BEGINNINGS if length <= len(stemmed)))]
    if len(stemmed) >= MIN_COMPOUND:
        places = range(MIN_PART, len(word) - 2)
        parts += [stem(word[:place], language) for place in places]
        parts += [stem(word[place:], language) for place in places if len(word) - place >= MIN_PART]
    return parts


def _list_parts_of(stemmed: str, language: str) -> Sequence[str]:
    """What a document's word is found by beside its stem: the beginnings of a compound, the characters of a pair."""
    if stemmed.isascii() and (language not in COMPOUNDING or len(stemmed) < MIN_COMPOUND):
        return ()
    if language in COMPOUNDING and len(stemmed) >= MIN_COMPOUND and stemmed.isalpha():
        return [_begin(stemmed, length) for length in BEGINNINGS if length <= len(stemmed) - 3]
    return list_characters(stemmed)


def _begin(stemmed: str, length: int) -> str:
    return f"{stemmed[:length]}-"


def drop_function_words(text_tokens: Sequence[str], language: str) -> Sequence[str]:
    """The words without the function words of the language and of English; a text of only these keeps them."""
    uninformative = UNINFORMATIVE[language]
    return [word for word in text_tokens if word not in uninformative] or text_tokens
