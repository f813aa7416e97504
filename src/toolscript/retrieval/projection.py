"""Places vectors in two dimensions, and finds nearly equal vectors."""

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
    """The most similar pairs by their positions and cosine, the most similar first: pairs of the same group with a
    cosine of `within` or more, others with `across` or more. Vectors have the length 1."""
    table = np.asarray(vectors, dtype=np.float32)
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    labels = np.array([numbers[group] for group in groups])
    best = np.zeros((2, 0), dtype=np.int64), np.zeros(0, dtype=np.float32)
    for start in range(0, len(table), BLOCK):
        similar = table[start : start + BLOCK] @ table[start:].T
        is_same = labels[start : start + BLOCK, None] == labels[None, start:]
        is_near = np.triu(similar >= np.where(is_same, np.float32(within), np.float32(across)), k=1)
        places, cosines = np.flatnonzero(is_near), similar[is_near]
        if len(cosines) > max_pairs:
            # Of equal vectors nearly all pairs are near: most go before the rest is sorted. Of those at the limit, the
            # first ones stay.
            limit = np.partition(cosines, -max_pairs)[-max_pairs]
            above, at_limit = np.flatnonzero(cosines > limit), np.flatnonzero(cosines == limit)
            kept = np.concatenate([above, at_limit[: max_pairs - len(above)]])
            places, cosines = places[kept], cosines[kept]
        pairs = np.array(np.unravel_index(places, similar.shape)) + start
        pairs, cosines = np.concatenate([best[0], pairs], axis=1), np.concatenate([best[1], cosines])
        order = np.lexsort((pairs[1], pairs[0], -cosines))[:max_pairs]
        best = pairs[:, order], cosines[order]
    return list(zip(*best[0].tolist(), best[1].tolist(), strict=True))
