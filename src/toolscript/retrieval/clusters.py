"""Groups vectors into clusters. Skills are proposed from clusters.

Spherical k-means (Dhillon and Modha, 2001) with a k-means++ start: it groups by cosine, as searches do. Vectors are
sorted and equal vectors merged first, so that the result does not depend on the order of the input, and equal vectors
are always in the same cluster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolscript.domain.errors import Invalid
from toolscript.domain.search import Vector

SEED = 20_010_601
RESTARTS = 8
ROUNDS = 25
SAMPLE, ROWS_PER_CLUSTER = 2_000, 20
# People do not read more categories than this.
MAX_CLUSTERS = 40

Matrix = NDArray[np.float32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """A group of vectors: their positions in the input, nearest to the centre first."""

    members: tuple[int, ...]
    centroid: Vector
    cohesion: float
    """The mean cosine of the members to the centre: 1 when all are the same."""


def find_clusters(
    vectors: Matrix | Sequence[Vector], count: int | None = None, *, starts: int = RESTARTS
) -> list[Cluster]:
    """Every vector in exactly one cluster, none of them empty, the largest cluster first.

    There are `count` clusters (by default `default_cluster_count`), or as many as there are different vectors, if
    fewer. The best of `starts` runs is returned. Raises Invalid for a count below 1.
    """
    if count is not None and count < 1:
        raise Invalid(f"count {count} is not usable: at least 1 cluster", details={"field": "count", "min": 1})
    rows = _unit(np.asarray(vectors, dtype=np.float32))
    if not len(rows):
        return []
    distinct, place, weights = _distinct(rows)
    cluster_count = min(count or default_cluster_count(len(rows)), len(distinct))
    labels = _best(distinct, weights, cluster_count, starts)
    ordered = np.argsort(place, kind="stable")
    clusters = [_cluster(rows, ordered[labels[place[ordered]] == c]) for c in range(cluster_count)]
    return sorted(clusters, key=lambda c: (-len(c.members), -c.cohesion, c.centroid.tobytes()))


def default_cluster_count(size: int) -> int:
    """The default number of clusters: twice the square root, so that a hundred tools become twenty groups of five.

    A rule, because no measure of fit decides: on the tools of real servers the silhouette has no peak and rises with
    the number of clusters.
    """
    return max(1, min(MAX_CLUSTERS, round(2 * math.sqrt(size)), size // 2))


def _unit(rows: Matrix) -> Matrix:
    if not rows.size:
        return np.zeros((0, 1), np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1) + 0.0, dtype=np.float32)  # + 0.0: no negative zeros


def _distinct(rows: Matrix) -> tuple[Matrix, Numbers, NDArray[np.float32]]:
    """The distinct rows, sorted; the place of every row among them; and how many rows share each place."""
    row_bytes = [row.tobytes() for row in rows]
    places = {key: n for n, key in enumerate(sorted(set(row_bytes)))}
    place = np.array([places[key] for key in row_bytes], dtype=np.int64)
    distinct = np.empty((len(places), rows.shape[1]), np.float32)
    distinct[place] = rows
    return distinct, place, np.bincount(place).astype(np.float32)


def _best(rows: Matrix, weights: NDArray[np.float32], count: int, starts: int) -> Numbers:
    """The labels of the best of several starts. A sample of the rows decides on the best start."""
    random = np.random.default_rng(SEED)
    size = max(SAMPLE, ROWS_PER_CLUSTER * count)
    part = slice(None) if len(rows) <= size else np.sort(random.choice(len(rows), size, replace=False))
    tries = range(starts if 1 < count < len(rows) else 1)
    settled = (_settle(rows[part], weights[part], _start(rows[part], weights[part], count, random)) for _ in tries)
    _, labels, centres = max(settled, key=lambda run: run[0])
    return labels if len(rows) <= size else _settle(rows, weights, centres)[1]


def _start(rows: Matrix, weights: NDArray[np.float32], count: int, random: np.random.Generator) -> Matrix:
    """Centres far from each other: the probability of each grows with its distance to the earlier centres."""
    chosen: list[int] = []
    distance = np.ones(len(rows))
    for _ in range(count):
        chances = distance * weights
        chances[chosen] = 0.0
        if chances.sum() <= 0:
            chances = np.ones(len(rows))
            chances[chosen] = 0.0
        drawn = int(random.choice(len(rows), p=chances / chances.sum()))
        chosen.append(drawn)
        distance = np.minimum(distance, np.maximum(0.0, 1.0 - rows @ rows[drawn]))
    return rows[chosen]


def _settle(rows: Matrix, weights: NDArray[np.float32], centres: Matrix) -> tuple[float, Numbers, Matrix]:
    """Moves the centres until the labels no longer change, or for the maximum number of rounds. Returns how close the
    rows are to their centres, the labels and the centres."""
    labels = np.full(len(rows), -1, np.int64)
    for _ in range(ROUNDS):
        cosines = rows @ centres.T
        new = cosines.argmax(axis=1).astype(np.int64)
        _fill_empty(new, cosines[np.arange(len(rows)), new], len(centres))
        if (new == labels).all():
            break
        labels = new
        belongs = np.zeros((len(centres), len(rows)), np.float32)
        belongs[labels, np.arange(len(rows))] = weights
        centres = _unit(belongs @ rows)
    return float((weights * (rows * centres[labels]).sum(axis=1)).sum()), labels, centres


def _fill_empty(labels: Numbers, closeness: NDArray[np.float32], count: int) -> None:
    """Gives every empty cluster the row that is farthest from its centre, from a cluster with more than one row."""
    sizes = np.bincount(labels, minlength=count)
    for empty in np.flatnonzero(sizes == 0):
        moved = int(np.where(sizes[labels] > 1, closeness, np.inf).argmin())
        sizes[labels[moved]] -= 1
        labels[moved], sizes[empty], closeness[moved] = empty, 1, np.inf


def _cluster(rows: Matrix, members: Numbers) -> Cluster:
    centroid = _unit(rows[members].mean(axis=0, keepdims=True, dtype=np.float64).astype(np.float32))[0]
    cosines = np.clip(rows[members] @ centroid, -1.0, 1.0)
    nearest = np.lexsort((members, -cosines))
    return Cluster(tuple(int(n) for n in members[nearest]), centroid, float(cosines.mean()))
