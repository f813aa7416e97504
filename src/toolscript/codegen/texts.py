"""Text from strangers, made fit for a source file: what a server says must never become code."""

from __future__ import annotations

import json
import re

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def comment_lines(text: str) -> list[str]:
    """The lines of a text by any line break there is, without what cannot be seen (which could hide something)."""
    lines = ["".join(map(_visible, line)).rstrip() for line in text.splitlines()]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def script_string(text: str) -> str:
    """A string literal of TypeScript (and of JSON), in which nothing invisible is left as it is."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in json.dumps(text, ensure_ascii=False))


def script_key(name: str) -> str:
    """A property's name in TypeScript: quoted where it is no identifier."""
    return name if _PLAIN_KEY.fullmatch(name) else script_string(name)


def python_string(text: str) -> str:
    """A string literal of Python, in which nothing invisible is left as it is."""
    escaped = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(escaped.get(c) or (c if c.isprintable() else ascii(c)[1:-1]) for c in text) + '"'


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else ""
