"""How a cross-encoder is found and loaded, and its inputs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.fixtures.http_services import SHIPPED, Hub
from tests.fixtures.rerankers import cross_encoder, share
from toolscript.adapters.onnx.reranker import OnnxReranker, find_reranker
from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed

pytestmark = [pytest.mark.req("D-12"), pytest.mark.slow]

NO_HUB = "http://127.0.0.1:9"
QUERY = "the cat eats fish"
PASSAGES = ["a dog walks", "the cat eats the fish", "snow", "fish"]
RIGHT = [share(QUERY, passage) for passage in PASSAGES]


def _load(folder: Path) -> OnnxReranker:
    return OnnxReranker(find_reranker(str(folder), folder.parent / "cache", NO_HUB), device="cpu")


@pytest.mark.parametrize("file", ["onnx/model.onnx", "model.onnx", "onnx/model_quantized.onnx", "onnx/model_int8.onnx"])
async def test_a_folder_needs_only_a_tokenizer_and_a_model(tmp_path: Path, file: str) -> None:
    reranker = _load(cross_encoder(tmp_path / "mine", file=file))
    assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT, abs=1e-6)
    assert reranker.model == "mine"
    await reranker.close()


async def test_a_model_without_a_segment_input_gets_none(tmp_path: Path) -> None:
    reranker = _load(cross_encoder(tmp_path / "mine", segments=False))
    assert await reranker.scores(QUERY, PASSAGES) == pytest.approx(RIGHT, abs=1e-6)
    await reranker.close()


async def test_a_long_pair_is_cut_in_the_passage_and_the_query_stays_whole(tmp_path: Path) -> None:
    reranker = _load(cross_encoder(tmp_path / "mine", window=32))
    query = "cat dog fish bird tree river city moon"
    # Of 32 tokens three are special and eight belong to the query: 21 are left for the passage.
    seen, unseen = await reranker.scores(query, ["rain " * 20 + query, "rain " * 21 + query])
    assert (seen, unseen) == pytest.approx((share("cat", "cat"), share("cat", "")), abs=1e-6)
    await reranker.close()


async def test_a_query_longer_than_the_window_leaves_half_of_it_to_the_passage(tmp_path: Path) -> None:
    reranker = _load(cross_encoder(tmp_path / "mine", window=32))
    scores = await reranker.scores("cat " * 16 + "dog " * 100, ["cat", "dog", "rain " * 100])
    assert scores == pytest.approx([share("cat " * 16, "cat"), share("", "dog"), share("", "rain")], abs=1e-6)
    await reranker.close()


def test_a_folder_without_model_or_tokenizer_is_refused_with_the_missing_files(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "mine")
    (folder / "tokenizer.json").rename(folder / "other.json")
    with pytest.raises(Invalid, match=r"needs tokenizer\.json and a model"):
        _load(folder)
    (folder / "other.json").rename(folder / "tokenizer.json")
    (folder / "onnx" / "model.onnx").unlink()
    with pytest.raises(Invalid, match=r"needs tokenizer\.json and a model"):
        _load(folder)


def test_an_invalid_tokenizer_file_is_named(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "mine")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(Invalid, match=r"tokenizer\.json is not a tokenizer"):
        _load(folder)


def test_a_file_that_is_not_a_model_cannot_be_loaded(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "mine")
    (folder / "onnx" / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(Unavailable, match=r"model\.onnx could not be loaded"):
        _load(folder)


def test_a_model_with_three_classes_is_not_a_cross_encoder(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="not a cross-encoder: it gives 3 numbers"):
        _load(cross_encoder(tmp_path / "mine", classes=3))


def test_an_embedding_model_is_not_a_cross_encoder() -> None:
    with pytest.raises(Invalid, match="not a cross-encoder"):
        OnnxReranker(find_reranker(str(SHIPPED), SHIPPED, NO_HUB), device="cpu")


async def test_scores_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "mine")
    model = onnx.load(str(folder / "onnx" / "model.onnx"))
    (expected,) = (each for each in model.graph.initializer if each.name == "expected")
    expected.CopyFrom(helper.make_tensor("expected", TensorProto.FLOAT, [1], [math.nan]))
    onnx.save(model, str(folder / "onnx" / "model.onnx"))
    reranker = _load(folder)
    with pytest.raises(UpstreamFailed, match="not numbers"):
        await reranker.scores(QUERY, PASSAGES)
    await reranker.close()


async def test_a_dynamically_quantised_model_scores_a_passage_independently_of_the_others(tmp_path: Path) -> None:
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


def test_without_a_hub_the_reranker_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        find_reranker("someone/reranker", tmp_path / "models", NO_HUB)
