"""Names for generated code: from whatever a server calls things to identifiers that people can read.

Servers and tools may be called anything; two of them may come to the same identifier. `Names` keeps those apart
with a number, given in the order of asking, so that the same items always get the same names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _words(text: str) -> list[str]:
    """The runs of letters and digits. Normalised, because Python holds identifiers equal that normalise alike."""
    plain = unicodedata.normalize("NFKC", text)
    marked = "".join(c if f"a{c}".isidentifier() and c != "_" else " " for c in plain)
    return marked.split()


def _startable(name: str, fallback: str) -> str:
    if not name:
        return fallback
    return name if name.isidentifier() else f"_{name}"


def pascal(*texts: str) -> str:
    """`desktop-commander`, `read_file` → `DesktopCommanderReadFile`; humps stay as they are."""
    parts = ["".join(word[:1].upper() + word[1:] for word in _words(text)) or "Unnamed" for text in texts]
    return _startable("".join(parts), "Unnamed")


def camel(text: str) -> str:
    """`desktop-commander` → `desktopCommander`, `GitHub` → `gitHub`, `AWS docs` → `awsDocs`."""
    first, *others = _words(text) or ["unnamed"]
    start = first.lower() if first.isupper() else first[:1].lower() + first[1:]
    return _startable(start + "".join(word[:1].upper() + word[1:] for word in others), "unnamed")


def snake(text: str) -> str:
    """`desktop-commander` → `desktop_commander`, `GitHub` → `git_hub`."""
    return _startable("_".join(_HUMP.sub("_", word).lower() for word in _words(text)), "unnamed")


def bare(text: str) -> str:
    """The text as it is where it is an identifier, else with an underscore in place of what no identifier holds."""
    plain = unicodedata.normalize("NFKC", text)
    if plain.isidentifier() and not plain.startswith("__"):
        return plain
    return _startable("_".join(_words(text)), "unnamed")


class Names:
    """The names of one scope, each given once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def give(self, wish: str, *endings: str) -> str:
        """The wish, or the wish with the first number from 2 on that makes it new, with each of the endings."""
        number, name = 1, wish
        while any(name + ending in self._taken for ending in endings or ("",)):
            number += 1
            name = f"{wish}{number}"
        self._taken.update(name + ending for ending in endings or ("",))
        return name


def names_of(texts: Iterable[str], wish: Callable[[str], str], taken: Iterable[str] = ()) -> dict[str, str]:
    """A name for each text; one that is already called as it wishes to be is served before the others."""
    names = Names(taken)
    ordered = sorted(set(texts), key=lambda text: (wish(text) != text, text))
    return {text: names.give(wish(text)) for text in ordered}
