"""Escapes untrusted text for source files: nothing that a server sends may become code. Also reads the part of a client
module that is the same for all tools."""

from __future__ import annotations

import json
import re
from importlib import resources

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def read_runtime(file: str) -> str:
    """Reads the packaged source text that calls the gateway, to be appended to a generated module."""
    return resources.files("toolscript").joinpath("data", file).read_text(encoding="utf-8")


def split_comment_lines(text: str) -> list[str]:
    """Splits a text at every kind of line break and drops invisible characters, which could hide something."""
    lines = ["".join(map(_visible, line)).rstrip() for line in text.splitlines()]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def quote_typescript(text: str) -> str:
    """Returns a TypeScript (and JSON) string literal with invisible characters escaped."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in json.dumps(text, ensure_ascii=False))


def format_typescript_key(name: str) -> str:
    """Returns a property name in TypeScript, quoted unless it is an identifier."""
    return name if _PLAIN_KEY.fullmatch(name) else quote_typescript(name)


def quote_python(text: str) -> str:
    """Returns a Python string literal with invisible characters escaped."""
    escaped = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(escaped.get(c) or (c if c.isprintable() else ascii(c)[1:-1]) for c in text) + '"'


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else ""
