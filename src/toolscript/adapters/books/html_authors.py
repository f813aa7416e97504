"""Who wrote a page: what its head says, and the names above its text. Those further down are of other books."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolscript.adapters.books.parts import names, prose

_FIELDS = frozenset(["author", "authors", "citation_author", "dc.creator", "dcterms.creator"])
_OTHERS = ("biblio", "citation", "comment", "reference")
_LABEL = re.compile(r"(?:(?:written\s+)?by|authors?)\b\s*:?\s*", re.IGNORECASE)
_ADDRESS = re.compile(r"\S*@\S*")
# Longer than that is no title page, and no name.
_TITLE_PAGE = 500
_LONGEST = 200


class PageAuthors:
    """Listens to a page for the names of its authors. Where one such element is in another, the inner one is the name,
    and what else the outer one holds is not."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}
        self._above = _TITLE_PAGE
        self._around: int | None = None
        self._at: int | None = None
        self._text: list[str] = []

    @property
    def found(self) -> tuple[str, ...]:
        return tuple(self._found)

    def learn(self, said: Mapping[str, str]) -> None:
        """Takes what a `meta` element says."""
        if not _FIELDS.isdisjoint(said.get(key, "").lower() for key in ("name", "property", "itemprop")):
            self._found |= dict.fromkeys(names(said.get("content", "")))

    def begin(self, tag: str, said: Mapping[str, str], depth: int) -> bool:
        """Whether the element that begins at that depth is the name of an author."""
        if self._above <= 0:
            return False
        classes = said.get("class", "").lower().split()
        if any(each.startswith(_OTHERS) for each in classes):
            self._above = 0
            return False
        named = "author" in classes or said.get("itemprop") == "author" or (tag == "a" and said.get("rel") == "author")
        if not named and (self._around is None or said.get("itemprop") != "name"):
            return False
        self._around = depth if self._around is None else self._around
        self._at, self._text = depth, []
        return True

    def say(self, text: str) -> None:
        if self._at is not None:
            self._text.append(text)

    def end(self, left: int) -> None:
        """An element ended, and so many are left around."""
        if self._at is not None and left < self._at:
            said = prose(_ADDRESS.sub("", _LABEL.sub("", prose("".join(self._text)), count=1)))
            if len(said) <= _LONGEST and any(sign.isalpha() for sign in said):
                self._found |= dict.fromkeys(names(said))
            self._at = None
        if self._around is not None and left < self._around:
            self._around = None

    def read(self, length: int) -> None:
        """So much text was read: the title page is where there is little of it."""
        self._above -= length

    @property
    def is_near(self) -> bool:
        """Whether an element of an author is open."""
        return self._around is not None
