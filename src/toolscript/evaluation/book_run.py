"""Evaluates knowledge search: ingests all books of a set, then searches them with every question."""

from __future__ import annotations

from dataclasses import dataclass

from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Source
from toolscript.domain.search import MAX_QUERY_CHARACTERS
from toolscript.evaluation.book_sets import BookSet, ListedBook, Question
from toolscript.evaluation.datasets import JudgedQuery
from toolscript.evaluation.metrics import Scores, score_by_group
from toolscript.evaluation.run import DEPTH, EvaluationResult, run_concurrently
from toolscript.services.knowledge.ingest import IngestKnowledge, SourceDetails
from toolscript.services.knowledge.search import KnowledgeQuery, KnowledgeSearch

ANSWER = "an answer"
TEST_ONLY = "held out"
# The command's default, and the name of the only pipeline.
PIPELINES = ("hybrid", "semantic")


@dataclass(frozen=True, slots=True)
class BookEvaluation:
    """Evaluates one set at a time, over services that are empty at the start."""

    ingest: IngestKnowledge
    search: KnowledgeSearch

    async def run(self, data: BookSet, pipeline: str) -> EvaluationResult:
        """Ingests the books and scores every question; any of its places answers it, once. Raises Invalid for an
        unknown pipeline, and for a file that is not a book."""
        if pipeline not in PIPELINES:
            raise Invalid(
                f"pipeline {pipeline!r} is not available for books: leave out --pipeline",
                details={"field": "--pipeline", "allowed": list(PIPELINES)},
            )
        sources = [await self._ingest_book(book) for book in data.books]
        scores = await run_concurrently(self._score, data.queries)
        for source in sources:
            await self.ingest.remove(source.id)
        return EvaluationResult(scores, parts=_parts(data, scores))

    async def _ingest_book(self, book: ListedBook) -> Source:
        about = SourceDetails(book.title, book.authors, book.type, extract=False)
        if len(book.files) == 1:
            return (await self.ingest.ingest(book.files[0], about)).source
        return (await self.ingest.ingest_together(book.files[0].parent, book.files, about)).source

    async def _score(self, question: Question) -> Scores:
        found = await self.search.search(KnowledgeQuery(question.text[:MAX_QUERY_CHARACTERS], limit=DEPTH))
        ranking = [
            ANSWER if any(place.contains(hit.title, hit.position) for place in question.places) else hit.id
            for hit in found.hits
        ]
        return score_by_group(JudgedQuery(question.text, {ANSWER: 1.0}, (frozenset({ANSWER}),)), ranking)


def _parts(data: BookSet, scores: list[Scores]) -> dict[str, list[Scores]]:
    """The scores by book (that of a question's first place), and those of the test-only questions."""
    parts: dict[str, list[Scores]] = {}
    for question, score in zip(data.queries, scores, strict=True):
        parts.setdefault(question.places[0].source, []).append(score)
    test_only = [score for question, score in zip(data.queries, scores, strict=True) if question.is_test_only]
    return parts | ({TEST_ONLY: test_only} if test_only else {})
