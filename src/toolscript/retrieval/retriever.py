"""The one pipeline of every search: prepare the query (check it, embed it once, weigh its words), then rank it by
meaning and by words at the same time. Services fuse the two rankings by the rule of their use case."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolscript.domain.errors import ToolscriptError, UpstreamFailed
from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.domain.search import Candidate, SearchPart, SearchReport, SimilarityRange, TermCounts, Terms, Vector
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.retrieval.bm25 import QueryTerms, query_terms
from toolscript.retrieval.deadline import Deadline
from toolscript.retrieval.query import DEFAULT_RULES, QueryRules
from toolscript.retrieval.text.words import replace_unencodable, term_frequencies

CountTerms = Callable[[Sequence[int]], Awaitable[TermCounts]]

NO_TERMS = QueryTerms(Terms(), 0.0)

log = logging.getLogger(__name__)


class PreparedQuery(NamedTuple):
    """A query ready to be ranked; without a vector if no model could embed it, or none was wanted."""

    text: str
    vector: Vector | None = None
    terms: QueryTerms = NO_TERMS


@dataclass(frozen=True, slots=True)
class Legs:
    """The two rankings of one query."""

    dense: list[Candidate]
    lexical: list[Candidate]


class Retriever:
    """Ranks queries in the collections of one index with one model. Without a model, by words alone."""

    def __init__(self, embedder: Embedder | None, index: VectorIndex) -> None:
        self._embedder = embedder
        self._index = index

    @property
    def model(self) -> str | None:
        """The name of the model; None where there is none."""
        return self._embedder.model if self._embedder else None

    @property
    def similarity(self) -> SimilarityRange:
        """The range of the model's cosines; without a model, 0 to 1."""
        return (self._embedder and self._embedder.similarity) or SimilarityRange(0.0, 1.0)

    async def prepare(
        self,
        text: str,
        deadline: Deadline,
        report: SearchReport,
        *,
        rules: QueryRules = DEFAULT_RULES,
        correct: Callable[[str], str] | None = None,
        count_terms: CountTerms | None = None,
        dense: bool = True,
    ) -> PreparedQuery:
        """Checks the text, corrects its spelling, embeds it exactly once (unless `dense` is false) and weighs its words
        (with `count_terms`).

        Raises the errors of `rules` for a blank or overlong text, and those of `count_terms`. A model that fails,
        misses the deadline or returns no finite vector costs only the vector, and is added to the report.
        """
        rules.check(text)
        text = replace_unencodable(text)
        if correct is not None:
            text = correct(text)
        embedding = self._embed(text, deadline, report) if dense else _nothing()
        if count_terms is None:
            return PreparedQuery(text, await embedding)
        return PreparedQuery(text, *await asyncio.gather(embedding, self._weigh(text, count_terms)))

    async def rank(
        self,
        prepared: PreparedQuery,
        collection: str,
        report: SearchReport,
        *,
        where: Filter = EVERYTHING,
        depth: int,
        fields: Sequence[str] | None = None,
    ) -> Legs:
        """The best `depth` by meaning and the best `depth` by words, as far as they were prepared, with their payloads
        or these fields of them."""
        by_meaning = (
            self._index.dense(collection, prepared.vector, where=where, limit=depth, fields=fields)
            if prepared.vector is not None
            else None
        )
        by_word = (
            self._index.lexical(collection, prepared.terms.terms, where=where, limit=depth, fields=fields)
            if prepared.terms.terms.ids
            else None
        )
        with report.stage("rank"):
            if by_meaning and by_word:
                return Legs(*await asyncio.gather(by_meaning, by_word))
            return Legs(await by_meaning if by_meaning else [], await by_word if by_word else [])

    async def nearest(
        self,
        prepared: PreparedQuery,
        collection: str,
        *,
        where: Filter = EVERYTHING,
        limit: int,
        floor: float,
        count_to: int,
        fields: Sequence[str] | None = None,
    ) -> tuple[list[Candidate], int]:
        """The best by meaning alone, and the number of candidates above the floor, counted up to `count_to`."""
        if prepared.vector is None:
            return [], 0
        return await self._index.nearest(
            collection, prepared.vector, where=where, limit=limit, floor=floor, count_to=count_to, fields=fields
        )

    async def _embed(self, text: str, deadline: Deadline, report: SearchReport) -> Vector | None:
        if self._embedder is None:
            report.degrade(SearchPart.EMBEDDER)
            return None
        with report.stage("embed"):
            try:
                async with deadline.timeout():
                    vector = await self._embedder.embed_query(text)
                _require_finite(vector)
            except Exception as error:  # noqa: BLE001  (errors of a model must not fail the search)
                log.warning("query_not_embedded", extra={"reason": _describe(error, deadline)})
                report.degrade(SearchPart.EMBEDDER)
                return None
        return vector

    async def _weigh(self, text: str, count_terms: CountTerms) -> QueryTerms:
        frequencies = term_frequencies(text)
        return query_terms(frequencies, await count_terms(list(frequencies)))


async def _nothing() -> None:
    return None


def _require_finite(vector: Vector) -> None:
    # One dot product is several times faster than checking each number.
    if vector.ndim != 1 or not math.isfinite(vector.dot(vector)):
        raise UpstreamFailed("the model's vector is not a list of finite numbers")


def _describe(error: Exception, deadline: Deadline) -> str:
    if isinstance(error, ToolscriptError):
        return error.message
    if isinstance(error, TimeoutError):
        return f"no answer within {deadline.seconds:g} seconds"
    return f"{type(error).__name__}: {error}"
