"""A rerank service: its two request forms, and the error when it is down, slow or wrong."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.fixtures.rerankers import RerankApi, share
from toolscript.adapters.models.http_reranker import HttpReranker
from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed

pytestmark = pytest.mark.req("D-12")

QUERY = "the cat eats fish"
PASSAGES = ["a dog walks", "the cat eats the fish", "snow", "fish"]
RIGHT = [share(QUERY, passage) for passage in PASSAGES]
Rows = list[dict[str, Any]]


@pytest.fixture
async def service() -> AsyncIterator[tuple[RerankApi, HttpReranker]]:
    with RerankApi() as api:
        reranker = HttpReranker(f"{api.root}/v1", "a-secret-key", "some-model", timeout_seconds=60)
        yield api, reranker
        await reranker.close()


async def test_a_request_has_the_common_form_and_the_key(service: tuple[RerankApi, HttpReranker]) -> None:
    api, reranker = service
    assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT)
    assert api.requests == ["POST /v1/rerank"]
    assert api.bodies == [{"query": QUERY, "documents": PASSAGES, "top_n": 4, "model": "some-model"}]
    assert api.keys == ["Bearer a-secret-key"]
    assert reranker.model == "some-model"


@pytest.mark.parametrize("path", ["/rerank", "/v2/rerank", "/rerank/"])
async def test_a_url_that_ends_in_rerank_is_used_as_it_is(path: str) -> None:
    with RerankApi() as api:
        reranker = HttpReranker(api.root + path, None, None)
        await reranker.scores(QUERY, PASSAGES)
        assert api.requests == [f"POST {path.rstrip('/')}"]
        assert api.keys == [None]
        assert "model" not in api.bodies[0]
        await reranker.close()


async def test_the_form_with_texts_is_learnt_once() -> None:
    with RerankApi(takes_texts=True) as api:
        reranker = HttpReranker(api.root, None, None)
        assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT)
        assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT)
        assert [sorted(body) for body in api.bodies] == [
            ["documents", "query", "top_n"],
            ["query", "texts", "truncate"],
            ["query", "texts", "truncate"],
        ]
        await reranker.close()


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_service_is_retried_once(service: tuple[RerankApi, HttpReranker], status: int) -> None:
    api, reranker = service
    api.first = [(status, {"Retry-After": "0"})]
    assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT)
    api.first = [(status, {"Retry-After": "0"})] * 2
    with pytest.raises(Unavailable, match=f"too busy .{status}"):
        await reranker.scores(QUERY, PASSAGES)
    assert len(api.requests) == 4


async def test_a_busy_service_that_asks_for_a_long_wait_is_not_retried(service: tuple[RerankApi, HttpReranker]) -> None:
    api, reranker = service
    api.first = [(429, {"Retry-After": "3600"})]
    started = time.monotonic()
    with pytest.raises(Unavailable, match="too busy"):
        await reranker.scores(QUERY, PASSAGES)
    assert time.monotonic() - started < 60
    assert len(api.requests) == 1


def _without_last(rows: Rows) -> Rows:
    return rows[:-1]


def _twice(rows: Rows) -> Rows:
    return [*rows[:-1], rows[0]]


def _one_more(rows: Rows) -> Rows:
    return [*rows, rows[0]]


def _out_of_range(rows: Rows) -> Rows:
    return [{**row, "index": row["index"] + 1} for row in rows]


def _negative(rows: Rows) -> Rows:
    return [{**row, "index": row["index"] - 4} for row in rows]


def _with(value: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [{**rows[0], "relevance_score": value}, *rows[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        _without_last,
        _twice,
        _one_more,
        _out_of_range,
        _negative,
        *map(_with, [math.nan, "0.5", None, True]),
        lambda rows: [{"index": row["index"]} for row in rows],
        lambda rows: [{**row, "index": str(row["index"])} for row in rows],
        lambda _: 7,
        lambda rows: {str(row["index"]): row for row in rows},
    ],
)
async def test_a_response_that_does_not_score_each_passage_once_is_refused(
    service: tuple[RerankApi, HttpReranker], change: Callable[[Rows], Any]
) -> None:
    api, reranker = service
    api.change = change
    with pytest.raises(UpstreamFailed, match=r"unusable response|did not score each of the 4 passages once"):
        await reranker.scores(QUERY, PASSAGES)


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"<html>", b"null", b"{}", b"[" * 100_000, b"\xff\xfe"])
async def test_an_unusable_response_is_refused(service: tuple[RerankApi, HttpReranker], content: bytes) -> None:
    api, reranker = service
    api.instead = content
    with pytest.raises(UpstreamFailed, match="unusable response"):
        await reranker.scores(QUERY, PASSAGES)


async def test_a_response_beyond_the_maximum_size_is_refused(service: tuple[RerankApi, HttpReranker]) -> None:
    api, reranker = service
    api.instead = b" " * (9 * 2**20)
    with pytest.raises(UpstreamFailed, match="sent more than"):
        await reranker.scores(QUERY, PASSAGES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "setting"),
    [(500, "RERANKER"), (302, "RERANKER"), (401, "RERANKER_KEY")],
)
async def test_an_error_status_is_reported_with_the_setting_to_check(
    service: tuple[RerankApi, HttpReranker], status: int, setting: str
) -> None:
    api, reranker = service
    api.first = [(status, {"Location": "http://127.0.0.1:9/"})]
    with pytest.raises(UpstreamFailed, match=f"answered {status}") as raised:
        await reranker.scores(QUERY, PASSAGES)
    assert raised.value.details == {"field": f"TOOLSCRIPT_{setting}"}


async def test_a_service_that_never_answers_is_unavailable() -> None:
    with RerankApi() as api:
        api.hold.clear()
        reranker = HttpReranker(api.root, None, None, timeout_seconds=0.2)
        with pytest.raises(Unavailable, match="does not answer"):
            await reranker.scores(QUERY, PASSAGES)
        await reranker.close()


async def test_without_a_service_the_error_names_the_url_without_its_password() -> None:
    reranker = HttpReranker("http://user:pass@127.0.0.1:9", None, None)
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:9/rerank does not answer") as raised:
        await reranker.scores(QUERY, PASSAGES)
    assert "pass" not in json.dumps(raised.value.to_envelope())
    await reranker.close()


async def test_the_key_appears_in_no_message_or_log(
    service: tuple[RerankApi, HttpReranker], caplog: pytest.LogCaptureFixture
) -> None:
    api, reranker = service
    api.instead = b'{"error": "a-secret-key is not a key"}'
    with caplog.at_level(logging.DEBUG, "toolscript"), pytest.raises(UpstreamFailed) as raised:
        await reranker.scores(QUERY, PASSAGES)
    assert "[key] is not a key" in raised.value.message
    assert "a-secret-key" not in caplog.text + json.dumps(raised.value.to_envelope())


@pytest.mark.parametrize("url", ["", "nowhere", "ftp://there", "http://", "http://[::1"])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_RERANKER is not a valid URL"):
        HttpReranker(url, None, None)


@pytest.mark.parametrize("key", ["two\nlines", "größe"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_RERANKER_KEY has characters") as raised:
        HttpReranker("http://127.0.0.1:9", key, None)
    assert key not in raised.value.message
