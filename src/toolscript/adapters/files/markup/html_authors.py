"""Finds the authors of a page: in its meta elements, and near its top. Names further down belong to other works. Its
date is in meta elements too."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolscript.adapters.files.dates import find_date
from toolscript.adapters.files.parts import clean_prose, split_authors

_FIELDS = frozenset(["author", "authors", "citation_author", "dc.creator", "dcterms.creator"])
_DATE_FIELDS = frozenset(
    (
        "date dc.date dcterms.date dcterms.issued dcterms.modified article:published_time article:modified_time "
        "citation_publication_date citation_date datepublished datemodified last-modified"
    ).split()
)
_OTHER_WORKS = ("biblio", "citation", "comment", "reference")
_LABEL = re.compile(r"(?:(?:written\s+)?by|authors?)\b\s*:?\s*", re.IGNORECASE)
_ADDRESS = re.compile(r"\S*@\S*")
# Authors are looked for before this many characters of text; a longer text is not a name.
_TITLE_PAGE_CHARACTERS = 500
_MAX_NAME_LENGTH = 200


class PageAuthors:
    """Collects author names while a page is parsed. Of nested author elements the inner one is the name."""

    def __init__(self) -> None:
        self.date = ""
        self._found: dict[str, None] = {}
        self._characters_left = _TITLE_PAGE_CHARACTERS
        self._outer_depth: int | None = None
        self._depth: int | None = None
        self._text: list[str] = []

    @property
    def found(self) -> tuple[str, ...]:
        return tuple(self._found)

    def read_meta(self, attributes: Mapping[str, str]) -> None:
        """Takes the authors or the date that a `meta` element names; of several dates the latest."""
        names = {attributes.get(key, "").lower() for key in ("name", "property", "itemprop")}
        if not _FIELDS.isdisjoint(names):
            self._found |= dict.fromkeys(split_authors(attributes.get("content", "")))
        if not _DATE_FIELDS.isdisjoint(names):
            self.date = max(self.date, find_date(attributes.get("content", "")))

    def begin(self, tag: str, attributes: Mapping[str, str], depth: int) -> bool:
        """Starts an element at that depth; returns whether it holds an author's name."""
        if self._characters_left <= 0:
            return False
        classes = attributes.get("class", "").lower().split()
        if any(each.startswith(_OTHER_WORKS) for each in classes):
            self._characters_left = 0
            return False
        is_author = "author" in classes or attributes.get("itemprop") == "author"
        is_author = is_author or (tag == "a" and attributes.get("rel") == "author")
        if not is_author and (self._outer_depth is None or attributes.get("itemprop") != "name"):
            return False
        self._outer_depth = depth if self._outer_depth is None else self._outer_depth
        self._depth, self._text = depth, []
        return True

    def add_text(self, text: str) -> None:
        if self._depth is not None:
            self._text.append(text)

    def end(self, left: int) -> None:
        """Ends an element; `left` elements stay open."""
        if self._depth is not None and left < self._depth:
            name = clean_prose(_ADDRESS.sub("", _LABEL.sub("", clean_prose("".join(self._text)), count=1)))
            if len(name) <= _MAX_NAME_LENGTH and any(character.isalpha() for character in name):
                self._found |= dict.fromkeys(split_authors(name))
            self._depth = None
        if self._outer_depth is not None and left < self._outer_depth:
            self._outer_depth = None

    def count_text(self, length: int) -> None:
        """Counts text that was read, to know when the title page is over."""
        self._characters_left -= length

    @property
    def is_inside_author(self) -> bool:
        """Whether an author element is open."""
        return self._outer_depth is not None
