"""The one pipeline of every search: prepare the query (check it, embed it once, weigh its words), then rank it by
meaning and by words at the same time. Services fuse the two rankings by the rule of their use case."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import ToolscriptError, UpstreamFailed
from toolscript.domain.filters import EVERYTHING, Filter, Payload
from toolscript.domain.search import (
    Candidate,
    SearchPart,
    SearchReport,
    SimilarityRange,
    Terms,
    Vector,
    sort_candidates,
)
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.retrieval.bm25 import QueryTerms, query_terms
from toolscript.retrieval.query import DEFAULT_RULES, QueryRules
from toolscript.retrieval.query_forms import CountTerms, weigh_query_forms
from toolscript.retrieval.text.needs import MIN_CHARACTERS
from toolscript.retrieval.text.words import replace_unencodable, term_frequencies

NO_TERMS = QueryTerms(Terms(), 0.0)
# The weight of the whole query beside the nearest of its needs (docs/benchmarks.md).
WHOLE = 0.5

log = logging.getLogger(__name__)


class Need(NamedTuple):
    """A part of a long request that asks for something of its own."""

    text: str
    vector: Vector


class PreparedQuery(NamedTuple):
    """A query ready to be ranked; without a vector if no model could embed it, or none was wanted."""

    text: str
    vector: Vector | None = None
    terms: QueryTerms = NO_TERMS
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, slots=True)
class Legs:
    """The two rankings of one query; for a query with several needs also the nearest need of each candidate."""

    dense: list[Candidate]
    lexical: list[Candidate]
    needs: Mapping[str, str] = field(default_factory=dict)


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
        split: Callable[[str], Sequence[str]] | None = None,
        count_terms: CountTerms | None = None,
        any_language: bool = False,
        dense: bool = True,
    ) -> PreparedQuery:
        """Checks the text, corrects its spelling, embeds it exactly once (unless `dense` is false) with the needs that
        `split` finds in it, and weighs its words (with `count_terms`): English stems, or with `any_language` the stems
        of every language that the counted texts have.

        Raises the errors of `rules` for a blank or overlong text, and the errors of `count_terms`. A model that fails,
        misses the deadline or returns no finite vector costs only the vector, and is added to the report.
        """
        rules.check(text)
        text = replace_unencodable(text)
        if correct is not None:
            text = correct(text)
        parts = split(text) if dense and split is not None else ()
        embedding = self._embed([text, *parts], deadline, report) if dense else _embed_nothing()
        if count_terms is None:
            vectors, terms = await embedding, NO_TERMS
        else:
            weigh = weigh_query_forms if any_language else _weigh
            vectors, terms = await asyncio.gather(embedding, weigh(text, count_terms))
        if not vectors:
            return PreparedQuery(text, None, terms)
        return PreparedQuery(text, vectors[0], terms, tuple(map(Need, parts, vectors[1:])))

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
        vectors = [] if prepared.vector is None else [prepared.vector, *(need.vector for need in prepared.needs)]
        search = [self._index.dense(collection, vector, where=where, limit=depth, fields=fields) for vector in vectors]
        if prepared.terms.terms.ids:
            search.append(
                self._index.lexical(collection, prepared.terms.terms, where=where, limit=depth, fields=fields)
            )
        with report.stage("rank"):
            rankings = await asyncio.gather(*search) if len(search) > 1 else [await pending for pending in search]
            lexical = rankings.pop() if prepared.terms.terms.ids else []
            if len(rankings) > 1:
                payloads = {c.id: c.payload for ranking in [*rankings, lexical] for c in ranking}
                dense, needs = await self._compare_needs(prepared, vectors, collection, payloads)
                return Legs(dense, lexical, needs)
            return Legs(rankings[0] if rankings else [], lexical)

    async def read_payloads(
        self, collection: str, ids: Sequence[str], fields: Sequence[str] | None = None
    ) -> dict[str, Payload]:
        """The payloads of the existing points, or the given fields."""
        return await self._index.payloads(collection, ids, fields) if ids else {}

    async def count(self, collection: str, where: Filter) -> int:
        """The number of points that match a filter."""
        return await self._index.count(collection, where)

    async def _compare_needs(
        self,
        prepared: PreparedQuery,
        vectors: Sequence[Vector],
        collection: str,
        payloads: Mapping[str, Mapping[str, Any]],
    ) -> tuple[list[Candidate], dict[str, str]]:
        """The candidates with their payloads, and the nearest need of each. A candidate scores half its similarity to
        the whole query (the first vector) plus half its similarity to its nearest need. One vector says all of a short
        query: a candidate scores at least its similarity to the whole."""
        stored = await self._index.vectors(collection, list(payloads))
        if not stored:
            return [], {}
        cosines = np.stack(list(stored.values())) @ np.stack(vectors).T
        scores = _combine(cosines, prepared.text)
        nearest = cosines[:, 1:].argmax(axis=1)
        candidates = [Candidate(i, float(score), payloads[i]) for i, score in zip(stored, scores, strict=True)]
        return sort_candidates(candidates), {i: prepared.needs[n].text for i, n in zip(stored, nearest, strict=True)}

    async def _embed(self, texts: Sequence[str], deadline: Deadline, report: SearchReport) -> list[Vector]:
        """The vectors of the texts; none if the model fails for any of them."""
        if self._embedder is None:
            report.degrade(SearchPart.EMBEDDER)
            return []
        with report.stage("embed"):
            try:
                async with deadline.timeout():
                    if len(texts) == 1:
                        vectors = [await self._embedder.embed_query(texts[0])]
                    else:
                        vectors = await asyncio.gather(*map(self._embedder.embed_query, texts))
                for vector in vectors:
                    _require_finite(vector)
            except Exception as error:  # noqa: BLE001  (errors of a model must not fail the search)
                log.warning("query_not_embedded", extra={"reason": _describe(error, deadline)})
                report.degrade(SearchPart.EMBEDDER)
                return []
        return vectors


def compare(prepared: PreparedQuery, vectors: Mapping[str, Vector]) -> dict[str, float]:
    """The similarity of a prepared query to each of these vectors, as `rank` computes it."""
    if prepared.vector is None or not vectors:
        return {}
    queries = np.stack([prepared.vector, *(need.vector for need in prepared.needs)])
    cosines = np.stack(list(vectors.values())) @ queries.T
    return dict(zip(vectors, _combine(cosines, prepared.text).tolist(), strict=True))


def _combine(cosines: Any, text: str) -> Any:
    """One similarity for each row of cosines to the whole query and to its needs."""
    if cosines.shape[1] == 1:
        return cosines[:, 0]
    scores = WHOLE * cosines[:, 0] + (1 - WHOLE) * cosines[:, 1:].max(axis=1)
    return np.maximum(scores, cosines[:, 0]) if len(text) < MIN_CHARACTERS else scores


async def _weigh(text: str, count_terms: CountTerms) -> QueryTerms:
    frequencies = term_frequencies(text)
    return query_terms(frequencies, await count_terms(list(frequencies)))


async def _embed_nothing() -> list[Vector]:
    return []


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
