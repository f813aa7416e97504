"""Sets of whole books, and questions with the places that answer them: how knowledge search is measured."""

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
# "Chapter 12.", "12.1.1.", "A.4", "Appendix B.": what a heading is numbered with.
NUMBERING = re.compile(
    r"^(?:(?:chapter|appendix|part|section)\s+)?(?:[0-9]+|[a-z](?=\.))(?:\.[0-9]+)*[.:)]?\s+", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ListedBook:
    """A book of a set: its files in reading order, and what is said of it."""

    title: str
    authors: tuple[str, ...]
    type: str
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """Where an answer stands: in a book, under a heading, on any of some pages; what is empty does not matter."""

    source: str
    section: str = ""
    pages: frozenset[int] = frozenset()

    def holds(self, title: str, position: Position) -> bool:
        """Whether what stands there in that book is an answer. What has no section stands under its chapter."""
        found = position.section or position.chapter
        return (
            title == self.source
            and (not self.section or _plain(found) == _plain(self.section))
            and (not self.pages or position.page in self.pages)
        )


@dataclass(frozen=True, slots=True)
class Question:
    """A question and all places that answer it; one held out is for measuring alone, not for choosing by."""

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
    """The set of a folder with books.toml, given the rows of its queries. Raises Invalid."""
    file = folder / BOOKS
    try:
        books = [_book(folder, each) for each in tomllib.loads(file.read_text(encoding="utf-8"))["book"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Invalid(
            f"{file}: {error!r}: give every [[book]] a title and files, and authors and a type if you like",
            details={"file": str(file)},
        ) from error
    titles = {book.title for book in books}
    return BookSet(folder.name, books, [_question(folder, number, row, titles) for number, row in enumerate(rows, 1)])


def _book(folder: Path, given: Mapping[str, Any]) -> ListedBook:
    files = tuple(folder / name for name in given["files"])
    missing = next((file for file in files if not file.is_file()), None)
    if missing or not files:
        raise ValueError(f"{missing} is not there" if missing else f"{given['title']} has no files")
    return ListedBook(str(given["title"]), tuple(given.get("authors", ())), str(given.get("type", "book")), files)


def _question(folder: Path, number: int, row: Mapping[str, Any], titles: set[str]) -> Question:
    try:
        places = tuple(
            AnswerPlace(each["source"], each.get("section", ""), frozenset(each.get("pages", ())))
            for each in row["relevant"]
        )
    except (KeyError, TypeError, AttributeError):
        places = ()
    if not places or any(place.source not in titles for place in places):
        raise Invalid(
            f"{folder / 'queries.jsonl'}, query {number}: relevant must be a list of places, each with its source, a "
            f"title of {BOOKS}, and if you like its section and its pages",
            details={"file": str(folder / "queries.jsonl"), "allowed": sorted(titles)},
        )
    return Question(row["query"], places, bool(row.get("held_out")))


def _plain(heading: str) -> str:
    """A heading without its number, in words alone: readers write them in different ways."""
    return " ".join(re.findall(r"\w+", NUMBERING.sub("", heading.strip()).casefold()))
