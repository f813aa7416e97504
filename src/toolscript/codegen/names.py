"""Names and texts for generated code. Nothing that a server sends may become code: names become identifiers, texts are
escaped.

Servers and tools can have any name, and two names can lead to the same identifier. `UniqueNames` then appends a
number, in the order of the calls, so that the same items always get the same identifiers.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from importlib import resources

# A nested type has the names of all types around it in its own name.
MAX_NAME_LENGTH = 100

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _words(text: str) -> list[str]:
    """The runs of letters and digits, in NFKC: Python treats identifiers with the same NFKC form as equal."""
    plain = unicodedata.normalize("NFKC", text[: 4 * MAX_NAME_LENGTH])
    marked = "".join(c if f"a{c}".isidentifier() and c != "_" else " " for c in plain)
    return marked.split()


def _make_startable(name: str, fallback: str) -> str:
    if not name:
        return fallback
    return name if name.isidentifier() else f"_{name}"


def to_pascal_case(*texts: str) -> str:
    """`desktop-commander`, `read_file` → `DesktopCommanderReadFile`; existing capitals stay."""
    parts = ["".join(word[:1].upper() + word[1:] for word in _words(text)) or "Unnamed" for text in texts]
    return _make_startable("".join(parts)[:MAX_NAME_LENGTH], "Unnamed")


def to_camel_case(text: str) -> str:
    """`desktop-commander` → `desktopCommander`, `GitHub` → `gitHub`, `AWS docs` → `awsDocs`."""
    first, *others = _words(text) or ["unnamed"]
    start = first.lower() if first.isupper() else first[:1].lower() + first[1:]
    return _make_startable(start + "".join(word[:1].upper() + word[1:] for word in others), "unnamed")


def to_snake_case(text: str) -> str:
    """`desktop-commander` → `desktop_commander`, `GitHub` → `git_hub`."""
    return _make_startable("_".join(_HUMP.sub("_", word).lower() for word in _words(text)), "unnamed")


def to_identifier(text: str) -> str:
    """The text itself where it is an identifier, else with an underscore for each run of invalid characters."""
    plain = unicodedata.normalize("NFKC", text)
    if plain.isidentifier() and not plain.startswith("__"):
        return plain
    return _make_startable("_".join(_words(text)), "unnamed")


class UniqueNames:
    """Hands out the names of one scope, each only once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._numbers: dict[tuple[str, ...], int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def take(self, preferred: str, *endings: str) -> str:
        """Returns the preferred name, followed by the first number from 2 on that leaves it free with every ending, and
        takes it."""
        key = (preferred, *endings)
        number, name = self._numbers.get(key, 1), preferred
        while any(name + ending in self._taken for ending in endings or ("",)):
            number += 1
            name = f"{preferred}{number}"
        self._numbers[key] = number
        self._taken.update(name + ending for ending in endings or ("",))
        return name


def assign_names(texts: Iterable[str], convert: Callable[[str], str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Returns a unique name for each text. Texts that need no conversion come first, so that they keep their name."""
    names = UniqueNames(taken)
    ordered = sorted(set(texts), key=lambda text: (convert(text) != text, text))
    return {text: names.take(convert(text)) for text in ordered}


def read_runtime(file: str) -> str:
    """Reads the packaged source text that calls the gateway, to be appended to a generated module."""
    return resources.files("toolscript").joinpath("data", file).read_text(encoding="utf-8")


def split_comment_lines(text: str) -> list[str]:
    """Splits a text at every kind of line break and drops invisible characters: they could hide something."""
    lines = [(line if line.isprintable() else "".join(map(_visible, line))).rstrip() for line in text.splitlines()]
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
