"""How far the vector of a tool moves toward the requests that it served and away from requests that it is wrong for,
and the guard that refuses steps.

The idea comes from OATS (arXiv 2603.13426): a tool's text says what it does, requests say how people call that. A step
is computed from the vector of the tool's own text, so steps never add up over time. It is bounded: whatever the
requests are, the moved vector has a cosine of `MIN_COSINE` or more with the original.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolscript.domain.search import Vector

MIN_COSINE = 0.95
# The weight of the requests' mean beside the text's own vector: this for very many requests, half of it for two.
MAX_WEIGHT, HALF_WEIGHT_AT = 0.3, 2
# That of requests that the tool is wrong for: half as much, because what a tool does not do says less about it.
MAX_WRONG_WEIGHT = 0.15
# One of so many requests is left out of the step and tests it.
TEST_EVERY = 4
# Requests that are compared with all tools at a time, to save memory.
ROWS = 256
# Scores and sums that differ by less are equal.
NEAR = 1e-6

OWN_WORSE = "the requests left out to test the step would rank lower"
OTHERS_WORSE = "requests that other tools served would rank lower"


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """The moved vector of a tool, or why it stays."""

    vector: Vector | None
    cosine: float = 1.0
    """Between the original and the moved vector."""
    refusal: str = ""


def move_vector(original: Vector, requests: Sequence[Vector], wrong: Sequence[Vector] = ()) -> Vector:
    """The unit vector a bounded step from the original, toward the mean of the requests and away from the mean of the
    wrong requests. Fewer requests make a smaller step; without requests there is no step."""
    start = _scale(original)
    if not len(requests) and not len(wrong):
        return start
    weight, moved = _weigh(MAX_WEIGHT, requests), start
    if len(requests):
        moved = (1 - weight) * start + weight * _scale(np.mean(requests, axis=0))
    if len(wrong):
        moved = moved - _weigh(MAX_WRONG_WEIGHT, wrong) * _scale(np.mean(wrong, axis=0))
    moved = _scale(moved)
    cosine = float(start @ moved)
    if cosine >= MIN_COSINE:
        return moved
    aside = _scale(moved - cosine * start)  # at a right angle to the start
    return np.asarray(MIN_COSINE * start + np.sqrt(1 - MIN_COSINE**2) * aside, dtype=np.float32)


def _weigh(max_weight: float, requests: Sequence[Vector]) -> float:
    return max_weight * len(requests) / (len(requests) + HALF_WEIGHT_AT)


def compute_steps(
    originals: Mapping[str, Vector],
    requests: Mapping[str, Mapping[str, Vector]],
    wrong: Mapping[str, Mapping[str, Vector]] | None = None,
) -> dict[str, StepResult]:
    """The steps of the tools that served these requests (tool to digest to vector) or are `wrong` for them.

    Each step is judged beside the steps of all other tools, by the requests that it was not computed from: requests of
    the tool that were left out of the step, and requests that other tools served. Where it makes their right tools rank
    lower on the whole (by the sum of reciprocal ranks), it is refused.
    """
    avoided = wrong or {}
    tools = [tool for tool in sorted({*requests, *avoided}) if tool in originals]
    served = {tool: dict(sorted(requests.get(tool, {}).items())) for tool in tools}
    served = {tool: vectors for tool, vectors in served.items() if vectors or avoided.get(tool)}
    return _StepJudge(originals, served, avoided).judge() if served else {}


class _StepJudge:
    """All tools with their steps, and what each step does to the ranks of the right tools for past requests."""

    def __init__(
        self,
        originals: Mapping[str, Vector],
        served: Mapping[str, Mapping[str, Vector]],
        wrong: Mapping[str, Mapping[str, Vector]],
    ) -> None:
        self._tools = list(served)
        rows = {tool: row for row, tool in enumerate(originals)}
        self._columns = np.array([rows[tool] for tool in served])
        self._vectors = np.stack([_scale(vector) for vector in originals.values()])
        self._originals = self._vectors[self._columns]
        vectors = [_scale(vector) for requests_of_tool in served.values() for vector in requests_of_tool.values()]
        self._requests = np.stack(vectors) if vectors else np.zeros((0, self._vectors.shape[1]), dtype=np.float32)
        sizes = [len(requests_of_tool) for requests_of_tool in served.values()]
        self._is_test = np.concatenate([np.arange(size) % TEST_EVERY == TEST_EVERY - 1 for size in sizes])
        self._owners = np.repeat(np.arange(len(sizes)), sizes)
        self._same = _find_same([digest for requests_of_tool in served.values() for digest in requests_of_tool])
        ends = np.cumsum(sizes)
        for number, (tool, column, end) in enumerate(zip(served, self._columns, ends, strict=True)):
            of_tool = slice(end - sizes[number], end)
            kept = self._requests[of_tool][~self._is_test[of_tool]]
            away = [wrong[tool][digest] for digest in sorted(wrong.get(tool, ()))]
            self._vectors[column] = move_vector(self._originals[number], kept, away)
        # What each step adds to the reciprocal ranks of the requests that test it, and of those of other tools.
        self._test_gains, self._other_gains = np.zeros(len(sizes)), np.zeros(len(sizes))

    def judge(self) -> dict[str, StepResult]:
        for start in range(0, len(self._requests), ROWS):
            self._add_gains(np.arange(start, min(start + ROWS, len(self._requests))))
        return {tool: self._judge_step(number) for number, tool in enumerate(self._tools)}

    def _judge_step(self, number: int) -> StepResult:
        moved, test = self._vectors[self._columns[number]], self._test_gains[number]
        if test < -NEAR:
            return StepResult(None, refusal=OWN_WORSE)
        if test + self._other_gains[number] < -NEAR:
            return StepResult(None, refusal=OTHERS_WORSE)
        return StepResult(moved, float(self._originals[number] @ moved))

    def _add_gains(self, rows: Any) -> None:
        """Compares the ranks of the right tools for these requests with the ranks without each single step. All tools
        that served a request are right for it: none of them is in the way of another."""
        places, owners = np.arange(len(rows)), self._owners[rows]
        with_steps = self._requests[rows] @ self._vectors.T
        without_step = self._requests[rows] @ self._originals.T
        scores, scores_without = with_steps[places, self._columns[owners]], without_step[places, owners]
        for place, row in enumerate(rows):
            right = self._owners[self._same[row]]
            with_steps[place, self._columns[right]] = without_step[place, right] = -np.inf
        bounds = scores[:, None] + NEAR
        ranks = 1 + (with_steps > bounds).sum(axis=1)
        ranks_without = 1 + (with_steps > scores_without[:, None] + NEAR).sum(axis=1)
        tests = self._is_test[rows]
        np.add.at(self._test_gains, owners[tests], (1 / ranks - 1 / ranks_without)[tests])
        changes = (without_step > bounds).astype(int) - (with_steps[:, self._columns] > bounds)
        self._other_gains += (1 / ranks[:, None] - 1 / (ranks[:, None] + changes)).sum(axis=0)


def _find_same(digests: Sequence[str]) -> list[list[int]]:
    """For each request the places of the same one. Tools that served the same request are all right for it, so their
    order among each other does not matter."""
    places: dict[str, list[int]] = {}
    for place, digest in enumerate(digests):
        places.setdefault(digest, []).append(place)
    return [places[digest] for digest in digests]


def _scale(vector: Any) -> Vector:
    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length if length else vector, dtype=np.float32)
