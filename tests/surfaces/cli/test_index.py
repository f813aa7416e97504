"""`toolscript index rebuild` without an embedding model: it indexes what it can, and reports the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolscript.app.models import Model
from toolscript.settings import Settings
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("K-06", "H-15")

Toolscript = Callable[..., Result]


@pytest.fixture
def toolscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolscript:
    monkeypatch.setenv("TOOLSCRIPT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_MODEL", "hashed-64")

    def invoke(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["toolscript", *arguments])
        return CliRunner().invoke(run, list(arguments))

    return invoke


@pytest.fixture
def lose_the_model(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    async def nothing(settings: Settings) -> Model:
        return Model(None, "the hub does not answer")

    return lambda: monkeypatch.setattr("toolscript.app.app.open_model", nothing)


def test_without_knowledge_a_missing_model_is_not_reported(
    toolscript: Toolscript, lose_the_model: Callable[[], None]
) -> None:
    lose_the_model()
    rebuilt = toolscript("index", "rebuild", "--json")
    assert rebuilt.exit_code == 0
    answer = json.loads(rebuilt.stdout)
    assert (answer["model"], answer["documents"], answer["knowledge"]) == (None, 0, 0)
    assert "not indexed" not in rebuilt.stderr


def test_knowledge_that_cannot_be_indexed_is_reported_in_one_line(
    toolscript: Toolscript, lose_the_model: Callable[[], None], tmp_path: Path
) -> None:
    book = tmp_path / "book.md"
    book.write_text("# Rivers\n\nThey flow.\n", encoding="utf-8")
    assert toolscript("knowledge", "ingest", str(book)).exit_code == 0
    lose_the_model()
    rebuilt = toolscript("index", "rebuild")
    assert rebuilt.exit_code == 0
    assert "0 documents and 0 chunks and extractions of knowledge with no model" in rebuilt.stdout
    (line,) = [line for line in rebuilt.stderr.splitlines() if "knowledge" in line]
    assert "knowledge is not indexed" in line
    assert json.loads(toolscript("index", "rebuild", "--json").stdout)["knowledge"] is None
