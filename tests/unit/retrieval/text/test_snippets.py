"""Snippets: verbatim, within their limit, whole words, around the words of the query."""

from __future__ import annotations

import string
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import choose, scale_examples
from toolscript.retrieval.text.chunking import may_cut
from toolscript.retrieval.text.snippets import LONG, build_snippet
from toolscript.retrieval.text.words import stems

pytestmark = pytest.mark.req("D-08")

CLOCKS = (
    "It was a bright cold day in April, and the clocks were striking thirteen. Winston Smith, his chin nuzzled into "
    "his breast in an effort to escape the vile wind, slipped quickly through the glass doors of Victory Mansions."
)
VOCABULARY = [
    "wine",
    "wines",
    "lease",
    "Leases,",
    "(rent)",
    "a",
    "the",
    "cellar.",
    "naïve",
    "cafe\u0301s",
    "東京",
    "12",
]
prose = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=120).flatmap(
    lambda message: st.sampled_from([" ", "  ", "\n", "\n\n"]).map(lambda gap: gap.join(message))
)
anything = st.text(
    st.one_of(
        st.sampled_from(" \n\t\r\u3000"),
        st.sampled_from(string.ascii_letters + ".-_/'*"),
        st.sampled_from("\u0301\u200d\u1100\u1161\u0e31\u0938\u0940👍\U0001f3fd\U0001f1e9\U0001f1ea東京"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=400,
)
queries = st.sampled_from(["wine", "lease rent", "cafés naive", "東京 wine", "the", "nothing of it", "???", ""])
limits = st.integers(32, 300)
places = st.one_of(st.none(), st.tuples(st.integers(0, 400), st.integers(0, 400)).map(lambda p: (min(p), max(p))))


def response(
    text: str, query: str, maximum: int, *, near: tuple[int, int] | None = None, highlight: bool = False
) -> str:
    return build_snippet(text, stems(query), maximum, near=near, highlight=highlight)


@settings(max_examples=scale_examples(150), deadline=None)
@given(text=st.one_of(prose, anything), query=queries, maximum=limits, near=places, highlight=st.booleans())
def test_a_snippet_is_a_part_of_the_text_within_its_limit(
    text: str, query: str, maximum: int, near: tuple[int, int] | None, highlight: bool
) -> None:
    found = response(text, query, maximum, near=near, highlight=highlight)
    assert len(found) <= maximum
    assert found in text or (highlight and found.replace("**", "") in text.replace("**", ""))
    assert found == found.strip()


@settings(max_examples=scale_examples(150), deadline=None)
@given(text=prose, query=queries, maximum=limits, near=places)
def test_a_snippet_begins_and_ends_between_words(
    text: str, query: str, maximum: int, near: tuple[int, int] | None
) -> None:
    found = response(text, query, maximum, near=near)
    assert found.split() == [w for w in found.split() if w in VOCABULARY]
    assert found
    starts = [at for at in range(len(text)) if text.startswith(found, at)]
    assert any(
        (at == 0 or text[at - 1].isspace()) and (at + len(found) == len(text) or text[at + len(found)].isspace())
        for at in starts
    )


@settings(max_examples=scale_examples(150), deadline=None)
@given(text=anything, query=queries, maximum=limits, near=places)
def test_a_snippet_never_separates_a_letter_from_its_marks(
    text: str, query: str, maximum: int, near: tuple[int, int] | None
) -> None:
    found = response(text, query, maximum, near=near)
    whole = [
        at
        for at in range(len(text) + 1)
        if text.startswith(found, at) and may_cut(text, at) and may_cut(text, at + len(found))
    ]
    assert whole or not found


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(text=prose, query=queries, maximum=limits)
def test_a_snippet_shows_a_word_of_the_query_if_the_text_has_one(text: str, query: str, maximum: int) -> None:
    wanted = set(stems(query))
    has = wanted & set(stems(text)) if wanted else set()
    assert not has or wanted & set(stems(response(text, query, maximum)))


@settings(max_examples=scale_examples(150), deadline=None)
@given(text=prose, query=queries, maximum=limits)
def test_a_text_that_fits_is_shown_completely(text: str, query: str, maximum: int) -> None:
    if len(text.strip()) <= maximum:
        assert response(text, query, maximum) == text.strip()


@settings(max_examples=scale_examples(150), deadline=None)
@given(text=prose, query=queries, maximum=limits)
def test_exactly_the_matching_words_are_marked(text: str, query: str, maximum: int) -> None:
    wanted = set(stems(query))
    inside = response(text, query, maximum, highlight=True).split("**")[1::2]
    assert all(wanted & set(stems(word)) for word in inside)


def test_the_window_with_more_different_words_is_shown() -> None:
    text = "wine wine wine wine. " + "Nothing to see here. " * 20 + "The rent of the wine cellar. " + "And more. " * 20
    assert "rent of the wine cellar" in response(text, "wine cellar rent", 60)


def test_among_equal_windows_the_one_in_the_best_passage_is_shown() -> None:
    text = "First wine. " + "Nothing to see here. " * 20 + "Second wine. " + "Nothing to see here. " * 20
    at = text.index("Second")
    assert "First wine" in response(text, "wine", 40)
    assert "Second wine" in response(text, "wine", 40, near=(at, len(text)))


def test_a_better_window_beats_the_best_passage() -> None:
    text = "wine. " + "Nothing to see here. " * 20 + "The rent of the wine cellar."
    assert "rent" in response(text, "wine rent", 60, near=(0, 100))


def test_without_any_word_of_the_query_the_best_passage_begins_the_snippet() -> None:
    at = CLOCKS.index("Winston")
    assert response(CLOCKS, "zebra", 50, near=(at, len(CLOCKS))) == "Winston Smith, his chin nuzzled into his breast in"
    assert response(CLOCKS, "", 40) == "It was a bright cold day in April, and"


def test_a_passage_outside_of_the_text_is_ignored() -> None:
    assert response("A short text", "", 40, near=(500, 900)) == "A short text"
    assert response("A short text", "text", 40, near=(500, 900)) == "A short text"


def test_words_are_compared_by_stem_and_without_accents() -> None:
    assert response(CLOCKS, "strikes clock", 32, highlight=True) == "the **clocks** were **striking**"
    assert response("Deux cafe\u0301s noirs", "cafés", 40, highlight=True) == "Deux **cafe\u0301s** noirs"
    assert response("Call readFile() now", "file", 40, highlight=True) == "Call **readFile**() now"


def test_marks_count_towards_the_limit() -> None:
    for maximum in range(32, 120):
        assert len(response(CLOCKS, "clocks striking winds", maximum, highlight=True)) <= maximum


def test_spaces_and_lines_stay_as_they_are() -> None:
    assert response("one\n\n  two\tthree", "two", 40) == "one\n\n  two\tthree"


@pytest.mark.parametrize(
    "text",
    ["東京都は日本の首都です" * 40, "ไทยแลนด์" * 60, "हिन्दी" * 60, "https://example.org/" + "a-b" * 200, "x" * 900],
)
def test_scripts_without_spaces_and_long_words_are_cut_between_characters(text: str) -> None:
    found = response(text, "zebra", 100)
    assert 100 - LONG <= len(found) <= 100
    assert unicodedata.category(text[len(found)])[0] != "M"


LONG_TEXTS = {
    "prose": CLOCKS * 5_000,
    "no-spaces": "東京都は日本の首都です。" * 50_000,
    "one-word": "x" * 1_000_000,
    "dashes": "ab-" * 200_000,
    "one-letter": "e" + "\u0301" * 200_000,
    "marks-on-spaces": "a \u0301" * 60_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", choose(LONG_TEXTS, "no-spaces", "dashes", "one-letter"))
def test_a_megabyte_is_read_in_one_pass(kind: str) -> None:
    assert len(response(LONG_TEXTS[kind], "zebra", 240, highlight=True)) <= 240


@settings(max_examples=scale_examples(150), deadline=None)
@given(text=st.one_of(prose, anything), query=queries, maximum=limits, near=places, max_read=st.integers(64, 300))
def test_the_snippet_of_a_long_text_is_part_of_it_and_has_whole_words(
    text: str, query: str, maximum: int, near: tuple[int, int] | None, max_read: int
) -> None:
    found = build_snippet(text, stems(query), maximum, near=near, highlight=False, max_read=max_read)
    assert len(found) <= min(maximum, max(max_read, 1))
    assert found in text
    if text.isascii() and max(map(len, text.split()), default=0) < 20:
        assert set(found.split()) <= set(text.split())


def test_a_long_text_is_read_around_the_passage_or_from_the_beginning() -> None:
    text = "zebra " + "grass " * 500 + "zebra lion " + "sand " * 500
    place = text.index("zebra lion")
    requests = stems("zebra lion")
    assert build_snippet(text, requests, 40, near=None, highlight=False, max_read=200).startswith("zebra grass")
    assert "zebra lion" in build_snippet(text, requests, 40, near=(place, place + 10), highlight=False, max_read=200)
    assert "zebra lion" in build_snippet(text, requests, 40, near=None, highlight=False, max_read=len(text))


def test_words_are_found_together_with_other_words() -> None:
    assert response("The tenant pays the rent on the first day", "tenant rent", 24) == "tenant pays the rent on"


@pytest.mark.parametrize(
    ("query", "word"),
    [("vie", "vying"), ("lie", "lying"), ("on", "on"), ("up", "ups"), ("server", "HTTPServer"), ("file", "readFile")],
)
@pytest.mark.parametrize("quote", ["", "“"])
def test_a_word_is_found_in_its_other_forms(query: str, word: str, quote: str) -> None:
    text = f"{quote}{'lorem ipsum ' * 60}{word} {'dolor sit ' * 60}"
    assert f" {word} " in build_snippet(text, stems(query), 60, near=None, highlight=False)


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(st.lists(st.sampled_from(["read", "readFile", "HTTPServer", "x2Serve", "serves", "re-served", "unread"])))
def test_ascii_texts_have_the_same_snippets_as_other_texts(message: list[str]) -> None:
    text = " ".join([*["lorem"] * 60, *message, *["ipsum"] * 60])
    plain = build_snippet(text, stems("serve file"), 60, near=None, highlight=True)
    other = build_snippet(text + " “", stems("serve file"), 60, near=None, highlight=True)
    assert plain == other
