"""The rules for queries, and what their errors say to programs."""

from __future__ import annotations

import pytest

from toolscript.domain.errors import InvalidArguments
from toolscript.retrieval.query import DEFAULT_RULES, check_range

pytestmark = pytest.mark.req("X-03", "D-11")


def test_an_error_about_a_range_has_its_bounds() -> None:
    with pytest.raises(InvalidArguments) as caught:
        check_range("limit", 0, 1, 50)
    assert caught.value.details == {"field": "limit", "min": 1, "max": 50}


def test_an_error_about_a_length_has_the_maximum() -> None:
    max_characters = DEFAULT_RULES.max_characters
    DEFAULT_RULES.check_length("x" * max_characters)
    with pytest.raises(InvalidArguments) as caught:
        DEFAULT_RULES.check_length("x" * (max_characters + 1))
    assert caught.value.details == {"field": "query", "max_length": max_characters}
