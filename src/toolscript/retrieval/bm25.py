"""BM25 as a sparse dot product, so that every engine with sparse vectors can rank by it.

The document's side has saturation and length, relative to an average length that is fixed per kind of text; the query's
side has idf, from the counts of one scope (a catalogue, a tenant). So no tenant's statistics affect another's scores,
and no document has to be rewritten when others change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from toolscript.domain.search import TermCounts, Terms

K1 = 1.2
B = 0.75


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """A query's weighted terms, and the score of a text of average length that has each of them once."""

    terms: Terms
    full_score: float


class QueryWord(NamedTuple):
    """A word of a query: how much it counts, and the terms that stand for it."""

    times: float
    terms: frozenset[int]


def document_terms(frequencies: Mapping[int, float], average_length: float) -> Terms:
    """The weights of a text's terms: each at most K1 + 1, however often it occurs."""
    length = sum(frequencies.values())
    norm = K1 * (1 - B + B * length / average_length)
    weighted = {t: f * (K1 + 1) / (f + norm) for t, f in frequencies.items() if f}
    return _sort_terms(weighted)


def query_terms(frequencies: Mapping[int, float], counts: TermCounts) -> QueryTerms:
    """The idf of a query's terms (Lucene's form, never negative). Terms that no document has are left out of the
    vector, but count towards the full score: documents do not cover a query of mostly unknown words. Where nothing is
    counted, that is 0: nothing is known of the words."""
    weights: dict[int, float] = {}
    full = 0.0
    if not counts.documents:
        return QueryTerms(Terms(), full)
    for number, times in frequencies.items():
        documents_with_term = counts.documents_with_term.get(number, 0)
        weight = times * _compute_idf(documents_with_term, counts.documents)
        full += weight
        if documents_with_term:
            weights[number] = weight
    return QueryTerms(_sort_terms(weights), full)


def weigh_words(words: Iterable[QueryWord], counts: TermCounts) -> QueryTerms:
    """`query_terms` of words that several terms stand for: they weigh the same, as the most frequent of them."""
    weights: dict[int, float] = {}
    full = 0.0
    for word in words:
        known = {number: n for number in word.terms if (n := counts.documents_with_term.get(number))}
        weight = word.times * _compute_idf(max(known.values(), default=0), counts.documents)
        full += weight
        for number in known:
            weights[number] = weights.get(number, 0.0) + weight
    return QueryTerms(_sort_terms(weights), full)


def _compute_idf(documents_with_term: int, documents: int) -> float:
    return math.log(1 + (documents - documents_with_term + 0.5) / (documents_with_term + 0.5))


def _sort_terms(weights: Mapping[int, float]) -> Terms:
    ordered = sorted(weights.items())
    return Terms(tuple(t for t, _ in ordered), tuple(w for _, w in ordered))
