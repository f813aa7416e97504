"""What is asked of knowledge, as every surface is given it: words in a text with commas between them, or in a list."""

from __future__ import annotations

from typing import Any

from toolscript.domain.errors import InvalidArguments


def parse_words(field: str, given: Any) -> tuple[str, ...] | None:
    """The words, each once; None where none are given. Raises InvalidArguments, naming the field."""
    if given is None:
        return None
    if isinstance(given, str):
        words = [word.strip() for word in given.split(",") if word.strip()]
    elif isinstance(given, list) and all(isinstance(word, str) and word.strip() for word in given):
        words = [word.strip() for word in given]
    else:
        raise InvalidArguments(
            f"{field}: give a word, several with commas between them, or a list of words, none of them empty",
            details={"field": field},
        )
    return tuple(dict.fromkeys(words)) or None
