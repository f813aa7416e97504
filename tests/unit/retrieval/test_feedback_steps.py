"""Steps toward requests: bounded whatever the requests are, and refused where past requests would rank lower."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.domain.search import Vector
from toolscript.retrieval.feedback_steps import MIN_COSINE, OTHERS_WORSE, OWN_WORSE, compute_steps, move_vector

DIMENSIONS = 6
SEEDS, COUNTS = st.integers(0, 2**32 - 1), st.integers(1, 40)


def vector(*numbers: float) -> Vector:
    filled = np.array([*numbers, *[0.0] * (DIMENSIONS - len(numbers))], dtype=np.float32)
    return np.asarray(filled / np.linalg.norm(filled), dtype=np.float32)


def draw(seed: int, count: int) -> tuple[Vector, list[Vector]]:
    """A vector and requests, in one direction or in many, near it or opposite."""
    rng = np.random.default_rng(seed)
    start, goal = rng.normal(size=DIMENSIONS), rng.normal(size=DIMENSIONS) * rng.choice([0.1, 1, 10])
    requests = [vector(*(goal + rng.normal(size=DIMENSIONS))) for _ in range(count)]
    return vector(*start), [*requests, *([vector(*-start)] * count if seed % 3 == 0 else [])]


@settings(max_examples=scale_examples(150), deadline=None)
@given(SEEDS, COUNTS)
def test_no_requests_move_a_vector_further_than_the_bound(seed: int, count: int) -> None:
    start, requests = draw(seed, count)
    moved = move_vector(start, requests)
    assert abs(float(np.linalg.norm(moved)) - 1) < 1e-4
    assert float(start @ moved) >= MIN_COSINE - 1e-4


@settings(max_examples=scale_examples(150), deadline=None)
@given(SEEDS, COUNTS)
def test_a_step_never_leads_away_from_the_mean_of_its_requests(seed: int, count: int) -> None:
    start, requests = draw(seed, count)
    mean = np.mean(requests, axis=0)
    assert float(move_vector(start, requests) @ mean) >= float(start @ mean) - 1e-4


def test_more_requests_make_a_larger_step() -> None:
    start, goal = vector(1), vector(1, 0.5)
    cosines = [float(start @ move_vector(start, [goal] * count)) for count in (0, 1, 2, 8)]
    assert cosines == sorted(cosines, reverse=True)
    assert len(set(cosines)) == len(cosines)


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(SEEDS, COUNTS)
def test_wrong_requests_move_a_vector_away_and_no_further_than_the_bound(seed: int, count: int) -> None:
    start, wrong = draw(seed, count)
    moved, mean = move_vector(start, [], wrong), np.mean(wrong, axis=0)
    assert abs(float(np.linalg.norm(moved)) - 1) < 1e-4
    assert float(start @ moved) >= MIN_COSINE - 1e-4
    assert float(moved @ mean) <= float(start @ mean) + 1e-4
    assert float(start @ move_vector(start, wrong[::-1], wrong)) >= MIN_COSINE - 1e-4


def test_a_tool_falls_behind_for_what_it_is_wrong_for() -> None:
    tools = {"wrong": vector(1, 0, 0.2), "other": vector(1, 0.3)}
    request = vector(1, 0.145, 0.1)
    assert float(tools["wrong"] @ request) > float(tools["other"] @ request)
    (step,) = compute_steps(tools, {}, {"wrong": {"a": request}}).values()
    assert step.vector is not None
    assert float(step.vector @ request) < float(tools["other"] @ request)


def test_a_step_away_that_lowers_the_requests_that_the_tool_served_is_refused() -> None:
    tools = {"right": vector(1, 0.2), "other": vector(1, 0.1)}
    served = {letter: vector(1, 0.17 + number / 1000) for number, letter in enumerate("abcd")}
    wrong = {str(number): vector(1, 1.7 + number / 100) for number in range(20)}
    assert compute_steps(tools, {"right": served})["right"].refusal == ""
    assert compute_steps(tools, {"right": served}, {"right": wrong})["right"].refusal == OWN_WORSE


def test_a_tool_moves_toward_what_it_served() -> None:
    tools = {"right": vector(1, 0, 0.2), "other": vector(1, 0.3)}
    request = vector(1, 0.155, 0.1)
    assert float(tools["other"] @ request) > float(tools["right"] @ request)
    (step,) = compute_steps(tools, {"right": {"a": request, "b": vector(1, 0.155, 0.11)}}).values()
    assert step.vector is not None
    assert float(step.vector @ request) > float(tools["other"] @ request)


def test_a_step_that_lowers_the_requests_left_out_of_it_is_refused() -> None:
    tools = {"tool": vector(1), "other": vector(1, -0.02)}
    # Three of four lead to one side; the fourth, which tests the step, is on the other.
    requests = {"a": vector(1, 1), "b": vector(1, 1), "c": vector(1, 1), "d": vector(1, -0.009)}
    assert compute_steps(tools, {"tool": requests})["tool"].refusal == OWN_WORSE


def test_a_step_over_the_requests_of_a_neighbour_is_refused() -> None:
    tools = {"greedy": vector(1, 0.4), "modest": vector(1)}
    past = {f"{n:02}": vector(1, -0.18 if n % 2 else 0.18) for n in range(12)}
    served = {"x": vector(1), "y": vector(1, -0.1), "z": vector(1, 0.01)}
    steps = compute_steps(tools, {"greedy": served, "modest": past})
    assert steps["greedy"].refusal == OTHERS_WORSE
    assert steps["greedy"].vector is None


def test_tools_that_served_the_same_request_do_not_stand_in_each_others_way() -> None:
    tools = {"first": vector(1, 0.5), "second": vector(1, 0.1), "third": vector(0, 0, 1)}
    shared = {str(n): vector(1, 0.3, n / 100) for n in range(3)}
    steps = compute_steps(tools, {"first": shared, "second": shared})
    assert [step.refusal for step in steps.values()] == ["", ""]


def test_one_tool_marked_for_everything_does_not_get_over_all_requests() -> None:
    rng = np.random.default_rng(20)
    tools = {f"tool{n}": vector(*rng.normal(size=DIMENSIONS)) for n in range(8)}
    past = {
        name: {f"{name} {n}": vector(*(tools[name] + 0.05 * rng.normal(size=DIMENSIONS))) for n in range(4)}
        for name in list(tools)[1:]
    }
    everything = {digest: each for own in past.values() for digest, each in own.items()}
    attacked = compute_steps(tools, {**past, "tool0": {f"attack {d}": v for d, v in everything.items()}})
    moved = {n: s.vector if (s := attacked.get(n)) and s.vector is not None else v for n, v in tools.items()}
    for name, own in past.items():
        for request in own.values():
            assert max(moved, key=lambda n: float(moved[n] @ request)) == name


def test_requests_of_unknown_tools_are_ignored() -> None:
    assert compute_steps({"a": vector(1)}, {"gone": {"x": vector(1)}}) == {}


@given(SEEDS)
@settings(max_examples=scale_examples(20), deadline=None)
def test_a_step_is_refused_exactly_where_it_lowers_ranks_on_the_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tools = {f"tool{n}": vector(*rng.normal(size=DIMENSIONS)) for n in range(12)}
    served = {
        tool: {
            f"shared {n}" if rng.random() < 0.2 else f"{tool} {n}": vector(*rng.normal(size=DIMENSIONS))
            for n in range(rng.integers(1, 9))
        }
        for tool in list(tools)[:8]
    }
    steps = compute_steps(tools, served)
    moved = tools | {
        tool: move_vector(tools[tool], [v for place, (_, v) in enumerate(sorted(own.items())) if place % 4 != 3])
        for tool, own in served.items()
    }

    def rank(tool: str, digest: str, vectors: dict[str, Vector]) -> int:
        """Among the tools that did not serve this request."""
        request = served[tool][digest]
        wrong = [each for each in tools if digest not in served.get(each, {})]
        return 1 + sum(float(vectors[each] @ request) > float(vectors[tool] @ request) + 1e-6 for each in wrong)

    for tool, step in steps.items():
        without = moved | {tool: tools[tool]}
        gains = {
            (owner, digest): 1 / rank(owner, digest, moved) - 1 / rank(owner, digest, without)
            for owner, own in served.items()
            for digest in own
        }
        own = sum(gains[tool, digest] for digest in sorted(served[tool])[3::4])
        others = sum(gain for (owner, _), gain in gains.items() if owner != tool)
        expected = OWN_WORSE if own < -1e-6 else OTHERS_WORSE if own + others < -1e-6 else ""
        assert step.refusal == expected
