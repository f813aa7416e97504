"""Every vector is in one cluster, and the order of the vectors does not matter."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.fixtures.examples import scale_examples
from toolscript.domain.errors import Invalid
from toolscript.retrieval.clusters import MAX_CLUSTERS, Cluster, default_cluster_count, find_clusters

pytestmark = pytest.mark.req("H-12")

Matrix = NDArray[np.float32]


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Few or many vectors; drawn from a handful of values, so that some are the same, opposite or zero."""
    size, width = draw(st.integers(0, 40)), draw(st.integers(1, 6))
    if draw(st.booleans()):
        flat = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=size * width, max_size=size * width))
        return np.array(flat, np.float32).reshape(size, width)
    return np.random.default_rng(draw(st.integers(0, 99))).standard_normal((size, width)).astype(np.float32)


counts = st.one_of(st.none(), st.integers(1, 50))


def partition(found: list[Cluster], names: list[int]) -> set[frozenset[int]]:
    return {frozenset(names[member] for member in cluster.members) for cluster in found}


def directions(vectors: Matrix) -> int:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = (vectors / np.where(lengths > 0, lengths, 1) + 0.0).astype(np.float32)
    return len({row.tobytes() for row in unit})


def around(centres: int, each: int, *, spread: float = 0.05) -> Matrix:
    """Some vectors around each of some unrelated directions."""
    noise = np.random.default_rng(1).standard_normal((centres * each, 16)).astype(np.float32)
    return np.repeat(np.eye(centres, 16, dtype=np.float32), each, axis=0) + np.float32(spread) * noise


@pytest.mark.slow
@given(matrices(), counts)
@settings(max_examples=scale_examples(150), deadline=None)
def test_every_vector_is_in_exactly_one_cluster_and_no_cluster_is_empty(vectors: Matrix, count: int | None) -> None:
    found = find_clusters(vectors, count)
    assert sorted(member for cluster in found for member in cluster.members) == list(range(len(vectors)))
    assert all(cluster.members for cluster in found)


@pytest.mark.slow
@given(matrices(), counts)
@settings(max_examples=scale_examples(150), deadline=None)
def test_there_are_as_many_clusters_as_requested_or_as_there_are_different_vectors(
    vectors: Matrix, count: int | None
) -> None:
    assert len(find_clusters(vectors, count)) == min(count or default_cluster_count(len(vectors)), directions(vectors))


@pytest.mark.slow
@given(matrices(), counts, st.randoms(use_true_random=False))
@settings(max_examples=scale_examples(150), deadline=None)
def test_clusters_depend_neither_on_the_run_nor_on_the_order(
    vectors: Matrix, count: int | None, random: Random
) -> None:
    order = list(range(len(vectors)))
    first = partition(find_clusters(vectors, count), order)
    assert partition(find_clusters(vectors, count), order) == first
    random.shuffle(order)
    assert partition(find_clusters(vectors[order], count), order) == first


@pytest.mark.slow
@given(matrices(), counts)
@settings(max_examples=scale_examples(150), deadline=None)
def test_members_come_nearest_to_the_centre_first_and_their_mean_cosine_is_the_cohesion(
    vectors: Matrix, count: int | None
) -> None:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    for cluster in find_clusters(vectors, count):
        cosines = unit[list(cluster.members)] @ cluster.centroid
        assert np.all(np.diff(cosines) <= 1e-5)
        assert cluster.cohesion == pytest.approx(float(cosines.mean()), abs=1e-5)


@pytest.mark.slow
@given(matrices(), counts)
@settings(max_examples=scale_examples(150), deadline=None)
def test_vectors_of_one_direction_are_in_one_cluster(vectors: Matrix, count: int | None) -> None:
    doubled = np.concatenate([vectors, vectors])
    for cluster in find_clusters(doubled, count):
        assert {(m + len(vectors)) % len(doubled) for m in cluster.members} == set(cluster.members)


def test_no_vectors_give_no_clusters() -> None:
    assert find_clusters([]) == []


def test_one_vector_is_one_cluster() -> None:
    (only,) = find_clusters([np.array([3.0, 4.0], np.float32)])
    assert only.members == (0,)
    assert only.cohesion == pytest.approx(1.0)
    assert only.centroid == pytest.approx([0.6, 0.8])


def test_two_vectors_are_one_cluster_unless_two_are_requested() -> None:
    vectors = np.eye(2, dtype=np.float32)
    assert [len(c.members) for c in find_clusters(vectors)] == [2]
    assert [len(c.members) for c in find_clusters(vectors, 2)] == [1, 1]


def test_equal_vectors_are_one_cluster_even_if_more_are_requested() -> None:
    (only,) = find_clusters(np.ones((20, 4), np.float32), 5)
    assert len(only.members) == 20
    assert only.cohesion == pytest.approx(1.0)


def test_separate_groups_are_found() -> None:
    vectors = around(6, 9)
    expected = {frozenset(range(start, start + 9)) for start in range(0, 54, 9)}
    assert partition(find_clusters(vectors, 6), list(range(54))) == expected


def test_groups_are_found_from_a_sample_of_the_vectors() -> None:
    vectors = around(8, 500)
    expected = {frozenset(range(start, start + 500)) for start in range(0, 4000, 500)}
    assert partition(find_clusters(vectors, 8), list(range(4000))) == expected


def test_the_largest_cluster_comes_first() -> None:
    vectors = np.concatenate([around(2, 4)[:4], around(3, 9)[18:]])
    assert [len(c.members) for c in find_clusters(vectors, 2)] == [9, 4]


@pytest.mark.parametrize(
    ("size", "count"), [(0, 1), (1, 1), (3, 1), (4, 2), (10, 5), (56, 15), (100, 20), (10**4, MAX_CLUSTERS)]
)
def test_the_default_count_is_readable_and_leaves_two_vectors_per_cluster(size: int, count: int) -> None:
    assert default_cluster_count(size) == count


@pytest.mark.parametrize("count", [0, -3])
def test_a_count_below_one_is_refused(count: int) -> None:
    with pytest.raises(Invalid, match="at least 1"):
        find_clusters(np.eye(3, dtype=np.float32), count)
