"""Weighs the words of a query in the languages that the searched documents have (docs/decisions/0027)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from toolscript.domain.search import TermCounts
from toolscript.retrieval.bm25 import QueryTerms, QueryWord, query_terms, weigh_words
from toolscript.retrieval.text.forms import LANGUAGE_MARKS, PART_WEIGHT, drop_function_words, list_parts
from toolscript.retrieval.text.languages import COMPOUNDING, detect_language
from toolscript.retrieval.text.words import ENGLISH, stem, term, tokens

CountTerms = Callable[[Sequence[int]], Awaitable[TermCounts]]


async def weigh_query_forms(text: str, count_terms: CountTerms) -> QueryTerms:
    """The weighted terms of a query: the stems of its words in English and in the languages that the counted texts
    have, and for compounds the stems of their parts. Texts that are all English are counted once, others twice."""
    query_tokens = tokens(text)
    informative = drop_function_words(query_tokens, detect_language(query_tokens) or ENGLISH)
    plain = Counter(term(stem(word)) for word in informative)
    counts = await count_terms([*plain, *LANGUAGE_MARKS.values()])
    used = [name for name, mark in LANGUAGE_MARKS.items() if mark in counts.documents_with_term]
    if not used:
        return query_terms(plain, counts)
    words = Counter(informative)
    whole = {word: frozenset(term(stem(word, name)) for name in (ENGLISH, *used)) for word in words}
    joining = [name for name in used if name in COMPOUNDING]
    parts = {word: frozenset(term(p) for name in joining for p in list_parts(word, name)) for word in words}
    counts = await count_terms([*frozenset().union(*whole.values(), *parts.values())])
    forms = [QueryWord(times, whole[word]) for word, times in words.items()]
    full = weigh_words(forms, counts).full_score
    for word, times in words.items():
        known = (parts[word] - whole[word]) & counts.documents_with_term.keys()
        forms += [QueryWord(times * PART_WEIGHT, frozenset([part])) for part in known]
    return QueryTerms(weigh_words(forms, counts).terms, full)
