"""Reads evaluation sets: tools, documents or books, with queries and their relevant results."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import NoneType
from typing import Any

from toolscript.domain.catalog import Item
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Position
from toolscript.services.catalogue.demo import parse_item

Row = Mapping[str, Any]
# The keys of a line in each file, and the types of their values.
Keys = Mapping[str, tuple[type, ...]]
QUERY: Keys = {"query": (str,), "relevant": (list, dict)}
DOCUMENT: Keys = {"id": (str, int), "text": (str,)}
TOOL: Keys = {
    "id": (str, int),
    "server": (str,),
    "name": (str,),
    "description": (str, NoneType),
    "input_schema": (dict, NoneType),
}
BOOKS = "books.toml"
# Numbers of headings: "Chapter 12.", "12.1.1.", "A.4", "Appendix B."
NUMBERING = re.compile(
    r"^(?:(?:chapter|appendix|part|section)\s+)?(?:[0-9]+|[a-z](?=\.))(?:\.[0-9]+)*[.:)]?\s+", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """A query with its relevant results: grades by id, and groups. One member of each group must be found."""

    text: str
    grades: Mapping[str, float]
    groups: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class ToolSet:
    """Tools by their id in the set, queries with an answer, and the texts of queries without one."""

    name: str
    items: Mapping[str, Item]
    queries: list[JudgedQuery]
    unanswerable: list[str]


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """Documents and queries with graded relevance."""

    name: str
    documents: list[Document]
    queries: list[JudgedQuery]


@dataclass(frozen=True, slots=True)
class ListedBook:
    """A book of a set: its files in reading order, and its metadata."""

    title: str
    authors: tuple[str, ...]
    type: str
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """The place of an answer: a book, a heading, and pages. Any of the pages counts. Empty fields match everything."""

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


AnySet = ToolSet | DocumentSet | BookSet


def demo_folder() -> Path:
    """The folder of the packaged set."""
    return Path(str(resources.files("toolscript").joinpath("data/demo")))


def read_set(folder: Path) -> AnySet:
    """Reads a folder with `queries.jsonl` and one of `tools.jsonl[.gz]`, `documents.jsonl`, `books.toml`. Raises
    Invalid."""
    if not folder.is_dir():
        raise Invalid(f"not a folder: {folder}", details={"field": "DIR"})
    if (folder / BOOKS).is_file():
        return _read_books(folder, _read_query_rows(folder))
    judged = read_judged_set(folder)
    answerable = [j for j in judged if j.grades]
    documents = list(_read_rows(folder, "documents.jsonl", DOCUMENT))
    if documents:
        texts = [Document(str(d["id"]), d["text"], d.get("title") or "") for d in documents]
        return DocumentSet(folder.name, texts, answerable)
    tools = list(_read_rows(folder, "tools.jsonl", TOOL))
    if not tools:
        raise Invalid(
            f"no tools.jsonl, tools.jsonl.gz, documents.jsonl or books.toml in {folder}", details={"field": "DIR"}
        )
    items = {str(tool["id"]): parse_item(tool) for tool in tools}
    return ToolSet(folder.name, items, answerable, [j.text for j in judged if not j.grades])


def read_judged_set(folder: Path) -> list[JudgedQuery]:
    """Reads `queries.jsonl` and, if there is one, `negatives.jsonl`. Raises Invalid, also if no query has an answer."""
    rows = [*_read_query_rows(folder), *_read_rows(folder, "negatives.jsonl", QUERY)]
    judged = [_parse_query(row) for row in rows]
    if not any(each.grades for each in judged):
        raise Invalid(f"no query with an answer in {folder}/queries.jsonl", details={"field": "DIR"})
    return judged


def _read_query_rows(folder: Path) -> list[Row]:
    rows = list(_read_rows(folder, "queries.jsonl", QUERY))
    if not rows:
        raise Invalid(f"no queries.jsonl in {folder}", details={"field": "DIR"})
    return rows


def read_judged_queries(file: Path) -> list[JudgedQuery]:
    """Reads the queries of a file that have relevant results. Raises Invalid."""
    if not file.is_file():
        raise Invalid(f"no such file: {file}", details={"file": str(file)})
    queries = map(_parse_query, _read_rows(file.parent, file.name.removesuffix(".gz"), QUERY))
    return [query for query in queries if query.grades]


def _read_rows(folder: Path, name: str, keys: Keys) -> Iterator[Row]:
    """Yields the JSON objects of a file or of its .gz version; none if neither exists. Raises Invalid with the line."""
    plain, packed = folder / name, folder / f"{name}.gz"
    file = plain if plain.is_file() else packed
    if not file.is_file():
        return
    number = 0
    try:
        with plain.open(encoding="utf-8") if file is plain else gzip.open(packed, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):  # noqa: B007  (the error message needs it)
                yield _check_row(json.loads(line), keys)
    except (ValueError, OSError, EOFError) as error:
        raise Invalid(f"{file}, line {number or 1}: {error}", details={"file": str(file), "line": number}) from error


def _check_row(row: Any, keys: Keys) -> Row:
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  (caught with the other errors)
    for key, kinds in keys.items():
        if not isinstance(row.get(key), kinds):
            raise ValueError(f"invalid value of {key}" if key in row else f"missing key: {key}")  # noqa: TRY004
    return row


def _parse_query(row: Row) -> JudgedQuery:
    relevant = row["relevant"]
    pairs = relevant.items() if isinstance(relevant, dict) else ((i, 1.0) for i in relevant)
    grades = {str(i): float(grade) for i, grade in pairs if float(grade) > 0}
    return judge_query(row["query"], grades, row.get("groups"))


def judge_query(text: str, grades: Mapping[str, float], groups: Sequence[Sequence[Any]] | None = None) -> JudgedQuery:
    """A query with its relevant results. Without groups each of them must be found; empty groups do not count."""
    wanted = [group for group in groups or () if group] or [[i] for i in grades]
    return JudgedQuery(text, grades, tuple(frozenset(map(str, group)) for group in wanted))


def _read_books(folder: Path, rows: Sequence[Row]) -> BookSet:
    file = folder / BOOKS
    try:
        books = [_parse_book(folder, each) for each in tomllib.loads(file.read_text(encoding="utf-8"))["book"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Invalid(
            f"{file}: {error!r}: every [[book]] needs title and files; authors and type are optional",
            details={"file": str(file)},
        ) from error
    titles = {book.title for book in books}
    questions = [_parse_question(folder, number, row, titles) for number, row in enumerate(rows, 1)]
    return BookSet(folder.name, books, questions)


def _parse_book(folder: Path, table: Row) -> ListedBook:
    files = tuple(folder / name for name in table["files"])
    missing = next((file for file in files if not file.is_file()), None)
    if missing or not files:
        raise ValueError(f"no such file: {missing}" if missing else f"no files for {table['title']}")
    return ListedBook(str(table["title"]), tuple(table.get("authors", ())), str(table.get("type", "book")), files)


def _parse_question(folder: Path, number: int, row: Row, titles: set[str]) -> Question:
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
