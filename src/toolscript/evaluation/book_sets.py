"""Evaluation sets for knowledge search: whole books, and questions with the places that answer them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Position

BOOKS = "books.toml"
# Numbers of headings: "Chapter 12.", "12.1.1.", "A.4", "Appendix B."
NUMBERING = re.compile(
    r"^(?:(?:chapter|appendix|part|section)\s+)?(?:[0-9]+|[a-z](?=\.))(?:\.[0-9]+)*[.:)]?\s+", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ListedBook:
    """A book of a set: its files in reading order, and its metadata."""

    title: str
    authors: tuple[str, ...]
    type: str
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """The place of an answer: a book, a heading, and pages of which any counts. Empty fields match everything."""

    source: str
    section: str = ""
    pages: frozenset[int] = frozenset()

    def contains(self, title: str, position: Position) -> bool:
        """Whether a position in the book of this title is part of the place. Without a section its chapter counts."""
        heading = position.section or position.chapter
        return (
            title == self.source
            and (not self.section or _normalize(heading) == _normalize(self.section))
            and (not self.pages or position.page in self.pages)
        )


@dataclass(frozen=True, slots=True)
class Question:
    """A question and all places that answer it. Test-only questions must not be used to choose parameters."""

    text: str
    places: tuple[AnswerPlace, ...]
    is_test_only: bool = False


@dataclass(frozen=True, slots=True)
class BookSet:
    """Books and questions."""

    name: str
    books: list[ListedBook]
    queries: list[Question]


def read_book_set(folder: Path, rows: Sequence[Mapping[str, Any]]) -> BookSet:
    """Reads the set of a folder with books.toml; `rows` are its queries. Raises Invalid."""
    file = folder / BOOKS
    try:
        books = [_parse_book(folder, each) for each in tomllib.loads(file.read_text(encoding="utf-8"))["book"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Invalid(
            f"{file}: {error!r}: every [[book]] needs title and files; authors and type are optional",
            details={"file": str(file)},
        ) from error
    titles = {book.title for book in books}
    return BookSet(
        folder.name, books, [_parse_question(folder, number, row, titles) for number, row in enumerate(rows, 1)]
    )


def _parse_book(folder: Path, table: Mapping[str, Any]) -> ListedBook:
    files = tuple(folder / name for name in table["files"])
    missing = next((file for file in files if not file.is_file()), None)
    if missing or not files:
        raise ValueError(f"no such file: {missing}" if missing else f"no files for {table['title']}")
    return ListedBook(str(table["title"]), tuple(table.get("authors", ())), str(table.get("type", "book")), files)


def _parse_question(folder: Path, number: int, row: Mapping[str, Any], titles: set[str]) -> Question:
    try:
        places = tuple(
            AnswerPlace(each["source"], each.get("section", ""), frozenset(each.get("pages", ())))
            for each in row["relevant"]
        )
    except (KeyError, TypeError, AttributeError):
        places = ()
    if not places or any(place.source not in titles for place in places):
        raise Invalid(
            f"{folder / 'queries.jsonl'}, query {number}: relevant must be a list of places, each with a source (a "
            f"title in {BOOKS}) and optionally section and pages",
            details={"file": str(folder / "queries.jsonl"), "allowed": sorted(titles)},
        )
    return Question(row["query"], places, bool(row.get("held_out")))


def _normalize(heading: str) -> str:
    """The words of a heading without its number: file formats write headings differently."""
    return " ".join(re.findall(r"\w+", NUMBERING.sub("", heading.strip()).casefold()))
