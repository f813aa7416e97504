"""The pipeline's contract: which queries it refuses, and what a model that fails costs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import numpy as np
import pytest

from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.domain.errors import Invalid, InvalidArguments, Unavailable
from toolscript.domain.search import MAX_QUERY_CHARACTERS, SearchPart, SearchReport, TermCounts
from toolscript.ports.models import Embedder
from toolscript.retrieval.deadline import Deadline
from toolscript.retrieval.query import QueryRules
from toolscript.retrieval.retriever import NO_TERMS, Retriever

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
