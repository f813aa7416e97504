"""BM25 as a sparse dot product, so that every engine that holds sparse vectors can rank by it.

The document's side carries saturation and length, against an average length that is fixed per kind of text;
the query's side carries idf, from counts that belong to one scope (a catalogue, one tenant). No statistic of
one tenant reaches another's scores, and no document has to be rewritten when others come and go.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from toolscript.domain.search import TermCounts, Terms

K1 = 1.2
B = 0.75


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """A query's weighted terms, and the score that a text holding each of them once at average length gets."""

    terms: Terms
    full_score: float


def document_terms(frequencies: Mapping[int, float], average_length: float) -> Terms:
    """The weights of a text's terms: each at most K1 + 1, however often it occurs."""
    length = sum(frequencies.values())
    norm = K1 * (1 - B + B * length / average_length)
    weighted = {t: f * (K1 + 1) / (f + norm) for t, f in frequencies.items()}
    return _sort_terms(weighted)


def query_terms(frequencies: Counter[int], counts: TermCounts) -> QueryTerms:
    """The idf of a query's terms (Lucene's form, never negative). Terms that no document holds are dropped
    from the vector, but count towards the full score: a query that is mostly unknown words is not covered."""
    total = counts.documents
    weights: dict[int, float] = {}
    full = 0.0
    for number, times in frequencies.items():
        documents_with_term = counts.documents_with_term.get(number, 0)
        weight = times * math.log(1 + (total - documents_with_term + 0.5) / (documents_with_term + 0.5))
        full += weight
        if documents_with_term:
            weights[number] = weight
    return QueryTerms(_sort_terms(weights), full)


def _sort_terms(weights: Mapping[int, float]) -> Terms:
    ordered = sorted(weights.items())
    return Terms(tuple(t for t, _ in ordered), tuple(w for _, w in ordered))
