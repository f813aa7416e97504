"""Places vectors in two dimensions, and finds those that are nearly the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from toolscript.domain.search import Vector

Points = NDArray[np.float64]
# A few points that are far from all others would press the rest together.
PERCENTILES = 0.3, 99.7
BLOCK = 1024


def project(vectors: Sequence[Vector]) -> Points:
    """The first two principal components, each from -1 to 1; outliers lie on the edge. Signs are fixed, so that equal
    vectors give an equal picture on every machine."""
    table = np.asarray(vectors, dtype=np.float64)
    if len(table) == 0:
        return np.zeros((0, 2))
    centred = table - table.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    axes = directions[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    points = centred @ axes
    low, high = np.percentile(points, PERCENTILES, axis=0)
    placed: Points = np.clip(2 * (points - low) / np.maximum(high - low, 1e-9) - 1, -1, 1)
    return placed


def find_near_pairs(
    vectors: Sequence[Vector], groups: Sequence[str], *, within: float, across: float, max_pairs: int
) -> list[tuple[int, int, float]]:
    """The most similar pairs by their positions and cosine, the most similar first: those of the same group with a
    cosine of `within` or more, others with `across` or more. Vectors have the length 1."""
    table = np.asarray(vectors, dtype=np.float32)
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    labels = np.array([numbers[group] for group in groups])
    found: list[tuple[int, int, float]] = []
    for start in range(0, len(table), BLOCK):
        similar = table[start : start + BLOCK] @ table[start:].T
        is_same = labels[start : start + BLOCK, None] == labels[None, start:]
        rows, columns = np.nonzero(similar >= np.where(is_same, np.float32(within), np.float32(across)))
        found += [
            (start + int(row), start + int(column), float(similar[row, column]))
            for row, column in zip(rows, columns, strict=True)
            if row < column
        ]
        found = sorted(found, key=lambda pair: (-pair[2], pair[:2]))[:max_pairs]
    return found
