"""The map of the skills: what looks nearest, against a plain loop over every part of every skill."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscript.domain.search import Candidate, Vector
from toolscript.retrieval.skill_map import REACH, SkillFacts, SkillMap

pytestmark = pytest.mark.req("H-03", "H-13")

ROWS = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=3, max_size=3).filter(any)
PARTS = st.lists(st.tuples(ROWS, st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=1, max_size=4)
WORLDS = st.dictionaries(st.text("ab_", min_size=1, max_size=3), PARTS, max_size=6)


def unit(row: list[float]) -> Vector:
    vector = np.array(row, dtype=np.float32)
    return vector / np.float32(np.linalg.norm(vector))


def drawn(world: dict[str, list[tuple[list[float], float]]]) -> tuple[list[Candidate], dict[str, Vector]]:
    points, vectors = [], {}
    for skill, parts in world.items():
        for n, (row, tightness) in enumerate(parts):
            told = {"skill_id": skill, "name": skill.upper(), "description": "", "tool_count": len(parts)}
            point_id = skill if n == 0 else f"{skill}#{n}"
            points.append(Candidate(point_id, 0.0, {**told, "tightness": tightness, "is_facet": n > 0}))
            vectors[point_id] = unit(row)
    return points, vectors


def by_hand(world: dict[str, list[tuple[list[float], float]]], query: Vector) -> dict[str, float]:
    """Of each skill the best estimate: a centre's cosine shrunk by how loose its group is, and what a facet reaches."""
    found = {}
    for skill, parts in world.items():
        estimates = []
        for n, (row, tightness) in enumerate(parts):
            cosine = sum(float(a) * float(b) for a, b in zip(unit(row), query, strict=True))
            beyond = REACH * math.sqrt(1 - tightness * tightness) if n else 0.0
            estimates.append(tightness * cosine + beyond)
        found[skill] = max(estimates)
    return found


@settings(max_examples=200, deadline=None)
@given(WORLDS, ROWS, st.integers(1, 8), st.sampled_from([-2.0, 0.0, 0.3, 0.6, 2.0]), st.randoms())
def test_the_nearest_are_those_of_a_plain_loop(
    world: dict[str, list[tuple[list[float], float]]], row: list[float], limit: int, floor: float, random: object
) -> None:
    points, vectors = drawn(world)
    random.shuffle(points)  # type: ignore[attr-defined]
    found = SkillMap(points, vectors).nearest(unit(row), limit, floor)
    expected = by_hand(world, unit(row))
    assert [score for _, score in found] == pytest.approx([expected[facts.id] for facts, _ in found], abs=1e-5)
    best = sorted(expected.values(), reverse=True)[:limit]
    sure = [score for score in best if score >= floor + 1e-5]
    assert len(sure) <= len(found) <= sum(score >= floor - 1e-5 for score in best)
    assert [score for _, score in found] == pytest.approx(best[: len(found)], abs=1e-5)
    assert [facts.tool_count for facts, _ in found] == [len(world[facts.id]) for facts, _ in found]


def test_equal_skills_come_by_id() -> None:
    points, vectors = drawn({name: [([1.0, 0.0, 0.0], 1.0)] for name in ("c", "a", "b")})
    found = SkillMap(points, vectors).nearest(unit([1, 0, 0]), 2, 0.0)
    assert [facts.id for facts, _ in found] == ["a", "b"]


def test_an_id_that_begins_like_another_is_another_skill() -> None:
    world = {"mail": [([1.0, 0.0, 0.0], 1.0)] * 2, "mail_box": [([0.0, 1.0, 0.0], 1.0)] * 3}
    points, vectors = drawn(world)
    found = SkillMap(points, vectors).nearest(unit([0, 1, 0]), 5, -1.0)
    assert [(facts.id, facts.tool_count) for facts, _ in found] == [("mail_box", 3), ("mail", 2)]


def test_a_map_without_skills_finds_none() -> None:
    empty = SkillMap([], {})
    assert empty.skills == []
    assert empty.nearest(unit([1, 0, 0]), 3, 0.0) == []


def test_what_lies_below_the_floor_is_left_out_and_what_lies_on_it_is_not() -> None:
    points, vectors = drawn({"far": [([0.0, 1.0, 0.0], 1.0)], "near": [([1.0, 0.0, 0.0], 1.0)]})
    found = SkillMap(points, vectors).nearest(unit([1, 0, 0]), 5, 1.0)
    assert found == [(SkillFacts("near", "NEAR", "", 1), 1.0)]
    assert SkillMap(points, vectors).nearest(unit([1, 0, 0]), 5, 1.01) == []


def test_a_point_without_a_vector_is_not_on_the_map() -> None:
    points, vectors = drawn({"a": [([1.0, 0.0, 0.0], 1.0)], "b": [([1.0, 0.0, 0.0], 1.0)]})
    del vectors["a"]
    assert [s.id for s in SkillMap(points, vectors).skills] == ["b"]


def test_a_broad_skill_is_found_through_the_facet_that_the_query_is_about() -> None:
    apart = {"broad": [([1.0, 1.0, 1.0], 0.5), ([1.0, 0.0, 0.0], 1.0), ([0.0, 1.0, 0.0], 1.0)]}
    points, vectors = drawn({**apart, "other": [([0.5, 0.5, 1.0], 0.9)]})
    (first, score), _ = SkillMap(points, vectors).nearest(unit([1, 0, 0]), 2, 0.0)
    assert first.id == "broad"
    assert score == pytest.approx(1.0)
