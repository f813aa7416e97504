"""The nearest skills, compared with a plain loop over the parts of every skill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Candidate, SimilarityRange, Vector
from toolscript.retrieval.skill_map import FACET_RADIUS, MIDDLE, STEEPNESS, UNPROVEN, SkillFacts, SkillMap

pytestmark = pytest.mark.req("H-03", "H-13")

PLAIN = SimilarityRange(0.0, 1.0)
MEASURED = SimilarityRange(0.25, 0.75)
ROWS = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=3, max_size=3).filter(any)
PARTS = st.lists(st.tuples(ROWS, st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=1, max_size=4)
WORLDS = st.dictionaries(st.text("ab_", min_size=1, max_size=3), PARTS, max_size=6)


def unit(row: list[float]) -> Vector:
    vector = np.array(row, dtype=np.float32)
    return vector / np.float32(np.linalg.norm(vector))


World = dict[str, list[tuple[list[float], float]]]


def tools_of(parts: list[tuple[list[float], float]]) -> int:
    """As many as there are facets: a skill of one part has none."""
    return len(parts) - 1


def build_map(world: World, similarity: SimilarityRange = PLAIN) -> SkillMap:
    return SkillMap(*points_of(world), similarity)


def rank(skill_map: SkillMap, row: list[float], needs: Sequence[Vector] = ()) -> list[tuple[SkillFacts, float]]:
    return skill_map.rank_skills(skill_map.compare(unit(row), needs))


def points_of(world: World) -> tuple[list[Candidate], dict[str, Vector]]:
    points, vectors = [], {}
    for skill, parts in world.items():
        for n, (row, tightness) in enumerate(parts):
            response = {"skill_id": skill, "name": skill.upper(), "description": "", "tool_count": tools_of(parts)}
            point_id = skill if n == 0 else f"{skill}#{n}"
            facet = {"tightness": tightness, "is_facet": n > 0, "is_active": True, "tools": []}
            points.append(Candidate(point_id, 0.0, {**response, **facet}))
            vectors[point_id] = unit(row)
    return points, vectors


def by_hand(world: World, query: Vector, needs: list[Vector], similarity: SimilarityRange) -> dict[str, float]:
    """Of each skill the best of its parts: the cosine to a centre, shrunk by how loose its group is, as a share of what
    the model's cosines range over; and what a facet reaches beyond. Half of a cosine is that of the nearest need."""
    found = {}
    for skill, parts in world.items():
        estimates = []
        for n, (row, tightness) in enumerate(parts):
            cosine, *others = (
                sum(float(a) * float(b) for a, b in zip(unit(row), each, strict=True)) for each in (query, *needs)
            )
            if others:
                cosine = (cosine + max(others)) / 2
            score = (tightness * cosine - similarity.floor) / (similarity.ceiling - similarity.floor)
            estimates.append(score + (FACET_RADIUS * math.sqrt(1 - tightness * tightness) if n else 0.0))
        found[skill] = probability(max(estimates) - (0.0 if tools_of(parts) else UNPROVEN))
    return found


def probability(estimate: float) -> float:
    return 1 / (1 + math.exp(STEEPNESS * (MIDDLE - estimate)))


@pytest.mark.slow
@settings(max_examples=scale_examples(200), deadline=None)
@given(
    WORLDS,
    ROWS,
    st.lists(ROWS, max_size=3),
    st.sampled_from([PLAIN, MEASURED]),
    st.randoms(use_true_random=False),
)
def test_the_nearest_skills_are_those_of_a_plain_loop(
    world: World,
    row: list[float],
    parts: list[list[float]],
    similarity: SimilarityRange,
    random: Random,
) -> None:
    points, vectors = points_of(world)
    random.shuffle(points)
    needs = [unit(part) for part in parts]
    found = rank(SkillMap(points, vectors, similarity), row, needs)
    expected = by_hand(world, unit(row), needs, similarity)
    assert [score for _, score in found] == pytest.approx([expected[facts.id] for facts, _ in found], abs=1e-5)
    assert [score for _, score in found] == pytest.approx(sorted(expected.values(), reverse=True), abs=1e-5)
    assert [facts.tool_count for facts, _ in found] == [tools_of(world[facts.id]) for facts, _ in found]


def test_equal_skills_are_sorted_by_id() -> None:
    found = rank(build_map({name: [([1.0, 0.0, 0.0], 1.0)] * 2 for name in ("c", "a", "b")}), [1, 0, 0])
    assert [facts.id for facts, _ in found] == ["a", "b", "c"]


def test_an_id_that_starts_with_another_id_is_a_different_skill() -> None:
    world = {"mail": [([1.0, 0.0, 0.0], 1.0)] * 2, "mail_box": [([0.0, 1.0, 0.0], 1.0)] * 3}
    found = rank(build_map(world), [0, 1, 0])
    assert [(facts.id, facts.tool_count) for facts, _ in found] == [("mail_box", 2), ("mail", 1)]


def test_a_map_without_skills_finds_none() -> None:
    empty = build_map({})
    assert empty.skills == []
    assert rank(empty, [1, 0, 0]) == []
    assert (empty.topics, empty.score_topics(empty.compare(unit([1, 0, 0]))).tolist()) == ([], [])


def test_a_skill_that_is_not_active_has_topics_only() -> None:
    points, vectors = points_of({"a": [([1.0, 0.0, 0.0], 1.0)] * 2, "b": [([0.0, 1.0, 0.0], 1.0)] * 2})
    changed = [
        p._replace(payload={**p.payload, "is_active": p.payload["skill_id"] == "b", "tools": tools})
        for p, tools in zip(points, ([], ["x", "y"], [], ["z"]), strict=True)
    ]
    skill_map = SkillMap(changed, vectors, PLAIN)
    scores = skill_map.compare(unit([1, 0, 0]))
    ((facts, score),) = skill_map.rank_skills(scores)
    assert facts == SkillFacts("b", "B", "", 1)
    assert score == pytest.approx(probability(0.0))
    assert dict(zip(skill_map.topics, skill_map.score_topics(scores).tolist(), strict=True)) == {
        ("x", "y"): 1,
        ("z",): 0,
    }


def test_a_point_without_a_vector_is_not_on_the_map() -> None:
    points, vectors = points_of({"a": [([1.0, 0.0, 0.0], 1.0)], "b": [([1.0, 0.0, 0.0], 1.0)]})
    del vectors["a"]
    assert [s.id for s in SkillMap(points, vectors, PLAIN).skills] == ["b"]


def test_a_vector_that_is_not_finite_is_refused_with_the_remedy() -> None:
    points, vectors = points_of({"a": [([1.0, 0.0, 0.0], 1.0)]})
    vectors["a"] = np.array([np.nan, 0, 0], dtype=np.float32)
    with pytest.raises(Unavailable, match="index rebuild"):
        SkillMap(points, vectors, PLAIN)


def test_a_broad_skill_is_found_through_the_facet_that_the_query_is_about() -> None:
    broad = [([1.0, 1.0, 1.0], 0.5), ([1.0, 0.0, 0.0], 1.0), ([0.0, 1.0, 0.0], 1.0)]
    (first, score), _ = rank(build_map({"broad": broad, "other": [([0.5, 0.5, 1.0], 0.9)] * 2}), [1, 0, 0])
    assert first.id == "broad"
    assert score == pytest.approx(probability(1.0))


def test_a_skill_with_tools_comes_before_one_with_only_a_description() -> None:
    world = {"a_promise": [([1.0, 0.0, 0.0], 1.0)], "proven": [([1.0, 0.0, 0.0], 1.0)] * 2}
    (first, _), (second, score) = rank(build_map(world), [1, 0, 0])
    assert (first.id, second.id) == ("proven", "a_promise")
    assert score == pytest.approx(probability(1 - UNPROVEN))
