"""Untrusted text on one line. Asking in batches is tested with the classifier and the extractor that use it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.services.support.model_batches import one_line


@settings(max_examples=scale_examples(150), deadline=None)
@given(st.text(), st.integers(1, 50))
def test_untrusted_text_becomes_one_short_line(text: str, max_length: int) -> None:
    line = one_line(text, max_length)
    assert len(line) <= max_length
    assert line == " ".join(line.split())
    assert line.isprintable() or not line
    line.encode()


def test_what_is_not_a_string_becomes_empty() -> None:
    assert [one_line(value, 10) for value in (None, 7, ["a"], {"a": "b"})] == [""] * 4
