"""The pipeline's contract: which queries it refuses, and what a model that fails costs."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest

from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import Invalid, InvalidArguments, Unavailable
from toolscript.domain.search import (
    MAX_QUERY_CHARACTERS,
    Collection,
    Point,
    SearchPart,
    SearchReport,
    TermCounts,
    Terms,
    Vector,
)
from toolscript.ports.models import Embedder
from toolscript.retrieval.query import QueryRules
from toolscript.retrieval.retriever import NO_TERMS, Legs, Retriever

LONG = 60.0


class BrokenEmbedder:
    """Answers queries with whatever `answer` does."""

    model = "broken"
    similarity = None

    def __init__(self, answer: Callable[[], Awaitable[Any]]) -> None:
        self._answer = answer

    async def embed_query(self, _: str) -> Any:
        return await self._answer()


def build_retriever(answer: Callable[[], Awaitable[Any]]) -> Retriever:
    return Retriever(cast(Embedder, BrokenEmbedder(answer)), MemoryIndex())


async def count_terms(terms: Any) -> TermCounts:
    return TermCounts(10, dict.fromkeys(terms, 1))


async def hang() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise Unavailable("no such host")


async def crash() -> None:
    raise LookupError("boom")


def answer(value: Any) -> Callable[[], Awaitable[Any]]:
    async def give() -> Any:
        return value

    return give


BROKEN: dict[str, tuple[Callable[[], Awaitable[Any]], str]] = {
    "hangs": (hang, "no answer within 0.02 seconds"),
    "fails": (fail, "no such host"),
    "crashes": (crash, "LookupError: boom"),
    "answers NaN": (answer(np.array([np.nan, 1.0], np.float32)), "finite numbers"),
    "answers infinity": (answer(np.array([np.inf, 1.0], np.float32)), "finite numbers"),
    "answers a matrix": (answer(np.zeros((2, 2), np.float32)), "finite numbers"),
    "answers text": (answer("0.1, 0.2"), "AttributeError"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_model_that_fails_costs_only_the_vector(name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, reason = BROKEN[name]
    caplog.set_level(logging.WARNING)
    report = SearchReport()
    prepared = await build_retriever(make).prepare("read a file", Deadline(0.02), report, count_terms=count_terms)
    assert prepared.vector is None
    assert len(prepared.terms.terms.ids) == 2
    assert report.degraded == [SearchPart.EMBEDDER]
    assert [reason in record.__dict__["reason"] for record in caplog.records] == [True]


async def test_without_a_model_the_report_says_so_unless_no_vector_was_wanted() -> None:
    retriever = Retriever(None, MemoryIndex())
    wanted, unwanted = SearchReport(), SearchReport()
    assert (await retriever.prepare("read", Deadline(LONG), wanted)).vector is None
    assert (await retriever.prepare("read", Deadline(LONG), unwanted, dense=False)).vector is None
    assert (wanted.degraded, unwanted.degraded) == (["embedder"], [])


async def test_the_corrected_text_is_embedded_and_the_given_text_is_checked() -> None:
    embedder = HashedEmbedder(64)
    retriever, report = Retriever(embedder, MemoryIndex()), SearchReport()
    given = "f" * MAX_QUERY_CHARACTERS
    prepared = await retriever.prepare(given, Deadline(LONG), report, correct=lambda text: f"{text} corrected")
    assert prepared.text == f"{given} corrected"
    assert prepared.terms == NO_TERMS
    assert np.array_equal(cast(Any, prepared.vector), await embedder.embed_query(prepared.text))
    assert (report.degraded, list(report.timings_ms)) == ([], ["embed"])


async def test_characters_that_cannot_be_encoded_are_replaced() -> None:
    prepared = await Retriever(None, MemoryIndex()).prepare("a \ud800", Deadline(LONG), SearchReport())
    assert prepared.text == "a ?"


@pytest.mark.parametrize(
    ("rules", "text", "error"),
    [
        (QueryRules(), " \u200b\n", InvalidArguments),
        (QueryRules(), "x" * 1001, InvalidArguments),
        (QueryRules(str.strip, Invalid), "\t", Invalid),
        (QueryRules(length_error=Invalid), "x" * 1001, Invalid),
    ],
)
async def test_a_blank_or_overlong_query_is_refused_before_anything_is_embedded(
    rules: QueryRules, text: str, error: type[Invalid]
) -> None:
    with pytest.raises(Invalid) as raised:
        await build_retriever(crash).prepare(text, Deadline(LONG), SearchReport(), rules=rules)
    assert type(raised.value) is error
    assert raised.value.details["field"] == "query"


def turn(read: float, mail: float) -> Vector:
    """A unit vector with these cosines to the needs `read` and `mail`."""
    return np.array([read, mail, math.sqrt(1 - read**2 - mail**2)], dtype=np.float32)


VECTORS = {"read, then mail": turn(0.6, 0.6), "read": turn(1, 0), "mail": turn(0, 1)}
TOOLS = {"read1": turn(0.9, 0.1), "read2": turn(0.88, 0.1), "read3": turn(0.86, 0.1), "mail1": turn(0.1, 0.8)}


class FixedEmbedder(HashedEmbedder):
    """Answers with the vectors above."""

    async def embed_query(self, text: str) -> Vector:
        return VECTORS[text]


async def rank_task(needs: Sequence[str]) -> Legs:
    index = MemoryIndex()
    await index.open(Collection("tools", "fixed", 3))
    await index.upsert("tools", [Point(i, vector, Terms(), {"name": i}) for i, vector in TOOLS.items()])
    retriever, report = Retriever(FixedEmbedder(dimensions=3), index), SearchReport()
    prepared = await retriever.prepare("read, then mail", Deadline(LONG), report, split=lambda _: needs)
    return await retriever.rank(prepared, "tools", report, depth=3)


@pytest.mark.req("S-01")
async def test_a_candidate_scores_half_for_a_short_whole_and_half_for_its_nearest_need_or_more_for_the_whole() -> None:
    legs = await rank_task(["read", "mail"])
    whole = {i: float(vector @ VECTORS["read, then mail"]) for i, vector in TOOLS.items()}
    nearest = {"read1": 0.9, "read2": 0.88, "read3": 0.86, "mail1": 0.8}
    assert {c.id: c.score for c in legs.dense} == pytest.approx(
        {i: max(whole[i], (whole[i] + cosine) / 2) for i, cosine in nearest.items()}, abs=1e-5
    )
    assert [c.score for c in legs.dense] == sorted((c.score for c in legs.dense), reverse=True)
    assert legs.needs == {"read1": "read", "read2": "read", "read3": "read", "mail1": "mail"}
    assert all(c.payload == {"name": c.id} for c in legs.dense)


@pytest.mark.req("S-01")
async def test_a_query_without_parts_is_ranked_as_a_whole() -> None:
    legs = await rank_task([])
    assert {c.id: c.score for c in legs.dense} == pytest.approx(
        {c.id: float(TOOLS[c.id] @ VECTORS["read, then mail"]) for c in legs.dense}, abs=1e-5
    )
    assert legs.needs == {}
