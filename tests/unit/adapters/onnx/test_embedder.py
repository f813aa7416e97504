"""The packaged model agrees with the original, and a model is loaded as its card describes."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.http_services import SHIPPED
from tests.fixtures.reference_bert import ReferenceBert
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.onnx.model_folders import PACKAGED, find_locally, find_model_card
from toolscript.adapters.onnx.session import choose_providers, cut_batches
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.retrieval.text.item_text import build_item_text
from toolscript.services.catalogue.demo import load_demo_items, load_demo_pairs


@pytest.mark.extended
@pytest.mark.req("S-07")
async def test_the_shipped_model_agrees_with_the_full_precision_original(minilm: OnnxEmbedder) -> None:
    texts_of_items = [build_item_text(item) for item in load_demo_items()]
    texts = [
        *(query for query, _ in load_demo_pairs()),
        *(t[:120] for t in texts_of_items),
        *(t[60:200] for t in texts_of_items),
        *(t[-80:] for t in texts_of_items),
    ]
    texts = texts[:200]
    assert len(texts) == 200
    ours = np.stack(await minilm.embed_documents(texts))
    reference = ReferenceBert().embed(texts)
    cosines = (ours * reference).sum(axis=1)
    assert cosines.mean() >= 0.985
    assert cosines.min() >= 0.95


@pytest.mark.slow
@pytest.mark.req("S-07")
async def test_without_a_prefix_queries_and_documents_have_the_same_vectors(minilm: OnnxEmbedder) -> None:
    (document,) = await minilm.embed_documents(["read a file"])
    assert np.allclose(await minilm.embed_query("read a file"), document, atol=1e-5)


@pytest.fixture
def as_bge(tmp_path: Path) -> Path:
    """The shipped weights under a name whose card asks for CLS pooling and a query prefix."""
    folder = tmp_path / "bge-small-en-v1.5"
    shutil.copytree(SHIPPED, folder)
    return folder


@pytest.mark.slow
@pytest.mark.req("S-07")
async def test_a_bge_model_gets_its_prefix_on_queries_only_and_pools_the_first_token(as_bge: Path) -> None:
    folder = find_locally(str(as_bge), as_bge.parent)
    assert folder is not None
    embedder = OnnxEmbedder(folder, device="cpu")
    prefix = "Represent this sentence for searching relevant passages: "
    plain, prefixed = await embedder.embed_documents(["read a file", prefix + "read a file"])
    query = await embedder.embed_query("read a file")
    both = await embedder.embed_queries(["read a file", "write a file"])
    assert np.allclose(query, prefixed, atol=1e-5)
    assert np.allclose(both[0], prefixed, atol=1e-5)
    assert float(query @ plain) < 0.999
    first_token = ReferenceBert().embed(["read a file"], pooling="cls")[0]
    assert float(plain @ first_token) >= 0.95
    await embedder.close()


@pytest.mark.slow
async def test_a_text_longer_than_the_window_is_cut_not_refused(minilm: OnnxEmbedder) -> None:
    start = "alpha beta gamma " * 200
    long, longer = await minilm.embed_documents([start, start + "delta " * 500])
    assert np.allclose(long, longer)


@pytest.mark.req("S-09")
def test_auto_prefers_a_gpu_and_keeps_the_cpu_as_the_last_resort() -> None:
    assert choose_providers("auto", ["CUDAExecutionProvider", "CPUExecutionProvider"]) == [
        "CUDAExecutionProvider",
        "CPUExecutionProvider",
    ]
    assert choose_providers("auto", ["CPUExecutionProvider"]) == ["CPUExecutionProvider"]
    assert choose_providers("cpu", ["CUDAExecutionProvider", "CPUExecutionProvider"]) == ["CPUExecutionProvider"]


@given(
    lengths=st.lists(st.integers(0, 300), max_size=60),
    max_items=st.integers(1, 20),
    max_tokens=st.none() | st.integers(1, 2000),
)
def test_batches_have_every_text_once_by_length_and_within_the_limits(
    lengths: list[int], max_items: int, max_tokens: int | None
) -> None:
    batches = cut_batches(lengths, max_items, max_tokens)
    ordered = [number for batch in batches for number in batch]
    assert sorted(ordered) == list(range(len(lengths)))
    assert [lengths[n] for n in ordered] == sorted(lengths)
    for batch in batches:
        padded = len(batch) * max(lengths[n] for n in batch)
        assert 0 < len(batch) <= max_items
        assert max_tokens is None or padded <= max_tokens or len(batch) == 1


@pytest.mark.req("S-09")
def test_gpu_without_a_gpu_fails_with_the_remedy() -> None:
    folder = find_locally(PACKAGED, Path("nowhere"))
    assert folder is not None
    with pytest.raises(Unavailable, match=r"no GPU here.*toolscript\[gpu\]"):
        OnnxEmbedder(folder, device="gpu")


def _without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _with_config(**values: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")

    return damage


def _load(own: Path) -> OnnxEmbedder:
    folder = find_locally(str(own), own.parent)
    assert folder is not None
    return OnnxEmbedder(folder)


@pytest.mark.slow
@pytest.mark.req("S-07", "X-03")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without("tokenizer.json"), "tokenizer.json"),
        (_without("model_quantized.onnx"), "model.onnx"),
        (_without("config.json"), "config.json"),
        (_with_config(hidden_size="many"), "hidden_size"),
        (_with_config(hidden_size=768), "384 dimensions, but .* 768"),
    ],
)
def test_a_folder_without_a_usable_model_is_refused_with_what_is_missing(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    own = tmp_path / "my-model"
    shutil.copytree(SHIPPED, own)
    damage(own)
    with pytest.raises(Invalid, match=message):
        _load(own)


@pytest.mark.slow
@pytest.mark.req("S-07")
def test_a_file_that_is_not_a_model_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "my-model"
    shutil.copytree(SHIPPED, own)
    (own / "model_quantized.onnx").write_bytes(b"not a model")
    with pytest.raises(Unavailable, match="could not be loaded"):
        _load(own)


@pytest.mark.req("S-07")
def test_a_model_is_found_by_any_of_its_names() -> None:
    for name in ("Xenova/bge-small-en-v1.5", "BAAI/bge-small-en-v1.5", "baai/BGE-small-en-v1.5"):
        card = find_model_card(name)
        assert card is not None
        assert (card.name, card.pooling, card.dimensions) == ("bge-small-en-v1.5", "cls", 384)
    assert find_model_card("someone/else") is None


@pytest.mark.slow
@pytest.mark.req("S-07")
async def test_a_lazy_embedder_loads_its_model_with_the_first_text() -> None:
    folder = find_locally(PACKAGED, Path("nowhere"))
    assert folder is not None
    missing = replace(folder, onnx=Path("nowhere") / "model.onnx")
    embedder = OnnxEmbedder(missing, device="cpu", lazy=True)
    assert (embedder.model, embedder.dimensions, embedder.query_batch_size) == (PACKAGED, 384, 1)
    with pytest.raises(OSError, match=r"model\.onnx"):
        await embedder.embed_query("read a file")
    await embedder.close()
    eager, lazy = OnnxEmbedder(folder, device="cpu"), OnnxEmbedder(folder, device="cpu", lazy=True)
    texts = ["read a file", "send a letter"]
    found = await asyncio.gather(lazy.embed_documents(texts), lazy.embed_queries(texts), lazy.embed_query(texts[0]))
    np.testing.assert_array_equal(found[0], await eager.embed_documents(texts))
    assert lazy.max_concurrent_calls == eager.max_concurrent_calls
    await eager.close()
    await lazy.close()
