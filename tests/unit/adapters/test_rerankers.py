"""How a cross-encoder is found, loaded and fed, and what happens when a rerank service is down, slow or wrong."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.fixtures.http_services import SHIPPED, Hub
from tests.fixtures.rerankers import RerankApi, cross_encoder, share
from toolscript.adapters.http_reranker import HttpReranker
from toolscript.adapters.onnx.reranker import OnnxReranker, find_reranker
from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed

pytestmark = pytest.mark.req("D-12")

NO_HUB = "http://127.0.0.1:9"
QUERY = "the cat eats fish"
PASSAGES = ["a dog walks", "the cat eats the fish", "snow", "fish"]
RIGHT = [share(QUERY, passage) for passage in PASSAGES]
Rows = list[dict[str, Any]]


def _load(folder: Path) -> OnnxReranker:
    return OnnxReranker(find_reranker(str(folder), folder.parent / "cache", NO_HUB), device="cpu")


@pytest.mark.parametrize("file", ["onnx/model.onnx", "model.onnx", "onnx/model_quantized.onnx", "onnx/model_int8.onnx"])
async def test_a_folder_needs_no_more_than_a_tokenizer_and_a_model(tmp_path: Path, file: str) -> None:
    reranker = _load(cross_encoder(tmp_path / "mine", file=file))
    assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT, abs=1e-6)
    assert reranker.model == "mine"
    await reranker.close()


async def test_a_model_that_takes_no_segments_gets_none(tmp_path: Path) -> None:
    reranker = _load(cross_encoder(tmp_path / "mine", segments=False))
    assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT, abs=1e-6)
    await reranker.close()


async def test_a_long_pair_is_cut_in_the_passage_and_the_query_stays_whole(tmp_path: Path) -> None:
    reranker = _load(cross_encoder(tmp_path / "mine", window=32))
    query = "cat dog fish bird tree river city moon"
    # Three tokens of the 32 are no words and eight are the query's: 21 are left to the passage.
    seen, unseen = await reranker.scores(query, ["rain " * 20 + query, "rain " * 21 + query])
    assert (seen, unseen) == pytest.approx((share("cat", "cat"), share("cat", "")), abs=1e-6)
    await reranker.close()


async def test_a_query_longer_than_the_window_leaves_half_of_it_to_the_passage(tmp_path: Path) -> None:
    reranker = _load(cross_encoder(tmp_path / "mine", window=32))
    scores = await reranker.scores("cat " * 16 + "dog " * 100, ["cat", "dog", "rain " * 100])
    assert scores == pytest.approx([share("cat " * 16, "cat"), share("", "dog"), share("", "rain")], abs=1e-6)
    await reranker.close()


def test_a_folder_that_lacks_the_model_or_the_tokenizer_is_refused_naming_what_it_needs(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "mine")
    (folder / "tokenizer.json").rename(folder / "other.json")
    with pytest.raises(Invalid, match=r"needs tokenizer\.json and a model"):
        _load(folder)
    (folder / "other.json").rename(folder / "tokenizer.json")
    (folder / "onnx" / "model.onnx").unlink()
    with pytest.raises(Invalid, match=r"needs tokenizer\.json and a model"):
        _load(folder)


def test_a_tokenizer_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "mine")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(Invalid, match=r"tokenizer\.json is not a tokenizer"):
        _load(folder)


def test_a_file_that_is_no_model_cannot_be_loaded(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "mine")
    (folder / "onnx" / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(Unavailable, match=r"model\.onnx could not be loaded"):
        _load(folder)


def test_a_model_of_three_classes_is_no_cross_encoder(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no cross-encoder: it gives 3 numbers"):
        _load(cross_encoder(tmp_path / "mine", classes=3))


def test_an_embedding_model_is_no_cross_encoder() -> None:
    with pytest.raises(Invalid, match="no cross-encoder"):
        OnnxReranker(find_reranker(str(SHIPPED), SHIPPED, NO_HUB), device="cpu")


async def test_scores_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "mine")
    model = onnx.load(str(folder / "onnx" / "model.onnx"))
    (expected,) = (each for each in model.graph.initializer if each.name == "expected")
    expected.CopyFrom(helper.make_tensor("expected", TensorProto.FLOAT, [1], [math.nan]))
    onnx.save(model, str(folder / "onnx" / "model.onnx"))
    reranker = _load(folder)
    with pytest.raises(UpstreamFailed, match="no numbers"):
        await reranker.scores(QUERY, PASSAGES)
    await reranker.close()


async def test_a_dynamically_quantised_model_scores_a_passage_alike_in_any_company(tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    folder = cross_encoder(tmp_path / "mine")
    source, target = folder / "onnx" / "model.onnx", folder / "onnx" / "model_quantized.onnx"
    model = onnx.load(str(source))
    # A layer with weights, so that there is something to quantise.
    weights = np.full((1, 1), 1.0, np.float32)
    model.graph.initializer.append(
        helper.make_tensor("weights", TensorProto.FLOAT, [1, 1], weights.tobytes(), raw=True)
    )
    model.graph.node[-1].input[0] = "weighed"
    model.graph.node.insert(len(model.graph.node) - 1, helper.make_node("MatMul", ["logit", "weights"], ["weighed"]))
    onnx.save(model, str(source))
    quantize_dynamic(str(source), str(target), weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul"])
    assert b"DynamicQuantizeLinear" in target.read_bytes()
    reranker = _load(folder)
    passages = [*PASSAGES, *("fish " * n for n in range(60))]
    together = await reranker.scores(QUERY, passages)
    assert together == [(await reranker.scores(QUERY, [passage]))[0] for passage in passages]
    await reranker.close()


async def test_a_reranker_is_fetched_from_the_hub_once(tmp_path: Path) -> None:
    repository = cross_encoder(tmp_path / "repository", window=64)
    with Hub("someone/reranker", repository) as hub:
        fetched = find_reranker("someone/reranker", tmp_path / "models", hub.root)
    assert find_reranker("someone/reranker", tmp_path / "models", NO_HUB).onnx == fetched.onnx
    reranker = OnnxReranker(fetched, device="cpu")
    assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT, abs=1e-6)
    await reranker.close()


def test_a_hub_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        find_reranker("someone/reranker", tmp_path / "models", NO_HUB)


@pytest.fixture
async def service() -> AsyncIterator[tuple[RerankApi, HttpReranker]]:
    with RerankApi() as api:
        reranker = HttpReranker(f"{api.root}/v1", "a-secret-key", "some-model", timeout_seconds=5)
        yield api, reranker
        await reranker.close()


async def test_a_service_is_asked_in_the_common_form_with_the_key(service: tuple[RerankApi, HttpReranker]) -> None:
    api, reranker = service
    assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT)
    assert api.requests == ["POST /v1/rerank"]
    assert api.asked == [{"query": QUERY, "documents": PASSAGES, "top_n": 4, "model": "some-model"}]
    assert api.keys == ["Bearer a-secret-key"]
    assert reranker.model == "some-model"


@pytest.mark.parametrize("path", ["/rerank", "/v2/rerank", "/rerank/"])
async def test_the_url_of_the_route_itself_is_taken_as_it_is(path: str) -> None:
    with RerankApi() as api:
        reranker = HttpReranker(api.root + path, None, None)
        await reranker.scores(QUERY, PASSAGES)
        assert api.requests == [f"POST {path.rstrip('/')}"]
        assert api.keys == [None]
        assert "model" not in api.asked[0]
        await reranker.close()


async def test_a_service_that_takes_texts_is_learnt_once() -> None:
    with RerankApi(takes_texts=True) as api:
        reranker = HttpReranker(api.root, None, None)
        assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT)
        assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT)
        assert [sorted(asked) for asked in api.asked] == [
            ["documents", "query", "top_n"],
            ["query", "texts", "truncate"],
            ["query", "texts", "truncate"],
        ]
        await reranker.close()


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_service_is_asked_once_more(service: tuple[RerankApi, HttpReranker], status: int) -> None:
    api, reranker = service
    api.first = [(status, {"Retry-After": "0"})]
    assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT)
    api.first = [(status, {"Retry-After": "0"})] * 2
    with pytest.raises(Unavailable, match=f"too busy .{status}"):
        await reranker.scores(QUERY, PASSAGES)
    assert len(api.requests) == 4


async def test_nobody_waits_longer_than_two_seconds_for_a_busy_service(service: tuple[RerankApi, HttpReranker]) -> None:
    api, reranker = service
    api.first = [(429, {"Retry-After": "3600"})]
    started = time.monotonic()
    with pytest.raises(Unavailable, match="too busy"):
        await reranker.scores(QUERY, PASSAGES)
    assert time.monotonic() - started < 2
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


@pytest.mark.parametrize(
    "change",
    [
        _without_last,
        _twice,
        _one_more,
        _out_of_range,
        _negative,
        *map(_with, [math.nan, math.inf, "0.5", None, True, 10**400, [1]]),
        lambda rows: [{"index": row["index"]} for row in rows],
        lambda rows: [{**row, "index": str(row["index"])} for row in rows],
        lambda rows: [{**row, "index": bool(row["index"])} for row in rows],
        lambda _: None,
        lambda _: 7,
        lambda rows: {str(row["index"]): row for row in rows},
    ],
)
async def test_an_answer_that_does_not_score_each_passage_once_is_refused(
    service: tuple[RerankApi, HttpReranker], change: Callable[[Rows], Any]
) -> None:
    api, reranker = service
    api.change = change
    with pytest.raises(UpstreamFailed, match=r"makes no sense|did not score each of the 4 passages once"):
        await reranker.scores(QUERY, PASSAGES)


@pytest.mark.parametrize("said", [b"", b"<html>", b"[[[[", b"null", b"7", b'"yes"', b"{}", b"[" * 100_000, b"\xff\xfe"])
async def test_nonsense_is_refused(service: tuple[RerankApi, HttpReranker], said: bytes) -> None:
    api, reranker = service
    api.say_instead = said
    with pytest.raises(UpstreamFailed, match="makes no sense"):
        await reranker.scores(QUERY, PASSAGES)


async def test_an_endless_answer_is_not_read_to_its_end(service: tuple[RerankApi, HttpReranker]) -> None:
    api, reranker = service
    api.say_instead = b" " * (9 * 2**20)
    with pytest.raises(UpstreamFailed, match="sent more than"):
        await reranker.scores(QUERY, PASSAGES)


@pytest.mark.parametrize(
    ("status", "setting"),
    [(500, "RERANKER"), (502, "RERANKER"), (404, "RERANKER"), (302, "RERANKER"), (401, "RERANKER_KEY")],
)
async def test_a_service_that_fails_is_told_with_what_to_check(
    service: tuple[RerankApi, HttpReranker], status: int, setting: str
) -> None:
    api, reranker = service
    api.first = [(status, {"Location": "http://127.0.0.1:9/"})]
    with pytest.raises(UpstreamFailed, match=f"answered {status}") as told:
        await reranker.scores(QUERY, PASSAGES)
    assert told.value.details == {"field": f"TOOLSCRIPT_{setting}"}


async def test_a_service_that_never_answers_is_given_up() -> None:
    with RerankApi() as api:
        api.hold.clear()
        reranker = HttpReranker(api.root, None, None, timeout_seconds=0.2)
        with pytest.raises(Unavailable, match="does not answer"):
            await reranker.scores(QUERY, PASSAGES)
        await reranker.close()


async def test_a_service_that_is_not_there_is_told() -> None:
    reranker = HttpReranker("http://user:pass@127.0.0.1:9", None, None)
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:9/rerank does not answer") as told:
        await reranker.scores(QUERY, PASSAGES)
    assert "pass" not in json.dumps(told.value.to_envelope())
    await reranker.close()


async def test_the_key_is_told_to_nobody(
    service: tuple[RerankApi, HttpReranker], caplog: pytest.LogCaptureFixture
) -> None:
    api, reranker = service
    api.say_instead = b'{"error": "a-secret-key is not a key"}'
    with caplog.at_level(logging.DEBUG, "toolscript"), pytest.raises(UpstreamFailed) as told:
        await reranker.scores(QUERY, PASSAGES)
    assert "[key] is not a key" in told.value.message
    assert "a-secret-key" not in caplog.text + json.dumps(told.value.to_envelope())


@pytest.mark.parametrize("url", ["", "nowhere", "ftp://there", "http://", "http://[::1"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_RERANKER is not usable"):
        HttpReranker(url, None, None)


@pytest.mark.parametrize("key", ["two\nlines", "größe"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_RERANKER_KEY is not usable") as told:
        HttpReranker("http://127.0.0.1:9", key, None)
    assert key not in told.value.message
