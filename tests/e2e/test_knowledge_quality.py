"""Quality of knowledge search on a real book: questions in other words find their passage."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from benchmarks.books import BOOKS, NoBooks, lay_out, write_questions
from tests.fixtures.databases import open_memory_database
from tests.fixtures.event_sinks import NoEvents
from toolscript.adapters.files.reader import FileBooks
from toolscript.adapters.memory import MemoryIndex
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.sql.knowledge import SqlKnowledge
from toolscript.evaluation.datasets import BookSet, read_set
from toolscript.evaluation.metrics import mean
from toolscript.evaluation.run import evaluate_books
from toolscript.retrieval.retriever import Retriever
from toolscript.services.knowledge.ingest import IngestKnowledge
from toolscript.services.knowledge.search import KnowledgeSearch

CACHE = Path(os.environ.get("TOOLSCRIPT_TEST_BOOKS", Path(__file__).parents[2] / "build" / "books"))
MANUAL = next(book for book in BOOKS if book.name == "policy")
# The chapters that answer questions, half of the book: embedding the rest takes half a minute.
CHAPTERS = (3, 4, 5, 6, 9, 10, 11, 12)
CHAPTER = re.compile(r"\n(?=\d+\. [^\n]+\n\*{5,}\n)")


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> BookSet:
    """Chapters of a book, fetched once, with its questions as they are now."""
    folder = CACHE / MANUAL.name
    if not (folder / "books.toml").is_file():
        try:
            lay_out(folder, [MANUAL])
        except NoBooks as reason:
            pytest.skip(str(reason))
    shortened = tmp_path_factory.mktemp("books") / MANUAL.name
    shutil.copytree(folder, shortened)
    write_questions(shortened, [MANUAL], "paraphrased")
    (text,) = shortened.rglob("*.txt")
    chapters = CHAPTER.split(text.read_text(encoding="utf-8"))
    text.write_text("\n".join(chapters[number] for number in (0, *CHAPTERS)), encoding="utf-8")
    found = read_set(shortened)
    assert isinstance(found, BookSet)
    return found


@pytest.mark.extended
@pytest.mark.req("K-06", "K-07")
async def test_four_of_five_questions_find_the_section_that_answers_them(manual: BookSet, minilm: OnnxEmbedder) -> None:
    database, index = open_memory_database(), MemoryIndex()
    store = SqlKnowledge(database)
    ingest = IngestKnowledge(store, index, minilm, FileBooks(), None)
    search = KnowledgeSearch(Retriever(minilm, index), index, store, NoEvents())
    outcome = await evaluate_books(ingest, search, manual, "semantic")
    await database.close()
    assert len(outcome.scores) >= 12
    assert mean(outcome.scores)["r@5"] >= 0.8
