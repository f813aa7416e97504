"""`toolscript eval` on whole books: what counts as an answer, per book and for held-out queries; JSON and table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.fixtures.examples import choose
from toolscript.surfaces.cli.main import run

pytestmark = [pytest.mark.req("K-06", "K-07"), pytest.mark.usefixtures("small_texts_read_here")]

SAILING = """# Sails

## Reefing

Reefing makes the mainsail smaller when the wind grows.

## Jibing

Jibing turns the stern of the boat through the wind.
"""
KNOTS = ("<h1>Bowline</h1><p>The bowline makes a loop that never slips.</p>", "<h1>Cleat</h1><p>Tie the painter.</p>")
BOOKS = """
[[book]]
title = "Sailing"
files = ["sailing.md"]

[[book]]
title = "Knots"
files = ["knots/1.html", "knots/2.html"]
"""


def place(source: str, section: str) -> dict[str, Any]:
    return {"source": source, "section": section}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    (folder / "knots").mkdir(parents=True)
    (folder / "sailing.md").write_text(SAILING, encoding="utf-8")
    for number, page in enumerate(KNOTS, 1):
        (folder / "knots" / f"{number}.html").write_text(f"<html><body>{page}</body></html>", encoding="utf-8")
    (folder / "books.toml").write_text(BOOKS, encoding="utf-8")
    questions = [
        {"query": "makes the mainsail smaller when the wind grows", "relevant": [place("Sailing", "Reefing")]},
        {"query": "Jibing turns the stern of the boat", "relevant": [place("Sailing", "A section that is not there")]},
        {"query": "a loop that never slips", "relevant": [place("Knots", "Bowline")], "held_out": True},
    ]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, questions)), encoding="utf-8")
    return folder


def evaluate(library: Path, *options: str) -> Result:
    return CliRunner().invoke(run, ["eval", str(library), "--model", "hashed-512", *options])


def test_a_question_is_answered_by_its_place_and_by_nothing_else(library: Path) -> None:
    answer = json.loads(evaluate(library, "--json").stdout)["sets"]["library"]
    assert answer["queries"] == 3
    assert answer["hit@1"] == answer["r@5"] == answer["r@10"] == answer["mrr"] == pytest.approx(2 / 3)
    parts = answer["parts"]
    assert {name: (part["queries"], part["r@5"]) for name, part in parts.items()} == {
        "Sailing": (2, 0.5),
        "Knots": (1, 1.0),
        "held out": (1, 1.0),
    }


@pytest.mark.parametrize("columns", choose(["80", "120"], "80"))
def test_every_book_has_a_line_in_the_table(library: Path, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    done = evaluate(library)
    assert done.exit_code == 0, done.output
    missing = [name for name in ("library", "Sailing", "Knots", "held out") if name not in done.stdout]
    assert missing == [], done.output


def test_other_pipelines_are_refused_for_books(library: Path) -> None:
    result = evaluate(library, "--pipeline", "keyword")
    assert result.exit_code == 2
    assert "not available for books" in result.output


def test_eval_does_not_change_the_users_own_knowledge(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCRIPT_KNOWLEDGE", "mongodb://127.0.0.1:9/nobody-is-there")
    monkeypatch.setenv("TOOLSCRIPT_DATA_DIR", str(tmp_path / "own"))
    assert evaluate(library, "--json").exit_code == 0
    assert not (tmp_path / "own" / "toolscript.db").exists()
