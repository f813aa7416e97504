"""Sets of books: reading them, errors in them, and places that answer a question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.books import BOOKS as FETCHED
from benchmarks.books import NoBooks, lay_out, write_questions
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Position
from toolscript.evaluation.datasets import AnswerPlace, BookSet, read_set

pytestmark = pytest.mark.req("K-07")

BOOKS = """
[[book]]
title = "Sailing"
authors = ["A. Sailor"]
files = ["sailing.md"]

[[book]]
title = "Knots"
type = "manual"
files = ["knots/2.html", "knots/1.html"]
"""
QUESTION = {"query": "how to reef?", "relevant": [{"source": "Sailing", "section": "Reefing", "pages": [7, 8]}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "library"
    (made / "knots").mkdir(parents=True)
    for name in ("sailing.md", "knots/1.html", "knots/2.html"):
        (made / name).write_text("text", encoding="utf-8")
    return made


def book_set(folder: Path, *questions: Any, books: str = BOOKS) -> BookSet:
    (folder / "books.toml").write_text(books, encoding="utf-8")
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions), encoding="utf-8")
    found = read_set(folder)
    assert isinstance(found, BookSet)
    return found


def test_books_and_questions_are_read(folder: Path) -> None:
    found = book_set(folder, QUESTION, {**QUESTION, "held_out": True})
    assert found.name == "library"
    sailing, knots = found.books
    assert (sailing.title, sailing.authors, sailing.type) == ("Sailing", ("A. Sailor",), "book")
    assert (knots.title, knots.authors, knots.type) == ("Knots", (), "manual")
    assert knots.files == (folder / "knots" / "2.html", folder / "knots" / "1.html")
    assert [q.is_test_only for q in found.queries] == [False, True]
    assert found.queries[0].places == (AnswerPlace("Sailing", "Reefing", frozenset({7, 8})),)


@pytest.mark.parametrize(
    ("books", "message"),
    [
        ("[[book]]\ntitle = 'Sailing'\n", "files"),
        ("[[book]]\ntitle = 'Sailing'\nfiles = []\n", "no files"),
        ("[[book]]\ntitle = 'Sailing'\nfiles = ['gone.pdf']\n", r"no such file: .*gone\.pdf"),
        ("[[book]\n", r"books\.toml"),
        ("", "book"),
    ],
)
def test_an_invalid_books_file_is_refused_with_what_is_needed(folder: Path, books: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        book_set(folder, QUESTION, books=books)


@pytest.mark.parametrize(
    "relevant", [[], ["Sailing"], [{"section": "Reefing"}], [{"source": "Cooking"}], {"Sailing": 1}]
)
def test_a_question_without_a_place_in_a_book_is_refused_with_its_number(folder: Path, relevant: Any) -> None:
    with pytest.raises(Invalid, match=r"queries\.jsonl, query 2: .*source"):
        book_set(folder, QUESTION, {"query": "why?", "relevant": relevant})


@pytest.mark.parametrize(
    ("place", "position", "contains"),
    [
        (AnswerPlace("Sailing"), Position(), True),
        (AnswerPlace("Knots"), Position("1", "Reefing", 7), False),
        (AnswerPlace("Sailing", "Reefing"), Position("3 Sails", "3.2.1. Reefing", 7), True),
        (AnswerPlace("Sailing", "Reefing"), Position("3 Sails", "Reefing the jib", 7), False),
        (AnswerPlace("Sailing", "Reefing"), Position("Chapter 4. REEFING", "", None), True),
        (AnswerPlace("Sailing", "Reefing"), Position("Chapter 4. Reefing", "Why", None), False),
        (AnswerPlace("Sailing", "A.1 The “reef”-knot?"), Position("", "The 'reef' knot", None), True),
        (AnswerPlace("Sailing", "The 2 reefs"), Position("", "2. The 2 reefs", None), True),
        (AnswerPlace("Sailing", pages=frozenset({7, 8})), Position(page=8), True),
        (AnswerPlace("Sailing", pages=frozenset({7, 8})), Position(page=9), False),
        (AnswerPlace("Sailing", pages=frozenset({7})), Position("", "Reefing", None), False),
        (AnswerPlace("Sailing", "Reefing", frozenset({7})), Position("", "Jibing", 7), False),
    ],
)
def test_a_place_contains_positions_in_its_book_section_and_pages(
    place: AnswerPlace, position: Position, *, contains: bool
) -> None:
    assert place.contains("Sailing", position) is contains


@pytest.mark.parametrize(("questions", "test_only_count"), [("everyday", 0), ("paraphrased", 12)])
def test_the_questions_are_about_the_books_that_are_fetched(folder: Path, questions: str, test_only_count: int) -> None:
    write_questions(folder, questions=questions)
    listed = "".join(f'[[book]]\ntitle = "{book.title}"\nfiles = ["sailing.md"]\n' for book in FETCHED)
    (folder / "books.toml").write_text(listed, encoding="utf-8")
    found = read_set(folder)
    assert isinstance(found, BookSet)
    assert len({question.text for question in found.queries}) == len(found.queries) >= 36
    assert sum(question.is_test_only for question in found.queries) == test_only_count
    assert {question.places[0].source for question in found.queries} == {book.title for book in FETCHED}


def test_without_the_tools_of_debian_an_error_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBooks, match="command not found: apt-get, dpkg-deb"):
        lay_out(tmp_path / "set")
