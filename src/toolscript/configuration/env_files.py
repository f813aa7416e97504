"""Reads files with lines `NAME=VALUE`, for the environment of servers."""

from __future__ import annotations

import re
from collections.abc import Iterator

VARIABLE_NAME = r"[^=\x00-\x1f\x7f]+"


def parse_env_file(text: str) -> Iterator[tuple[str, str]]:
    """Yields the NAME=value lines, without quotes around a value and without a comment after it."""
    for line in text.split("\n"):
        name, equals, value = (part.strip() for part in line.partition("="))
        name, quote = name.removeprefix("export ").strip(), value[:1]
        if not equals or name.startswith("#") or not re.fullmatch(VARIABLE_NAME, name):
            continue
        end = value.find(quote, 1) if quote in {"'", '"'} else -1
        yield name, value[1:end] if end > 0 else value.partition(" #")[0].rstrip()
