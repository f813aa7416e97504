"""A text is cut at paragraphs and sentences; its passages cover it in order."""

from __future__ import annotations

import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import choose, is_thorough, scale_examples
from toolscript.domain.documents import Passage
from toolscript.retrieval.text.chunking import OVERLAP, PASSAGE_SIZE, passages

pytestmark = pytest.mark.req("D-09")

ALPHABET = [*"ab .!?,\n\r\t\f\u2029。！\"')", "\n\n", ". ", "word ", "e\u0301", "👩\u200d🔬", "👍🏽", "\u0301", "é"]
texts = st.lists(st.sampled_from(ALPHABET), max_size=400).map("".join)


def cut(text: str, size: int = 40, overlap: int = 10) -> list[str]:
    return [text[p.start : p.end] for p in passages(text, size=size, overlap=overlap)]


def words(text: str) -> int:
    return len(text.split())


@settings(max_examples=scale_examples(150), deadline=None)
@given(texts)
@example("\u0301" * 300)
@example("a" * 300)
@example("\n" * 300)
@example("." * 300)
def test_passages_cover_the_text_in_order_and_are_short(text: str) -> None:
    found = passages(text, size=40, overlap=10)
    assert [p.part for p in found] == list(range(len(found)))
    assert (found[0].start, found[-1].end) == (0, len(text))
    for before, after in pairwise(found):
        assert before.start < after.start <= before.end < after.end
        assert before.end - after.start <= 10
    assert all(p.end - p.start <= 40 for p in found)
    assert all(2 * (p.end - p.start) >= 40 for p in found[:-1])


@settings(max_examples=scale_examples(150), deadline=None)
@given(texts)
def test_a_passage_is_not_cut_again(text: str) -> None:
    for passage in cut(text):
        assert passages(passage, size=40, overlap=10) == [Passage(0, 0, len(passage))]


@settings(max_examples=scale_examples(150), deadline=None)
@given(texts)
def test_the_same_text_is_cut_the_same_way(text: str) -> None:
    assert passages(text, size=40, overlap=10) == passages(text, size=40, overlap=10)


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(
    st.lists(st.sampled_from(["e\u0301", "o\u0308\u0323", "👩\u200d🔬", "👍🏽", "x", " "]), max_size=200).map("".join)
)
def test_letters_are_not_separated_from_their_marks(text: str) -> None:
    for passage in passages(text, size=40, overlap=10):
        for place in {passage.start, passage.end} - {0, len(text)}:
            assert not unicodedata.combining(text[place])
            assert "\u200d" not in text[place - 1 : place + 1]
            assert text[place] != "🏽"


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(st.lists(st.sampled_from(["one", "two. ", " ", "three\n", "x" * 30]), max_size=300).map("".join))
def test_passages_keep_to_the_given_measure(text: str) -> None:
    found = passages(text, size=12, overlap=4, measure=words)
    assert all(words(text[p.start : p.end]) <= 12 for p in found)
    assert (found[0].start, found[-1].end) == (0, len(text))


@pytest.mark.parametrize("text", ["", "short", "x" * PASSAGE_SIZE])
def test_a_text_that_fits_is_one_passage(text: str) -> None:
    assert passages(text) == [Passage(0, 0, len(text))]


def test_a_paragraph_ends_a_passage_rather_than_a_sentence() -> None:
    assert cut("It rains. It pours here.\n\nThe sun shines. The wind blows.")[0] == "It rains. It pours here.\n\n"


def test_a_sentence_ends_a_passage_rather_than_a_word() -> None:
    first, second = cut("It rains and pours here. The sun is shining on us.")
    assert first == "It rains and pours here. "
    assert second.endswith("The sun is shining on us.")


def test_a_closing_quotation_mark_stays_with_its_sentence() -> None:
    assert cut('She said: "It rains and pours." The sun is shining on us.')[0] == 'She said: "It rains and pours." '


def test_a_word_is_not_cut_where_there_is_a_space() -> None:
    assert all(p.strip().split()[0] == "tree" for p in cut("tree " * 50))


def test_a_passage_begins_with_the_end_of_the_one_before() -> None:
    sentences = "".join(f"Sentence number {n} says so. " for n in range(200))
    found = passages(sentences)
    for before, after in pairwise(found):
        assert 0 < before.end - after.start <= OVERLAP
        assert sentences[after.start :].startswith("Sentence")


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    choose(
        [
            "a",
            " ",
            ".",
            "\u0301",
            "a ",
            "a.\n",
            "\n\n",
            "。",
            "Some words make up a sentence, and this is one. ",
            "\u200d",
        ],
        *("a", "a.\n", "\u0301"),
    ),
)
def test_cutting_takes_linear_time(unit: str) -> None:
    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        started = time.thread_time()
        passages(text)
        return time.thread_time() - started

    size = 100_000 if is_thorough() else 30_000
    maximum = 20 * max(min(seconds(size) for _ in range(3)), size / 5_000_000)
    assert any(seconds(10 * size) < maximum for _ in range(3))
