"""The texts that are accepted as queries."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.search import MAX_QUERY_CHARACTERS

# Unicode categories of letters, numbers, punctuation and symbols.
_VISIBLE = frozenset("LNPS")


def has_visible_character(text: str) -> bool:
    """Whether the text has a letter, a digit, punctuation or a symbol."""
    return any(unicodedata.category(character)[0] in _VISIBLE for character in text)


class QueryRules(NamedTuple):
    """What makes a query acceptable, and its errors otherwise: surfaces map them to different statuses."""

    has_content: Callable[[str], object] = has_visible_character
    blank_error: type[Invalid] = InvalidArguments
    length_error: type[Invalid] = InvalidArguments
    max_characters: int = MAX_QUERY_CHARACTERS

    def check(self, text: str) -> None:
        """Raises `blank_error` or `length_error` for a text that cannot be searched for."""
        if not self.has_content(text):
            raise self.blank_error(
                "the query is blank: describe in a few words what to search for", details={"field": "query"}
            )
        self.check_length(text)

    def check_length(self, text: str) -> None:
        """Raises `length_error` for a text that is too long."""
        if len(text) > self.max_characters:
            raise self.length_error(
                f"the query has {len(text)} characters, at most {self.max_characters} are allowed",
                details={"field": "query", "max_length": self.max_characters},
            )


DEFAULT_RULES = QueryRules()


def check_range(field: str, value: float, minimum: float, maximum: float) -> None:
    """Raises InvalidArguments, naming the field, for a value out of range."""
    if not minimum <= value <= maximum:
        raise InvalidArguments(
            f"{field} {value} is out of range: give {minimum} to {maximum}",
            details={"field": field, "min": minimum, "max": maximum},
        )
