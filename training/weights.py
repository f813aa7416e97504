"""Reads and writes the weights of encoders, in folders as the model hub lays them out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Config = Mapping[str, Any]
Weights = Mapping[str, NDArray[Any]]
WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"


def read_weights(folder: Path) -> tuple[Config, Weights]:
    """The configuration and the weights, as 32-bit numbers and without the prefix that some folders give them."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    prefix = f"{config['model_type']}."
    weights = {name.removeprefix(prefix): value for name, value in load_file(folder / WEIGHTS).items()}
    return config, {
        name: value.astype(np.float32) if value.dtype.kind == "f" else value for name, value in weights.items()
    }


def hash_file(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
