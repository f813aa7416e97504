"""The packaged model for tools: what was exported is what is in the package, and its 8 bits are close to 32."""

from pathlib import Path

import numpy as np
import pytest

from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.onnx.model_folders import PACKAGED_FOR_TOOLS, find_locally
from toolscript.settings import DEFAULT_MODEL
from training.export import CHECKSUMS, read_samples
from training.weights import hash_file

ROOT = Path(__file__).parents[4]
REFERENCE = ROOT / "tests" / "fixtures" / "toolscript_small.npy"
MAX_BYTES = 25_000_000

pytestmark = pytest.mark.req("S-07", "Q-01")


def test_it_is_the_default_and_needs_no_hub() -> None:
    folder = find_locally(DEFAULT_MODEL, Path("nowhere"))
    assert folder is not None
    assert folder.card.name == PACKAGED_FOR_TOOLS
    assert folder.card.trained_for == "tools"
    assert folder.card.similarity is not None
    assert folder.card.similarity.narrow_to_skills().ceiling < folder.card.similarity.ceiling


def test_its_files_have_their_checksums_and_the_notice_names_it() -> None:
    folder = find_locally(PACKAGED_FOR_TOOLS, Path("nowhere"))
    assert folder is not None
    lines = (folder.onnx.parent / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    sums = {name: checksum for checksum, name in (line.split("  ") for line in lines)}
    assert {name: hash_file(folder.onnx.parent / name) for name in sums} == sums
    assert sums[folder.onnx.name] in (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert folder.onnx.stat().st_size <= MAX_BYTES


@pytest.mark.slow
async def test_its_vectors_agree_with_those_of_full_precision() -> None:
    folder = find_locally(PACKAGED_FOR_TOOLS, Path("nowhere"))
    assert folder is not None
    embedder = OnnxEmbedder(folder, device="cpu")
    try:
        ours = np.stack(await embedder.embed_documents(read_samples()))
    finally:
        await embedder.close()
    reference = np.load(REFERENCE).astype(np.float32)
    cosines = (ours * reference).sum(axis=1)
    assert cosines.mean() >= 0.985
    assert cosines.min() >= 0.95
