"""Runs a set of books through the application: all of them ingested, every question asked across all of them."""

from __future__ import annotations

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
# What the command has when nothing is chosen, and what there is.
PIPELINES = ("hybrid", "semantic")


class BookEvaluation:
    """One set at a time, over services that start out empty."""

    def __init__(self, ingest: IngestKnowledge, search: KnowledgeSearch) -> None:
        self._ingest = ingest
        self._search = search

    async def run(self, data: BookSet, pipeline: str) -> EvaluationResult:
        """Brings the books in and scores every question: one is answered by any of its places, once. Raises Invalid
        for a pipeline that there is not, and for a file that is no book."""
        if pipeline not in PIPELINES:
            raise Invalid(
                f"pipeline {pipeline!r} is not for books, which are searched by meaning: leave it out",
                details={"field": "--pipeline", "allowed": list(PIPELINES)},
            )
        taken = [await self._take(book) for book in data.books]
        scores = await run_concurrently(self._score, data.queries)
        for source in taken:
            await self._ingest.remove(source.id)
        return EvaluationResult(scores, parts=_parts(data, scores))

    async def _take(self, book: ListedBook) -> Source:
        about = SourceDetails(book.title, book.authors, book.type, extract=False)
        if len(book.files) == 1:
            return (await self._ingest.ingest(book.files[0], about)).source
        return (await self._ingest.ingest_together(book.files[0].parent, book.files, about)).source

    async def _score(self, question: Question) -> Scores:
        found = await self._search.search(KnowledgeQuery(question.text[:MAX_QUERY_CHARACTERS], limit=DEPTH))
        ranking = [
            ANSWER if any(place.holds(hit.title, hit.position) for place in question.places) else hit.id
            for hit in found.hits
        ]
        return score_by_group(JudgedQuery(question.text, {ANSWER: 1.0}, (frozenset({ANSWER}),)), ranking)


def _parts(data: BookSet, scores: list[Scores]) -> dict[str, list[Scores]]:
    """The scores by book, that of the first place, and those of the questions that are held out."""
    parts: dict[str, list[Scores]] = {}
    for question, score in zip(data.queries, scores, strict=True):
        parts.setdefault(question.places[0].source, []).append(score)
    test_only = [score for question, score in zip(data.queries, scores, strict=True) if question.is_test_only]
    return parts | ({TEST_ONLY: test_only} if test_only else {})
