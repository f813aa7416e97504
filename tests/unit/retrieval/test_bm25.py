"""The dot product of query and document terms is the BM25 score."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.domain.search import TermCounts, Terms
from toolscript.retrieval.bm25 import K1, B, document_terms, query_terms

Text = dict[int, int]

texts = st.dictionaries(st.integers(0, 12), st.integers(1, 9), max_size=6)
corpora = st.lists(texts, min_size=1, max_size=8)
queries = st.dictionaries(st.integers(0, 15), st.integers(1, 3), max_size=5).map(Counter)
averages = st.floats(0.5, 200)
quick = settings(max_examples=scale_examples(100), deadline=None)


def count_terms(corpus: list[Text]) -> TermCounts:
    return TermCounts(len(corpus), Counter(t for text in corpus for t in text))


def dot(query: Terms, document: Terms) -> float:
    existing = dict(zip(document.ids, document.weights, strict=True))
    return sum(w * existing.get(t, 0.0) for t, w in zip(query.ids, query.weights, strict=True))


def idf(number: int, corpus: list[Text]) -> float:
    holding = sum(number in text for text in corpus)
    return math.log(1 + (len(corpus) - holding + 0.5) / (holding + 0.5))


def textbook(query: Counter[int], text: Text, corpus: list[Text], average: float) -> float:
    score = 0.0
    for number, times in query.items():
        frequency = text.get(number, 0)
        saturated = frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * sum(text.values()) / average))
        score += times * idf(number, corpus) * saturated
    return score


@pytest.mark.req("D-02")
@quick
@given(corpora, queries, averages)
def test_the_dot_product_is_the_bm25_score(corpus: list[Text], query: Counter[int], average: float) -> None:
    requests = query_terms(query, count_terms(corpus)).terms
    for text in corpus:
        expected = textbook(query, text, corpus, average)
        assert dot(requests, document_terms(text, average)) == pytest.approx(expected)


@pytest.mark.req("D-02")
@quick
@given(corpora)
def test_the_full_score_is_that_of_a_text_with_each_term_once_at_average_length(corpus: list[Text]) -> None:
    known = sorted({t for text in corpus for t in text})
    requests = query_terms(Counter(known), count_terms(corpus))
    assert dot(requests.terms, document_terms(dict.fromkeys(known, 1), max(len(known), 1))) == pytest.approx(
        requests.full_score
    )


@pytest.mark.req("D-02")
@quick
@given(corpora, queries)
def test_unknown_terms_are_left_out_but_count_towards_the_full_score(corpus: list[Text], query: Counter[int]) -> None:
    requests = query_terms(query, count_terms(corpus))
    known = {t for text in corpus for t in text}
    assert set(requests.terms.ids) == known & query.keys()
    assert requests.full_score == pytest.approx(sum(times * idf(t, corpus) for t, times in query.items()))


@pytest.mark.req("D-02")
def test_documents_do_not_cover_a_query_of_unknown_terms() -> None:
    requests = query_terms(Counter([5, 6]), TermCounts(10, {7: 3}))
    assert requests.terms == Terms()
    assert requests.full_score > 0


@pytest.mark.req("D-02")
def test_an_empty_query_or_an_empty_store_is_not_an_error() -> None:
    assert query_terms(Counter(), TermCounts(10, {})).full_score == 0
    assert query_terms(Counter([1]), TermCounts(0, {})).terms == Terms()
    assert document_terms({}, 40.0) == Terms()


@pytest.mark.req("D-02")
@quick
@given(st.integers(1, 50))
def test_a_term_of_every_document_has_a_positive_weight(documents: int) -> None:
    assert query_terms(Counter([1]), TermCounts(documents, {1: documents})).terms.weights[0] > 0


@pytest.mark.req("D-02")
@quick
@given(st.integers(2, 50), st.data())
def test_rarer_terms_weigh_more(documents: int, data: st.DataObject) -> None:
    common = data.draw(st.integers(2, documents))
    rare = data.draw(st.integers(1, common - 1))
    requests = query_terms(Counter([1, 2]), TermCounts(documents, {1: rare, 2: common}))
    assert requests.terms.weights[0] > requests.terms.weights[1]


@pytest.mark.req("D-02")
@quick
@given(texts, st.integers(1, 10_000), averages)
def test_repeating_a_term_raises_its_weight_and_never_beyond_the_bound(rest: Text, times: int, average: float) -> None:
    once = document_terms({**rest, 99: times}, average).weights[-1]
    more = document_terms({**rest, 99: times + 1}, average).weights[-1]
    assert once <= more <= K1 + 1


@pytest.mark.req("D-02")
@quick
@given(st.integers(1, 9), st.integers(1, 500), averages)
def test_the_same_words_weigh_less_in_a_longer_text(times: int, others: int, average: float) -> None:
    short = document_terms({1: times}, average)
    long = document_terms({1: times, 2: others}, average)
    assert long.weights[0] < short.weights[0]


@pytest.mark.req("D-02")
@quick
@given(corpora, queries)
def test_term_numbers_are_sorted(corpus: list[Text], query: Counter[int]) -> None:
    backwards = dict(reversed(corpus[0].items()))
    assert document_terms(backwards, 10.0) == document_terms(corpus[0], 10.0)
    for made in (document_terms(backwards, 10.0), query_terms(query, count_terms(corpus)).terms):
        assert list(made.ids) == sorted(set(made.ids))
        assert len(made.ids) == len(made.weights)


def test_the_constants_are_those_that_the_index_was_built_with() -> None:
    assert (K1, B) == (1.2, 0.75)
