"""Exports a tuned encoder to a folder that the product loads: an ONNX file of 8 bits, tokenizer, configuration and
checksums."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from training.graph import build_graph
from training.measure import open_onnx
from training.weights import CONFIG, TOKENIZER, hash_file, read_weights

INT8, FLOAT = "model_quantized.onnx", "model.onnx"
CHECKSUMS = "SHA256SUMS"
KEPT = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "vocab_size",
)
REQUESTS, SAMPLES = Path(__file__).parent / "requests" / "answerable.jsonl", 40


def export(folder: Path, out: Path, *, full: bool = False, reference: Path | None = None) -> float:
    """Writes the folder, and returns the lowest cosine between vectors of 32 and of 8 bits. With `full` the ONNX file
    of 32 bits stays in the folder; `reference` gets its vectors of some requests, to test the other file with."""
    config, weights = read_weights(folder)
    out.mkdir(parents=True, exist_ok=True)
    for name, quantise in ((FLOAT, False), (INT8, True)):
        (out / name).write_bytes(build_graph(config, weights, quantise=quantise).SerializeToString())
    # `trained_for`: documents and knowledge use another model beside this one.
    own = {name: config[name] for name in KEPT} | {"trained_for": "tools"}
    (out / CONFIG).write_text(json.dumps(own, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(folder / TOKENIZER, out / TOKENIZER)
    exact, rounded = (open_onnx(out, name)(read_samples()) for name in (FLOAT, INT8))
    if reference:
        np.save(reference, exact.astype(np.float16))
    if not full:
        (out / FLOAT).unlink()
    sums = [f"{hash_file(out / name)}  {name}\n" for name in (INT8, TOKENIZER, CONFIG)]
    (out / CHECKSUMS).write_text("".join(sums), encoding="utf-8")
    return float((exact * rounded).sum(axis=1).min())


def read_samples() -> list[str]:
    """Requests of many kinds."""
    lines = REQUESTS.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["query"] for line in lines[:: len(lines) // SAMPLES]][:SAMPLES]
