"""Vectors in two dimensions, and pairs that are nearly the same."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from toolscript.domain.search import Vector
from toolscript.retrieval.projection import find_near_pairs, project


def make_groups(sizes: tuple[int, ...], dimensions: int = 16) -> list[Vector]:
    """Groups of vectors of the length 1, each around a direction of its own."""
    random = np.random.default_rng(7)
    rows = [
        np.eye(dimensions)[group] + 0.02 * random.normal(size=dimensions)
        for group, size in enumerate(sizes)
        for _ in range(size)
    ]
    return [(row / np.linalg.norm(row)).astype(np.float32) for row in rows]


def test_vectors_of_a_group_lie_together() -> None:
    points = project(make_groups((30, 30, 30)))
    assert points.shape == (90, 2)
    assert np.abs(points).max() <= 1
    centres = points.reshape(3, 30, 2).mean(axis=1)
    spread = points.reshape(3, 30, 2).std(axis=1).max()
    distances = [np.linalg.norm(centres[a] - centres[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert min(distances) > 5 * spread


def test_few_or_equal_vectors_are_placed_too() -> None:
    assert project([]).shape == (0, 2)
    for vectors in ([[1.0, 0.0]], [[1.0, 0.0]] * 5, [[1.0, 0.0], [0.0, 1.0]]):
        points = project([np.array(each, dtype=np.float32) for each in vectors])
        assert points.shape == (len(vectors), 2)
        assert np.isfinite(points).all()


@pytest.mark.extended
def test_pairs_are_found_across_blocks_in_the_order_of_similarity() -> None:
    vectors = make_groups((1,) * 1500, dimensions=1500)
    vectors[1400] = vectors[3]
    vectors[1450] = 0.999 * vectors[7] + np.float32(0.02) * vectors[8]
    groups = [str(number) for number in range(1500)]
    pairs = find_near_pairs(vectors, groups, within=0.99, across=0.9, max_pairs=10)
    assert [(first, second) for first, second, _ in pairs] == [(3, 1400), (7, 1450)]
    assert find_near_pairs(vectors, groups, within=0.99, across=0.9, max_pairs=1)[0][:2] == (3, 1400)
    assert find_near_pairs([], [], within=0.99, across=0.9, max_pairs=10) == []


def test_vectors_of_one_group_must_be_more_similar_than_others() -> None:
    vectors = make_groups((1,) * 30, dimensions=30)
    vectors[20] = vectors[3]
    vectors[21] = vectors[25] = np.asarray((vectors[7] + 0.3 * vectors[8]) / 1.044, dtype=np.float32)
    groups = ["one"] * 25 + ["other"] * 5
    pairs = find_near_pairs(vectors, groups, within=0.99, across=0.9, max_pairs=10)
    assert {(first, second) for first, second, _ in pairs} == {(3, 20), (7, 25), (21, 25)}


@pytest.mark.slow
def test_many_equal_vectors_take_little_memory() -> None:
    vectors = [np.array([1.0, 0.0], dtype=np.float32)] * 5000
    tracemalloc.start()
    pairs = find_near_pairs(vectors, ["one"] * 5000, within=0.99, across=0.9, max_pairs=3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pairs == [(0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0)]
    assert peak < 300 * 2**20
