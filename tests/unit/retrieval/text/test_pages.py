"""Pages of a text: nothing is lost, nothing repeated, and cuts are at sensible places."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.retrieval.text.pages import count_bytes, find_cut, split_text

pytestmark = pytest.mark.req("G-18")


@given(st.text(max_size=500), st.integers(1, 60))
def test_the_pages_joined_are_the_whole_text(text: str, max_bytes: int) -> None:
    pages = [text[start:end] for start, end in split_text(text, max_bytes)]
    assert "".join(pages) == text
    assert all(count_bytes(page) <= max_bytes or len(page) == 1 for page in pages)
    assert all(pages) or pages == [""]


@settings(max_examples=scale_examples(150), deadline=None)
@given(st.lists(st.text(st.sampled_from("ab \né😀"), max_size=20), max_size=40), st.integers(4, 60))
def test_json_comes_back_from_its_pages(values: list[str], max_bytes: int) -> None:
    text = json.dumps(values, ensure_ascii=False)
    assert json.loads("".join(text[start:end] for start, end in split_text(text, max_bytes))) == values


@pytest.mark.parametrize(
    ("text", "max_bytes", "first"),
    [
        ("first line\nsecond line\nthird", 24, "first line\nsecond line\n"),
        ('[{"a": 1}, {"a": 2}, {"a": 3}]', 24, '[{"a": 1}, {"a": 2}, '),
        ("One sentence. Another one, longer", 20, "One sentence. "),
        ("some words without an end", 12, "some words "),
        ("x" * 30, 12, "x" * 12),
        ("é" * 30, 12, "é" * 6),
        ("e\u0301" * 30, 13, "e\u0301" * 4),
        ("short", 12, "short"),
    ],
)
def test_a_page_ends_at_a_line_an_element_a_sentence_or_a_word(text: str, max_bytes: int, first: str) -> None:
    assert text[: find_cut(text, 0, max_bytes)] == first
