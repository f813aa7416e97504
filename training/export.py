"""Exports a tuned encoder to a folder that the product loads: an ONNX file of 8 bits, tokenizer, configuration and
checksums."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

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
SAMPLES = (
    "put my changes into version control",
    "Which pods are running in the payments namespace, and why does one of them restart?",
    "filesystem read file: Read the complete contents of a file as text. Parameters: path, head, tail",
)


def export(folder: Path, out: Path, *, full: bool = False) -> float:
    """Writes the folder, and returns the lowest cosine between vectors of 32 and of 8 bits. With `full` the ONNX file
    of 32 bits stays in the folder."""
    config, weights = read_weights(folder)
    out.mkdir(parents=True, exist_ok=True)
    for name, quantise in ((FLOAT, False), (INT8, True)):
        (out / name).write_bytes(build_graph(config, weights, quantise=quantise).SerializeToString())
    # `trained_for`: documents and knowledge use another model beside this one.
    own = {name: config[name] for name in KEPT} | {"trained_for": "tools"}
    (out / CONFIG).write_text(json.dumps(own, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(folder / TOKENIZER, out / TOKENIZER)
    parity = compare(out, SAMPLES)
    if not full:
        (out / FLOAT).unlink()
    sums = [f"{hash_file(out / name)}  {name}\n" for name in (INT8, TOKENIZER, CONFIG)]
    (out / CHECKSUMS).write_text("".join(sums), encoding="utf-8")
    return parity


def compare(folder: Path, texts: Sequence[str]) -> float:
    """The lowest cosine between the vectors of 32 and of 8 bits."""
    exact, rounded = (open_onnx(folder, name)(texts) for name in (FLOAT, INT8))
    return float((exact * rounded).sum(axis=1).min())
